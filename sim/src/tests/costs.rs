//! Tests measured tables and rooflines, on a profile worked by hand.

use std::path::Path;

use lockstep_models::{Gradients, Layer, Moments, Precision, UpdateRule};
use lockstep_topology::InputError;
use lockstep_topology::cluster::{DeviceId, DeviceKind};

use super::*;
use crate::{CostTable, Roofline};
use lockstep_models::profile::chain_key;
use lockstep_models::profile::{
    ComputeEntry, FormulaEntry, Interval, PROFILE_VERSION, Point, Profile, RepeatedEntry, TransportEntry,
};

pub(super) fn profile(program: &Program, chain: usize) -> Profile {
    let entry = |samples, seconds, slowdown| ComputeEntry {
        chain: chain_key(program, chain),
        phase: "forward".into(),
        samples,
        seconds: Interval::exact(seconds),
        slowdown,
    };
    let transport = TransportEntry {
        latency: Interval::exact(5e-6),
        wake: Some(Interval::exact(4e-5)),
        overhead: Interval::exact(1e-6),
        copy: Interval::exact(1e-10),
        cold: Some(Interval::exact(1.5e-10)),
        sum: Interval { value: 2e-10, low: 1.9e-10, high: 2.2e-10 },
        slowdown: 1.5,
        repeated: Vec::new(),
    };
    let point = |elements| Point { elements, seconds: Interval::exact(1e-3), slowdown: 1.8 };
    Profile {
        decode: Vec::new(),
        moves: Vec::new(),
        storage: None,
        version: PROFILE_VERSION,
        host: "host".into(),
        cpu: "a CPU".into(),
        cores: 2,
        date: "2025-01-01T00:00:00Z".into(),
        command: "lockstep calibrate".into(),
        kernels: "kernels".into(),
        side_by_side: 16,
        pulse_s: Some(1e-3),
        flops_per_core_s: 1e11,
        memory_bandwidth: 1e10,
        compute: vec![entry(4, 2e-3, 1.0), entry(12, 4e-3, 1.2)],
        update: vec![point(1000)],
        formulas: Vec::new(),
        load: vec![point(784)],
        memory: transport,
        mpi: None,
        gpus: Vec::new(),
        noise: None,
        disturbed: Vec::new(),
    }
}

#[test]
fn a_table_returns_measured_costs_and_names_missing_ones() {
    let (program, world) = (program(&mlp(2)), World::host(2, 2));
    let device = &world.cluster.devices()[0];
    let table = CostTable::new(&profile(&program, 1)).expect("a profile");
    let at_8 = table.compute(device, &program, 1, Phase::Forward, 8);
    assert_close(at_8.seconds, 3e-3, "half way between 4 and 12 samples");
    assert_close(at_8.memory, 1.1 / 2.0, "the slowdown's share of the memory");
    // Twice the parameters, twice the time; 1.8 times slower on both cores.
    assert_eq!(table.update(device, 2000), Cost { seconds: 2e-3, memory: 0.9, ..Cost::default() });
    assert_eq!(table.load(device, &program, 1).seconds, 1e-3);
    let route = world.cluster.route(DeviceId(0), DeviceId(0)).expect("to itself");
    let message = table.message(Pair::Memory, device, &route);
    assert_eq!((message.latency, message.overhead, message.copy, message.sum), (5e-6, 1e-6, 1e-10, 2e-10));
    assert_eq!((message.wake, message.cold), (4e-5, Some(1.5e-10)));
    assert_eq!(message.memory, 0.75);
    // A layer that was not measured deviates from its estimate as the measured ones do: twice as far, twice as long.
    let other = |table: &CostTable| table.compute(device, &program, 2, Phase::Forward, 8).seconds;
    let mut slower = profile(&program, 1);
    slower.compute.iter_mut().for_each(|entry| entry.seconds = Interval::exact(2.0 * entry.seconds.value));
    assert_close(other(&CostTable::new(&slower).expect("a profile")), 2.0 * other(&table), "twice the others");
    let notes = table.notes(&program);
    assert!(notes.iter().any(|note| note.contains(&program.chain_name(2)) && note.contains("like it")), "{notes:?}");
    assert!(!notes.iter().any(|note| note.starts_with(&format!("forward {} ", program.chain_name(1)))), "{notes:?}");
    // Without measurements the roofline is used.
    let nothing = Profile { compute: Vec::new(), ..profile(&program, 1) };
    let nothing = CostTable::new(&nothing).expect("a profile");
    assert_eq!(other(&nothing), Roofline.compute(device, &program, 2, Phase::Forward, 8).seconds);
    assert!(nothing.notes(&program).iter().all(|note| note.ends_with("taken from a roofline")));
}

