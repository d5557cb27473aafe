//! Tests kernels on GPUs: learners that share one, kernels that do not fill it, tables of measured GPUs.

use lockstep_models::{Bucket, Gradients, Layer, Op, Precision, Span, random_model};
use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::{Limits, Rank};

use super::costs::profile;
use super::programs::OPTIONS;
use lockstep_topology::{Hosting, Placement, PlacementRule};

use super::*;
use crate::answer::{UNFILLED, bound};
use crate::{CostTable, Roofline};
use lockstep_models::profile::{ComputeEntry, GpuEntry, Interval, Point, Profile, chain_key};

/// Kernels that take this long and fill this much of a GPU and of its memory's bandwidth.
#[derive(Clone, Copy)]
struct Partly {
    seconds: f64,
    occupancy: f64,
    memory: f64,
    traffic: f64,
}

impl Costs for Partly {
    fn compute(&self, _: &Device, _: &Program, _: usize, _: Phase, _: u32) -> Cost {
        Cost { seconds: self.seconds, memory: self.memory, occupancy: self.occupancy }
    }

    fn update(&self, _: &Device, _: u64) -> Cost {
        Cost::default()
    }

    fn load(&self, _: &Device, _: &Program, _: u32) -> Cost {
        Cost::default()
    }

    fn message(&self, _: Pair, _: &Device, _: &Route) -> MessageCost {
        MessageCost::default()
    }

    fn traffic(&self, _: &Device) -> f64 {
        self.traffic
    }
}

/// `learners` learners on the first GPU of a host.
fn one_gpu(learners: u32) -> World {
    let cluster = Cluster::load("ethernet-gpu-8").expect("a preset");
    let gpu =
        cluster.devices().iter().find(|device| matches!(device.kind, DeviceKind::Gpu(_))).expect("it has GPUs").id;
    let rule = PlacementRule::Listed(vec![gpu; learners as usize]);
    let limits = Limits { ranks_per_gpu: learners, ..Limits::default() };
    let placement = Placement::within(&cluster, learners, &rule, limits).expect("as many as allowed");
    let hosting = Hosting::new(&placement, &HostingRule::PerHost).expect("one host");
    World { cluster, placement, hosting }
}

fn step(world: &World, costs: &dyn Costs, program: &Program) -> f64 {
    let platform = world.platform(costs, NetworkModel::MaxMin);
    simulate(program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs").timeline.step_time_s()
}

/// A GPU of the catalogue takes the time that follows from its peak in the precision, or from the bytes of its tensors.
#[test]
fn rooflines_follow_the_precision() {
    let cluster = Cluster::load("dgx-h100").expect("a preset");
    let gpu = cluster.devices().iter().find(|device| matches!(device.kind, DeviceKind::Gpu(_))).expect("it has GPUs");
    let text = "name = \"m\"\nsource = \"a test\"\ninput = [8192, 1, 1]\n[[layer]]\nname = \"fc\"\nkind = \"dense\"\n\
                out_features = 8192\nbias = false\n[[layer]]\nkind = \"relu\"\n[[layer]]\nkind = \"softmax_cross_entropy\"";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).expect("a model"));
    let cost = |precision, chain, phase| {
        let job = Job { precision, fuse: false, ..Job::new(model.clone(), 1, 65536) };
        Roofline.compute(gpu, &program(&job), chain, phase, 65536).seconds - 4e-6
    };
    let [single, tf32, bf16, fp16, fp8] = Precision::ALL.map(|of| cost(of, 0, Phase::Forward));
    // Dense peaks of H100 SXM, and shares of them in tiles of 256 by 128 over sums of 8,192 (costs/generation.rs).
    let rate = |peak: f64, share: f64, tile: f64, sum: f64| {
        peak * share / (1.0 + tile * (1.0 / 256.0 + 1.0 / 128.0)) * 8192.0 / (8192.0 + sum)
    };
    let own = rate(67.0, 0.93, 4.0, 6.0);
    for (seconds, peak, share) in [(tf32, 494.5, 0.9), (bf16, 989.5, 0.9), (fp16, 989.5, 0.9), (fp8, 1979.0, 0.8)] {
        let faster = rate(peak, share, 14.0, 42.0) / own;
        assert!((single / seconds / faster - 1.0).abs() < 0.02, "{} for {faster}", single / seconds);
    }
    // A ReLU streams, and half the bytes take half the time.
    let [single, tf32, bf16, fp16, fp8] = Precision::ALL.map(|of| cost(of, 1, Phase::Forward));
    assert_eq!((tf32, fp16, fp8), (single, bf16, bf16));
    assert!((single / bf16 - 2.0).abs() < 1e-9, "{}", single / bf16);
}

