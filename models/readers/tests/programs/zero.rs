//! Tests ZeRO, stages 2 and 3: updates after the backward passes that exchanges overlap, and gradients in memory that
//! others have freed.

use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::{
    Just, Strategy, TestCaseError, prop_assert, prop_assert_eq, prop_assume, prop_oneof, proptest,
};

use super::*;
use lockstep_models::memory::BufferAddresses;
use lockstep_models::{Buffer, TaskId};

fn job(strategy: &str, model: Model, workers: u32) -> Job {
    Job { strategy: strategy.parse().unwrap(), bucket: Bucket::Layer, ..Job::new(Arc::new(model), workers, 3) }
}

/// `layers` dense layers of 16 × 16 weights and 16 biases: 272 parameters each, 17 cache lines.
fn equal_layers(layers: usize) -> Model {
    let dense = "{ kind = \"dense\", out_features = 16 },\n".repeat(layers);
    let text =
        format!("name = \"m\"\ninput = [1, 4, 4]\nlayer = [\n{dense}{{ kind = \"softmax_cross_entropy\" }},\n]\n");
    parse_model("m.toml", &text).unwrap()
}

fn gradients(program: &Program) -> ElementAddresses {
    ElementAddresses::of_gradients(program, (&program.roles[0], 0), Reuse::Full)
}

fn parameters_of(program: &Program, chain: usize) -> impl Iterator<Item = Range<u64>> {
    program.chains[chain].iter().flat_map(|id| program.model.node(*id).parameters.iter().map(|p| p.range.clone()))
}

fn buckets() -> impl Strategy<Value = Bucket> {
    let sizes = (1u64..4000).prop_map(|bytes| Bucket::Size(Bytes(bytes)));
    prop_oneof![Just(Bucket::Layer), Just(Bucket::Whole), sizes]
}

/// Runs the tasks of a role on the numbers of parameters: tasks that exchange or consume gradients must find those of
/// their own parameters where they should be, each of every micro-batch once, and tasks that read parameters those that
/// are not updated yet.
fn run(program: &Program) -> Result<(), String> {
    let (gradients, role) = (gradients(program), &program.roles[0]);
    let mut arena: Vec<Option<u64>> = vec![None; gradients.elements()];
    let elements = program.model.parameter_elements() as usize;
    let (mut updated, mut used_up) = (vec![false; elements], vec![0; elements]);
    let place = |parameter: u64| gradients.place(&(parameter as usize..parameter as usize + 1)).start;
    let in_loop = |id: &TaskId| role.loop_of(*id).is_some();
    let body: Vec<TaskId> = (0..role.tasks.len()).filter(in_loop).collect();
    let step = (0..role.tasks.len()).filter(|id| !in_loop(id));
    let all = body.repeat(program.accumulate as usize).into_iter().chain(step);
    for task in all.map(|id| &role.tasks[id]) {
        match &task.op {
            Op::Compute { chain, phase, .. } => {
                for parameter in parameters_of(program, *chain).flatten() {
                    if updated[parameter as usize] {
                        return Err(format!("{} reads parameter {parameter} behind its update", task.name));
                    }
                    if matches!(phase, Phase::Backward | Phase::BackwardWeight) {
                        arena[place(parameter)] = Some(parameter);
                    }
                }
            }
            // An exchange is in flight from here to its update: in between no task may write what it sums.
            Op::Exchange(Exchange { buffer: Buffer::Gradients, range, .. })
            | Op::Elementwise(Elementwise { range, .. }) => {
                let elements = range.start as usize..range.end as usize;
                // An update with the sums of micro-batches takes none.
                let takes = task.op.uses_gradients() || task.op.update().is_none();
                let lost = range.clone().find(|parameter| takes && arena[place(*parameter)] != Some(*parameter));
                if let Some(lost) = lost {
                    return Err(format!("{} finds another gradient in the place of {lost}", task.name));
                }
                if task.op.uses_gradients() {
                    used_up[elements.clone()].iter_mut().for_each(|times| *times += 1);
                }
                if task.op.update().is_some() {
                    updated[elements].fill(true);
                }
            }
            _ => {}
        }
    }
    if used_up.iter().any(|times| *times != program.accumulate) {
        return Err("some gradients are not used up once".to_owned());
    }
    if updated.iter().all(|updated| *updated) { Ok(()) } else { Err("some parameters are not updated".to_owned()) }
}

