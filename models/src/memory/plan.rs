//! Plans memory: one arena for the activations and gradients of a micro-batch, laid out before anything runs.
//!
//! Koliousis et al. 2019, §4.5, walk over the operators and give a buffer to the next one when nothing refers to it any
//! more. Here the lifetimes of all tensors are known beforehand, so all are placed at once. An elementwise layer runs
//! in place where its input is not read afterwards.

use std::ops::Range;

use lockstep_topology::Dtype;

use crate::{Area, LayerId, Op, Phase, Program, Role};

use super::activations::{Chains, Content, PlannedTensor, activations};
use super::arrange::{Allocation, arrange, live_bytes};

/// How far memory is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Not at all: every tensor has its own memory for the whole micro-batch.
    Nothing,
    /// Layers work in place where they may.
    InPlace,
    /// Tensors with disjoint lifetimes share memory, and no layer works in place.
    Shared,
    /// As shared, but a backward pass refers to all inputs and outputs of its layer, whether its kernel reads them or
    /// not: the result of counting the references of operators (Koliousis et al. 2019 §4.5).
    Counted,
    /// In place, and tensors with disjoint lifetimes share memory.
    #[default]
    Full,
}

/// The effect of flattening an image on the order of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flattening {
    /// None: the flattened tensor is the image itself, and others may read both.
    #[default]
    View,
    /// Elements move, as where images have their channels last: a reader of the image needs it unchanged.
    Moves,
}

/// How a device stores activations and their gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActivationFormat {
    /// The format of their numbers.
    pub dtype: Dtype,
    /// The effect of flattening an image.
    pub flattening: Flattening,
}

/// The position of everything in the arena; ranges are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of the arena.
    pub bytes: usize,
    /// The format of outputs and gradients.
    pub dtype: Dtype,
    /// By layer: its output; `None` inside chains, for the input and for losses. Equal to an input's: the layer
    /// works in place.
    pub outputs: Vec<Option<Range<usize>>>,
    /// By layer: the gradient with respect to its output; `None` where it is not needed.
    pub gradients: Vec<Option<Range<usize>>>,
    /// By task of the role: what is not read after it.
    pub dead: Vec<Vec<Range<usize>>>,
    /// The last compute task of a micro-batch, where nothing but layers touches the arena.
    pub last: Option<(usize, Phase)>,
}

/// The memory that activations take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activations {
    /// Tensors that have their own memory when nothing is reused.
    pub tensors: usize,
    /// Their sizes added up.
    pub unplanned: u64,
    /// The arena, and what kernels keep.
    pub planned: u64,
    /// The most that is live at once: a lower bound for every plan.
    pub live: u64,
}

impl Plan {
    /// The plan for the ranks of a role in the program's precision, on devices where flattened images are views.
    pub fn of_role(program: &Program, role: &Role, reuse: Reuse) -> Plan {
        let dtype = program.precision.activation_dtype();
        Plan::on_device(program, role, reuse, ActivationFormat { dtype, flattening: Flattening::View })
    }