/// A dropout layer reads and writes its elements, and writes a mask of bytes: 4 + 4 + 1 of fp32, 2 + 2 + 1 of bf16.
#[test]
fn masks_stream_as_bytes_beside_elements_of_any_format() {
    let cluster = Cluster::load("dgx-h100").expect("a preset");
    let gpu = cluster.devices().iter().find(|device| matches!(device.kind, DeviceKind::Gpu(_))).expect("it has GPUs");
    let text = "name = \"m\"\nsource = \"a test\"\ninput = [8192, 1, 1]\n[[layer]]\nkind = \"dropout\"\n\
                [[layer]]\nkind = \"softmax_cross_entropy\"";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).expect("a model"));
    let [single, bf16] = [Precision::F32, Precision::Bf16].map(|precision| {
        let job = Job { precision, fuse: false, ..Job::new(model.clone(), 1, 65536) };
        Roofline.compute(gpu, &program(&job), 0, Phase::Forward, 65536).seconds - 4e-6
    });
    assert!((single / bf16 - 9.0 / 5.0).abs() < 1e-9, "{}", single / bf16);
}

/// Gradients of 16 bits are half the bytes on every wire.
#[test]
fn messages_are_as_long_as_their_elements() {
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
    let sent = |gradients| {
        let job = Job { precision: Precision::F16, gradients, ..Job::new(model.clone(), 4, 16) };
        let world = World::new(Cluster::load("dgx1-v100").expect("a preset"), 4, &HostingRule::PerHost);
        let platform = world.platform(&Roofline, NetworkModel::MaxMin);
        let prediction = simulate(&program(&job), &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
        prediction.traffic.total().bytes
    };
    assert_eq!(sent(Gradients::F32), 2 * sent(Gradients::Half));
}

#[test]
fn learners_on_one_gpu_overlap_until_it_is_full() {
    // m kernels that fill a share o of the multiprocessors and b of the memory take max(1, m·o, m·b) times as long; the
    // exchange between them costs nothing here.
    for (occupancy, memory) in [(0.25, 0.0), (0.5, 0.1), (1.0, 0.3), (0.1, 0.4)] {
        let costs = Partly { seconds: 1e-3, occupancy, memory, traffic: 0.0 };
        let alone = step(&one_gpu(1), &costs, &program(&mlp(1)));
        for learners in [1u32, 2, 3, 4] {
            let m = f64::from(learners);
            let expected = alone * (m * occupancy).max(m * memory).max(1.0);
            let together = step(&one_gpu(learners), &costs, &program(&mlp(learners)));
            assert!((together / expected - 1.0).abs() < 1e-3, "{m} of {occupancy}: {together} for {expected}");
        }
    }
}

#[test]
fn transfers_slow_down_kernels_that_need_the_memory() {
    // Kernels that take all of the memory fall behind by what transfers take of it meanwhile: 10 ps for each byte
    // that comes or goes. A ring of two sends and receives each gradient once; only the first layer's is left when
    // all is computed.
    let world = World::new(Cluster::load("ethernet-gpu-8").expect("a preset"), 2, &HostingRule::PerHost);
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
    let bytes = |elements: u64| 4.0 * elements as f64;
    let first = model.layers().iter().find(|node| !node.parameters.is_empty()).expect("it learns");
    let hidden = bytes(model.parameter_elements() - first.parameters.iter().map(|p| p.elements()).sum::<u64>());
    let program = program(&Job { bucket: Bucket::Layer, ..Job::new(model, 2, 8) });
    let idle = Partly { seconds: 0.05, occupancy: 0.5, memory: 1.0, traffic: 0.0 };
    let busy = Partly { traffic: 1e-11, ..idle };
    let late = step(&world, &busy, &program) - step(&world, &idle, &program);
    assert_close(late, 2.0 * hidden * 1e-11, "what transfers took");
    // Kernels that leave enough of the memory are not affected: PCIe at 16 GB/s both ways takes a twentieth at
    // 1.5 ps a byte.
    let modest = Partly { memory: 0.9, traffic: 1.5e-12, ..idle };
    assert_eq!(step(&world, &modest, &program), step(&world, &Partly { memory: 0.9, ..idle }, &program));
}

#[test]
fn small_batches_underuse_a_gpu_and_large_ones_follow_the_roofline() {
    let world = one_gpu(1);
    let device = &world.cluster.devices()[world.placement.device(Rank(0)).0 as usize];
    let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
    let at = |samples| {
        let program = program(&Job::new(model.clone(), 1, samples));
        let chain = (0..program.chains.len())
            .find(|chain| matches!(program.model.node(program.chains[*chain][0]).layer, Layer::Conv2d(_)))
            .expect("it convolves");
        Roofline.compute(device, &program, chain, Phase::Forward, samples)
    };
    let (mut throughput, mut occupancy) = (0.0, 0.0);
    for samples in [1, 4, 16, 64, 256, 1024] {
        let cost = at(samples);
        let now = f64::from(samples) / cost.seconds;
        assert!(now > throughput && cost.occupancy >= 0.9 * occupancy, "{samples}: {cost:?}");
        (throughput, occupancy) = (now, cost.occupancy);
    }
    assert!(at(1).occupancy < 0.2 && at(1024).occupancy > 0.8, "{:?} {:?}", at(1), at(1024));
    // Twice a large batch is twice the time except for the launch and the remainder of the last wave.
    assert!((at(8192).seconds / at(4096).seconds - 2.0).abs() < 0.05);
    // A step of single samples is bound by kernels that are too small, and says so.
    let program = program(&Job::new(model, 1, 1));
    let platform = world.platform(&Roofline, NetworkModel::MaxMin);
    let prediction = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
    let by = bound(&program, &platform, &OPTIONS, &prediction);
    assert_eq!(by.by, UNFILLED, "{by:?}");
}

#[test]
fn a_measured_gpu_is_interpolated_with_its_measured_learner_slowdown() {
    let world = one_gpu(1);
    let id = world.placement.device(Rank(0));
    let device = &world.cluster.devices()[id.0 as usize];
    let DeviceKind::Gpu(spec) = &device.kind else { panic!("a GPU") };
    let program = program(&mlp(1));
    let entry = |samples, seconds, slowdown| ComputeEntry {
        chain: chain_key(&program, 1),
        phase: "forward".into(),
        samples,
        seconds: Interval::exact(seconds),
        slowdown,
    };
    let point = Point { elements: 1000, seconds: Interval::exact(1e-5), slowdown: 1.0 };
    let gpu = GpuEntry {
        model: spec.model.clone(),
        at_once: 2,
        compute: vec![entry(16, 1e-4, 1.0), entry(48, 2e-4, 1.5)],
        update: vec![point.clone()],
        load: vec![point],
        hardware: None,
        learners: Vec::new(),
        memory: Vec::new(),
    };
    let profile = Profile { gpus: vec![gpu], ..profile(&program, 1) };
    assert_eq!(Profile::parse("p.json", &profile.to_json()).as_ref(), Ok(&profile));
    let table = CostTable::new(&profile).expect("a profile");
    // Half way between 16 and 48 samples: 150 us, and 1.25 times that for two at once, each on 1.25/2 of the GPU.
    let cost = table.compute(device, &program, 1, Phase::Forward, 32);
    assert_close(cost.seconds, 1.5e-4, "half way");
    assert_close(cost.occupancy, 0.625, "half way");
    // The host's CPU has its own figures, another model of GPU none.
    let cpu = world.cluster.devices().iter().find(|device| matches!(device.kind, DeviceKind::Cpu(_)));
    let cpu = cpu.expect("a host has a CPU");
    assert_close(table.compute(cpu, &program, 1, Phase::Forward, 4).seconds, 2e-3, "the CPU's");
    let other = Cluster::load("minsky-edr").expect("a preset");
    let p100 = other.devices().iter().find(|device| matches!(device.kind, DeviceKind::Gpu(_))).expect("it has GPUs");
    let roof = Roofline.compute(p100, &program, 1, Phase::Forward, 32);
    assert_eq!(table.compute(p100, &program, 1, Phase::Forward, 32), roof);
    // A GPU that is listed twice, or was not measured by several at once, is refused.
    let twice = Profile { gpus: [profile.gpus.clone(), profile.gpus.clone()].concat(), ..profile.clone() };
    assert!(twice.check("p.json").is_err());
    let none = Profile { gpus: vec![GpuEntry { at_once: 0, ..profile.gpus[0].clone() }], ..profile.clone() };
    assert!(none.check("p.json").is_err());
}

/// While a collective runs that occupies a share s of the multiprocessors, kernels that would fill the GPU do 1 - s of
/// their work.
#[test]
fn kernels_are_slower_beside_a_library() {
    let world = World::new(Cluster::load("dgx-h100").expect("a preset"), 8, &HostingRule::PerRank);
    for channels in [4, 16, 24] {
        let algorithm = format!("library:nccl:ring:simple:{channels}").parse().expect("known");
        let program = program(&Job { algorithm, bucket: Bucket::Layer, ..mlp(8) });
        // Seconds of a rank's kernels, and of its collectives while a kernel runs.
        let taken = |occupancy| {
            let costs = Partly { seconds: 1e-3, occupancy, memory: 0.0, traffic: 0.0 };
            let platform = world.platform(&costs, NetworkModel::MaxMin);
            let found = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS).expect("runs");
            let spans = || found.timeline.spans.iter().filter(|span| span.rank == 0);
            let is = |span: &&Span, of: fn(&Op) -> bool| of(&program.roles[0].tasks[span.task as usize].op);
            let kernels: Vec<_> = spans().filter(|span| is(span, |op| matches!(op, Op::Compute { .. }))).collect();
            let both =
                |one: &Span, other: &Span| one.end.min(other.end).since(one.start.max(other.start)).as_secs_f64();
            let collectives = spans().filter(|span| is(span, |op| matches!(op, Op::Exchange(_))));
            let beside: f64 = collectives.flat_map(|one| kernels.iter().map(move |other| both(one, other))).sum();
            (kernels.iter().map(|span| (span.end - span.start).as_secs_f64()).sum::<f64>(), beside)
        };
        let ((alone, _), (full, beside)) = (taken(0.1), taken(1.0));
        assert!(beside > 1e-5, "{beside}");
        assert_close(full - alone, beside * f64::from(channels) / 132.0, "the kernels' delay");
    }
}

