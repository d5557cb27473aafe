//! Tests the average model that the learners of a device share (Koliousis et al. 2019, §4.2): trained bits do not depend
//! on who keeps it, and a device keeps and updates it once.

use std::sync::Arc;
use std::time::Duration;

use lockstep_exec::{RunOptions, run};
use lockstep_models::memory::Memory;
use lockstep_models::{Averaging, Bucket, Buffer, Decay, Job, Op, Optimizer, Program, Task, random_model};
use lockstep_topology::Algorithm;
use proptest::prelude::*;

use crate::equivalence::buckets;
use crate::learners::{STEPS, data, optimizer, setting};
use crate::reference;

/// Learners of these numbers on devices, which are also the nodes of hierarchical algorithms.
fn on_devices(job: Job, devices: &[u32]) -> Job {
    let (most, equal) = (devices.iter().copied().max().unwrap(), devices.iter().all(|count| *count == devices[0]));
    let nodes = devices.iter().copied().chain(vec![1; job.algorithm.servers() as usize]).collect();
    Job {
        workers: devices.iter().sum(),
        learners: most,
        unequal_learners: (!equal).then(|| devices.into()),
        node_sizes: Some(nodes),
        ..job
    }
}

fn job(strategy: &str, devices: &[u32]) -> Job {
    let model = Arc::new(random_model(3, true));
    on_devices(Job { strategy: strategy.parse().unwrap(), bucket: Bucket::Whole, ..Job::new(model, 1, 3) }, devices)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Learners that share devices, and their average models, train the bits of learners with a device and an average
    /// model each, which are those of Alg. 1. So do those that resume.
    #[test]
    fn learners_that_share_a_device_train_as_if_apart(
        model in 0u64..200,
        devices in proptest::collection::vec(1u32..=3, 1..=4),
        tau in 1u32..=2,
        mu in prop_oneof![Just(None), (0.1f64..0.95).prop_map(Some)],
        bucket in buckets(),
        algorithm in prop::sample::select(vec![
            "ring", "halving-doubling", "binomial-tree", "parameter-server:1", "parameter-server:1:dedicated",
            "hierarchical:ring", "hierarchical:binomial-tree",
        ]),
        concurrent_exchanges in 1u32..=3,
        decays: bool,
        fuse: bool,
        pad: bool,
        seed: u64,
    ) {
        prop_assume!(devices.iter().any(|count| *count > 1));
        let algorithm: Algorithm = algorithm.parse().unwrap();
        let strategy = format!("sma:tau={tau}{}", setting("momentum", mu)).parse().unwrap();
        let model = Arc::new(random_model(model, true));
        let job = Job { strategy, bucket, algorithm, concurrent_exchanges, fuse, pad, ..Job::new(model, 1, 2) };
        let shared = on_devices(job, &devices);
        let apart = Job { learners: 1, unequal_learners: None, ..shared.clone() };
        let decay = if decays { Decay::Every { factor: 0.5, epochs: 0.5 } } else { Decay::Constant };
        let optimizer = Optimizer { learning_rate: 0.002, decay, weight_decay: 1e-3, ..optimizer() };
        let [shared, apart] = [&shared, &apart].map(|job| job.program().unwrap());
        prop_assert_eq!(shared.devices.as_deref(), Some(&devices[..]));
        let data = data(&shared, 1);
        let options = |steps, start| RunOptions {
            steps, start, warm_up: 0, seed, optimizer: optimizer.clone(), stall_limit: Duration::from_secs(10),
            ..RunOptions::default()
        };
        let [done, expected] = [&shared, &apart].map(|program| run(program, &data, &options(STEPS, None)).unwrap());
        prop_assert_eq!((&done.weights_sha256, &done.state_sha256), (&expected.weights_sha256, &expected.state_sha256));
        let reference = reference::train_as_claimed(&shared, &data, STEPS, seed, &optimizer, &done.claims).unwrap();
        prop_assert!(done.parameters == reference);
        let first = run(&shared, &data, &options(1, None)).unwrap().state();
        let rest = run(&shared, &data, &options(STEPS - 1, Some(&first))).unwrap();
        prop_assert_eq!(rest.state_sha256, done.state_sha256);
    }
}

/// Elements of the buffers of all ranks that learners have besides their weights and gradients.
fn besides(program: &Program) -> u64 {
    let of_role = |role: usize| {
        let each = Memory::of_role(program, role, 0).unwrap().buffers / 4;
        each * u64::from(program.roles[role].ranks.count())
    };
    (0..program.roles.len()).map(of_role).sum()
}

/// k learners on g devices keep k differences, and z and z_prev once a device: (k + 2g)·n elements, where 3k·n would be
/// a copy for each learner. Reference models are one more on each device but the first.
#[test]
fn a_device_keeps_one_average_model() {
    for devices in [&[4][..], &[2, 2], &[3, 1, 2], &[1, 1, 1]] {
        let (k, g) = (u64::from(devices.iter().sum::<u32>()), devices.len() as u64);
        let job = Job { pad: false, ..job("sma", devices) };
        let n = job.model.parameter_elements();
        let program = job.program().unwrap();
        assert_eq!(besides(&program), (k + 2 * g) * n, "{devices:?}");
        // What is delivered goes to its place; only the sum needs scratch.
        let others = program.roles.last().unwrap();
        let (_, sum) = others.exchanges().next().unwrap();
        let schedule = program.schedule(sum, others.ranks.first()).unwrap();
        let scratch = 4 * schedule.scratch_elements(Program::window(sum, &schedule));
        assert_eq!(Memory::of_role(&program, program.roles.len() - 1, 0).unwrap().communication, scratch);
    }
    let job = Job { pad: false, ..job("sma:reference-models", &[3, 3]) };
    assert_eq!(besides(&job.program().unwrap()), (6 + 2 * 2 + 1) * job.model.parameter_elements());
}

/// The average model of a device is updated by one task in each bucket, of its first learner.
#[test]
fn a_device_updates_its_average_model_once() {
    let updates = |tasks: &[Task], buffer: Buffer| -> usize {
        let writes =
            |task: &&Task| matches!(&task.op, Op::Elementwise(of) if of.formula.writes(buffer) && !of.range.is_empty());
        tasks.iter().filter(writes).count()
    };
    for (strategy, devices) in [("sma", &[4][..]), ("ea-sgd:tau=2", &[3, 1, 2]), ("sma:reference-models", &[3, 3])] {
        let program = Job { bucket: Bucket::Layer, ..job(strategy, devices) }.program().unwrap();
        let buckets = updates(&program.roles[0].tasks, Averaging::AVERAGE);
        assert!(buckets > 1);
        let mut first = 0;
        for each in devices {
            for rank in first..first + each {
                let tasks = &program.roles[program.role_of(rank)].tasks;
                let expected = if rank == first { buckets } else { 0 };
                assert_eq!(updates(tasks, Averaging::AVERAGE), expected, "{strategy} on {devices:?}, rank {rank}");
                let keeps = program.reference_of(rank).is_some() && rank == first;
                assert_eq!(updates(tasks, Averaging::REFERENCE), if keeps { buckets } else { 0 });
            }
            first += each;
        }
    }
}