    /// The plan for the ranks of a role on devices that store activations in this way.
    pub fn on_device(program: &Program, role: &Role, reuse: Reuse, format: ActivationFormat) -> Plan {
        let ActivationFormat { dtype, flattening } = format;
        let chains = Chains::of(program, role);
        let mut tensors = activations(program, role, dtype);
        if reuse == Reuse::Counted {
            for tensor in tensors.iter_mut().filter(|tensor| tensor.content == Content::Output) {
                let until = chains.referred_until(&program.model, tensor.layer);
                let last = tensor.again.as_mut().map_or(&mut tensor.last, |(_, last)| last);
                *last = until.max(*last);
            }
        }
        let (pieces, piece_of) = pieces(program, role, &tensors, (reuse, flattening));
        let arrangement = match reuse {
            Reuse::Full | Reuse::Shared | Reuse::Counted => arrange(&pieces),
            _ => arrange(
                &pieces.iter().map(|piece| Allocation { first: 0, last: 0, again: None, ..*piece }).collect::<Vec<_>>(),
            ),
        };
        let range = |piece: usize, bytes: u64| {
            let start = arrangement.offsets[piece];
            start as usize..(start + bytes) as usize
        };
        let layers = program.model.layers().len();
        let mut plan = Plan {
            bytes: arrangement.bytes as usize,
            dtype,
            outputs: vec![None; layers],
            gradients: vec![None; layers],
            dead: vec![Vec::new(); role.tasks.len()],
            last: last_compute(role),
        };
        for (tensor, piece) in tensors.iter().zip(&piece_of) {
            let Some(piece) = *piece else { continue };
            let of_layer = match tensor.content {
                Content::Output => &mut plan.outputs,
                _ => &mut plan.gradients,
            };
            of_layer[tensor.layer.index()] = Some(range(piece, dtype.bytes(tensor.elements)));
        }
        for (index, piece) in pieces.iter().enumerate() {
            for (_, last) in piece.lives() {
                if let Some(dead) = plan.dead.get_mut(last) {
                    dead.push(range(index, piece.bytes));
                }
            }
        }
        plan
    }

    /// The elements of a range.
    pub fn elements(&self, range: &Range<usize>) -> u64 {
        self.dtype.elements_within(range.len() as u64)
    }
}

impl Activations {
    /// The memory of a role; `planned` is the arena of [`Plan::of_role`] with all reuse.
    pub fn of_role(program: &Program, role: &Role) -> Activations {
        let tensors = activations(program, role, program.precision.activation_dtype());
        let (mut pieces, _) = pieces(program, role, &tensors, (Reuse::Full, Flattening::View));
        let arena = arrange(&pieces).bytes;
        let kept = || tensors.iter().filter(|tensor| tensor.content == Content::Kept);
        pieces.extend(kept().map(storage));
        Activations {
            tensors: tensors.len(),
            unplanned: tensors.iter().map(PlannedTensor::bytes).sum(),
            planned: arena + kept().map(PlannedTensor::bytes).sum::<u64>(),
            live: live_bytes(&pieces),
        }
    }
}

/// The bytes that are live while each task of a role runs: outputs, their gradients, and what kernels keep. Their largest sum is
/// [`Activations::live`].
pub fn live_by_task(program: &Program, role: &Role) -> Vec<[u64; 3]> {
    let tensors = activations(program, role, program.precision.activation_dtype());
    let (pieces, piece_of) = pieces(program, role, &tensors, (Reuse::Full, Flattening::View));
    let mut live = vec![[0; 3]; role.tasks.len()];
    let mut add = |of: &Allocation, content: Content| {
        for (first, last) in of.lives() {
            live[first..=last.min(role.tasks.len() - 1)].iter_mut().for_each(|at| at[content as usize] += of.bytes);
        }
    };
    let mut is_counted = vec![false; pieces.len()];
    for (tensor, piece) in tensors.iter().zip(piece_of) {
        match piece {
            Some(piece) if !std::mem::replace(&mut is_counted[piece], true) => add(&pieces[piece], tensor.content),
            None => add(&storage(tensor), tensor.content),
            Some(_) => {}
        }
    }
    live
}

/// The last compute task, unless copies move rows of activations.
fn last_compute(role: &Role) -> Option<(usize, Phase)> {
    let is_tensor = |area| !matches!(area, Area::Buffer(_));
    let moves =
        |op: &Op| matches!(op, Op::Copy(copies) if is_tensor(copies.first().from) || is_tensor(copies.first().to));
    let tasks = || role.tasks.iter().map(|task| &task.op);
    tasks().rev().find_map(|op| match op {
        Op::Compute { chain, phase, .. } if !tasks().any(moves) => Some((*chain, *phase)),
        _ => None,
    })
}

