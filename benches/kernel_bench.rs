//! Times the CPU kernels of a training step alone: µs per image of every chain and pass, and images per second.
//!
//! `cargo run --release -p lockstep-benches --bin kernel_bench -- MODEL BATCH THREADS SECONDS [quiet]`, where trailing
//! arguments may be omitted, prints a line per chain and the rate of whole steps over synthetic images; `quiet` omits
//! the lines. Times are medians of the steps.

use std::sync::Arc;
use std::time::Instant;

use lockstep_data::Dataset;
use lockstep_exec::Arenas;
use lockstep_exec::device::cpu::Threads;
use lockstep_exec::replica::Replica;
use lockstep_models::Job;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).cloned().unwrap_or(default.to_owned());
    let (batch, seconds): (u32, f64) = (argument(1, "64").parse()?, argument(3, "2").parse()?);
    let threads = Threads::new(argument(2, "1").parse()?)?;
    let model = Arc::new(lockstep_readers::load_model(&argument(0, "lenet"))?);
    let (data, _) = Dataset::load(&format!("synthetic:{batch}"), &model)?;
    let program = Job::new(model, 1, batch).program()?;
    let mut replica = Replica::of_role(&program, &program.roles[0], &Arenas::default(), 1, &threads);
    let indices: Vec<u32> = (0..batch).collect();
    let tasks = &program.roles[0].tasks;
    let mut times = vec![Vec::new(); tasks.len() + 1];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds || times[0].len() < 3 {
        let step = Instant::now();
        for (task, times) in tasks.iter().zip(&mut times) {
            let began = Instant::now();
            replica.alone(&task.op, &data, &indices)?;
            times.push(began.elapsed().as_secs_f64());
        }
        times[tasks.len()].push(step.elapsed().as_secs_f64());
    }
    let mut medians = times.into_iter().map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    for (task, seconds) in tasks.iter().zip(&mut medians) {
        if arguments.get(4).is_none() {
            println!("{:8.1} {}", seconds * 1e6 / f64::from(batch), task.name);
        }
    }
    let step = medians.next().unwrap_or_default();
    println!("batch {batch}, {} thread(s): {:.2} images/s", threads.count(), f64::from(batch) / step);
    Ok(())
}
