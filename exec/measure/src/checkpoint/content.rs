//! The content of a checkpoint file: its header, its tensors, and the digest over both; writes it without a copy of fp32 numbers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::thread;

use lockstep_data::number::bytes_of;
use lockstep_exec::Pins;
use lockstep_models::Moments;
use rustix::fs::{Advice, fadvise};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The header's key of the JSON.
pub(super) const KEY: &str = "lockstep";

/// Bytes of a digest in hexadecimal.
const DIGEST: usize = 64;

/// Bytes of the longest header that safetensors reads.
const LONGEST_HEADER: usize = 100_000_000;

/// Bytes that are written at once: of 1 to 32 MiB the fastest (docs/speed.md).
const BLOCK: usize = 1 << 20;

/// Everything in the file that is not a tensor.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) version: u64,
    pub(super) steps: u64,
    pub(super) epoch: u64,
    pub(super) samples: u64,
    /// The names of the parameters in the order of the model.
    pub(super) parameters: Vec<String>,
    /// Entries of weights: one per learner, or none where all workers train one model.
    pub(super) learners: usize,
    /// Entries of running statistics.
    pub(super) workers: usize,
    pub(super) previous: bool,
    /// Number of reference models of devices.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) references: usize,
    /// Number of buffers that the program declares as state.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) buffers: usize,
    /// Number of states of the optimizer, where it is not one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) states: usize,
    /// Floats as bits, since JSON has no NaN.
    pub(super) judge_before: Option<u64>,
    /// The same, for the accuracies after the last epochs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) judge_recent: Vec<u64>,
    /// Samples, correct ones, and the bits of the mean loss.
    pub(super) evaluations: Vec<(u64, u64, u64)>,
    pub(super) restarts: Vec<u64>,
    pub(super) identity: BTreeMap<String, String>,
    pub(super) setting: BTreeMap<String, String>,
    /// Over the header without this digest and all tensors.
    pub(super) sha256: String,
}

/// Whether it is zero, which headers omit.
fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A tensor to write, or one that was read.
pub(super) struct Tensor<'a> {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Cow<'a, [u8]>,
}

