//! Wraps the readers of all external input, each as a function that takes any bytes and returns whether it accepted
//! them.
//!
//! The thousand broken inputs of `tests/fuzz.rs` and the targets of cargo-fuzz call the same functions. Accepted input
//! is used as a command would use it first, since a reader that accepts nonsense only moves the panic.

use std::sync::Arc;

use lockstep_data::cifar::{self, RecordForm};
use lockstep_data::format::{Header, IndexEntry, checksum};
use lockstep_data::{SampleEntry, TokenHeader, Tokenizer, lmdb, shards};
use lockstep_experiment::Experiment;
use lockstep_machines::nccl_log::{self, Asked};
use lockstep_machines::{Import, import_machine};
use lockstep_measure::checkpoint::Checkpoint;
use lockstep_measure::flight::{Record, account};
use lockstep_models::{Driver, InitialValues, Job, Model, Pass, RunLength};
use lockstep_topology::cluster::{Cluster, DeviceId};

fn text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

/// A checkpoint, with its own digest and, since anyone can compute one, ignoring it.
pub(crate) fn checkpoint(input: &[u8]) -> bool {
    let sealed = Checkpoint::from_bytes("c", input).is_ok();
    if let Ok(any) = Checkpoint::from_bytes_of_any_digest("c", input) {
        let _ = any.state.position.steps(1, u64::from(u32::MAX));
        let _ = any.check("c", &any.setting).and(Ok(any.changes(&any.identity)));
    }
    sealed
}

/// An experiment and its configurations.
pub(crate) fn experiment(input: &[u8]) -> bool {
    Experiment::parse("e.toml", &text(input)).and_then(|experiment| experiment.configurations()).is_ok()
}

/// A cluster, its summary, and a route across it.
pub(crate) fn cluster(input: &[u8]) -> bool {
    let Ok(cluster) = Cluster::parse("c.toml", &text(input)) else { return false };
    let last = DeviceId(cluster.devices().len() as u32 - 1);
    let _ = (cluster.describe().len(), cluster.route(DeviceId(0), last));
    true
}

/// A machine's topology, converted to a cluster file.
pub(crate) fn machine(input: &[u8]) -> bool {
    let text = text(input);
    let gpus = [Some("a100-80-sxm"), Some("h100-sxm"), Some("mi300x"), None];
    let read = |gpu: Option<&str>| {
        let import = Import { name: "m".into(), gpu: gpu.map(str::to_owned), nics: None, hosts: 1, network: None };
        let Ok(written) = import_machine("m.xml", &text, &import) else { return false };
        assert!(Cluster::parse("m.toml", &written.toml).is_ok(), "{}", written.toml);
        true
    };
    gpus.into_iter().filter(|gpu| read(*gpu)).count() > 0
}

/// A log of nccl-tests, with and without the collective and ranks that a command names; what it says is in range.
pub(crate) fn nccl_log(input: &[u8]) -> bool {
    let text = text(input);
    let asked = |collective: Option<&str>, ranks| Asked { collective: collective.map(str::to_owned), ranks };
    let read = |asked: &Asked| {
        let Ok(log) = nccl_log::read("l.txt", &text, asked) else { return false };
        assert!(!log.sizes.is_empty(), "a table has rows");
        assert!(log.sizes.iter().all(|size| size.bytes.0 >= 4 && size.time_us.is_finite() && size.time_us > 0.0));
        assert!(log.ranks.is_none_or(|ranks| ranks >= 2) && log.ranks_per_host.is_none_or(|each| each >= 1));
        assert!(log.names().len() + log.line > 0 && log.is_of(&log.names()) | (log.collectives.len() != 1));
        true
    };
    let all = [asked(None, None), asked(Some("allreduce"), None), asked(Some("broadcast:0"), Some(8))];
    all.iter().filter(|asked| read(asked)).count() > 0
}

fn used(model: Result<Model, lockstep_topology::InputError>) -> bool {
    let Ok(model) = model else { return false };
    let flops = |pass| model.layers().iter().map(|node| node.work(pass, 1).flops).sum::<f64>();
    assert!(flops(Pass::Forward) >= 0.0 && model.classes() > 0);
    true
}

/// A model in the project's own format.
pub(crate) fn model(input: &[u8]) -> bool {
    used(lockstep_readers::parse_model("m.toml", &text(input)))
}

/// A decoder's configuration.
pub(crate) fn config(input: &[u8]) -> bool {
    used(lockstep_readers::read_config("config.json", &text(input)))
}

