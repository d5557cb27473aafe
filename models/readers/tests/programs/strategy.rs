//! Tests the names of strategies, and the programs of learners.

use std::sync::Arc;

use lockstep_topology::{Algorithm, Collective};

use super::*;
use lockstep_models::{After, Bucket, Buffer, Elementwise, Members, Op, Program, Stream, TaskId};

fn program(strategy: &str, workers: u32, change: impl Fn(&mut Job)) -> Program {
    let model = Arc::new(load_model("lenet").expect("in the zoo"));
    let mut job = Job { strategy: strategy.parse().expect("a strategy"), ..Job::new(model, workers, 16) };
    change(&mut job);
    job.program().unwrap_or_else(|error| panic!("{strategy}: {error}"))
}

fn names(program: &Program) -> Vec<&str> {
    program.roles[0].tasks.iter().map(|task| task.name.as_str()).collect()
}

fn find(program: &Program, name: &str) -> TaskId {
    names(program).iter().position(|other| *other == name).unwrap_or_else(|| panic!("no task {name}"))
}

#[test]
fn names_round_trip() {
    for text in [
        "ssgd",
        "sma",
        "sma:momentum=0.9",
        "sma:momentum=0.5:tau=2:alpha=0.25",
        "ea-sgd",
        "ea-sgd:tau=4",
        "sma:tau=2:first-come",
        "sma:reference-models:tau=2:first-come",
        "ea-sgd:tau=2:round-robin",
        "local-sgd",
        "local-sgd:tau=4",
    ] {
        assert_eq!(text.parse::<Strategy>().unwrap().to_string(), text);
    }
    assert_eq!("sma:tau=1:alpha=0.5".parse::<Strategy>().unwrap().to_string(), "sma:alpha=0.5");
    for (text, message) in [
        ("sgd", "there are: ssgd, zero-1, zero-2, zero-3, sma, ea-sgd, local-sgd, hybrid:a"),
        ("ssgd:tau=2", "ssgd has no settings"),
        ("sma:mu=0.9", "write momentum=…, tau=…, alpha=…, reference-models, round-robin or first-come"),
        ("sma:tau=0", "at least 1"),
        ("sma:tau=2:tau=3", "is given twice"),
        ("sma:momentum=1", "below 1"),
        ("sma:alpha=0", "above 0"),
        ("sma:alpha=nan", "above 0"),
        ("ea-sgd:momentum=0.9", "is not a setting"),
        ("ea-sgd:reference-models", "write tau=…, alpha=…, round-robin or first-come"),
        ("sma:reference-models=2", "is not a setting"),
        ("sma:first-come:round-robin", "exclude each other"),
        ("local-sgd:alpha=0.5", "is not a setting"),
        ("local-sgd:first-come", "takes its own batches"),
    ] {
        let error = text.parse::<Strategy>().unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
}

/// Koliousis et al. 2019, §4.2 and Fig. 8: a learning task needs only its own local synchronisation, which needs the
/// global one of the previous iteration; so the global one can overlap the next learning task.
#[test]
fn only_the_local_synchronisation_waits_for_the_average_model() {
    let program = program("sma", 4, |job| job.bucket = Bucket::Whole);
    assert_eq!(names(&program)[11..], ["correct conv1..dense2", "allreduce conv1..dense2", "average conv1..dense2"]);
    let tasks = &program.roles[0].tasks;
    assert!(tasks[..11].iter().all(|task| task.after.is_empty() && task.stream == Stream::Compute));
    assert_eq!((tasks[11].stream, tasks[11].after.as_slice()), (Stream::Compute, &[After { task: 13, lag: 1 }][..]));
    assert_eq!(tasks[12].stream, Stream::Exchange);
    assert_eq!(tasks[12].after, [After { task: 11, lag: 0 }, After { task: 12, lag: 1 }]);
    assert_eq!(
        (tasks[13].stream, tasks[13].after.as_slice()),
        (Stream::Synchronisation, &[After { task: 12, lag: 0 }][..])
    );
    let Op::Exchange(exchange) = &tasks[12].op else { panic!("an exchange") };
    assert_eq!((exchange.buffer, exchange.range.clone()), (Averaging::DIFFERENCES, 0..1_111_946));
    assert_eq!(program.averaging.unwrap().alpha, 0.25);
    assert_eq!((program.global_batch(), program.gradient_samples()), (64, 16));
}

#[test]
fn one_learner_averages_without_an_exchange() {
    let program = program("sma", 1, |job| job.bucket = Bucket::Whole);
    let (correct, average) = (find(&program, "correct conv1..dense2"), find(&program, "average conv1..dense2"));
    assert_eq!(program.roles[0].exchanges().count(), 0);
    assert_eq!(program.roles[0].tasks[average].after, [After { task: correct, lag: 0 }]);
    assert_eq!(program.roles[0].tasks[correct].after, [After { task: average, lag: 1 }]);
}

/// Each repetition steps by itself; a mean follows, which the next iteration waits for. Nothing runs beside the compute
/// stream.
#[test]
fn local_sgd_exchanges_weights_after_its_steps() {
    let program = program("local-sgd:tau=3", 4, |job| job.bucket = Bucket::Whole);
    let [step, sum, mean] =
        ["descend", "allreduce", "average"].map(|verb| find(&program, &format!("{verb} conv1..dense2")));
    let tasks = &program.roles[0].tasks;
    assert_eq!((step, sum, mean, tasks.len()), (12, 13, 14, 15));
    assert!(matches!(tasks[0].op, Op::Repeat { count: 3, body: 12, claimed: false }));
    let Op::Exchange(exchange) = &tasks[sum].op else { panic!("an exchange") };
    assert_eq!((exchange.buffer, exchange.range.clone()), (Buffer::Parameters, 0..1_111_946));
    assert_eq!(tasks[sum].after, [After { task: step, lag: 0 }, After { task: sum, lag: 1 }]);
    assert_eq!(
        (tasks[mean].stream, tasks[mean].after.as_slice()),
        (Stream::Compute, &[After { task: sum, lag: 0 }][..])
    );
    assert!(program.averaging.is_none() && program.buffers.is_empty());
    assert_eq!((program.global_batch(), program.gradient_samples()), (192, 16));
}

#[test]
fn learners_repeat_and_claim() {
    let repeat = |program: &Program| match program.roles[0].tasks[0].op {
        Op::Repeat { count, body, claimed } => Some((count, body, claimed)),
        _ => None,
    };
    // Descend, load, and eleven passes less the load.
    let fixed = program("ea-sgd:tau=3", 4, |_| ());
    assert_eq!((repeat(&fixed), fixed.global_batch()), (Some((3, 12, false)), 192));
    assert_eq!(fixed.roles[0].tasks[1].name, "descend conv1..dense2");
    assert!(matches!(fixed.roles[0].tasks[1].op, Op::Elementwise(Elementwise { skips_first: true, .. })));
    assert_eq!(repeat(&program("sma:tau=3:first-come", 4, |_| ())), Some((3, 12, true)));
    assert_eq!(repeat(&program("sma:first-come", 4, |_| ())), Some((1, 11, true)));
    // Each takes three, either way, and asks for each.
    assert_eq!(repeat(&program("sma:tau=3:round-robin", 4, |_| ())), Some((3, 12, true)));
    assert_eq!(repeat(&program("sma:round-robin", 4, |_| ())), Some((1, 11, true)));
    assert_eq!(repeat(&program("sma", 4, |_| ())), None);
}

/// Koliousis et al. 2019, §4.2: a device's first learner keeps its average model, and gives it to the others in the place
/// of their differences. Only it updates the model, and only the next correction waits.
#[test]
fn the_first_learner_of_a_device_averages_for_all() {
    let program = program("sma", 6, |job| (job.bucket, job.learners) = (Bucket::Whole, 2));
    assert_eq!((program.roles.len(), program.mesh.to_string().as_str()), (2, "device=3,learner=2"));
    let verbs = [&["correct", "allreduce", "average", "deliver"][..], &["correct", "allreduce", "deliver"]];
    for ((role, verbs), ranks) in program.roles.iter().zip(verbs).zip([[0, 2, 4], [1, 3, 5]]) {
        assert_eq!(role.ranks.iter().collect::<Vec<_>>(), ranks);
        let names: Vec<String> = verbs.iter().map(|verb| format!("{verb} conv1..dense2")).collect();
        assert_eq!(
            role.tasks[11..].iter().map(|task| &task.name).collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        let deliver = 10 + verbs.len();
        assert_eq!(role.tasks[11].after, [After { task: deliver, lag: 1 }]);
        assert_eq!(role.tasks[deliver].after, [After { task: deliver - 1, lag: 0 }]);
        let exchanges: Vec<_> = role.exchanges().map(|(_, exchange)| exchange).collect();
        assert!(exchanges.iter().all(|exchange| exchange.buffer == Averaging::DIFFERENCES));
        assert_eq!(exchanges[1].collective, Collective::Broadcast { root: 0 });
        for rank in role.ranks.iter() {
            assert_eq!(program.group_of(exchanges[0], rank), Members::range(0, 6));
            assert_eq!(program.group_of(exchanges[1], rank), Members::range(rank / 2 * 2, 2));
        }
    }
    let hierarchical = self::program("sma", 6, |job| {
        (job.learners, job.algorithm) = (2, Algorithm::hierarchical(Algorithm::ring()));
    });
    let sums = |program: &Program| program.roles[0].exchanges().next().unwrap().1.collective.clone();
    let ends = [Collective::AllReduce, Collective::AllReduceToLeaders];
    assert_eq!(
        [sums(&program), sums(&hierarchical)],
        ends,
        "where an algorithm can end at the first learners, it does"
    );
}

/// Koliousis et al. 2019, §3.3 and Fig. 6: learners of a device sum among themselves, and one of each device
/// exchanges across.
#[test]
fn reference_models_are_an_intermediate_level() {
    let program = program("sma:reference-models", 6, |job| (job.bucket, job.learners) = (Bucket::Whole, 2));
    let synchronisation = ["correct", "sum-on-device", "reference", "allreduce", "average", "deliver"];
    assert_eq!(names(&program)[11..], synchronisation.map(|verb| format!("{verb} conv1..dense2")));
    assert_eq!((program.roles.len(), program.mesh.to_string().as_str()), (3, "device=3,learner=2"));
    for (role, ranks) in program.roles.iter().zip([&[0][..], &[2, 4], &[1, 3, 5]]) {
        assert_eq!(role.ranks.iter().collect::<Vec<_>>(), ranks);
        let exchanges: Vec<_> = role.exchanges().map(|(_, exchange)| exchange).collect();
        let collectives: Vec<_> = exchanges.iter().map(|exchange| exchange.collective.clone()).collect();
        let [inside, out] = [Collective::AllReduceToLeaders, Collective::Broadcast { root: 0 }];
        for rank in role.ranks.iter() {
            let of_device = Members::range(rank / 2 * 2, 2);
            assert_eq!(program.group_of(exchanges[0], rank), of_device);
            assert_eq!(program.group_of(exchanges[exchanges.len() - 1], rank), of_device);
        }
        if ranks[0] == 1 {
            assert_eq!(role.tasks.len(), 14, "others correct, sum and take what they follow");
            assert_eq!(collectives, [inside, out]);
            assert_eq!(role.tasks[11].after, [After { task: 13, lag: 1 }]);
            assert_eq!(role.tasks[13].after, [After { task: 12, lag: 0 }]);
            continue;
        }
        assert_eq!(collectives, [inside, Collective::AllReduce, out]);
        assert_eq!(program.group_of(exchanges[1], ranks[0]).iter().collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(exchanges[1].algorithm.to_string(), "ring");
        let [correct, reference, average] = [11, 13, 15].map(|task| match &role.tasks[task].op {
            Op::Elementwise(of) => of,
            other => panic!("{other:?} is not a formula"),
        });
        // The first device's reference is the average model.
        let first = ranks == [0];
        assert_eq!(reference.range.is_empty(), first);
        assert!(correct.formula.buffers().len() == 3 && average.formula.reads(Averaging::REFERENCE) != first);
        assert_eq!((role.tasks[13].stream, role.tasks[15].stream), (Stream::Synchronisation, Stream::Synchronisation));
        assert_eq!(role.tasks[11].after, [After { task: 16, lag: 1 }]);
        assert_eq!(role.tasks[13].after, [After { task: 12, lag: 0 }]);
        assert!(role.tasks[14].after.contains(&After { task: 13, lag: 0 }));
        assert_eq!(role.tasks[16].after, [After { task: 15, lag: 0 }]);
    }
    let averaging = program.averaging.unwrap();
    assert_eq!((averaging.alpha, averaging.reference_alpha.unwrap()), (0.5, 1.0 / 3.0));
    assert_eq!(program.buffers.len(), 4);
    // With one device, or one learner on each, there is one level.
    for (each, roles) in [(1, 1), (6, 2)] {
        let one = self::program("sma:reference-models", 6, |job| (job.bucket, job.learners) = (Bucket::Whole, each));
        assert_eq!((one.averaging.unwrap().reference_alpha, one.roles.len(), one.buffers.len()), (None, roles, 3));
        assert_eq!(one.averaging.unwrap().alpha, 1.0 / 6.0);
    }
}

/// Each bucket is corrected, exchanged and averaged on its own, whatever performs the exchange.
#[test]
fn buckets_and_servers() {
    let dedicated: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
    let program = program("sma", 3, |job| (job.bucket, job.algorithm) = (Bucket::Layer, dedicated.clone()));
    for layer in ["conv1", "conv2", "dense1", "dense2"] {
        let allreduce = find(&program, &format!("allreduce {layer}"));
        let correct = find(&program, &format!("correct {layer}"));
        let average = find(&program, &format!("average {layer}"));
        assert!(program.roles[0].tasks[allreduce].after.contains(&After { task: correct, lag: 0 }));
        assert!(program.roles[0].tasks[correct].after.contains(&After { task: average, lag: 1 }));
    }
    assert_eq!(program.roles[1].tasks.len(), 4);
}

#[test]
fn jobs_that_learners_do_not_support_are_refused() {
    let refused = |strategy: &str, change: fn(&mut Job)| {
        let model = Arc::new(load_model("mlp").unwrap());
        let mut job = Job { strategy: strategy.parse().unwrap(), ..Job::new(model, 4, 16) };
        change(&mut job);
        job.program().unwrap_err().to_string()
    };
    assert!(refused("sma", |job| job.accumulate = 2).contains("tau in --strategy"));
    assert!(refused("sma:tau=4294967295", |_| ()).contains("smaller tau"));
    assert!(refused("sma", |job| job.learners = 3).contains("use a divisor"));
    let server = |job: &mut Job| {
        (job.learners, job.algorithm) = (2, "parameter-server:1:dedicated".parse().unwrap());
    };
    assert!(refused("sma:reference-models", server).contains("one of each"));
}