proptest! {
    #[test]
    fn gradients_are_live_for_every_task(
        seed in 0u64..400,
        with_batch_norm: bool,
        workers in 1u32..6,
        bucket in buckets(),
        concurrent_exchanges in 1u32..4,
        accumulate in 1u32..4,
        fuse: bool,
    ) {
        let model = random_model(seed, with_batch_norm);
        let program = Job { bucket, concurrent_exchanges, accumulate, fuse, ..job("zero-2", model, workers) }.program().unwrap();
        // One rank keeps gradients over micro-batches.
        prop_assume!(workers > 1 || accumulate == 1);
        run(&program).map_err(TestCaseError::fail)?;
        for rank in (0..workers).filter(|_| accumulate > 1) {
            let role = &program.roles[0];
            prop_assert_eq!(program.kept_of(role, rank, Buffer::SUMS), program.updated(role, rank));
        }
        // No plan is below what is live, and none above the parameters.
        let lives = lives(&program, &program.roles[0]).unwrap();
        let elements = |life: &GradientLife| life.range.end - life.range.start;
        let live = |at: usize| lives.iter().filter(|life| (life.first..=life.last).contains(&at)).map(elements).sum::<u64>();
        let most = (0..program.roles[0].tasks.len()).map(live).max().unwrap_or(0);
        prop_assert!(most <= gradients(&program).elements() as u64);
        let apart = ElementAddresses::of_gradients(&program, (&program.roles[0], 0), Reuse::Nothing);
        prop_assert!(gradients(&program).elements() <= apart.elements());
        prop_assert_eq!(lives.iter().map(elements).sum::<u64>(), program.model.parameter_elements());
    }

    /// Stage 2 has the tasks of stage 1, with the same dependencies.
    #[test]
    fn stages_1_and_2_differ_only_in_their_order(
        seed in 0u64..400, bucket in buckets(), concurrent_exchanges in 1u32..4, fuse: bool,
    ) {
        let of = |strategy: &str| {
            let job = Job { bucket, concurrent_exchanges, fuse, ..job(strategy, random_model(seed, true), 3) };
            let program = job.program().unwrap();
            let tasks = &program.roles[0].tasks;
            let named = |after: &After| (tasks[after.task].name.clone(), after.lag);
            let all = tasks.iter().map(|task| (task.name.clone(), task.op.clone(), task.after.iter().map(named).collect::<Vec<_>>()));
            let exchanges: Vec<String> = program.roles[0].exchanges().map(|(id, _)| tasks[id].name.clone()).collect();
            let mut all: Vec<_> = all.collect();
            all.iter_mut().for_each(|(_, _, after)| after.sort());
            all.sort_by(|a, b| a.0.cmp(&b.0));
            (all, exchanges)
        };
        prop_assert_eq!(of("zero-2"), of("zero-1"));
    }
}

/// c + 1 buckets: the one being written, and those whose exchanges it overlaps.
#[test]
fn of_equal_buckets_one_more_than_the_concurrent_exchanges_is_live() {
    for layers in 1..8 {
        for (concurrent_exchanges, accumulate) in (1..5).flat_map(|at_once| [(at_once, 1), (at_once, 3)]) {
            let of = |strategy| Job { concurrent_exchanges, accumulate, ..job(strategy, equal_layers(layers), 4) };
            let program = of("zero-2").program().unwrap();
            let live = layers.min(concurrent_exchanges as usize + 1);
            assert_eq!(gradients(&program).elements(), 272 * live, "{layers} layers, {concurrent_exchanges} at once");
            let memory = Memory::of_role(&program, 0, 1).unwrap();
            assert_eq!(memory.gradients, 4 * 272 * live as u64);
            // The sums of several micro-batches are a rank's quarter.
            let sums = if accumulate > 1 { 272 * layers as u64 } else { 0 };
            assert_eq!((memory.buffers, memory.optimizer), (sums, 272 * layers as u64));
            let three = Memory::of_role(&of("zero-3").program().unwrap(), 0, 1).unwrap();
            assert_eq!((three.gradients, three.buffers, three.optimizer), (memory.gradients, sums, memory.optimizer));
            // The reference with a place for each gradient, and stage 1, have as many as there are parameters.
            let apart = ElementAddresses::of_gradients(&program, (&program.roles[0], 0), Reuse::Nothing);
            assert_eq!(apart, ElementAddresses::dense(272 * layers as u64));
            let one = Memory::of_role(&of("zero-1").program().unwrap(), 0, 1).unwrap();
            assert_eq!((one.gradients, one.buffers, one.optimizer), (4 * 272 * layers as u64, 0, memory.optimizer));
        }
    }
}