/// Keys of a decoder behind a model's name; what would name a file is left out.
pub(crate) fn decoder(input: &[u8]) -> bool {
    let text = text(input);
    let names_file = [".toml", ".json", ".onnx", ".prototxt"].iter().any(|ending| text.contains(ending));
    !names_file && used(lockstep_readers::load_model(&format!("gpt:{text}")))
}

/// A model in ONNX format.
pub(crate) fn onnx(input: &[u8]) -> bool {
    used(lockstep_readers::read_onnx("m.onnx", input))
}

/// A model in Caffe's format.
pub(crate) fn caffe(input: &[u8]) -> bool {
    used(lockstep_readers::read_caffe("m.prototxt", &text(input)))
}

/// A Caffe solver, and its learning rates.
pub(crate) fn solver(input: &[u8]) -> bool {
    let Ok(solver) = lockstep_readers::Solver::parse("s.prototxt", &text(input)) else { return false };
    let run_length = RunLength { global_batch: 64, steps_per_epoch: 10, steps: solver.steps.map_or(50, u64::from) };
    let _ = [0, 1, run_length.steps, u64::from(u32::MAX)].map(|step| solver.optimizer.step(step, &run_length));
    let decay = &solver.optimizer.decay;
    assert_eq!(decay.to_string().parse().as_ref(), Ok(decay));
    true
}

/// A small net with each kind of layer that has weights.
const NET: &str = "
layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } } }
layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: 'n' type: 'BatchNorm' bottom: 'c' top: 'c' }
layer { name: 's' type: 'Scale' bottom: 'c' top: 'c' scale_param { bias_term: true } }
layer { name: 'd' type: 'InnerProduct' bottom: 'c' top: 'y' inner_product_param { num_output: 5 } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'label' }";

/// Caffe weights, loaded into a net's arenas.
pub(crate) fn caffemodel(input: &[u8]) -> bool {
    let model = lockstep_readers::read_caffe("m.prototxt", NET).expect("a net");
    let Ok((values, _)) = lockstep_readers::read_caffe_weights("w", input, &model) else { return false };
    let mut parameters = vec![0.0; model.parameter_elements() as usize];
    let mut statistics = vec![0.0; model.statistics_elements() as usize];
    values.put(&model, &mut parameters, &mut statistics).expect("values that are here");
    assert!(parameters.iter().all(|value| value.is_finite()));
    true
}

/// The decoder of [`safetensors`].
pub(crate) fn decoder_of_weights() -> Model {
    lockstep_readers::load_model("gpt:vocabulary=4,positions=2,hidden=2,layers=1,heads=1").expect("a decoder")
}

/// Weights of a small decoder, loaded into its parameters.
pub(crate) fn safetensors(input: &[u8]) -> bool {
    let model = decoder_of_weights();
    let Ok((weights, _)) = lockstep_readers::read_weights("w", input.to_vec(), &model) else { return false };
    let mut parameters = vec![f32::NAN; model.parameter_elements() as usize];
    let loaded = weights.put(&model, &mut parameters, &mut []).is_ok();
    assert!(!loaded || parameters.iter().all(|value| value.is_finite()));
    loaded
}

/// A flight record, and the report of `exec inspect`.
pub(crate) fn record(input: &[u8]) -> bool {
    Record::parse("r.json", &text(input)).map(|record| account(&[record])).is_ok()
}

/// A driver's log, replayed for two learners.
pub(crate) fn claims(input: &[u8]) -> bool {
    let Ok(claims) = lockstep_experiment::driver_log::parse("l.jsonl", &text(input)) else { return false };
    let model = lockstep_readers::parse_model(
        "m.toml",
        "name = \"small\"\ninput = [1, 2, 2]\n[[layer]]\nkind = \"dense\"\nout_features = 2\n\
         [[layer]]\nkind = \"softmax_cross_entropy\"\n",
    );
    let job = model.map(|model| Job::new(Arc::new(model), 2, 1)).expect("a model");
    let program = Job { strategy: "sma:first-come".parse().expect("a strategy"), ..job }.program().expect("a program");
    Driver::fixed(4).replaying(&program, &claims).is_ok()
}