impl<'a> Tensor<'a> {
    pub(super) fn flat(name: String, values: &'a [f32]) -> Tensor<'a> {
        Tensor::of(name, vec![values.len()], values)
    }

    /// A tensor of values that the optimizer keeps in this format, to whose numbers they are rounded.
    pub(super) fn of_moments(name: String, values: &'a [f32], moments: Moments) -> Tensor<'a> {
        match moments {
            Moments::F32 => Tensor::flat(name, values),
            Moments::Bf16 => {
                // The upper halves are all of such numbers.
                let bytes = values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
                Tensor { name, dtype: Dtype::BF16, shape: vec![values.len()], bytes }
            }
        }
    }

    pub(super) fn of(name: impl Into<String>, shape: Vec<usize>, values: &'a [f32]) -> Tensor<'a> {
        let bytes = match cfg!(target_endian = "little") {
            true => Cow::Borrowed(bytes_of(values)),
            false => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        Tensor { name: name.into(), dtype: Dtype::F32, shape, bytes }
    }
}

/// What a file holds.
pub(super) struct Content<'a> {
    header: Header,
    /// In the order of the file.
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Content<'a> {
    /// A header, whose digest is computed later, and the tensors in any order.
    pub(super) fn new(header: Header, mut tensors: Vec<Tensor<'a>>) -> Content<'a> {
        // The order of safetensors: larger elements first, so that all are aligned.
        tensors.sort_by(|one, other| other.dtype.cmp(&one.dtype).then_with(|| one.name.cmp(&other.name)));
        Content { header, tensors }
    }

    /// What the digest in the file is to be.
    pub(super) fn digest(&self) -> String {
        digest(&self.header, &self.tensors)
    }

    /// The beginning of the file, with `sha256` as its digest: the header's length in 8 bytes, and the header.
    ///
    /// # Errors
    /// A header longer than safetensors reads.
    fn beginning(&self, sha256: String) -> io::Result<Vec<u8>> {
        let json = serde_json::to_string(&Header { sha256, ..self.header.clone() })?;
        let mut end = 0;
        let place = |tensor: &Tensor<'_>| {
            let start = end;
            end += tensor.bytes.len();
            let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
            (tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
        };
        let places = self.tensors.iter().map(place).collect();
        let all = Metadata::new(Some([(KEY.to_owned(), json)].into()), places).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&all)?;
        header.resize(header.len().next_multiple_of(size_of::<u64>()), b' ');
        if header.len() > LONGEST_HEADER {
            return Err(io::Error::other("the header of the checkpoint is longer than 100 MB"));
        }
        let mut beginning = (header.len() as u64).to_le_bytes().to_vec();
        beginning.append(&mut header);
        Ok(beginning)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// A header longer than safetensors reads.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = self.beginning(self.digest())?;
        self.tensors.iter().for_each(|tensor| bytes.extend_from_slice(&tensor.bytes));
        Ok(bytes)
    }

    /// Writes them to an empty file. The header comes last, since a second thread, on the processors of `pins`, computes
    /// the digest meanwhile: until then the file begins with zeros, which no reader takes for a checkpoint.
    ///
    /// # Errors
    /// As [`Content::to_bytes`], and errors of the disk and of starting a thread.
    pub(super) fn write(&self, file: &File, pins: &Pins) -> io::Result<()> {
        let length = self.beginning("0".repeat(DIGEST))?.len();
        let digest = thread::scope(|scope| {
            let compute = || {
                // The thread that writes may be bound to one processor.
                let _bound = pins.bind(0);
                self.digest()
            };
            let digest = thread::Builder::new().spawn_scoped(scope, compute)?;
            let mut at = length as u64;
            for block in self.tensors.iter().flat_map(|tensor| tensor.bytes.chunks(BLOCK)) {
                file.write_all_at(block, at)?;
                // The disk writes this block while the next is copied; a system that does not heed it writes all at the
                // end.
                let _ = fadvise(file, at, NonZeroU64::new(block.len() as u64), Advice::DontNeed);
                at += block.len() as u64;
            }
            digest.join().map_err(|_| io::Error::other("the thread that computes the digest has panicked"))
        })?;
        let beginning = self.beginning(digest)?;
        assert_eq!(beginning.len(), length, "every digest is as long");
        file.write_all_at(&beginning, 0)
    }
}

/// SHA-256 of a header without digest and of all tensors with their names, types and shapes, in the order of names.
pub(super) fn digest(header: &Header, tensors: &[Tensor<'_>]) -> String {
    let mut tensors: Vec<&Tensor<'_>> = tensors.iter().collect();
    tensors.sort_by_key(|tensor| &tensor.name);
    let mut digest = Sha256::new();
    digest.update(serde_json::to_string(header).unwrap_or_default());
    for Tensor { name, dtype, shape, bytes } in tensors {
        digest.update(format!("\n{name} {dtype:?} {shape:?}\n"));
        digest.update(bytes);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    /// A file is what the safetensors crate makes of the same header and tensors, written whole or as it is.
    #[test]
    fn files_are_safetensors() {
        let header = r#"{"version":1,"steps":2,"epoch":0,"samples":4,"parameters":["b.weight"],"learners":0,"workers":1,
            "previous":false,"judge_before":null,"evaluations":[],"restarts":[],"identity":{"--model":"\"é"},
            "setting":{},"sha256":""}"#;
        let header: Header = serde_json::from_str(header).unwrap();
        // More than one block, and none at all.
        let large: Vec<f32> = (0..BLOCK as u32 / 4 + 3).map(|i| i as f32).collect();
        let other = |name: &str, dtype, bytes: &[u8]| {
            let shape = vec![bytes.len() / (if dtype == Dtype::U64 { 8 } else { 4 })];
            Tensor { name: name.to_owned(), dtype, shape, bytes: bytes.to_vec().into() }
        };
        let tensors = vec![
            other("claims", Dtype::U32, &[1, 2, 3, 4]),
            Tensor::flat("velocity".to_owned(), &large),
            Tensor::flat("a".to_owned(), &[]),
            Tensor::of("b.weight", vec![1, 2], &[1.0, f32::NAN]),
            other("times", Dtype::U64, &[9; 16]),
        ];
        let content = Content::new(header, tensors);
        let views = content
            .tensors
            .iter()
            .map(|of| (of.name.as_str(), TensorView::new(of.dtype, of.shape.clone(), &of.bytes).unwrap()));
        let json = serde_json::to_string(&Header { sha256: content.digest(), ..content.header.clone() }).unwrap();
        let wanted = safetensors::serialize(views, Some([(KEY.to_owned(), json)].into())).unwrap();
        assert!(content.to_bytes().unwrap() == wanted);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        content.write(&File::create(&path).unwrap(), &Pins::of_this_thread()).unwrap();
        assert!(std::fs::read(path).unwrap() == wanted);
    }
}
