//! Times the memory transport between two threads: latency of a message, bandwidth of copies and sums, and allreduces.
//!
//! `target/release/memory_bench`; medians. Latency is half a round trip, spinning and sleeping.

use std::sync::Arc;
use std::time::Instant;

use lockstep_exec::exchange::{Buffers, RunningExchange};
use lockstep_exec::transport::memory::{self, SPIN};
use lockstep_exec::transport::{Combine, Region, RegionMut, Tag, Transport, TransportError, control};
use lockstep_topology::collective::{Algorithm, Collective, Group, Schedule};
use lockstep_topology::{Bytes, Rank};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("| message | spin | half a round trip us | GB/s |\n|---|---|---|---|");
    for (size, combine) in
        [(4, Combine::Copy), (4 << 10, Combine::Copy), (1 << 20, Combine::Copy), (1 << 20, Combine::Sum)]
    {
        for spin in [0, SPIN] {
            let states = vec![(vec![1f32; size / 4], vec![0f32; size / 4]); 2];
            let repetitions = if size > 100_000 { 500 } else { 5_000 };
            let times =
                memory::run(states, spin, |end, (data, into)| ping_pong(end, data, into, combine, repetitions))?;
            let half = median(times.into_iter().next().unwrap_or_default()) / 2.0;
            println!(
                "| {} {combine:?} | {spin} | {:.2} | {:.2} |",
                Bytes(size as u64),
                half * 1e6,
                size as f64 / half * 1e-9
            );
        }
    }
    println!("\n| ranks | size | algorithm | spin | ms | algbw GB/s |\n|---|---|---|---|---|---|");
    for (ranks, spin) in [(2, 0), (2, SPIN), (4, 0)] {
        for size in [4 << 10, 64 << 10, 1 << 20, 4 << 20, 100 << 20].map(Bytes) {
            for name in ["ring", "halving-doubling", "parameter-server:1"] {
                let algorithm: Algorithm = name.parse()?;
                let schedule = Schedule::new(&Collective::AllReduce, &algorithm, &Group::flat(ranks), size.0 / 4, 0)?;
                let schedule = Arc::new(schedule);
                let states = vec![vec![0f32; size.0 as usize / 4]; ranks as usize];
                let repetitions = (400_000_000 / size.0).clamp(15, 500) as usize;
                let times = memory::run(states, spin, |end, buffer| allreduce(end, &schedule, buffer, repetitions))?;
                let slowest = (0..repetitions).map(|at| times.iter().map(|rank| rank[at]).fold(0.0, f64::max));
                let time = median(slowest.collect());
                println!(
                    "| {ranks} | {size} | {name} | {spin} | {:.4} | {:.2} |",
                    time * 1e3,
                    size.0 as f64 / time * 1e-9
                );
            }
        }
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn ping_pong(
    end: &mut dyn Transport,
    data: &mut [f32],
    into: &mut [f32],
    combine: Combine,
    repetitions: usize,
) -> Result<Vec<f64>, TransportError> {
    let peer = Rank(1 - end.rank().0);
    // SAFETY: the state outlives the transport and is not accessed here.
    let (data, into) =
        unsafe { (Region::new(data.as_ptr(), data.len()), RegionMut::new(into.as_mut_ptr(), into.len())) };
    let mut times = Vec::with_capacity(repetitions);
    for _ in 0..repetitions {
        let began = Instant::now();
        for turn in 0..2 {
            if end.rank().0 == turn {
                let id = end.post_send(peer, Tag::exchange(0, 0), data)?;
                while !end.send_done(id)? {
                    end.wait(None)?;
                }
            } else {
                let id = end.post_recv(peer, Tag::exchange(0, 0), into, combine, RegionMut::empty())?;
                while !end.recv_done(id)? {
                    end.wait(None)?;
                    end.poll()?;
                }
            }
        }
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

fn allreduce(
    end: &mut dyn Transport,
    schedule: &Arc<Schedule>,
    buffer: &mut [f32],
    repetitions: usize,
) -> Result<Vec<f64>, TransportError> {
    let ranks: Arc<[Rank]> = (0..end.ranks()).map(Rank).collect();
    // SAFETY: the state outlives the transport and is not accessed here.
    let whole = unsafe { RegionMut::new(buffer.as_mut_ptr(), buffer.len()) };
    let buffers = Buffers::in_place(whole, RegionMut::empty());
    let mut exchange = RunningExchange::new(schedule.clone(), end.rank().0, ranks, 0, buffers, schedule.window());
    let mut times = Vec::with_capacity(repetitions);
    for repetition in 0..repetitions {
        control::barrier(end)?;
        if repetition > 0 {
            exchange.restart();
        }
        let began = Instant::now();
        exchange.complete(end)?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}