/// The header and index of a packed file, with their own checksums and, since anyone can compute them, with the correct
/// ones.
pub(crate) fn packed(input: &[u8]) -> bool {
    let read = |bytes: &[u8]| {
        let header = Header::decode(bytes, bytes.len() as u64)?;
        let entries = header.entries(&bytes[header.index as usize..])?;
        header.normalisation(bytes)?;
        let inside = |entry: &IndexEntry| !bytes[entry.offset as usize..][..entry.length as usize].is_empty();
        assert!(entries.iter().all(inside), "samples have bytes");
        Ok::<(), String>(())
    };
    if let Some(index) = input.get(48..56).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        && input.len() >= 64
    {
        let mut sealed = input.to_vec();
        let entries = usize::try_from(index).ok().and_then(|at| input.get(at..)).unwrap_or_default();
        sealed[56..60].copy_from_slice(&checksum(entries).to_le_bytes());
        let header = checksum(&sealed[..60]);
        sealed[60..64].copy_from_slice(&header.to_le_bytes());
        let _ = read(&sealed);
    }
    read(input).is_ok()
}

/// A tokenizer; its tokens are in its vocabulary, and those of a text decode to it where texts are not changed before.
pub(crate) fn tokenizer(input: &[u8]) -> bool {
    let Ok(read) = Tokenizer::parse("t.json", input) else { return false };
    let texts = ["In the beginning was the Word.\n\n 12345 \u{1F600}", " don't <|endoftext|>", "aaaaaaaaaaaaaaaa"];
    for text in texts.map(str::to_owned).into_iter().chain([text(input).chars().take(300).collect()]) {
        let tokens = read.encode(&text);
        assert!(tokens.iter().all(|token| *token < read.vocabulary()), "a token beyond the vocabulary");
        let decoded = read.decode(&tokens);
        assert!(text.is_empty() || !decoded.is_empty(), "a text without tokens");
    }
    let _ = (read.end(), read.decode(&[0, u32::MAX]), read.sha256());
    true
}

/// A packed token set, with its own checksums and with those that its bytes have; its documents and tokens.
pub(crate) fn tokens(input: &[u8]) -> bool {
    let read = |bytes: &[u8]| {
        let header = TokenHeader::decode(bytes)?;
        let documents = header.documents(bytes)?;
        assert!(documents.iter().all(|first| *first < header.tokens), "documents have tokens");
        (0..header.tokens.div_ceil(1 << 16))
            .try_for_each(|block| header.verify(bytes, block))
            .map_err(|(_, message)| message)
    };
    if input.len() >= 4096 {
        let number = |at: usize| u64::from_le_bytes(input[at..at + 8].try_into().expect("eight bytes"));
        let width = if number(32) as u32 <= 1 << 16 { 2 } else { 4 };
        let index = number(16).saturating_mul(width).saturating_add(4096);
        let mut sealed = input.to_vec();
        let of_index = usize::try_from(index).ok().and_then(|at| input.get(at..)).unwrap_or_default();
        sealed[36..40].copy_from_slice(&checksum(of_index).to_le_bytes());
        let header = checksum(&sealed[..60]);
        sealed[60..64].copy_from_slice(&header.to_le_bytes());
        let _ = read(&sealed);
    }
    read(input).is_ok()
}

/// Whether every listed sample is in the file.
fn listed(input: &[u8], found: &[SampleEntry]) -> bool {
    let inside =
        |(offset, length): &(u64, u64)| offset.checked_add(*length).is_some_and(|end| end <= input.len() as u64);
    assert!(found.iter().filter_map(|found| found.place.as_ref().ok()).all(inside), "samples lie in their file");
    found.iter().all(|found| found.place.is_ok())
}

/// A Caffe sample.
pub(crate) fn datum(input: &[u8]) -> bool {
    lockstep_data::datum::read(input).is_ok()
}

/// A shard of samples in a tar file.
pub(crate) fn shard(input: &[u8]) -> bool {
    let found = shards::list(input);
    listed(input, &found) && !found.is_empty()
}

/// An IDX file, plain or gzipped.
pub(crate) fn idx(input: &[u8]) -> bool {
    lockstep_data::idx::decode("i", input, &[1, 3, 4]).is_ok()
}

/// A binary of CIFAR's two sets.
pub(crate) fn cifar(input: &[u8]) -> bool {
    listed(input, &cifar::list(input, RecordForm::Hundred)) | listed(input, &cifar::list(input, RecordForm::Ten))
}

/// An LMDB database.
pub(crate) fn lmdb(input: &[u8]) -> bool {
    lmdb::list(input).is_ok_and(|found| listed(input, &found))
}
