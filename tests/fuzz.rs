//! Feeds each reader a thousand broken inputs, and those found by cargo-fuzz: every one is read or refused, without a
//! panic.

mod readers;

use std::collections::BTreeMap;
use std::io::Read;

use lockstep_exec::{Log, Position, State};
use lockstep_measure::checkpoint::Checkpoint;
use lockstep_models::AccuracyMonitor;

const INPUTS: u64 = 1000;

/// SplitMix64: a stream of numbers from a seed.
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Values that are hard for readers.
const NASTY: [&str; 18] = [
    "-1",
    "0",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "18446744073709551615",
    "4294967296",
    "\"\"",
    "[]",
    "{}",
    "[[",
    "\"\\u0000\"",
    "\"ä\u{1F600}\"",
    "=",
    "true",
    "9999999999999999999999",
    "\"0B\"",
];

/// `whole` with one to four changes: bits flipped, pieces removed, duplicated or moved, and invalid values.
fn broken(whole: &[u8], stream: &mut Stream) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=stream.below(4) {
        let (a, b) = (stream.below(bytes.len() + 1), stream.below(40));
        let end = (a + b).min(bytes.len());
        match stream.below(7) {
            0 if !bytes.is_empty() => {
                let at = a.min(bytes.len() - 1);
                bytes[at] ^= 1 << stream.below(8);
            }
            1 => drop(bytes.drain(a..end)),
            2 => {
                let piece = bytes[a..end].to_vec();
                let to = stream.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            3 => bytes.truncate(a),
            4 => {
                let noise: Vec<u8> = (0..b).map(|_| stream.next() as u8).collect();
                bytes.splice(a..a, noise);
            }
            // Instead of the text after a `=` or a `:`, where most values are.
            _ => {
                let from = (a..bytes.len()).find(|at| matches!(bytes[*at], b'=' | b':')).map_or(end, |at| at + 1);
                let to =
                    (from..bytes.len()).find(|at| matches!(bytes[*at], b'\n' | b',' | b'}')).unwrap_or(bytes.len());
                bytes.splice(from.min(to)..to, NASTY[stream.below(NASTY.len())].bytes());
            }
        }
    }
    bytes
}

/// The files of a folder of the project with this ending, sorted by name; empty without such a folder.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let entries = std::fs::read_dir(format!("{root}/{folder}")).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut files: Vec<_> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    files.sort();
    files.iter().map(|path| std::fs::read(path).expect("a readable file")).collect()
}

/// The inputs found by cargo-fuzz for a target, sorted by name.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/fuzz/corpus/{target}.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let entries = archive.entries().expect("an archive");
    let mut inputs: Vec<(Vec<u8>, Vec<u8>)> = entries
        .map(|entry| {
            let mut entry = entry.expect("a whole entry");
            let mut input = Vec::new();
            entry.read_to_end(&mut input).expect("a whole entry");
            (entry.path_bytes().into_owned(), input)
        })
        .collect();
    inputs.sort();
    inputs.into_iter().map(|(_, input)| input).collect()
}

/// Whether `read` accepts the input; a panic names it.
fn taken(name: &str, input: &[u8], read: fn(&[u8]) -> bool) -> bool {
    let taken = std::panic::catch_unwind(|| read(input));
    let Ok(taken) = taken else { panic!("{name}: panics on {:?}", String::from_utf8_lossy(input)) };
    taken
}

/// Feeds a reader the inputs found by cargo-fuzz, unchanged, and a thousand broken inputs made from these and from the
/// `own` files in turn. It must accept the `own` files, and refuse at least `least` of the thousand.
fn holds(name: &str, read: fn(&[u8]) -> bool, own: &[Vec<u8>], least: u64) {
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name}: no corpus");
    let good = corpus.iter().filter(|input| taken(name, input, read)).count();
    assert!(good > 0 || !own.is_empty(), "{name}: nothing that is good to begin with");
    assert!(own.iter().all(|input| taken(name, input, read)), "{name}: refuses a file of the project");
    let wholes = |seed: u64| if seed.is_multiple_of(2) && !own.is_empty() { own } else { &corpus };
    let refused = |seed: &u64| {
        let of = wholes(*seed);
        !taken(name, &broken(&of[*seed as usize / 2 % of.len()], &mut Stream(*seed)), read)
    };
    let refused = (0..INPUTS).filter(refused).count() as u64;
    assert!(refused >= least, "{name}: {refused} of {INPUTS} refused");
}

#[test]
fn models() {
    holds("model", readers::model, &files("models/zoo", ".toml"), INPUTS / 4);
}

