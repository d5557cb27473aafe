//! Reads and writes checkpoint files: tensors by name as safetensors, everything else as JSON in the header, a digest
//! over both.
//!
//! The trained parameters have their own names and shapes, so that PyTorch's safetensors reads the model; all other
//! state has names without a dot, which no parameter has.

use std::collections::BTreeMap;

use lockstep_exec::replica::Evaluation;
use lockstep_exec::{Log, Position, State};
use lockstep_models::{AccuracyMonitor, Claim, Model};
use lockstep_topology::{InputError, Time};
use safetensors::tensor::{SafeTensors, TensorView};
use safetensors::{Dtype, serialize};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The version of the format that this program writes; it reads this one and older ones.
pub const VERSION: u64 = 1;

/// The header's key of the JSON.
const KEY: &str = "lockstep";
const VELOCITY: &str = "optimizer_velocity";
const PREVIOUS: &str = "average_previous";
const CLAIMS: &str = "claims";
const CLAIM_TIMES: &str = "claim_times";

/// A training between two steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Settings that a resumed training must share with the interrupted one: values by flag.
    pub identity: BTreeMap<String, String>,
    /// Settings that it may change: values by flag.
    pub setting: BTreeMap<String, String>,
    /// Steps since training began.
    pub steps: u64,
    /// The state from which the next step starts.
    pub state: State,
    /// The log since training began.
    pub log: Log,
}

/// Everything in the file that is not a tensor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u64,
    steps: u64,
    epoch: u64,
    samples: u64,
    /// The names of the parameters in the order of the model.
    parameters: Vec<String>,
    /// Entries of weights: one per learner, or none where all workers train one model.
    learners: usize,
    /// Entries of running statistics.
    workers: usize,
    previous: bool,
    /// Number of reference models of devices.
    #[serde(default, skip_serializing_if = "is_none")]
    references: usize,
    /// Number of buffers that the program declares as state.
    #[serde(default, skip_serializing_if = "is_none")]
    buffers: usize,
    /// Floats as bits, since JSON has no NaN.
    judge_before: Option<u64>,
    /// The same, for the accuracies after the last epochs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    judge_recent: Vec<u64>,
    /// Samples, correct ones, and the bits of the mean loss.
    evaluations: Vec<(u64, u64, u64)>,
    restarts: Vec<u64>,
    identity: BTreeMap<String, String>,
    setting: BTreeMap<String, String>,
    /// Over the header without this digest and all tensors.
    sha256: String,
}

/// A tensor to write.
struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn of(name: impl Into<String>, shape: Vec<usize>, values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { name: name.into(), dtype: Dtype::F32, shape, bytes }
    }
}

fn learner(index: usize) -> String {
    format!("learner_{index}")
}

/// The tensor name of a device's reference model; the first device has none, since its reference is the average model.
fn reference(index: usize) -> String {
    format!("reference_{}", index + 1)
}

/// The tensor name of a buffer that the program declares as state.
fn buffer(index: usize) -> String {
    format!("buffer_{index}")
}

/// Whether it is zero, which headers omit.
fn is_none(count: &usize) -> bool {
    *count == 0
}

fn statistics(index: usize) -> String {
    format!("statistics_{index}")
}

