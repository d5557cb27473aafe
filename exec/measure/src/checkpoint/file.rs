//! Reads and writes checkpoint files: tensors by name as safetensors, everything else as JSON in the header, a digest
//! over both.
//!
//! The trained parameters have their own names and shapes, so that PyTorch's safetensors reads the model; all other
//! state has names without a dot, which no parameter has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use lockstep_exec::replica::Evaluation;
use lockstep_exec::{Log, Pins, Position, State};
use lockstep_models::{AccuracyMonitor, Claim, Model, Moments};
use lockstep_topology::{InputError, Time};
use safetensors::Dtype;
use safetensors::tensor::{SafeTensors, TensorView};

use super::content::{Content, Header, KEY, Tensor, digest};

/// The version of the format that this program writes; it reads this one and older ones.
pub const VERSION: u64 = 1;

/// The name of the optimizer's only state.
const VELOCITY: &str = "optimizer_velocity";
const PREVIOUS: &str = "average_previous";
const CLAIMS: &str = "claims";
const CLAIM_TIMES: &str = "claim_times";

/// A training between two steps. `V` holds the values of a model, as in [`State`].
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint<V = Vec<f32>> {
    /// Settings that a resumed training must share with the interrupted one: values by flag.
    pub identity: BTreeMap<String, String>,
    /// Settings that it may change: values by flag.
    pub setting: BTreeMap<String, String>,
    /// Steps since training began.
    pub steps: u64,
    /// The state from which the next step starts.
    pub state: State<V>,
    /// The log since training began.
    pub log: Log,
}

fn learner(index: usize) -> String {
    format!("learner_{index}")
}

/// The tensor name of a device's reference model; the first device has none, since its reference is the average model.
fn reference(index: usize) -> String {
    format!("reference_{}", index + 1)
}

/// The tensor names of so many states of the optimizer.
fn optimizer_states(count: usize) -> Vec<String> {
    if count == 1 { vec![VELOCITY.to_owned()] } else { (0..count).map(|at| format!("optimizer_state_{at}")).collect() }
}

/// The tensor name of a buffer that the program declares as state.
fn buffer(index: usize) -> String {
    format!("buffer_{index}")
}

fn statistics(index: usize) -> String {
    format!("statistics_{index}")
}

/// A tensor for each entry, with names by number.
fn numbered<V: AsRef<[f32]>>(of: &[V], name: fn(usize) -> String) -> impl Iterator<Item = Tensor<'_>> {
    of.iter().enumerate().map(move |(index, own)| Tensor::flat(name(index), own.as_ref()))
}

impl<V: AsRef<[f32]>> Checkpoint<V> {
    /// The bytes of its file; `model` is the whole trained model.
    ///
    /// # Errors
    /// A header longer than the format allows.
    pub fn to_bytes(&self, model: &Model) -> Result<Vec<u8>, String> {
        self.content(model).to_bytes().map_err(|error| error.to_string())
    }

    /// Writes them to an empty file, without a copy of the state; a second thread is bound to the processors of `pins`.
    ///
    /// # Errors
    /// The same, and errors of the disk.
    pub fn write(&self, model: &Model, file: &File, pins: &Pins) -> io::Result<()> {
        self.content(model).write(file, pins)
    }

