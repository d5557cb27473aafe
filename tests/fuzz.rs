//! A thousand broken inputs for each reader: every one is read or refused, and none panics.

use std::collections::BTreeMap;

use lockstep::checkpoint::Checkpoint;
use lockstep::experiment::Experiment;
use lockstep_exec::{Log, Position, State};
use lockstep_models::{Judge, Model};
use lockstep_topology::Cluster;

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

/// What readers like least in the place of a value.
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

/// `whole` with one to four changes: bits, pieces that are gone, doubled or from elsewhere, values that no one means.
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
            // In place of what stands behind a `=` or a `:`, as most values do.
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

/// Hands every broken input to `read`, which says whether it took it; tells how many were refused.
fn refused(name: &str, wholes: &[Vec<u8>], mut read: impl FnMut(&[u8]) -> bool) -> u64 {
    let mut refused = 0;
    for seed in 0..INPUTS {
        let mut stream = Stream(seed);
        let input = broken(&wholes[seed as usize % wholes.len()], &mut stream);
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&input)));
        let Ok(taken) = taken else { panic!("{name}, seed {seed}: panics on {:?}", String::from_utf8_lossy(&input)) };
        refused += u64::from(!taken);
    }
    refused
}

/// The texts of all TOML files of a folder, in order of their names.
fn texts(folder: &str) -> Vec<Vec<u8>> {
    let root = env!("CARGO_MANIFEST_DIR");
    let entries = std::fs::read_dir(format!("{root}/{folder}")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

#[test]
fn models() {
    let count = refused("model", &texts("models/zoo"), |input| Model::parse("m.toml", &text(input)).is_ok());
    assert!(count > INPUTS / 4, "{count}");
}

#[test]
fn clusters() {
    let count = refused("cluster", &texts("topology/clusters"), |input| Cluster::parse("c.toml", &text(input)).is_ok());
    assert!(count > INPUTS / 4, "{count}");
}

#[test]
fn experiments() {
    let count = refused("experiment", &texts("experiments"), |input| Experiment::parse("e.toml", &text(input)).is_ok());
    assert!(count > INPUTS / 4, "{count}");
}

#[test]
fn checkpoints() {
    let model = Model::parse(
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
        velocity: Vec::new(),
        average: Some((vec![0.25; parameters], None)),
        references: Vec::new(),
        judge: Judge::new(None),
    };
    let maps = BTreeMap::from([("--model".to_owned(), "small".to_owned())]);
    let log = Log { restarts: vec![3], ..Log::default() };
    let one = Checkpoint { identity: maps.clone(), setting: maps, steps: 9, state, log };
    let whole = vec![one.to_bytes(&model).unwrap()];
    assert!(Checkpoint::from_bytes("c", &whole[0]).is_ok());
    let count = refused("checkpoint", &whole, |input| Checkpoint::from_bytes("c", input).is_ok());
    // Whatever is read has the digest that it says, so next to nothing that was changed is.
    assert!(count > INPUTS * 9 / 10, "{count}");
}