impl Checkpoint {
    /// The content of its file; `model` is the whole trained model.
    ///
    /// # Errors
    /// A header longer than the format allows.
    pub fn to_bytes(&self, model: &Model) -> Result<Vec<u8>, String> {
        let State {
            position,
            weights,
            statistics: of_workers,
            velocity,
            average,
            references,
            buffers,
            accuracy_monitor,
        } = &self.state;
        let trained = average.as_ref().map_or(&weights[0], |(average, _)| average);
        let parameters: Vec<_> = model.layers().iter().flat_map(|node| &node.parameters).collect();
        let mut tensors = Vec::new();
        for parameter in &parameters {
            let shape = parameter.dims.iter().map(|size| *size as usize).collect();
            let values = &trained[parameter.range.start as usize..parameter.range.end as usize];
            tensors.push(Tensor::of(parameter.name.clone(), shape, values));
        }
        let flat = |name: String, values: &[f32]| Tensor::of(name, vec![values.len()], values);
        let previous = average.as_ref().and_then(|(_, previous)| previous.as_ref());
        match average {
            None => tensors.push(flat(VELOCITY.to_owned(), velocity)),
            Some(_) => tensors.extend(weights.iter().enumerate().map(|(index, own)| flat(learner(index), own))),
        }
        tensors.extend(previous.map(|previous| flat(PREVIOUS.to_owned(), previous)));
        tensors.extend(references.iter().enumerate().map(|(index, own)| flat(reference(index), own)));
        tensors.extend(buffers.iter().enumerate().map(|(index, own)| flat(buffer(index), own)));
        tensors.extend(of_workers.iter().enumerate().map(|(index, own)| flat(statistics(index), own)));
        let claims = &self.log.claims;
        let places = claims.iter().flat_map(|claim| [claim.iteration, claim.rank, claim.micro_batch]);
        let bytes = places.flat_map(u32::to_le_bytes).collect();
        tensors.push(Tensor { name: CLAIMS.to_owned(), dtype: Dtype::U32, shape: vec![claims.len(), 3], bytes });
        let bytes = claims.iter().flat_map(|claim| claim.at.0.to_le_bytes()).collect();
        tensors.push(Tensor { name: CLAIM_TIMES.to_owned(), dtype: Dtype::U64, shape: vec![claims.len()], bytes });
        let evaluation = |one: &Evaluation| (one.samples as u64, one.correct as u64, one.mean_loss.to_bits());
        let mut header = Header {
            version: VERSION,
            steps: self.steps,
            epoch: position.epoch,
            samples: position.samples,
            parameters: parameters.iter().map(|parameter| parameter.name.clone()).collect(),
            learners: if average.is_some() { weights.len() } else { 0 },
            workers: of_workers.len(),
            previous: previous.is_some(),
            references: references.len(),
            buffers: buffers.len(),
            judge_before: accuracy_monitor.before().map(f64::to_bits),
            judge_recent: accuracy_monitor.recent().iter().copied().map(f64::to_bits).collect(),
            evaluations: self.log.evaluations.iter().map(evaluation).collect(),
            restarts: self.log.restarts.clone(),
            identity: self.identity.clone(),
            setting: self.setting.clone(),
            sha256: String::new(),
        };
        let views: Result<Vec<(&str, TensorView<'_>)>, _> = tensors
            .iter()
            .map(|one| TensorView::new(one.dtype, one.shape.clone(), &one.bytes).map(|view| (one.name.as_str(), view)))
            .collect();
        let views = views.map_err(|error| error.to_string())?;
        header.sha256 = digest(&header, views.clone());
        let json = serde_json::to_string(&header).map_err(|error| error.to_string())?;
        let header = [(KEY.to_owned(), json)].into_iter().collect();
        serialize(views, Some(header)).map_err(|error| error.to_string())
    }

    /// The checkpoint in `bytes`, the content of the file that errors call `shown`.
    ///
    /// # Errors
    /// Not a checkpoint, torn or altered, or written by a newer version of this program.
    pub fn from_bytes(shown: &str, bytes: &[u8]) -> Result<Checkpoint, InputError> {
        Checkpoint::read(shown, bytes, true)
    }

    /// As [`Checkpoint::from_bytes`], without verifying the digest. A digest does not protect against intent, so tests
    /// with arbitrary content need not compute one.
    ///
    /// # Errors
    /// The same, except for the digest.
    #[doc(hidden)]
    pub fn from_bytes_of_any_digest(shown: &str, bytes: &[u8]) -> Result<Checkpoint, InputError> {
        Checkpoint::read(shown, bytes, false)
    }

    fn read(shown: &str, bytes: &[u8], sealed: bool) -> Result<Checkpoint, InputError> {
        let wrong = |message: String| InputError::new(shown, "", message);
        let torn = |what: &str| wrong(format!("is torn or altered ({what}): resume from an earlier checkpoint"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| torn(&error.to_string()))?;
        let file = SafeTensors::deserialize(bytes).map_err(|error| torn(&error.to_string()))?;
        let json = metadata.metadata().as_ref().and_then(|all| all.get(KEY));
        let json = json.ok_or_else(|| wrong("holds tensors, but is not a checkpoint of a training".to_owned()))?;
        let version = serde_json::from_str::<serde_json::Value>(json).ok().and_then(|all| all["version"].as_u64());
        if let Some(newer) = version.filter(|version| *version > VERSION) {
            let message =
                format!("has version {newer} of the format, and this program reads up to {VERSION}: use a newer one");
            return Err(wrong(message));
        }
        let mut header: Header = serde_json::from_str(json).map_err(|error| torn(&error.to_string()))?;
        let said = std::mem::take(&mut header.sha256);
        if sealed && digest(&header, file.tensors()) != said {
            return Err(torn("its content does not have the digest that it says"));
        }
        // A file with a valid digest may still hold anything, so nothing below, nor later use of the values, may panic.
        if [header.steps, header.epoch, header.samples].iter().any(|count| *count > u64::from(u32::MAX)) {
            return Err(torn("it says that more than 2^32 steps, epochs or samples are done"));
        }
        let tensors = Tensors { file: &file, torn: &torn };
        let state = tensors.state(&header)?;
        let log = tensors.log(&header)?;
        Ok(Checkpoint { identity: header.identity, setting: header.setting, steps: header.steps, state, log })
    }
}

/// The tensors of a file.
struct Tensors<'f> {
    file: &'f SafeTensors<'f>,
    /// The error for a file with this fault.
    torn: &'f dyn Fn(&str) -> InputError,
}

impl Tensors<'_> {
    fn bytes(&self, name: &str, dtype: Dtype) -> Result<&[u8], InputError> {
        let view = self.file.tensor(name).map_err(|error| (self.torn)(&error.to_string()))?;
        if view.dtype() == dtype { Ok(view.data()) } else { Err((self.torn)(&format!("`{name}` has another type"))) }
    }

