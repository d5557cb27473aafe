//! Tests the passes of the paper, task by task, and the bytes that they send.

use std::collections::BTreeSet;

use super::*;
use lockstep_models::memory::Memory;

/// A model with 4×4×4 activations at the boundary, dense layers of 12 and 5 rows.
fn model() -> Arc<Model> {
    let text = "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{ name = \"conv\", kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
                { name = \"one\", kind = \"dense\", out_features = 12 },\n{ name = \"relu\", kind = \"relu\" },\n\
                { name = \"two\", kind = \"dense\", out_features = 5 },\n{ name = \"loss\", kind = \"softmax_cross_entropy\" },\n]\n";
    Arc::new(parse_model("m.toml", text).unwrap())
}

/// Elements of a sample at the boundary.
const BOUNDARY: u64 = 4 * 4 * 4;

fn program(strategy: &str, ranks: u32, batch: u32) -> Program {
    Job { strategy: strategy.parse().unwrap(), ..Job::new(model(), ranks, batch) }.program().unwrap()
}

/// Krizhevsky 2014, Fig. 2: with two ranks the two passes over the layers become six.
#[test]
fn two_ranks_make_six_passes() {
    let program = program("hybrid:b", 2, 8);
    let names: Vec<&str> = program.roles[0].tasks.iter().map(|task| task.name.as_str()).collect();
    let wanted = "\
load
forward conv
pack conv, pass 1
gather conv, pass 1
unpack conv, pass 1
pack conv, pass 2
gather conv, pass 2
forward one+relu, pass 1
pack relu, pass 1
gather relu, pass 1
unpack relu, pass 1
forward two, pass 1
pack two scores, pass 1
gather two scores, pass 1
unpack two scores, pass 1
forward loss, pass 1
backward-data loss, pass 1
unpack gradient two scores, pass 1
backward two, pass 1
pack gradient relu, pass 1
return relu, pass 1
unpack gradient relu, pass 1
backward one+relu, pass 1
pack gradient conv, pass 1
return conv, pass 1
unpack conv, pass 2
forward one+relu, pass 2
pack relu, pass 2
gather relu, pass 2
unpack relu, pass 2
forward two, pass 2
pack two scores, pass 2
gather two scores, pass 2
unpack two scores, pass 2
forward loss, pass 2
backward-data loss, pass 2
unpack gradient two scores, pass 2
backward two, pass 2
pack gradient relu, pass 2
return relu, pass 2
unpack gradient relu, pass 2
backward one+relu, pass 2
unpack gradient conv, pass 1
pack gradient conv, pass 2
return conv, pass 2
unpack gradient conv, pass 2
backward-weight conv
update one..two
allreduce conv
update conv";
    assert_eq!(names, wanted.lines().collect::<Vec<_>>());
    assert_eq!(program.roles.len(), 1);
    // Layers in one direction until the other: conv, dense and back twice, conv.
    let computed = program.roles[0].tasks.iter().filter_map(|task| match task.op {
        Op::Compute { phase, pass, .. } => Some((phase == Phase::Forward, pass)),
        _ => None,
    });
    let mut passes: Vec<_> = computed.collect();
    passes.dedup();
    assert_eq!(passes.len(), 6);
    // The second broadcast waits only for the first one to be out of its buffer, not for the first pass.
    let at = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let after = &program.roles[0].tasks[at("gather conv, pass 2")].after;
    assert_eq!(*after, [After { task: at("pack conv, pass 2"), lag: 0 }]);
    assert!(at("pack conv, pass 2") < at("forward one+relu, pass 1"));
}

/// Elements that each member of the exchanges of this name sends.
fn sent(program: &Program, name: &str) -> Vec<u64> {
    let of = |task: &&Task| task.name.starts_with(name);
    let Some(Op::Exchange(exchange)) = program.roles[0].tasks.iter().find(of).map(|task| &task.op) else {
        panic!("no exchange {name}");
    };
    let schedule = program.schedule(exchange, 0).unwrap();
    (0..program.workers()).map(|member| schedule.elements_sent(member)).collect()
}

/// Krizhevsky 2014 §4: in (a) and (b) the sender sends K − 1 copies of its batch, in (c) 1/K of that with each pass; in
/// total the same amount returns. So what the busiest rank sends with the samples of a pass grows with K in (a) and
/// (b), but not in (c).
#[test]
fn the_bytes_of_the_three_schemes() {
    let n = 24;
    for k in [2u64, 3, 4] {
        let ranks = k as u32;
        let all = (k - 1) * n * BOUNDARY;
        let of = |strategy: &str| program(strategy, ranks, n as u32);
        assert_eq!(sent(&of("hybrid:a"), "gather conv"), vec![all; k as usize]);
        assert_eq!(sent(&of("hybrid:a"), "return conv"), vec![all; k as usize]);
        let (b, c) = (of("hybrid:b"), of("hybrid:c"));
        for pass in 1..=k {
            let from = |member: u64| if member + 1 == pass { all } else { 0 };
            assert_eq!(sent(&b, &format!("gather conv, pass {pass}")), (0..k).map(from).collect::<Vec<_>>());
            let to = |member: u64| if member + 1 == pass { 0 } else { n * BOUNDARY };
            assert_eq!(sent(&b, &format!("return conv, pass {pass}")), (0..k).map(to).collect::<Vec<_>>());
            assert_eq!(sent(&c, &format!("gather conv, pass {pass}")), vec![all / k; k as usize]);
            assert_eq!(sent(&c, &format!("return conv, pass {pass}")), vec![all / k; k as usize]);
        }
    }
    // Groups of two of four: each of a group sends half a batch to three.
    let groups = program("hybrid:g=2", 4, 24);
    assert_eq!(sent(&groups, "gather conv, pass 3"), [0, 0, 3 * 12 * BOUNDARY, 3 * 12 * BOUNDARY]);
}

/// A rank's own rows need no exchange: only the convolution's gradients are summed.
#[test]
fn split_rows_are_updated_by_their_owner() {
    let k = 3;
    let program = program("hybrid:c", k, 6);
    let gradients: Vec<_> = program.roles[0]
        .exchanges()
        .filter(|(_, e)| e.buffer == Buffer::Gradients)
        .map(|(_, e)| e.range.clone())
        .collect();
    assert_eq!((gradients.len(), &gradients[0]), (1, &(0..4 * 9 + 4)));
    // 12 rows of 64 and a bias, 5 rows of 12 and a bias that become 2 + 2 + 1: two for each.
    let (rows, padded) = (12 / u64::from(k) * 65, 2 * 13);
    assert_eq!(program.model.parameter_elements(), 40 + rows + padded);
    let sharding = program.sharding.as_ref().unwrap();
    let held: Vec<u64> = (0..k)
        .map(|rank| sharding.parameters(&program.model, rank).iter().map(|(range, _)| range.end - range.start).sum())
        .collect();
    assert_eq!(held, [40 + rows + 26, 40 + rows + 26, 40 + rows + 13]);
    // Together they hold the whole model, the convolution once each.
    assert_eq!(held.iter().sum::<u64>() - 2 * 40, program.whole_model().parameter_elements());
}

/// Krizhevsky 2014 §4: scheme (a) holds the activations of K batches after the boundary, (b) and (c) those of one.
#[test]
fn scheme_a_needs_memory_for_all_samples() {
    let memory = |strategy: &str, ranks| Memory::of_role(&program(strategy, ranks, 10), 0, 1).unwrap();
    let (a, b, c) = (memory("hybrid:a", 4), memory("hybrid:b", 4), memory("hybrid:c", 4));
    assert_eq!(b.buffers, c.buffers);
    assert_eq!(a.buffers, 4 * b.buffers);
    let more = 3 * 10 * 4 * BOUNDARY;
    assert!(a.activations > b.activations + more, "{} and {}", a.activations, b.activations);
    assert_eq!((a.weights, a.gradients), (b.weights, b.gradients));
    // A rank has its own rows only.
    let ssgd = memory("ssgd", 4);
    assert!(a.weights < ssgd.weights, "{} of {}", a.weights, ssgd.weights);
}

/// Models that cannot be split are refused, with the cure.
#[test]
fn bad_input_is_refused() {
    let refused = |strategy: &str, change: &dyn Fn(&mut Job)| {
        let mut job = Job { strategy: strategy.parse().unwrap(), ..Job::new(model(), 4, 8) };
        change(&mut job);
        job.program().map(drop).unwrap_err().to_string()
    };
    let zoo = |name: &'static str| move |job: &mut Job| job.model = Arc::new(load_model(name).unwrap());
    for (strategy, change, cure) in [
        ("hybrid:g=3", &(|_: &mut Job| {}) as &dyn Fn(&mut Job), "divisor of 4"),
        ("hybrid:b", &|job| job.workers = 6, "two has 5 rows, too few for 6 ranks"),
        ("hybrid:b:variable-batch", &|job| job.accumulate = 2, "larger batch per rank"),
        ("hybrid:b", &|job| job.algorithm = "library:mpi".parse().unwrap(), "use ring"),
        ("hybrid:b", &|job| job.algorithm = "parameter-server:1:dedicated".parse().unwrap(), "use ring"),
        ("hybrid:b", &zoo("nin"), "no dense layer"),
        ("hybrid:b", &zoo("googlenet:auxiliary"), "more than one tensor"),
        ("model-parallel", &zoo("resnet-32"), "statistics"),
        ("model-parallel", &zoo("alexnet"), "groups"),
    ] {
        let message = refused(strategy, change);
        assert!(message.contains(cure), "{strategy}: {message}");
    }
}

/// Where a library is the default of activations, it takes the collectives that it serves along `tensor`, beside its own
/// calls for gradients; an algorithm of the axis counts before it, and other strategies keep `direct`.
#[test]
fn a_library_may_be_the_default_of_activations() {
    let algorithms = |strategy: &str, mesh: Option<&str>, of_axes: &str| -> BTreeSet<String> {
        let nccl = || "library:nccl".parse::<Algorithm>().unwrap();
        let job = Job {
            strategy: strategy.parse().unwrap(),
            mesh: mesh.map(|mesh| mesh.parse().unwrap()),
            algorithm: nccl(),
            activations: Some(nccl()),
            axis_algorithms: if of_axes.is_empty() { Default::default() } else { of_axes.parse().unwrap() },
            ..Job::new(Arc::new(load_model("vgg-16").unwrap()), 4, 8)
        };
        let program = job.program().unwrap();
        let exchanges = program.roles[0].exchanges().map(|(_, of)| of);
        // Stages send to one neighbour at a time, without an algorithm of the axis.
        let of_activations = exchanges.filter(|of| matches!(of.buffer, Buffer::Declared(_)) && of.between.is_none());
        let named =
            |of: &Exchange| format!("{} by {}", of.collective.to_string().split(':').next().unwrap(), of.algorithm);
        of_activations.map(named).collect()
    };
    for mesh in [None, Some("tensor=4"), Some("data=2,tensor=2"), Some("pipeline=2,tensor=2")] {
        for strategy in ["megatron", "model-parallel"] {
            let found = algorithms(strategy, mesh, "");
            let direct = |name: &String| name.ends_with("v by direct");
            assert!(found.iter().all(|name| name.ends_with("library:nccl") || direct(name)), "{strategy}: {found:?}");
            assert!(found.iter().any(|name| name.ends_with("library:nccl")), "{strategy} {mesh:?}: {found:?}");
            // Without a mesh parts of any size are gathered, which a ring does not serve.
            if mesh.is_some() {
                let found = algorithms(strategy, mesh, "tensor=ring");
                assert!(found.iter().all(|name| name.ends_with("ring")), "{strategy}: {found:?}");
            }
        }
    }
    let found = algorithms("hybrid:c", None, "");
    assert!(found.iter().all(|name| name.ends_with("direct")), "{found:?}");
}

/// Activations along `tensor` are sent one after the other only because of the order of the compute stream; without the
/// copy out of the buffer, which waits for the call, nothing keeps the next call from beginning.
#[test]
fn calls_of_a_library_along_an_axis_are_sequential() {
    let job = Job {
        strategy: "megatron".parse().unwrap(),
        mesh: Some("data=2,tensor=2,pipeline=2".parse().unwrap()),
        accumulate: 3,
        algorithm: "library:nccl".parse().unwrap(),
        axis_algorithms: "tensor=library:nccl@2.20".parse().unwrap(),
        ..Job::new(Arc::new(load_model("vgg-16").unwrap()), 8, 8)
    };
    let mut program = job.program().unwrap();
    let role = &mut program.roles[0];
    let along_tensor = |of: &Exchange| of.axes.contains(Axis::Tensor);
    let calls: Vec<usize> = role.exchanges().filter(|(_, of)| along_tensor(of)).map(|(id, _)| id).collect();
    assert!(calls.len() > 1);
    role.tasks.iter_mut().for_each(|task| task.after.retain(|after| !calls.contains(&after.task)));
    assert!(program.check().unwrap_err().to_string().contains("runs alone"));
}