    fn content(&self, model: &Model) -> Content<'_> {
        let State { position, weights, states, average, references, buffers, accuracy_monitor, .. } = &self.state;
        let (of_workers, moments) = (&self.state.statistics, self.state.moments);
        let trained = average.as_ref().map_or(&weights[0], |(average, _)| average).as_ref();
        let parameters: Vec<_> = model.layers().iter().flat_map(|node| &node.parameters).collect();
        let mut tensors = Vec::new();
        for parameter in &parameters {
            let shape = parameter.shape.sizes().map(|size| size as usize).collect();
            let values = &trained[parameter.range.start as usize..parameter.range.end as usize];
            tensors.push(Tensor::of(parameter.name.clone(), shape, values));
        }
        let previous = average.as_ref().and_then(|(_, previous)| previous.as_ref());
        if average.is_some() {
            tensors.extend(numbered(weights, learner));
        }
        for (name, own) in optimizer_states(states.len()).into_iter().zip(states) {
            tensors.push(Tensor::of_moments(name, own.as_ref(), moments));
        }
        tensors.extend(previous.map(|previous| Tensor::flat(PREVIOUS.to_owned(), previous.as_ref())));
        tensors.extend(numbered(references, reference));
        tensors.extend(numbered(buffers, buffer));
        tensors.extend(numbered(of_workers, statistics));
        let claims = &self.log.claims;
        let places = claims.iter().flat_map(|claim| [claim.iteration, claim.rank, claim.micro_batch]);
        let bytes = places.flat_map(u32::to_le_bytes).collect();
        tensors.push(Tensor { name: CLAIMS.to_owned(), dtype: Dtype::U32, shape: vec![claims.len(), 3], bytes });
        let bytes = claims.iter().flat_map(|claim| claim.at.0.to_le_bytes()).collect();
        tensors.push(Tensor { name: CLAIM_TIMES.to_owned(), dtype: Dtype::U64, shape: vec![claims.len()], bytes });
        let evaluation = |one: &Evaluation| (one.samples as u64, one.correct as u64, one.mean_loss.to_bits());
        let header = Header {
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
            states: if states.len() > 1 { states.len() } else { 0 },
            judge_before: accuracy_monitor.before().map(f64::to_bits),
            judge_recent: accuracy_monitor.recent().iter().copied().map(f64::to_bits).collect(),
            evaluations: self.log.evaluations.iter().map(evaluation).collect(),
            restarts: self.log.restarts.clone(),
            identity: self.identity.clone(),
            setting: self.setting.clone(),
            sha256: String::new(),
        };
        Content::new(header, tensors)
    }
}

impl Checkpoint {
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
        if sealed && digest(&header, &tensors_of(&file)) != said {
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

/// The tensors of a file as they are written.
fn tensors_of<'f>(file: &SafeTensors<'f>) -> Vec<Tensor<'f>> {
    let read = |(name, view): (String, TensorView<'f>)| {
        let (dtype, shape) = (view.dtype(), view.shape().to_vec());
        Tensor { name, dtype, shape, bytes: view.data().into() }
    };
    file.tensors().into_iter().map(read).collect()
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

    /// What the optimizer keeps, from tensors of these names, and the format of all of them.
    fn moments(&self, names: &[String]) -> Result<(Vec<Vec<f32>>, Moments), InputError> {
        let first = names.first().and_then(|name| self.file.tensor(name).ok());
        if first.is_none_or(|view| view.dtype() != Dtype::BF16) {
            return Ok((names.iter().map(|name| self.values(name)).collect::<Result<_, _>>()?, Moments::F32));
        }
        let values = |name: &String| -> Result<Vec<f32>, InputError> {
            let halves = self.bytes(name, Dtype::BF16)?.as_chunks::<2>().0;
            let widened = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
            Ok(halves.iter().map(widened).collect())
        };
        Ok((names.iter().map(values).collect::<Result<_, _>>()?, Moments::Bf16))
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
        let (weights, kept, average) = match header.learners {
            // Headers omit a number of one.
            0 => (vec![trained], optimizer_states(header.states.max(1)), None),
            learners => {
                let weights = each(learners, learner)?;
                let previous = header.previous.then(|| self.values(PREVIOUS)).transpose()?;
                (weights, Vec::new(), Some((trained, previous)))
            }
        };
        let (states, moments) = self.moments(&kept)?;
        Ok(State {
            position: Position { epoch: header.epoch, samples: header.samples },
            weights,
            statistics: each(header.workers, statistics)?,
            states,
            moments,
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
