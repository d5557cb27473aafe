//! Tests programs of jobs: their tasks, their dependencies, and what is refused.

use super::*;
use lockstep_models::{
    After, Area, Axis, Buffer, ByCoordinate, Copy, Declared, Elementwise, Members, Mesh, Op, Optimizer, Phase, Role,
    Rows, Task, Turns,
};

fn job(workers: u32) -> Job {
    Job::new(Arc::new(load_model("lenet").unwrap()), workers, 16)
}

fn names(program: &Program, role: usize) -> Vec<&str> {
    program.roles[role].tasks.iter().map(|task| task.name.as_str()).collect()
}

#[test]
fn lenet_on_two_ranks_with_an_exchange_per_layer() {
    let program = Job { bucket: Bucket::Layer, ..job(2) }.program().unwrap();
    assert_eq!(
        names(&program, 0),
        [
            "load",
            "forward conv1+relu1+pool1",
            "forward conv2+relu2+pool2",
            "forward dense1+relu3",
            "forward dense2",
            "forward loss",
            "backward-data loss",
            "backward dense2",
            "backward dense1+relu3",
            "backward conv2+relu2+pool2",
            "backward-weight conv1+relu1+pool1",
            "allreduce dense2",
            "update dense2",
            "allreduce dense1",
            "update dense1",
            "allreduce conv2",
            "update conv2",
            "allreduce conv1",
            "update conv1",
        ]
    );
    // dense2's exchange waits for dense2's backward pass alone, and for the last exchange of the iteration before.
    let first = &program.roles[0].tasks[11];
    assert_eq!(first.after, [After { task: 7, lag: 0 }, After { task: 17, lag: 1 }]);
    assert_eq!(program.roles[0].tasks[13].after, [After { task: 8, lag: 0 }, After { task: 11, lag: 0 }]);
    let Op::Exchange(exchange) = &first.op else { panic!("an exchange") };
    assert_eq!(exchange.range, 1_101_696..1_111_946); // the last 10 × 1024 + 10 parameters
}

/// Goyal et al. 2017, §4.2: the n-th exchange unblocks the (n + c)-th, on all ranks in one order. No exchange blocks
/// its rank's thread, so c is not bounded by threads as in the paper; only a library's exchange blocks, and then c
/// is 1.
#[test]
fn at_most_c_exchanges_are_in_flight() {
    for c in 1..=5u32 {
        let dedicated: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
        for algorithm in [Algorithm::ring(), dedicated] {
            let job = Job { bucket: Bucket::Layer, concurrent_exchanges: c, algorithm, ..job(3) };
            let program = job.program().unwrap();
            for role in &program.roles {
                let exchanges: Vec<usize> = role.exchanges().map(|(id, _)| id).collect();
                assert_eq!(exchanges.len(), 4);
                let limit = c.min(4) as usize;
                for (n, id) in exchanges.iter().enumerate() {
                    let (earlier, lag) = if n < limit { (n + 4 - limit, 1) } else { (n - limit, 0) };
                    let wanted = After { task: exchanges[earlier], lag };
                    assert!(role.tasks[*id].after.contains(&wanted), "exchange {n} of {} with c = {c}", role.name);
                }
            }
        }
        let library = Job { algorithm: "library:mpi".parse().unwrap(), concurrent_exchanges: c, ..job(3) };
        let refused = Job { bucket: Bucket::Layer, ..library }.program().err().map(|error| error.to_string());
        assert_eq!(refused.is_some_and(|error| error.contains("one exchange at a time")), c > 1, "c = {c}");
    }
}

#[test]
fn one_rank_has_no_exchange_and_updates_after_backward() {
    let program = Job { bucket: Bucket::Whole, ..job(1) }.program().unwrap();
    assert_eq!(program.roles[0].exchanges().count(), 0);
    let last = program.roles[0].tasks.last().unwrap();
    assert_eq!(last.op, Op::Elementwise(Elementwise::new(Optimizer::update(1.0, false), 0..1_111_946)));
    assert_eq!(last.after, [], "the compute stream's order implies it");
}

/// A weight and a bias for each of LeNet's four layers, in backward order; each waits for the last backward task.
#[test]
fn tensors_are_exchanged_one_by_one_after_the_whole_backward_pass() {
    let program = Job { bucket: Bucket::Tensor, concurrent_exchanges: 2, ..job(2) }.program().unwrap();
    let role = &program.roles[0];
    let names: Vec<&str> = role.exchanges().map(|(id, _)| role.tasks[id].name.as_str()).collect();
    assert_eq!(names[..3], ["allreduce dense2.bias", "allreduce dense2.weight", "allreduce dense1.bias"]);
    assert_eq!(names.len(), 8);
    let last = role.tasks.iter().rposition(|task| matches!(task.op, Op::Compute { .. })).unwrap();
    assert_eq!(role.tasks[last].name, "backward-weight conv1+relu1+pool1");
    let exchanges: Vec<usize> = role.exchanges().map(|(id, _)| id).collect();
    for (n, id) in exchanges.iter().enumerate() {
        let earlier = if n < 2 { (exchanges[6 + n], 1) } else { (exchanges[n - 2], 0) };
        let wanted = [After { task: last, lag: 0 }, After { task: earlier.0, lag: earlier.1 }];
        assert_eq!(role.tasks[*id].after, wanted, "{}", names[n]);
    }
    let elements: u64 = role.exchanges().map(|(_, exchange)| exchange.range.end - exchange.range.start).sum();
    assert_eq!(elements, program.model.parameter_elements());
}