/// Steps of other optimizers take what was measured; else what an update takes that moves as much, and a note says so.
#[test]
fn steps_of_other_optimizers_by_hand() {
    let job = Job { rule: UpdateRule::AdamW, ..mlp(2) };
    let (program, world) = (program(&job), World::host(2, 2));
    let device = &world.cluster.devices()[0];
    let mut profile = profile(&program, 1);
    let unmeasured = CostTable::new(&profile).expect("a profile");
    assert_eq!(unmeasured.formula(device, "adamw", 2000, 28), unmeasured.moved(device, 14_000));
    let note = "adamw was not measured: estimated from the update by what it moves";
    assert!(unmeasured.notes(&program).iter().any(|own| own == note));
    let seconds = Interval::exact(3e-3);
    profile.formulas = vec![FormulaEntry { formula: "adamw".into(), elements: 1000, seconds, slowdown: 1.2 }];
    let table = CostTable::new(&profile).expect("a profile");
    let wanted = Cost { seconds: 6e-3, memory: 0.6, ..Cost::default() };
    assert_eq!(table.formula(device, "adamw", 2000, 28), wanted);
    assert!(!table.notes(&program).iter().any(|own| own == note));
    // Adjusted costs adjust it as they adjust what moves as much.
    let slow = Twice(&table);
    let adjusted = slow.formula(device, "adamw", 2000, 28);
    assert_close(adjusted.seconds, 12e-3, "twice as long");
    assert_eq!((adjusted.memory, adjusted.occupancy), (wanted.memory, wanted.occupancy));
    assert_eq!(slow.formula(device, "squares", 2000, 4), slow.moved(device, 2000));
    profile.formulas[0].elements = 0;
    assert!(CostTable::new(&profile).is_err());
}

/// A step costs what its buffers take in their formats: AdamW moves g, w twice and each moment twice; momentum SGD the same
/// with one state. Figures in fp32 stand for no others, and a note names what was not measured.
#[test]
fn narrow_operands_cost_their_bytes() {
    let world = World::host(2, 2);
    let device = &world.cluster.devices()[0];
    for (rule, gradients, moments, bytes, name) in [
        (UpdateRule::AdamW, Gradients::F32, Moments::F32, 28, Some("adamw")),
        (UpdateRule::AdamW, Gradients::F32, Moments::Bf16, 20, Some("adamw with moments in bf16")),
        (UpdateRule::AdamW, Gradients::Half, Moments::F32, 26, Some("adamw with gradients in bf16")),
        (
            UpdateRule::AdamW,
            Gradients::Half,
            Moments::Bf16,
            18,
            Some("adamw with gradients in bf16 and moments in bf16"),
        ),
        (UpdateRule::Sgd, Gradients::F32, Moments::F32, 20, None),
        (UpdateRule::Sgd, Gradients::F32, Moments::Bf16, 16, Some("sgd with moments in bf16")),
        (UpdateRule::Sgd, Gradients::Half, Moments::F32, 18, Some("sgd with gradients in bf16")),
    ] {
        let program = program(&Job { rule, gradients, moments, precision: Precision::Bf16, ..mlp(2) });
        let update = program.roles[0].tasks.iter().find(|task| task.op.update().is_some()).expect("an update");
        let of = update.op.update().expect("an update");
        let elements = of.range.end - of.range.start;
        let mut profile = profile(&program, 1);
        let seconds = Interval::exact(3e-3);
        profile.formulas = vec![FormulaEntry { formula: "adamw".into(), elements, seconds, slowdown: 1.2 }];
        let cost = |table: &CostTable| {
            let platform = world.platform(table, NetworkModel::MaxMin);
            crate::jobs::cost(&update.op, &program, &platform, device, 0).expect("a task of a device")
        };
        let table = CostTable::new(&profile).expect("a profile");
        let by_bytes = table.moved(device, (bytes * elements).div_ceil(4));
        assert_eq!(cost(&table) == by_bytes, name != Some("adamw"), "{name:?}");
        let unknown = name.filter(|name| *name != "adamw").map(|name| format!("{name} was not measured"));
        let notes = table.notes(&program);
        assert_eq!(
            notes.iter().filter(|note| note.contains("estimated from the update")).count(),
            unknown.iter().count()
        );
        assert!(unknown.is_none_or(|unknown| notes.iter().any(|note| note.starts_with(&unknown))), "{notes:?}");
        // A figure of its own is taken where there is one.
        if let Some(name) = name {
            profile.formulas[0].formula = name.to_owned();
            assert_eq!(cost(&CostTable::new(&profile).expect("a profile")).seconds, 3e-3, "{name}");
        }
        let roof = Roofline.formula(device, "", elements, bytes);
        assert_eq!(roof, Roofline.moved(device, (bytes * elements).div_ceil(4)));
    }
}