/// Where updates follow the whole backward pass, each gradient has its own memory, on servers too.
#[test]
fn other_strategies_keep_all_gradients() {
    let strategies = [
        "ssgd",
        "zero-1",
        "first-device-table",
        "model-parallel",
        "sequence-parallel",
        "all-to-all",
        "hybrid:a",
        "hybrid:b",
        "hybrid:c",
        "hybrid:g=2",
        "hybrid:b:variable-batch",
        "sma",
        "sma:tau=2",
        "ea-sgd",
        "local-sgd:tau=2",
    ];
    let mut seen = 0;
    for strategy in strategies {
        for (bucket, fuse, accumulate, algorithm) in [
            (Bucket::Layer, true, 1, "ring"),
            (Bucket::Layer, false, 2, "ring"),
            (Bucket::Tensor, true, 1, "ring"),
            (Bucket::Whole, false, 1, "parameter-server:1:dedicated"),
        ] {
            let algorithm = algorithm.parse().unwrap();
            let lenet = load_model("lenet").unwrap();
            let job = Job { bucket, fuse, accumulate, algorithm, ..job(strategy, lenet, 4) };
            // Not every strategy takes all of them.
            let Ok(program) = job.program() else { continue };
            for role in &program.roles {
                let what = format!("{strategy} {bucket} {} {}", role.name, job.algorithm);
                let [shared, apart] = [Reuse::Full, Reuse::Nothing]
                    .map(|reuse| ElementAddresses::of_gradients(&program, (role, role.ranks.first()), reuse));
                assert_eq!(shared, apart, "{what}");
            }
            seen += 1;
        }
    }
    assert!(seen > 2 * strategies.len(), "{seen}");
}

#[test]
fn jobs_that_keep_all_gradients_are_refused() {
    for strategy in ["zero-2", "zero-3"] {
        let refused = |change: fn(&mut Job)| {
            let mut job = job(strategy, load_model("lenet").unwrap(), 4);
            change(&mut job);
            job.program().unwrap_err().to_string()
        };
        let message = refused(|job| job.bucket = Bucket::Tensor);
        assert!(
            message.contains("bucket") && message.contains("use layer or a size, or --strategy zero-1"),
            "{message}"
        );
    }
    for (strategy, mesh, cure) in [
        (
            "zero-1",
            "data=2,tensor=2",
            "zero-1 has no axis tensor: its axes are pipeline, data, device; model-parallel, model-parallel:zero-1,",
        ),
        ("zero-1", "data=2,tensor=2", "megatron:zero-1"),
        ("zero-2", "data=2,tensor=2", "megatron:zero-1"),
        (
            "zero-2",
            "pipeline=2,data=2",
            "zero-2 has no axis pipeline: its axes are data, device; ssgd, zero-1, zero-3,",
        ),
        (
            "megatron",
            "device=2,tensor=2",
            "axis device: its axes are pipeline, data, tensor; ssgd, zero-1, zero-2, zero-3, model-parallel:zero-1,",
        ),
    ] {
        let mesh = Some(mesh.parse().unwrap());
        let message = Job { mesh, ..job(strategy, load_model("lenet").unwrap(), 4) }.program().unwrap_err().to_string();
        assert!(message.contains("mesh") && message.contains(cure), "{message}");
    }
    let (mesh, strategy) = (Some("pipeline=2,data=2".parse().unwrap()), "zero-3:no-reshard");
    let message = Job { mesh, ..job(strategy, load_model("lenet").unwrap(), 4) }.program().unwrap_err().to_string();
    assert!(message.contains("--strategy: zero-3:no-reshard: stages of a pipeline gather"), "{message}");
    for (written, cure) in [
        ("megatron:zero-2", "megatron has no setting \"zero-2\"; there is: zero-1"),
        ("model-parallel:zero=1", "model-parallel has no setting \"zero=1\"; there is: zero-1"),
        ("hybrid:b:zero-1", "only :variable-batch"),
    ] {
        let message = written.parse::<lockstep_models::Strategy>().unwrap_err();
        assert!(message.contains(cure), "{message}");
    }
    // What stage 1 refuses: dedicated servers do not scatter.
    for (strategy, mesh) in
        [("zero-1", "data=4"), ("zero-2", "data=4"), ("zero-3", "data=4"), ("megatron:zero-1", "data=2,tensor=2")]
    {
        let (algorithm, mesh) = ("parameter-server:1:dedicated".parse().unwrap(), Some(mesh.parse().unwrap()));
        assert!(
            Job { algorithm, mesh, ..job(strategy, load_model("lenet").unwrap(), 4) }.program().is_err(),
            "{strategy}"
        );
    }
    assert_eq!("zero-2".parse::<lockstep_models::Strategy>().unwrap().to_string(), "zero-2");
    assert!("zero-2:a".parse::<lockstep_models::Strategy>().unwrap_err().contains("zero-2 has no settings"));
    for written in
        ["zero-3", "zero-3:prefetch=2", "zero-3:prefetch=0:no-reshard", "megatron:zero-1", "model-parallel:zero-1"]
    {
        assert_eq!(written.parse::<lockstep_models::Strategy>().unwrap().to_string(), written);
    }
    let message = "zero-3:prefetch=-1".parse::<lockstep_models::Strategy>().unwrap_err();
    assert!(message.contains("must be a number of buckets"), "{message}");
    assert!("zero-3:reshard".parse::<lockstep_models::Strategy>().unwrap_err().contains("prefetch=N, no-reshard"));
    // One rank has nothing to scatter.
    let alone = |strategy: &str| Job { accumulate: 2, ..job(strategy, load_model("lenet").unwrap(), 1) }.program();
    assert_eq!(alone("zero-2").unwrap().roles, alone("ssgd").unwrap().roles);
}