#[test]
fn accumulation_repeats_compute_and_nothing_else() {
    let (once, four) = (job(2).program().unwrap(), Job { accumulate: 4, ..job(2) }.program().unwrap());
    assert_eq!(four.roles[0].tasks.len(), once.roles[0].tasks.len() + 1);
    let Op::Repeat { count, body, claimed: false } = four.roles[0].tasks[0].op else { panic!("a repeat first") };
    assert_eq!((count, body), (4, 11));
    assert_eq!(four.global_batch(), 128);
    assert_eq!(four.roles[0].loop_of(11), Some((0, 4)));
    assert_eq!(four.roles[0].loop_of(12), None);
}

#[test]
fn a_dedicated_server_is_a_role_that_only_exchanges() {
    let algorithm: Algorithm = "parameter-server:1:dedicated".parse().unwrap();
    let program = Job { algorithm, bucket: Bucket::Layer, ..job(3) }.program().unwrap();
    assert_eq!((program.ranks(), program.workers(), program.role_of(3)), (4, 3, 1));
    assert_eq!(names(&program, 1), ["allreduce dense2", "allreduce dense1", "allreduce conv2", "allreduce conv1"]);
}

#[test]
fn fusion_keeps_every_pass_of_every_layer() {
    for name in ["mlp", "lenet", "resnet-32"] {
        let model = Arc::new(load_model(name).unwrap());
        let count = |fuse| {
            let program = Job { fuse, ..Job::new(model.clone(), 2, 4) }.program().unwrap();
            let mut passes = vec![[0; 3]; model.layers().len()];
            for task in &program.roles[0].tasks {
                let Op::Compute { chain, phase, .. } = task.op else { continue };
                for id in &program.chains[chain] {
                    let node = &mut passes[id.0 as usize];
                    node[0] += usize::from(phase == Phase::Forward);
                    node[1] += usize::from(matches!(phase, Phase::BackwardWeight | Phase::Backward));
                    node[2] += usize::from(matches!(phase, Phase::BackwardData | Phase::Backward));
                }
            }
            passes
        };
        for (id, passes) in count(true).iter().enumerate().skip(1) {
            assert_eq!(passes[0], 1, "forward of layer {id} of {name}");
            let backward = passes[1] + passes[2];
            assert!(backward <= 2, "backward of layer {id} of {name}");
        }
        assert_eq!(count(false).iter().map(|p| p[0]).sum::<usize>(), model.layers().len() - 1);
    }
}

#[test]
fn sizes_of_zero_are_refused() {
    for broken in [Job { workers: 0, ..job(1) }, Job { batch_per_rank: 0, ..job(1) }, Job { accumulate: 0, ..job(1) }] {
        assert!(broken.program().unwrap_err().to_string().contains("at least 1"));
    }
}

#[test]
fn programs_that_cannot_run_are_refused() {
    let program = job(2).program().unwrap();
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut program = program.clone();
        change(&mut program);
        program.check().unwrap_err().to_string()
    };
    let broken = |change: fn(&mut Program)| refused(&change);
    let wait = broken(|p| p.roles[0].tasks[1].after.push(After { task: 3, lag: 0 }));
    assert!(wait.contains("never start"), "{wait}");
    let servers = broken(|p| {
        p.roles.push(Role { ranks: Members::range(2, 1), ..p.roles[0].clone() });
        p.mesh = Mesh::new(&[(Axis::Data, 1), (Axis::Tensor, 2)]).unwrap();
    });
    assert!(servers.contains("which serve one group"), "{servers}");
    let mesh = broken(|p| p.mesh = Mesh::new(&[(Axis::Data, 3)]).unwrap());
    assert!(mesh.contains("exactly the ranks of the mesh"), "{mesh}");
    let range = broken(|p| {
        for task in &mut p.roles[0].tasks {
            if let Op::Exchange(exchange) = &mut task.op {
                exchange.range.end += 1;
            }
        }
    });
    assert!(range.contains("does not have"), "{range}");
    let copied = |from: Area, elements| {
        move |p: &mut Program| {
            p.buffers.push(Declared::scratch("here", 10));
            let rows = vec![Rows::one(elements, 0, 0)];
            let copy =
                Copy { from, to: Area::Buffer(Buffer::Declared(0)), rows, add: false, clear: false, turns: Turns::ONE };
            let load = p.roles[0].tasks[0].clone();
            p.roles[0].tasks.push(Task { name: "copy".into(), op: Op::Copy(ByCoordinate::same(copy)), ..load });
        }
    };
    let mut fits = program.clone();
    copied(Area::Activation(LayerId(1)), 10)(&mut fits);
    assert_eq!(fits.check(), Ok(()));
    let long = refused(&copied(Area::Activation(LayerId(1)), 11));
    assert!(long.contains("do not have"), "{long}");
    let itself = refused(&copied(Area::Buffer(Buffer::Declared(0)), 10));
    assert!(itself.contains("to itself"), "{itself}");
    let roles = broken(|p| p.roles[0].ranks = Members::range(1, 2));
    assert!(roles.contains("gap"), "{roles}");
}
