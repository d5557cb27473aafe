//! Tests that ranks of several processes on one machine use separate processors, or those that the launcher gave their
//! process.

use std::sync::{Arc, Mutex};

use lockstep_data::Dataset;
use lockstep_exec::transport::mpi::Processes;
use lockstep_exec::{OnLoad, RunOptions, run_processes};
use lockstep_models::{Job, random_model};

use super::launch::Scenario;

/// Processes that are not bound, and those that Open MPI binds to a core or a socket each.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for hosts in [&[0, 1][..], &[0, 1, 2], &[0, 0, 1, 1]] {
        for policy in ["none", "core", "socket"] {
            all.push(Scenario::new("pins", hosts, None).with(&[("OMPI_MCA_hwloc_base_binding_policy", policy)]));
        }
    }
    all
}

/// The processors that the calling thread may use, as reported by Linux.
fn allowed() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let number = |text: &str| text.trim().parse::<u32>().unwrap();
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    list.split(',').flat_map(part).collect()
}

/// Trains a step and checks the ranks' processors.
pub(crate) fn pins(processes: &mut Processes, hosts: &[u32]) {
    let ours = allowed();
    let job = Job::new(Arc::new(random_model(5, false)), hosts.len() as u32, 2);
    let (data, _) = Dataset::load("synthetic:200", &job.model).unwrap();
    let seen = Mutex::new(Vec::new());
    let note = OnLoad(|rank: u32| seen.lock().unwrap().push((rank, allowed())));
    let options = RunOptions { steps: 2, warm_up: 0, observer: &note, ..RunOptions::default() };
    run_processes(processes, hosts, &job.program().unwrap(), &data, &options).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), hosts.iter().filter(|host| **host == processes.process()).count(), "they do not move");
    // A rank has a processor of its own, or shares several where all ranks outnumber these.
    let fits = hosts.len() <= ours.len();
    for (_, place) in &seen {
        let alone = place.len() == 1;
        assert!(place.iter().all(|number| ours.contains(number)) && (alone || !fits), "{place:?} of {ours:?}");
    }
    assert_eq!(allowed(), ours, "afterwards the process is as free as before");
    // By processor: its ranks, of all processes; and the processes that may use it.
    let last = processes.gather(*ours.last().unwrap()).into_iter().max().unwrap();
    let (mut loads, mut free) = (Vec::new(), true);
    for number in 0..=last {
        let ranks = seen.iter().filter(|(_, place)| place.contains(&number)).count() as u32;
        loads.push(processes.gather(ranks).into_iter().sum::<u32>());
        let may = processes.gather(u32::from(ours.contains(&number)));
        free = free && may.iter().all(|other| *other == may[0]);
    }
    let used: Vec<u32> =
        loads.into_iter().enumerate().filter(|(at, _)| ours.contains(&(*at as u32))).map(|of| of.1).collect();
    let (most, least) = (used.iter().max().unwrap(), used.iter().min().unwrap());
    assert!(!free || most - least <= 1, "processes that may use all processors share them evenly: {used:?}");
}