/// RCCL's lanes between NVIDIA's GPUs are said to be another library's; between AMD's they are its own.
#[test]
fn rccl_elsewhere_is_noted() {
    let notes = |cluster: &str| {
        let world = World::new(Cluster::load(cluster).expect("a preset"), 8, &HostingRule::PerRank);
        let program = program(&Job { algorithm: "library:rccl".parse().expect("known"), ..mlp(8) });
        world.predict(&program, &Flat::default(), &SimOptions::default()).expect("runs").notes
    };
    assert!(notes("dgx-h100").iter().any(|note| note.contains("AMD's GPUs, which this cluster lacks")));
    assert!(!notes("mi300x-8").iter().any(|note| note.contains("library:rccl")));
}

/// Calls of several communicators end in another order than they begin in: along `data` a rank waits for one that still
/// exchanges activations along `tensor`. All of them end, and hold multiprocessors no longer than that.
#[test]
fn calls_of_several_groups_end_in_any_order() {
    let world = World::new(Cluster::load("dgx-h100").expect("a preset"), 8, &HostingRule::PerRank);
    let mut ran = 0;
    for (seed, strategy) in (0..40).flat_map(|seed| {
        ["megatron", "model-parallel", "sequence-parallel", "all-to-all"].map(move |strategy| (seed, strategy))
    }) {
        let job = Job {
            strategy: strategy.parse().expect("known"),
            mesh: Some("data=4,tensor=2".parse().expect("a mesh")),
            algorithm: "library:nccl".parse().expect("known"),
            activations: Some("library:nccl".parse().expect("known")),
            bucket: [Bucket::Layer, Bucket::Whole, Bucket::Size(Bytes(512))][seed as usize % 3],
            ..Job::new(Arc::new(random_model(seed, false)), 8, 8)
        };
        // Not every model can be split.
        let Ok(program) = job.program() else { continue };
        let platform = world.platform(&Roofline, NetworkModel::MaxMin);
        let found = simulate(&program, &platform, OPTIONS.driver(), &OPTIONS);
        assert!(
            found.is_ok(),
            "{strategy} of model {seed}: {}",
            found.err().map_or(String::new(), |error| error.to_string())
        );
        ran += 1;
    }
    assert!(ran > 60, "{ran}");
}