    fn values(&self, name: &str) -> Result<Vec<f32>, InputError> {
        let words = self.bytes(name, Dtype::F32)?.as_chunks::<4>().0;
        Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }

    /// What has been trained.
    fn state(&self, header: &Header) -> Result<State, InputError> {
        let each = |count: usize, name: fn(usize) -> String| -> Result<Vec<Vec<f32>>, InputError> {
            (0..count).map(|index| self.values(&name(index))).collect()
        };
        let mut trained = Vec::new();
        for name in &header.parameters {
            trained.extend(self.values(name)?);
        }
        let (weights, velocity, average) = match header.learners {
            0 => (vec![trained], self.values(VELOCITY)?, None),
            learners => {
                let weights = each(learners, learner)?;
                let previous = header.previous.then(|| self.values(PREVIOUS)).transpose()?;
                (weights, Vec::new(), Some((trained, previous)))
            }
        };
        Ok(State {
            position: Position { epoch: header.epoch, samples: header.samples },
            weights,
            statistics: each(header.workers, statistics)?,
            velocity,
            average,
            references: each(header.references, reference)?,
            buffers: each(header.buffers, buffer)?,
            accuracy_monitor: AccuracyMonitor::default().resuming(
                header.judge_before.map(f64::from_bits),
                header.judge_recent.iter().copied().map(f64::from_bits).collect(),
            ),
        })
    }

    /// What happened so far.
    fn log(&self, header: &Header) -> Result<Log, InputError> {
        let places = self.bytes(CLAIMS, Dtype::U32)?.as_chunks::<4>().0;
        let places: Vec<u32> = places.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let times = self.bytes(CLAIM_TIMES, Dtype::U64)?.as_chunks::<8>().0;
        let times = times.iter().map(|word| u64::from_le_bytes(*word));
        let claim = |(place, at): (&[u32; 3], u64)| Claim {
            iteration: place[0],
            rank: place[1],
            micro_batch: place[2],
            at: Time(at),
        };
        let evaluation = |(samples, correct, loss): &(u64, u64, u64)| Evaluation {
            samples: *samples as usize,
            correct: *correct as usize,
            mean_loss: f64::from_bits(*loss),
        };
        Ok(Log {
            evaluations: header.evaluations.iter().map(evaluation).collect(),
            restarts: header.restarts.clone(),
            claims: places.as_chunks::<3>().0.iter().zip(times).map(claim).collect(),
        })
    }
}

/// SHA-256 of a header without digest and of all tensors with their names, types and shapes, in the order of names.
fn digest<N: AsRef<str>>(header: &Header, tensors: Vec<(N, TensorView<'_>)>) -> String {
    let mut tensors: Vec<(&str, &TensorView<'_>)> = tensors.iter().map(|(name, view)| (name.as_ref(), view)).collect();
    tensors.sort_by_key(|(name, _)| *name);
    let mut digest = Sha256::new();
    digest.update(serde_json::to_string(header).unwrap_or_default());
    for (name, view) in tensors {
        digest.update(format!("\n{name} {:?} {:?}\n", view.dtype(), view.shape()));
        digest.update(view.data());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