/// Updates that take twice as long.
struct Twice<'a>(&'a CostTable);

impl Costs for Twice<'_> {
    fn adjusted(&self) -> Option<&dyn Costs> {
        Some(self.0)
    }

    fn compute(&self, device: &Device, program: &Program, chain: usize, phase: Phase, samples: u32) -> Cost {
        self.0.compute(device, program, chain, phase, samples)
    }

    fn update(&self, device: &Device, elements: u64) -> Cost {
        let cost = self.0.update(device, elements);
        Cost { seconds: 2.0 * cost.seconds, ..cost }
    }

    fn load(&self, device: &Device, program: &Program, samples: u32) -> Cost {
        self.0.load(device, program, samples)
    }

    fn message(&self, pair: Pair, receiver: &Device, route: &Route) -> MessageCost {
        self.0.message(pair, receiver, route)
    }
}

/// A collective alone takes as long as where all messages have the figures of repeated buffers, also when
/// differentiated; other messages keep theirs.
#[test]
fn a_collective_alone_uses_the_figures_of_repeated_buffers() {
    let (program, world) = (program(&mlp(2)), World::host(2, 2));
    let plain = profile(&program, 0);
    let figures = [3e-10, 7e-10].map(Interval::exact);
    let mut slow = plain.clone();
    [slow.memory.copy, slow.memory.sum] = figures;
    let mut repeating = plain.clone();
    let [copy, sum] = figures;
    repeating.memory.repeated = vec![RepeatedEntry { bytes: 1024, copy, sum }];
    let [plain, slow, repeating] = [plain, slow, repeating].map(|profile| CostTable::new(&profile).expect("a profile"));
    let run = CollectiveRun::new(Collective::AllReduce, Algorithm::ring(), Group::flat(2), 1 << 20);
    let time = |table: &CostTable| {
        let platform = world.platform(table, NetworkModel::MaxMin);
        let time = simulate_collective(&run, &platform).expect("runs").time;
        let (differentiated, _) = crate::derivative::differentiate_collective(&run, &platform, &[]).expect("runs");
        assert_eq!(time, differentiated);
        time
    };
    assert_eq!(time(&repeating), time(&slow));
    assert!(time(&plain) < time(&slow));
    let route = world.cluster.route(DeviceId(0), DeviceId(0)).expect("to itself");
    let message = |table: &CostTable| table.message(Pair::Memory, &world.cluster.devices()[0], &route);
    assert_eq!(message(&repeating), message(&plain));
}

#[test]
fn a_profile_survives_its_file() {
    let profile = profile(&program(&mlp(1)), 0);
    assert_eq!(Profile::parse("p.json", &profile.to_json()), Ok(profile));
}