/// Of L equal layers gathered p ahead, p + 1 are in memory at once, and each is gathered twice, except those that
/// backward passes reach before they are freed; without resharding all stay, gathered once (Rajbhandari et al. 2020
/// §5.3).
#[test]
fn gathered_parameters_are_those_of_the_layers_in_use_and_prefetched() {
    for (layers, prefetch) in [(6, 0), (6, 1), (6, 2), (9, 1), (9, 3)] {
        let program = |strategy: String| {
            let of = job(&strategy, equal_layers(layers), 4);
            Job { bucket: Bucket::Layer, ..of }.program().unwrap()
        };
        let of = program(format!("zero-3:prefetch={prefetch}"));
        let role = &of.roles[0];
        let gathers = |program: &Program| {
            let exchanges = program.roles[0].exchanges().map(|(_, exchange)| exchange.buffer);
            exchanges.filter(|buffer| *buffer == Buffer::Weights).count()
        };
        let places = BufferAddresses::of_role(&of, (role, 0), Reuse::Full);
        let elements = |buffer| places.of(buffer).elements();
        assert_eq!(elements(Buffer::Weights), (prefetch + 1) * 272, "{layers} layers, {prefetch} ahead");
        assert_eq!(elements(Buffer::Parameters), layers * 272 / 4);
        let whole = program(format!("zero-3:prefetch={prefetch}:no-reshard"));
        let buckets = gathers(&whole);
        // The first layer's backward pass makes no gradient of its input, and reads no parameters. Those gathered ahead
        // from the last forward to the first backward passes are still there.
        let again = buckets - 1 - prefetch.div_ceil(2).max(1);
        assert_eq!(gathers(&of), buckets + again, "{layers} layers, {prefetch} ahead");
        let all = BufferAddresses::of_role(&whole, (&whole.roles[0], 0), Reuse::Full);
        // The first layer is not read again.
        assert_eq!(all.of(Buffer::Weights).elements(), (layers - 1) * 272);
    }
}

