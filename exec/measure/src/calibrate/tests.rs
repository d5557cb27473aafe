//! Tests what a profile keeps when more is measured, and when it is measured again.

use lockstep_models::profile::{
    ComputeEntry, Interval, NoiseTrace, PROFILE_VERSION, Point, Profile, THREAD_MESSAGES, TransportEntry,
};

use super::kept::{Kept, difference, lay_over};
use super::{MOST_NOISE, append};
use crate::host::{Cores, HostInfo};
use crate::quiet::{PATIENCE, Quiet};

/// A profile of this host without layers.
pub(super) fn empty() -> Profile {
    let exact = Interval::exact;
    let memory = TransportEntry {
        latency: exact(1e-6),
        wake: None,
        overhead: exact(1e-7),
        copy: exact(1e-10),
        cold: None,
        sum: exact(2e-10),
        slowdown: 1.0,
        repeated: Vec::new(),
    };
    let HostInfo { name, cpu, cores, date } = HostInfo::find();
    Profile {
        version: PROFILE_VERSION,
        host: name,
        cpu,
        cores: cores as u32,
        date,
        command: "before".to_owned(),
        kernels: lockstep_exec::kernels(),
        side_by_side: 16,
        pulse_s: Some(1e-3),
        flops_per_core_s: 1e11,
        memory_bandwidth: 1e10,
        compute: Vec::new(),
        update: Vec::new(),
        formulas: Vec::new(),
        load: Vec::new(),
        decode: Vec::new(),
        moves: Vec::new(),
        storage: None,
        memory,
        mpi: None,
        gpus: Vec::new(),
        noise: None,
        disturbed: Vec::new(),
    }
}

fn entry(chain: &str, phase: &str, samples: u32, seconds: f64) -> ComputeEntry {
    let (chain, phase, seconds) = (chain.to_owned(), phase.to_owned(), Interval::exact(seconds));
    ComputeEntry { chain, phase, samples, seconds, slowdown: 1.0 }
}

fn point(elements: u64, seconds: f64) -> Point {
    Point { elements, seconds: Interval::exact(seconds), slowdown: 1.0 }
}

#[test]
fn new_figures_replace_equal_entries_and_keep_the_others() {
    let mut profile = Profile {
        compute: vec![entry("a", "forward", 4, 1.0), entry("a", "backward", 4, 2.0), entry("b", "forward", 4, 3.0)],
        update: vec![point(10, 1.0), point(20, 2.0)],
        load: vec![point(5, 1.0)],
        ..empty()
    };
    let fresh = Profile {
        compute: vec![entry("a", "forward", 4, 9.0), entry("a", "forward", 8, 8.0)],
        update: vec![point(20, 7.0), point(15, 6.0)],
        load: vec![point(6, 2.0)],
        date: "later".to_owned(),
        command: "now".to_owned(),
        ..empty()
    };
    lay_over(&mut profile, fresh);
    let known: Vec<(&str, &str, u32, f64)> =
        profile.compute.iter().map(|e| (e.chain.as_str(), e.phase.as_str(), e.samples, e.seconds.value)).collect();
    assert_eq!(
        known,
        [("a", "backward", 4, 2.0), ("b", "forward", 4, 3.0), ("a", "forward", 4, 9.0), ("a", "forward", 8, 8.0)]
    );
    let of = |points: &[Point]| points.iter().map(|p| (p.elements, p.seconds.value)).collect::<Vec<_>>();
    assert_eq!(of(&profile.update), [(10, 1.0), (15, 6.0), (20, 7.0)]);
    assert_eq!(of(&profile.load), [(5, 1.0), (6, 2.0)]);
    assert_eq!((profile.date.as_str(), profile.command.as_str()), ("later", "now"));
}

#[test]
fn a_profile_of_another_machine_or_of_other_kernels_is_not_added_to() {
    let (host, cores) = (HostInfo::find(), HostInfo::find().cores);
    assert_eq!(difference(&empty(), &host, cores), None);
    type Change = fn(&mut Profile);
    let cases: [(&str, Change); 5] = [
        ("elsewhere", |profile| profile.host = "elsewhere".to_owned()),
        ("another CPU", |profile| profile.cpu = "another CPU".to_owned()),
        ("cores", |profile| profile.cores += 1),
        ("kernels-0", |profile| profile.kernels = "kernels-0".to_owned()),
        ("unknown kernels", |profile| (profile.kernels, profile.pulse_s) = (String::new(), None)),
    ];
    for (word, change) in cases {
        let mut profile = empty();
        change(&mut profile);
        let why = difference(&profile, &host, cores).unwrap_or_else(|| panic!("{word}"));
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_full_noise_record_drops_its_oldest_slices() {
    let trace = |slices: usize, factor: f32| NoiseTrace {
        slice_s: 1e-3,
        alone: vec![factor; slices],
        together: vec![vec![factor; slices]; 2],
    };
    let mut noise = None;
    append(&mut noise, trace(MOST_NOISE - 10, 1.0));
    append(&mut noise, trace(30, 2.0));
    let noise = noise.expect("it was recorded");
    assert_eq!(noise.fault(), None);
    for core in noise.together.iter().chain([&noise.alone]) {
        assert_eq!((core.len(), core.partition_point(|factor| *factor < 2.0)), (MOST_NOISE, MOST_NOISE - 30));
    }
}

/// A figure that was disturbed is missing, and is no longer once it was measured again.
#[test]
fn disturbed_figures_are_measured_again() {
    let name = |chain: &str| ComputeEntry::name(chain, "forward", 4);
    let entries = vec![entry("a", "forward", 4, 1.0), entry("b", "forward", 4, 2.0)];
    let disturbed = vec![name("a"), name("b"), THREAD_MESSAGES.to_owned()];
    let mut profile = Profile { compute: entries, disturbed, ..empty() };
    let fresh = vec![entry("a", "forward", 4, 9.0), entry("c", "forward", 4, 8.0)];
    lay_over(&mut profile, Profile { compute: fresh, disturbed: vec![name("c")], ..empty() });
    assert_eq!(profile.disturbed, [name("b"), THREAD_MESSAGES.to_owned(), name("c")]);
    assert!(profile.disturbed_note().expect("three figures").starts_with("3 figures could not"));
    assert_eq!(empty().disturbed_note(), None);

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    let update = vec![point(1, 1.0)];
    let whole = Profile { update: update.clone(), load: update, ..profile };
    let text = whole.to_json();
    assert_eq!(Profile::parse("profile.json", &text).expect("valid"), whole);
    std::fs::write(&path, text).expect("a file");
    let kept = Kept::open(&path, &mut Quiet::new(Cores::of(HostInfo::find().cores), PATIENCE));
    assert!(kept.profile.is_none() && kept.why.is_some_and(|why| why.contains(THREAD_MESSAGES)));
}