#[test]
fn bad_profiles_are_refused() {
    let good = profile(&program(&mlp(1)), 0);
    let text = good.to_json();
    let refused = |text: &str| Profile::parse("p.json", text).expect_err("refused");
    for (from, to) in [
        ("\"version\": 3", "\"version\": 4"),
        ("\"version\": 3", "\"version\": 0"),
        ("\"pulse_s\": 0.001", "\"pulse_s\": -0.001"),
        ("\"cores\": 2", "\"cores\": 0"),
        ("\"slowdown\": 1.5", "\"slowdown\": -1.5"),
        ("\"phase\": \"forward\"", "\"phase\": \"sideways\""),
        ("\"samples\": 4", "\"samples\": 0"),
        ("\"side_by_side\": 16", "\"side_by_side\": 0"),
        ("\"low\": 1.9e-10", "\"low\": 3e-10"),
        ("\"flops_per_core_s\"", "\"flops\""),
        ("\"elements\": 1000", "\"elements\": 0"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = refused(&text.replacen(from, to, 1));
        assert!(error.place.to_string().starts_with("p.json") && error.message.contains("calibrate"), "{error}");
    }
    // One from before GPUs were measured is still valid, and so is one that does not know its kernels.
    let before = Profile { version: 1, ..good.clone() };
    assert_eq!(Profile::parse("p.json", &before.to_json()), Ok(before));
    let before = Profile { version: 2, kernels: String::new(), pulse_s: None, ..good };
    let text = before.to_json().replace("  \"kernels\": \"\",\n  \"side_by_side\": 16,\n  \"pulse_s\": null,\n", "");
    assert!(!text.contains("kernels"), "{text}");
    assert_eq!(Profile::parse("p.json", &text), Ok(before));
    refused("");
    refused("{}");
    let InputError { place, message, .. } = Profile::load(Path::new("/nowhere/p.json")).expect_err("no file");
    assert!(place.to_string() == "--profile" && message.contains("lockstep calibrate"), "{message}");
}

#[test]
fn a_roofline_is_the_larger_of_arithmetic_and_memory() {
    // 10 GB/s, of which kernels reach 0.8 and one of two cores half: 4 GB/s. 20 bytes a parameter.
    let world = World::host(2, 2);
    let device = &world.cluster.devices()[0];
    let update = Roofline.update(device, 1_000_000);
    assert_close(update.seconds, 20e6 / 4e9, "an update streams");
    assert_close(update.memory, 0.5, "one core of two");
    // The perceptron's first dense layer at batch 512 is arithmetic: 2·512·784·128 FLOPs at 0.6 of 100 GFLOP/s.
    let program = program(&mlp(1));
    let dense = (0..program.chains.len())
        .find(|chain| matches!(program.model.node(program.chains[*chain][0]).layer, Layer::Dense(_)))
        .expect("a layer");
    let forward = Roofline.compute(device, &program, dense, Phase::Forward, 512);
    let relu = 512.0 * 128.0 / (0.1 * 1e11);
    let expected = 2.0 * 512.0 * 784.0 * 128.0 / 6e10;
    assert!(forward.seconds >= expected && forward.seconds <= expected + 10.0 * relu, "{}", forward.seconds);
}

#[test]
fn the_quickstarts_models_run_on_every_preset() {
    for (name, _) in Cluster::presets() {
        let cluster = Cluster::load(name).expect("a preset");
        let gpus = cluster.devices().iter().filter(|device| matches!(device.kind, DeviceKind::Gpu(_))).count() as u32;
        let ranks = if gpus > 0 { gpus.min(4) } else { 4 };
        for model in ["mlp", "lenet", "resnet-32"] {
            let world = World::new(cluster.clone(), ranks, &HostingRule::PerHost);
            let job = Job::new(Arc::new(lockstep_readers::load_model(model).expect("in the zoo")), ranks, 16);
            let program = program(&job);
            let options = SimOptions::default();
            let platform = world.platform(&Roofline, NetworkModel::MaxMin);
            let prediction = simulate(&program, &platform, options.driver(), &options).expect("runs");
            assert!(prediction.timeline.step_time_s() > 0.0 && !prediction.notes.is_empty());
        }
    }
}