/// In a pipeline each bucket is gathered once, before the first micro-batch; a rank keeps its part, and sends what stage 1 does.
#[test]
fn stages_gather_their_parameters_once_a_step() {
    for (stages, data, accumulate) in [(2, 2, 1), (2, 4, 5), (3, 2, 4)] {
        let mesh = || Some(Mesh::new(&[(Axis::Pipeline, stages), (Axis::Data, data)]).unwrap());
        let of = |strategy| {
            let job = job(strategy, equal_layers(6), stages * data);
            Job { mesh: mesh(), bucket: Bucket::Layer, cut: StageCut::Layers, accumulate, ..job }.program().unwrap()
        };
        let (one, three) = (of("zero-1"), of("zero-3"));
        for (role, first) in three.roles.iter().zip(&one.roles) {
            let schedule = role.tasks.iter().position(|task| matches!(task.op, Op::Schedule(_))).unwrap();
            let gathers = |role: &Role, buffer| -> Vec<(usize, Range<u64>)> {
                let gathers = role.exchanges().filter(|(_, of)| of.collective == Collective::AllGather);
                gathers.filter(|(_, of)| of.buffer == buffer).map(|(task, of)| (task, of.range.clone())).collect()
            };
            let (tasks, own): (Vec<_>, Vec<_>) = gathers(role, Buffer::Weights).into_iter().unzip();
            let (_, next): (Vec<_>, Vec<_>) = gathers(first, Buffer::Parameters).into_iter().unzip();
            assert!(own == next && tasks.iter().all(|task| *task < schedule), "{} of {stages}", role.name);
            let places = BufferAddresses::of_role(&three, (role, role.ranks.first()), Reuse::Full);
            let [kept, all] = [Buffer::Parameters, Buffer::Weights].map(|buffer| places.of(buffer).elements());
            assert_eq!(all, kept * data as usize, "{} of {stages}", role.name);
        }
    }
}

/// Replicas sum each part in a separate group: 272 elements in 5 parts, rounded up to equal ones where
/// exchanges are padded.
#[test]
fn replicas_sum_the_parts_that_ranks_share() {
    for (pad, lengths) in [(true, [55; 5]), (false, [55, 55, 54, 54, 54])] {
        let mesh = Some(Mesh::new(&[(Axis::Data, 3), (Axis::Device, 5)]).unwrap());
        let mut program = Job { mesh, pad, ..job("zero-1", equal_layers(1), 15) }.program().unwrap();
        let id = program.roles[0].exchanges().find(|(_, of)| !of.shared.is_empty()).unwrap().0;
        let Op::Exchange(sum) = program.roles[0].tasks[id].op.clone() else { unreachable!("an exchange") };
        let of_groups: Vec<(Vec<u32>, Range<u64>)> = (0..program.group_count(&sum))
            .map(|number| program.group(&sum, number))
            .map(|members| (members.iter().collect(), program.part_of(&sum, &members)))
            .collect();
        let mut start = 0;
        for (device, (length, (members, part))) in lengths.into_iter().zip(&of_groups).enumerate() {
            let device = device as u32;
            assert_eq!(
                (members.as_slice(), part),
                ([device, device + 5, device + 10].as_slice(), &(start..start + length))
            );
            start += length;
        }
        assert_eq!(of_groups.len(), 5);
        // Parts of another size than those that the reduce-scatter leaves.
        program.roles[0].tasks[id].op = Op::Exchange(Exchange { padded: !pad, ..sum });
        let message = program.check().unwrap_err().to_string();
        assert!(message.contains("makes its parts"), "{message}");
    }
}

/// Ranks with the same part of a layer update half of it each, along `data`, or a third along `device`, where replicas
/// have the same third.
#[test]
fn state_of_split_layers_is_shared_among_equal_parts() {
    let elements = |strategy: &str, mesh: &str| {
        let mesh: Mesh = mesh.parse().unwrap();
        let (workers, mesh) = (mesh.ranks(), Some(mesh));
        let program = Job { mesh, ..job(strategy, equal_layers(3), workers) }.program().unwrap();
        let memory = Memory::of_role(&program, 0, 1).unwrap();
        let all = program.model.parameter_elements();
        let updated = (0..workers).map(|rank| program.updated(&program.roles[0], rank));
        let each: Vec<u64> = updated.map(|of| of.iter().map(|range| range.end - range.start).sum()).collect();
        (all, memory, each)
    };
    for strategy in ["megatron", "model-parallel"] {
        let (all, whole, _) = elements(strategy, "data=2,tensor=2");
        let (same, shared, each) = elements(&format!("{strategy}:zero-1"), "data=2,tensor=2");
        assert_eq!((same, each, shared.optimizer), (all, vec![all / 2; 4], 2 * all), "{strategy}");
        // All but the state is as without it.
        assert_eq!(Memory { optimizer: whole.optimizer, communication: whole.communication, ..shared }, whole);
        // 16 rows or columns of 8 each, and biases.
        let (_, shared, each) = elements(&format!("{strategy}:zero-1"), "tensor=2,data=2,device=3");
        assert_eq!(each.iter().sum::<u64>(), 4 * all, "{strategy}");
        assert_eq!(shared.optimizer, 4 * each[0]);
        assert!(each.iter().all(|elements| elements.abs_diff(all / 3) <= 6), "{each:?} of {all}");
    }
}