fn storage(tensor: &PlannedTensor) -> Allocation {
    Allocation { bytes: tensor.bytes(), first: tensor.first, last: tensor.last, again: tensor.again }
}

/// The pieces of memory that the tensors need, and the piece of each tensor; what kernels keep has none.
fn pieces(
    program: &Program,
    role: &Role,
    tensors: &[PlannedTensor],
    (reuse, flattening): (Reuse, Flattening),
) -> (Vec<Allocation>, Vec<Option<usize>>) {
    let mut pieces: Vec<Allocation> = Vec::new();
    let mut piece_of = vec![None; tensors.len()];
    let chains = Chains::of(program, role);
    // Forward passes in the order in which they run, so that the earlier content of an input's piece is known.
    let mut order: Vec<usize> = (0..tensors.len()).filter(|index| tensors[*index].content != Content::Kept).collect();
    order.sort_by_key(|index| (tensors[*index].first, *index));
    let mut output_piece: Vec<Option<usize>> = vec![None; program.model.layers().len()];
    for index in order {
        let tensor = &tensors[index];
        let output = tensor.content == Content::Output;
        let chain =
            chains.of_layer[tensor.layer.index()].filter(|_| output && matches!(reuse, Reuse::InPlace | Reuse::Full));
        let over = chain.and_then(|chain| {
            let (layers, forward) = (&program.chains[chain], chains.forward[chain]?);
            overwritten(program, layers, (forward, flattening), tensor, &pieces, &output_piece)
        });
        let piece = over.unwrap_or(pieces.len());
        match over {
            Some(piece) => {
                let over = &mut pieces[piece];
                over.last = over.last.max(tensor.last);
                over.again = match (over.again, tensor.again) {
                    (Some((first, last)), Some((other, end))) => Some((first.min(other), last.max(end))),
                    (one, other) => one.or(other),
                };
                // A view that is made again lies in what was kept.
                if let Some((_, last)) = over.again.take_if(|(first, _)| *first <= over.last) {
                    over.last = over.last.max(last);
                }
            }
            None => pieces.push(storage(tensor)),
        }
        piece_of[index] = Some(piece);
        if output {
            output_piece[tensor.layer.index()] = Some(piece);
        }
    }
    (pieces, piece_of)
}

/// The piece of an input that the output of a chain may overwrite: its kernel works element by element, and the
/// input is not read by anything else from then on. Flatten's output is its input, so others may read both, unless
/// elements move.
fn overwritten(
    program: &Program,
    layers: &[LayerId],
    (forward, flattening): (usize, Flattening),
    tensor: &PlannedTensor,
    pieces: &[Allocation],
    output_piece: &[Option<usize>],
) -> Option<usize> {
    let head = program.model.node(layers[0]);
    let flat = layers.iter().all(|id| program.model.node(*id).layer.rule().kind().is_view);
    let most = head.layer.rule().kind().overwrites;
    // Of a sum of two it may be either, for x + y = y + x; of more only the first, to keep the reduction order.
    let candidates = if flat || head.inputs.len() > most { most.min(1).max(flat.into()) } else { most };
    let piece = |id: &LayerId| output_piece[id.index()];
    (0..candidates).find_map(|index| {
        let over = piece(&head.inputs[index])?;
        let dies =
            pieces[over].last == forward && dies_again(&pieces[over], tensor) || flat && flattening == Flattening::View;
        let alone = head.inputs.iter().filter(|id| piece(id) == Some(over)).count() == 1;
        (dies && alone && pieces[over].bytes == tensor.bytes()).then_some(over)
    })
}

/// Whether an output may overwrite an input where that, or both, are computed again: the input dies there too, or after the
/// output.
fn dies_again(input: &Allocation, output: &PlannedTensor) -> bool {
    match (input.again, output.again) {
        (Some((_, last)), Some((first, _))) => last == first,
        (Some((first, _)), None) => output.last < first,
        (None, _) => true,
    }
}
