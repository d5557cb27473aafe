//! Compares shuffles of samples that ranks hold in memory with the MPI library's alltoallv of as many bytes, in one
//! job; reports the memory of a process with its part, and the additional memory of a shuffle.
//!
//! `mpirun --oversubscribe -n 4 target/release/shuffle_bench FILE.pack [PAIRS [CHUNK]]`: a packed set that all ranks
//! hold together, how often the two alternate, and the bytes that a rank sends at a time. Each turn is the median of
//! three, each the time of the slowest rank from a common start.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_data::Dataset;
use lockstep_data::Packed;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::{RunOptions, run_processes};
use lockstep_models::{Job, Partition, Periodic, Sampling, median};
use lockstep_readers::parse_model;
use mpi::datatype::{Partition as Blocks, PartitionMut as BlocksMut};
use mpi::traits::CommunicatorCollectives;

/// Small, so that training takes no time compared with the shuffle.
const BATCH: u32 = 2;

/// Shuffles or exchanges of a turn.
const TURN: u32 = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let file = words.next().ok_or("name a packed set")?;
    let pairs: u32 = words.next().map_or(Ok(5), |word| word.parse())?;
    let chunk: u64 = words.next().map_or(Ok(Partition::CHUNK), |word| word.parse())?;
    let packed = Packed::open(Path::new(&file))?;
    let (bytes, classes) =
        (packed.entries().iter().map(|entry| u64::from(entry.length)).sum::<u64>(), packed.header().classes);
    let mut processes = Processes::join()?;
    let ranks = processes.count();
    // The smallest file has at least 64 pixels.
    let text = format!(
        "name = \"probe\"\ninput = [3, 32, 32]\nlayer = [\n{{ name = \"scores\", kind = \"dense\", out_features = {classes} }},\n\
         {{ name = \"loss\", kind = \"softmax_cross_entropy\" }},\n]\n"
    );
    let model = Arc::new(parse_model("probe.toml", &text)?);
    // Nothing is held out.
    let (train, _) = Dataset::load(&format!("{file}+{file}"), &model)?;
    let hosts: Vec<u32> = (0..ranks).collect();
    let run = |processes: &mut Processes,
               shuffle_every: Option<u32>|
     -> Result<(f64, Vec<u32>, String), Box<dyn std::error::Error>> {
        let sampling = Sampling::Partitioned { groups: 1, shuffle_every };
        let job = Job { sampling, node_sizes: Some(vec![1; ranks as usize]), ..Job::new(model.clone(), ranks, BATCH) };
        let options =
            RunOptions { steps: TURN + 1, warm_up: 0, stall_limit: Duration::from_secs(600), ..RunOptions::default() };
        let mut program = job.program()?;
        program.partition.iter_mut().for_each(|partition| partition.chunk = chunk);
        forget_peak()?;
        let run = run_processes(processes, &hosts, &program, &train, &options)?;
        let (times, weights) = run.map_or_else(Default::default, |run| {
            (run.timeline.periodic_times_s(Periodic::Shuffle), run.weights_sha256)
        });
        let time = if times.is_empty() { 0.0 } else { median(times) };
        Ok((time, processes.gather(peak_kib()?), weights))
    };
    let (_, held, _) = run(&mut processes, None)?;
    let gb = bytes as f64 * 1e-9;
    let speaks = processes.process() == 0;
    if speaks {
        println!(
            "{gb:.3} GB on {ranks} ranks, {pairs} turns: load, seconds of a shuffle, of alltoallv with and without what stays, quotient"
        );
    }
    let (mut times, mut shuffled) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        let [whole, others] = [true, false].map(|itself| alltoallv(&processes, bytes, TURN, itself));
        let (seconds, peaks, weights) = run(&mut processes, Some(1))?;
        if speaks {
            let load = std::fs::read_to_string("/proc/loadavg")?;
            let load = load.split(' ').next().unwrap_or_default();
            println!("{load} {seconds:.3} {whole:.3} {others:.3} {:.3}, weights {}", whole / seconds, &weights[..16]);
        }
        times.push([seconds, whole, others]);
        shuffled = peaks;
    }
    if !speaks {
        return Ok(());
    }
    report(&times, &held, &shuffled);
    Ok(())
}

/// Prints the medians and the fastest of all turns (seconds of a shuffle, and of alltoallv with and without what stays),
/// and the peak memory of each process, in KiB, before and with a shuffle.
fn report(times: &[[f64; 3]], held: &[u32], shuffled: &[u32]) {
    let of = |what: fn(&[f64; 3]) -> f64| times.iter().map(what).collect::<Vec<f64>>();
    let [seconds, whole, others] = [of(|times| times[0]), of(|times| times[1]), of(|times| times[2])];
    let fastest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    println!("medians: shuffle {:.3} s, alltoallv {:.3} s", median(seconds.clone()), median(whole.clone()));
    println!(
        "fastest: shuffle {:.3} s, alltoallv {:.3} s, without what stays {:.3} s",
        fastest(&seconds),
        fastest(&whole),
        fastest(&others)
    );
    println!(
        "alltoallv over shuffle: median ratio {:.3}, of the fastest {:.3}, without what stays {:.3}",
        median(of(|times| times[1] / times[0])),
        fastest(&whole) / fastest(&seconds),
        fastest(&others) / fastest(&seconds)
    );
    let mib = |kib: &u32| f64::from(*kib) / 1024.0;
    let most = |all: &[u32]| all.iter().map(mib).fold(0.0, f64::max);
    let extra = held.iter().zip(shuffled).map(|(held, shuffled)| mib(shuffled) - mib(held)).fold(f64::MIN, f64::max);
    println!(
        "peak memory of a process: {:.0} MiB held, {:.0} MiB shuffled, {extra:.0} MiB more at most",
        most(held),
        most(shuffled)
    );
}

/// Seconds of the library's exchange of `bytes` bytes in all: each rank sends an equal share to every rank, or to every
/// other rank.
fn alltoallv(processes: &Processes, bytes: u64, repetitions: u32, itself: bool) -> f64 {
    let world = mpi::topology::SimpleCommunicator::world();
    let (own, ranks) = (processes.process() as usize, processes.count() as usize);
    let each = (bytes / 4 / (ranks * ranks) as u64) as i32;
    let counts: Vec<i32> = (0..ranks).map(|rank| if rank == own && !itself { 0 } else { each }).collect();
    let places: Vec<i32> = (0..ranks).map(|rank| rank as i32 * each).collect();
    let sent = vec![1f32; ranks * each as usize];
    let mut taken = vec![2f32; sent.len()];
    let times = (0..=repetitions).map(|_| {
        world.barrier();
        let begun = Instant::now();
        let from = Blocks::new(&sent[..], &counts[..], &places[..]);
        let mut to = BlocksMut::new(&mut taken[..], &counts[..], &places[..]);
        world.all_to_all_varcount_into(&from, &mut to);
        let nanoseconds = begun.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32;
        f64::from(processes.gather(nanoseconds).into_iter().max().unwrap_or(0)) * 1e-9
    });
    median(times.skip(1).collect())
}

/// Resets the peak of this process's memory.
fn forget_peak() -> std::io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

/// Peak resident memory of this process, including shared memory.
fn peak_kib() -> Result<u32, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