#[test]
fn configurations_of_decoders() {
    holds("config", readers::config, &[], INPUTS / 4);
}

#[test]
fn keys_of_decoders() {
    holds("decoder", readers::decoder, &[], INPUTS / 4);
}

#[test]
fn onnx_files() {
    holds("onnx", readers::onnx, &[], INPUTS / 4);
}

#[test]
fn network_definitions() {
    holds("caffe", readers::caffe, &files("models/readers/src/caffe/tests", ".prototxt"), INPUTS / 4);
}

#[test]
fn solvers() {
    holds("solver", readers::solver, &[], INPUTS / 4);
}

#[test]
fn weights_of_caffe() {
    holds("caffemodel", readers::caffemodel, &[], INPUTS / 4);
}

#[test]
fn weights_of_decoders() {
    let model = readers::decoder_of_weights();
    let values: Vec<f32> = (0..model.parameter_elements()).map(|at| at as f32).collect();
    let mut own = Vec::new();
    lockstep_readers::WeightLayout::of(&model).unwrap().write(&values, &mut own).unwrap();
    holds("safetensors", readers::safetensors, &[own], INPUTS / 4);
}

#[test]
fn clusters() {
    holds("cluster", readers::cluster, &files("topology/clusters", ".toml"), INPUTS / 4);
}

#[test]
fn machines() {
    let of = |end: &str| files("topology/machines/src/tests", end);
    holds("machine", readers::machine, &[of(".xml"), of(".txt")].concat(), INPUTS / 4);
}

#[test]
fn logs_of_nccl_tests() {
    holds("nccl_log", readers::nccl_log, &[], INPUTS / 4);
}

#[test]
fn experiments() {
    holds("experiment", readers::experiment, &files("experiments", ".toml"), INPUTS / 4);
}

#[test]
fn flight_records() {
    holds("record", readers::record, &[], INPUTS / 4);
}

#[test]
fn driver_logs() {
    let line = |step: u32, rank: u32| {
        format!("{{\"iteration\":{step},\"rank\":{rank},\"micro_batch\":{},\"at_ps\":{step}}}\n", (step + rank) % 2)
    };
    let log: String = (0..4).flat_map(|step| [line(step, 0), line(step, 1)]).collect();
    holds("claims", readers::claims, &[log.into_bytes()], INPUTS / 4);
}

#[test]
fn packed_sets() {
    holds("packed", readers::packed, &[], INPUTS / 2);
}

#[test]
fn packed_tokens() {
    holds("tokens", readers::tokens, &[], INPUTS / 2);
}

#[test]
fn tokenizers() {
    holds("tokenizer", readers::tokenizer, &files("data", "tokenizer.json"), INPUTS / 4);
}

#[test]
fn samples_of_caffe() {
    holds("datum", readers::datum, &[], INPUTS / 8);
}

#[test]
fn tar_shards() {
    holds("shard", readers::shard, &[], INPUTS / 8);
}

#[test]
fn idx_files() {
    holds("idx", readers::idx, &[], INPUTS / 4);
}

#[test]
fn cifar_binaries() {
    holds("cifar", readers::cifar, &[], INPUTS / 8);
}

#[test]
fn lmdb_files() {
    holds("lmdb", readers::lmdb, &[], INPUTS / 8);
}

#[test]
fn checkpoints() {
    let model = lockstep_readers::parse_model(
        "m.toml",
        "name = \"small\"\ninput = [1, 2, 2]\n[[layer]]\nkind = \"dense\"\nout_features = 2\n\
         [[layer]]\nkind = \"softmax_cross_entropy\"\n",
    )
    .unwrap();
    let parameters = model.parameter_elements() as usize;
    let state = State {
        position: Position { epoch: 1, samples: 5 },
        weights: vec![vec![0.5; parameters]; 2],
        statistics: vec![vec![1.0; 3]; 2],
        states: Vec::new(),
        moments: lockstep_models::Moments::default(),
        average: Some((vec![0.25; parameters], None)),
        references: Vec::new(),
        buffers: vec![vec![0.125; parameters]; 2],
        accuracy_monitor: AccuracyMonitor::default(),
    };
    let maps = BTreeMap::from([("--model".to_owned(), "small".to_owned())]);
    let log = Log { restarts: vec![3], ..Log::default() };
    let one = Checkpoint { identity: maps.clone(), setting: maps, steps: 9, state, log };
    // A valid file has a matching digest, so nearly everything that was changed is refused.
    holds("checkpoint", readers::checkpoint, &[one.to_bytes(&model).unwrap()], INPUTS * 9 / 10);
}
