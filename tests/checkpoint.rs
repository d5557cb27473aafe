//! Tests checkpoint files, which are read back as written or refused, and locks on their folders.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_exec::replica::Evaluation;
use lockstep_exec::{Log, Position, State};
use lockstep_measure::checkpoint::{Checkpoint, Every, Folder, VERSION, latest};
use lockstep_models::{AccuracyMonitor, Claim, Model, Moments};
use lockstep_topology::Time;
use proptest::prelude::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("lockstep-checkpoint-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn model() -> Model {
    lockstep_readers::load_model("lenet").unwrap()
}

/// A state of `learners` learners (0: workers of one model) with numbers that no computation would give.
fn checkpoint(model: &Model, learners: usize, steps: u64, previous: bool) -> Checkpoint {
    let parameters = model.parameter_elements() as usize;
    let some = |seed: usize, count: usize| -> Vec<f32> {
        (0..count).map(|i| f32::from_bits((i * 2_654_435_761 + seed * 40_503) as u32)).collect()
    };
    // Of odd steps they are of bf16.
    let moments = Moments::ALL[if learners > 0 { 0 } else { steps as usize % 2 }];
    let kept = |seed| -> Vec<f32> {
        let upper = |value: &f32| f32::from_bits(value.to_bits() >> 16 << 16);
        if moments == Moments::F32 {
            some(seed, parameters)
        } else {
            some(seed, parameters).iter().map(upper).collect()
        }
    };
    let average = (learners > 0).then(|| (some(1, parameters), previous.then(|| some(2, parameters))));
    let state = State {
        position: Position { epoch: steps / 7, samples: steps % 7 * 32 },
        weights: (0..learners.max(1)).map(|index| some(10 + index, parameters)).collect(),
        statistics: (0..learners.max(2)).map(|index| some(20 + index, 6)).collect(),
        states: (0..if learners > 0 { 0 } else { 1 + steps as usize % 3 }).map(|index| kept(3 + index)).collect(),
        moments,
        average,
        references: (1..learners.max(1)).map(|index| some(40 + index, parameters)).collect(),
        buffers: (0..learners % 3).map(|index| some(60 + index, parameters)).collect(),
        accuracy_monitor: AccuracyMonitor::default()
            .resuming(previous.then_some(0.1 + 0.2), vec![0.1 + 0.2; usize::from(previous)]),
    };
    let claims =
        (0..learners as u32).map(|rank| Claim { iteration: 3, rank, micro_batch: rank ^ 1, at: Time(u64::MAX) });
    let evaluations = vec![Evaluation { samples: 1000, correct: 7, mean_loss: f64::INFINITY }];
    let log = Log { evaluations, restarts: vec![5, 9], claims: claims.collect() };
    let values = |value: &str| BTreeMap::from([("--model".to_owned(), value.to_owned())]);
    Checkpoint { identity: values("lenet"), setting: values("other"), steps, state, log }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Equality to the bit, where NaN is equal to itself.
fn same(a: &Checkpoint, b: &Checkpoint) -> bool {
    let all = |one: &Checkpoint| {
        let State { weights, statistics, states, average, references, buffers, .. } = &one.state;
        let (z, previous) = average.clone().unwrap_or_default();
        let lists = [
            weights.clone(),
            references.clone(),
            buffers.clone(),
            statistics.clone(),
            states.clone(),
            vec![z, previous.unwrap_or_default()],
        ];
        lists.concat().iter().map(|values| bits(values)).collect::<Vec<_>>()
    };
    let rest = |one: &Checkpoint| {
        (one.state.moments, one.state.position, one.state.accuracy_monitor.clone(), one.steps, one.log.clone())
    };
    let maps = |one: &Checkpoint| (one.identity.clone(), one.setting.clone());
    all(a) == all(b) && rest(a) == rest(b) && maps(a) == maps(b)
}

#[test]
fn a_file_is_restored_to_the_bit() {
    let model = model();
    let mut lengths = Vec::new();
    for (learners, previous, steps) in
        [(0, false, 12), (0, true, 12), (1, false, 12), (3, true, 12), (0, false, 13), (0, false, 15), (0, false, 17)]
    {
        let one = checkpoint(&model, learners, steps, previous);
        let bytes = one.to_bytes(&model).unwrap();
        assert!(same(&Checkpoint::from_bytes("c", &bytes).unwrap(), &one), "{learners} learners");
        // The same state is the same file.
        assert_eq!(bytes, one.to_bytes(&model).unwrap());
        lengths.push(bytes.len() as u64);
    }
    // One state of bf16 takes half of what one of fp32 takes, and another adds as much; headers are a few bytes.
    let half = 2 * model.parameter_elements();
    assert!((lengths[0] - lengths[5]).abs_diff(half) < 1000 && (lengths[4] - lengths[5]).abs_diff(half) < 1000);
}

#[test]
fn the_trained_parameters_have_their_names_and_shapes() {
    let model = model();
    let one = checkpoint(&model, 2, 1, true);
    let bytes = one.to_bytes(&model).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let first = &model.layers().iter().flat_map(|node| &node.parameters).next().unwrap();
    let view = file.tensor(&first.name).unwrap();
    assert_eq!(view.shape(), first.shape.sizes().map(|size| size as usize).collect::<Vec<_>>());
    let average = &one.state.average.unwrap().0[first.range.start as usize..first.range.end as usize];
    assert_eq!(view.data(), average.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn truncated_and_altered_files_are_refused(cut in 0.0f64..1.0, place in 0.0f64..1.0, bit in 0u8..8) {
        let model = lockstep_readers::load_model("mlp").unwrap();
        let bytes = checkpoint(&model, 0, 12, false).to_bytes(&model).unwrap();
        let torn = &bytes[..(cut * bytes.len() as f64) as usize];
        prop_assert!(Checkpoint::from_bytes("c", torn).is_err());
        // Half of the flips hit the header, which is a small part of the file.
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for range in [0..header, header..bytes.len()] {
            let mut altered = bytes.clone();
            let at = range.start + (place * range.len() as f64) as usize;
            altered[at] ^= 1 << bit;
            // Padding blanks of the header are not significant.
            let meaningless = at < header && bytes[at] == b' ' && altered[at].is_ascii_whitespace();
            prop_assert!(meaningless || Checkpoint::from_bytes("c", &altered).is_err(), "byte {at} of {header}, bit {bit}");
        }
    }
}

#[test]
fn a_newer_version_is_refused_as_such() {
    let model = model();
    let bytes = checkpoint(&model, 0, 1, false).to_bytes(&model).unwrap();
    let from = format!("\\\"version\\\":{VERSION},");
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    let mut newer = bytes;
    newer[at + from.len() - 2] = b'9';
    let error = Checkpoint::from_bytes("c", &newer).unwrap_err();
    assert!(error.message.contains("version 9 of the format"), "{error}");
    // An older one beside it would be of another training: it is not used instead.
    let path = folder("newer");
    let older = checkpoint(&model, 0, 1, false).to_bytes(&model).unwrap();
    fs::write(path.join("step-0000000001.safetensors"), older).unwrap();
    fs::write(path.join("step-0000000002.safetensors"), newer).unwrap();
    let error = latest(&path, |error| panic!("passed over: {error}")).unwrap_err();
    assert!(error.message.contains("version 9 of the format"), "{error}");
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn more_steps_than_possible_are_refused() {
    let model = model();
    for (steps, position) in [
        (1 << 33, Position::default()),
        (1, Position { epoch: 1 << 33, samples: 0 }),
        (1, Position { epoch: 0, samples: 1 << 33 }),
    ] {
        let one = checkpoint(&model, 0, steps, false);
        let one = Checkpoint { state: State { position, ..one.state }, ..one };
        let error = Checkpoint::from_bytes("c", &one.to_bytes(&model).unwrap()).unwrap_err();
        assert!(error.message.contains("more than 2^32"), "{error}");
    }
}

fn keep(folder: &Folder, model: &Model, steps: u64) {
    folder.keep(steps, |file, pins| checkpoint(model, 0, steps, false).write(model, file, pins)).unwrap();
}

fn files(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_last_two_are_kept_and_a_damaged_one_is_skipped() {
    let (path, model) = (folder("kept").join("made"), model());
    let (kept, dead) = Folder::open(&path, Every::Steps(5)).unwrap();
    assert_eq!(dead, None);
    assert_eq!([4, 5, 10].map(|steps| kept.is_due(steps)), [false, true, true]);
    for steps in [5, 10, 15, 20] {
        keep(&kept, &model, steps);
    }
    assert_eq!(files(&path), ["lock", "step-0000000015.safetensors", "step-0000000020.safetensors"]);
    let mut passed = Vec::new();
    let newest = path.join("step-0000000020.safetensors");
    assert_eq!(latest(&path, |_| panic!("it is whole")).unwrap().1, newest);
    let half = fs::read(&newest).unwrap();
    fs::write(&newest, &half[..half.len() / 2]).unwrap();
    let (found, from) = latest(&path, |error| passed.push(error.to_string())).unwrap();
    assert_eq!((found.steps, from), (15, path.join("step-0000000015.safetensors")));
    assert!(passed[0].contains("step-0000000020.safetensors") && passed[0].contains("torn"), "{passed:?}");
    // A run that resumes from 15 writes 20 again; the checkpoint that it resumed from is kept.
    keep(&kept, &model, 20);
    assert_eq!(files(&path).len(), 3);
    fs::write(path.join("step-0000000015.safetensors"), b"").unwrap();
    fs::write(path.join("step-0000000020.safetensors"), b"").unwrap();
    assert!(latest(&path, |_| ()).unwrap_err().to_string().contains("torn"));
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn one_run_at_a_time_may_write_to_a_folder() {
    let path = folder("lock");
    let (first, _) = Folder::open(&path, Every::Steps(1)).unwrap();
    let error = Folder::open(&path, Every::Steps(1)).unwrap_err().to_string();
    assert!(error.contains(&format!("process {} on ", std::process::id())) && error.contains("writes"), "{error}");
    drop(first);
    assert!(Folder::open(&path, Every::Steps(1)).unwrap().1.is_none(), "it was given back");
    // A dead run has left its name, but not its lock.
    let host = lockstep_measure::host::HostInfo::find().name;
    let of = |host: &str| format!("{{\"pid\":77,\"host\":{host:?},\"since\":\"then\"}}");
    fs::write(path.join("lock"), of(&host)).unwrap();
    // The names of drafts contain the process id; older ones did not.
    fs::write(path.join("step-0000000001.safetensors.77.tmp"), b"half").unwrap();
    fs::write(path.join("step-0000000001.safetensors.tmp"), b"half").unwrap();
    let dead = Folder::open(&path, Every::Steps(1)).unwrap().1;
    assert_eq!(dead, Some(format!("process 77 on {host} since then")));
    assert_eq!(files(&path), ["lock"]);
    // Whether a run on another host is alive is unknown here.
    fs::write(path.join("lock"), of("elsewhere")).unwrap();
    let error = Folder::open(&path, Every::Steps(1)).unwrap_err().to_string();
    assert!(error.contains("process 77 on elsewhere") && error.contains("delete"), "{error}");
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_failed_write_names_the_last_good_one() {
    let (path, model) = (folder("failed"), model());
    let (kept, _) = Folder::open(&path, Every::Steps(1)).unwrap();
    keep(&kept, &model, 1);
    // Folders have all names of drafts.
    let draft = format!("step-0000000002.safetensors.{}", std::process::id());
    fs::create_dir(path.join(format!("{draft}.tmp"))).unwrap();
    (1..=100).for_each(|more| fs::create_dir(path.join(format!("{draft}.{more}.tmp"))).unwrap());
    let error = kept.keep(2, |mut file, _| file.write_all(b"content")).unwrap_err().to_string();
    assert!(error.contains("step-0000000001.safetensors") && error.contains("last good"), "{error}");
    assert_eq!(latest(&path, |_| ()).unwrap().0.steps, 1);
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn unusable_folders_are_refused() {
    let message = Folder::open(Path::new("/proc/no/checkpoints"), Every::Steps(1)).unwrap_err().to_string();
    assert!(message.contains("--checkpoint: /proc/no/checkpoints: cannot be created"), "{message}");
    let message = latest(Path::new("no-such-folder"), |_| ()).unwrap_err().to_string();
    assert!(message.contains("no-such-folder") && message.contains("cannot be read"), "{message}");
    // It exists, but nothing can be created in it, even by root.
    let message = Folder::open(Path::new("/proc/self"), Every::Steps(1)).unwrap_err().to_string();
    assert!(message.contains("--checkpoint: /proc/self: cannot be written"), "{message}");
    let empty = folder("empty");
    let message = latest(&empty, |_| ()).unwrap_err().to_string();
    assert!(message.contains("holds no checkpoint"), "{message}");
    fs::remove_dir_all(empty).unwrap();
}

#[test]
fn intervals_are_steps_or_seconds() {
    for (text, every) in [
        ("100", Every::Steps(100)),
        ("100steps", Every::Steps(100)),
        ("1 step", Every::Steps(1)),
        ("30s", Every::Time(Duration::from_secs(30))),
    ] {
        assert_eq!(text.parse(), Ok(every));
    }
    for text in ["", "0", "0s", "-1", "1.5s", "steps", "5m"] {
        assert!(text.parse::<Every>().unwrap_err().contains("100steps or 30s"), "{text}");
    }
}
