//! Compares our allreduces over MPI with the library's own, in the same job: medians of alternating repetitions and
//! their ratio.
//!
//! `mpirun --oversubscribe -n 2 target/release/mpi_bench [--chunk ELEMENTS] [--window LANES] [SIZE …]`, e.g. with
//! sizes `4KiB 100MiB`. A time is that of the slowest rank, from a common start; ratios below 1 are in our favour.

use std::sync::Arc;
use std::time::Instant;

use lockstep_exec::exchange::{Buffers, RunningExchange, scratch_elements};
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::transport::{RegionMut, Transport, TransportError, control};
use lockstep_topology::collective::{Algorithm, Collective, Group, Schedule};
use lockstep_topology::{Bytes, Rank};

/// One row of the table.
struct Subject {
    name: String,
    schedule: Option<(Arc<Schedule>, u32)>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut sizes, mut chunk, mut window) = (Vec::new(), None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--chunk" => chunk = Some(arguments.next().ok_or("--chunk needs elements")?.parse::<u64>()?),
            "--window" => window = Some(arguments.next().ok_or("--window needs lanes")?.parse::<u32>()?),
            size => sizes.push(size.parse::<Bytes>()?),
        }
    }
    if sizes.is_empty() {
        sizes = [4 << 10, 64 << 10, 1 << 20, 10 << 20, 100 << 20].map(Bytes).into();
    }
    let mut processes = Processes::join()?;
    let ranks = processes.count();
    let hosts: Vec<u32> = (0..ranks).collect();
    if processes.process() == 0 {
        println!("| ranks | size | algorithm | median ms | best ms | algbw GB/s | median / library's |");
        println!("|---|---|---|---|---|---|---|");
    }
    for size in sizes {
        let elements = size.0 / 4;
        let mut subjects = vec![Subject { name: "library:mpi".to_owned(), schedule: None }];
        for name in ["ring", "halving-doubling", "direct"] {
            let algorithm: Algorithm = name.parse()?;
            let chunk = chunk.unwrap_or(0);
            let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(ranks), elements, chunk)?;
            let window = window.unwrap_or(schedule.window());
            subjects.push(Subject { name: name.to_owned(), schedule: Some((Arc::new(schedule), window)) });
        }
        let repetitions = (400_000_000 / size.0.max(1)).clamp(15, 400) as usize;
        let buffer = vec![0f32; elements as usize];
        let state = (buffer, subjects.iter().map(scratch).collect::<Vec<_>>());
        let mine = processes.run(&hosts, 0, vec![state], |end, (buffer, scratch)| {
            measure(end, &subjects, buffer, scratch, repetitions)
        })?;
        let mut library = 0.0;
        for (subject, samples) in subjects.iter().zip(&mine[0]) {
            let slowest = |sample: &u32| processes.gather(*sample).into_iter().max().unwrap_or(0);
            let mut times: Vec<f64> = samples.iter().map(|sample| f64::from(slowest(sample)) * 1e-8).collect();
            times.sort_by(f64::total_cmp);
            if subject.schedule.is_none() {
                library = times[times.len() / 2];
            }
            if processes.process() == 0 {
                report(ranks, size, subject, &times, library);
            }
        }
    }
    Ok(())
}

fn scratch(subject: &Subject) -> Vec<f32> {
    vec![0.0; subject.schedule.as_ref().map_or(0, |(schedule, window)| scratch_elements(schedule, *window)) as usize]
}

/// Times of this rank in units of 10 ns, for each subject; the subjects take turns.
fn measure(
    end: &mut dyn Transport,
    subjects: &[Subject],
    buffer: &mut [f32],
    scratch: &mut [Vec<f32>],
    repetitions: usize,
) -> Result<Vec<Vec<u32>>, TransportError> {
    let ranks: Arc<[Rank]> = (0..end.ranks()).map(Rank).collect();
    let member = end.rank().0;
    let start = buffer.as_mut_ptr();
    // SAFETY: buffer and scratch outlive the transport; they are accessed only between exchanges.
    let whole = unsafe { RegionMut::new(start, buffer.len()) };
    let mut exchanges: Vec<Option<RunningExchange>> = Vec::new();
    for (number, (subject, scratch)) in subjects.iter().zip(scratch).enumerate() {
        // SAFETY: as above.
        let buffers = Buffers::in_place(whole, unsafe { RegionMut::new(scratch.as_mut_ptr(), scratch.len()) });
        exchanges.push(subject.schedule.clone().map(|(schedule, window)| {
            RunningExchange::new(schedule, member, ranks.clone(), number as u32, buffers, window)
        }));
    }
    let mut samples = vec![Vec::new(); subjects.len()];
    for repetition in 0..repetitions + 2 {
        for (exchange, samples) in exchanges.iter_mut().zip(&mut samples) {
            let checked = repetition == 0;
            if checked {
                buffer.iter_mut().enumerate().for_each(|(i, value)| *value = (i % 1000) as f32 + member as f32);
            } else if repetition == 1 {
                buffer.fill(0.0);
            }
            control::barrier(end)?;
            let began = Instant::now();
            match exchange {
                Some(exchange) => {
                    if repetition > 0 {
                        exchange.restart();
                    }
                    exchange.complete(end)?;
                }
                None => end.library_allreduce(&ranks, whole)?,
            }
            let took = began.elapsed();
            if repetition > 1 {
                samples.push((took.as_nanos() / 10) as u32);
            }
            if checked {
                let (n, ids) = (ranks.len() as f32, (0..ranks.len()).sum::<usize>() as f32);
                let right = buffer.iter().enumerate().all(|(i, value)| *value == (i % 1000) as f32 * n + ids);
                assert!(right, "a wrong sum");
            }
        }
    }
    Ok(samples)
}

fn report(ranks: u32, size: Bytes, subject: &Subject, times: &[f64], library: f64) {
    let median = times[times.len() / 2];
    println!(
        "| {ranks} | {size} | {} | {:.4} | {:.4} | {:.3} | {:.2} |",
        subject.name,
        median * 1e3,
        times[0] * 1e3,
        size.0 as f64 / median * 1e-9,
        median / library
    );
}
