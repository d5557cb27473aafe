//! Builds Krizhevsky's hybrid: data-parallel convolutions, model-parallel dense layers, and three schemes for the
//! transition between them.
//!
//! The dense layers run in partial passes (Krizhevsky 2014 §4). Scheme (a) has one pass, of the samples of all ranks.
//! Schemes (b) and (c) have as many passes as ranks: one rank's samples each, or an equal share of every rank's. Groups
//! of g ranks are in between: a pass takes N/g samples of each rank of a group, so that g = 1 is (b) and g = K is (c)
//! (§5.1, §8: "some hybrid between").

use std::fmt;
use std::str::FromStr;

use lockstep_topology::{InputError, shard};

use super::split::{SplitLayers, everything};
use super::{Plan, Shard};
use crate::model::{Entry, FEATURES, Names, SAMPLES, Table};
use crate::{Axis, AxisLayout, AxisSet, Graph, Job, LayerId, Mesh, Model, Piece};

const WHOLE: AxisLayout = AxisLayout::Replicated;

/// Which samples a pass through the dense layers takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// (a): all samples of all ranks, in one pass.
    A,
    /// (b): those of one rank after the other.
    B,
    /// (c): 1/K of every rank's.
    C,
    /// 1/g of those of each rank of a group of g, one group after the other.
    Groups(u32),
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::A => f.write_str("a"),
            Scheme::B => f.write_str("b"),
            Scheme::C => f.write_str("c"),
            Scheme::Groups(size) => write!(f, "g={size}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Scheme, String> {
        let size = |text: &str| text.parse().ok().filter(|size: &u32| *size > 0);
        match (text, text.strip_prefix("g=").map(size)) {
            ("a", _) => Ok(Scheme::A),
            ("b", _) => Ok(Scheme::B),
            ("c", _) => Ok(Scheme::C),
            (_, Some(Some(size))) => Ok(Scheme::Groups(size)),
            _ => Err(format!("{text:?} is not a scheme: write a, b, c or g=2 (groups of 2 ranks)")),
        }
    }
}

impl Scheme {
    /// The samples of each pass for `ranks` ranks with micro-batches of `samples`.
    ///
    /// # Errors
    /// Groups that do not divide the ranks.
    pub(super) fn passes(self, ranks: u32, samples: u32) -> Result<Vec<Vec<Piece>>, InputError> {
        let group = match self {
            Scheme::A => return Ok(vec![everything(ranks, samples)]),
            Scheme::B => 1,
            Scheme::C => ranks,
            Scheme::Groups(size) => size,
        };
        if !ranks.is_multiple_of(group) {
            let message = format!("groups of {group} ranks do not divide {ranks} ranks: use a divisor of {ranks}");
            return Err(InputError::flag("strategy", format!("hybrid:{self}"), message));
        }
        let pass = |number: u32| {
            let (first, turn) = (number / group * group, number % group);
            let piece = |index: u32| {
                // Shares may differ by a sample; they rotate, so every pass has equally many.
                let share = shard(samples.into(), group.into(), u64::from((index + turn) % group));
                let (first_sample, count) = (share.start as u32, (share.end - share.start) as u32);
                Piece { worker: first + index, first: first_sample, count }
            };
            (0..group).map(piece).filter(|piece| piece.count > 0).collect()
        };
        Ok((0..ranks).map(pass).collect())
    }
}

/// Data-parallel convolutions and model-parallel dense layers (Krizhevsky 2014 §4).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hybrid {
    /// Which samples a pass through the dense layers takes.
    scheme: Scheme,
    /// Whether dense layers are updated after each pass (§4.2).
    variable_batch: bool,
}

impl Plan for Hybrid {
    fn parse(settings: &str) -> Result<Hybrid, String> {
        parse(settings)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hybrid:{}{}", self.scheme, if self.variable_batch { ":variable-batch" } else { "" })
    }

    fn graph(&self, job: &Job) -> Result<(Graph, Option<Shard>), InputError> {
        let layers = SplitLayers {
            mesh: Mesh::new(&[(Axis::Data, job.workers)])?,
            axis: Axis::Data,
            table: table(front(&job.model)?),
            passes: self.scheme.passes(job.workers, job.batch_per_rank)?,
            variable_batch: self.variable_batch,
            shares_state: false,
        };
        layers.graph(job)
    }

    fn axes(&self) -> AxisSet {
        AxisSet::of(&[Axis::Data])
    }

    fn splits_layers(&self) -> bool {
        true
    }
}

/// Layers in front work on their own samples, the others have the rows of their weights.
fn table(front: Vec<bool>) -> Table {
    let behind = Names::Layers(front.iter().map(|front| !front).collect());
    Table::default()
        .weights(behind, &[Entry::Always(FEATURES)])
        .outputs(Names::Layers(front), &[Entry::Always(SAMPLES)])
        .outputs(Names::Pattern("*"), &[Entry::If(FEATURES), Entry::Always(WHOLE)])
}

/// What follows `hybrid:`: a scheme, and whether the batch varies.
fn parse(settings: &str) -> Result<Hybrid, String> {
    let (scheme, more) = settings.split_once(':').map_or((settings, None), |(scheme, more)| (scheme, Some(more)));
    match (scheme, more) {
        ("", _) => Err("hybrid needs a scheme: write hybrid:a, hybrid:b, hybrid:c or hybrid:g=2".to_owned()),
        ("a", Some("variable-batch")) => {
            Err("scheme a has one pass, so that its batch cannot vary: write hybrid:b:variable-batch".to_owned())
        }
        (scheme, None | Some("variable-batch")) => {
            Ok(Hybrid { scheme: scheme.parse()?, variable_batch: more.is_some() })
        }
        (_, Some(more)) => Err(format!("{more:?} has no effect: only :variable-batch may follow a scheme")),
    }
}

/// By layer: whether it comes before the first dense layer, where a single tensor is passed on to the rest.
///
/// # Errors
/// No dense layer, or several ways from the front to the back.
fn front(model: &Model) -> Result<Vec<bool>, InputError> {
    let refuse = |message: String| Err(InputError::flag("strategy", "hybrid", message));
    let Some((dense, node)) = model.iter().find(|(_, node)| node.layer.rule().kind().flattens) else {
        return refuse(format!("{} has no dense layer to split: use ssgd, or model-parallel", model.name()));
    };
    let flat = node.inputs[0];
    let is_flat = model.node(flat).layer.rule().kind().is_view && model.consumers(flat).len() == 1;
    let first = if is_flat { flat } else { dense };
    let boundary = model.node(first).inputs[0];
    let mut front = vec![true; model.layers().len()];
    front[first.index()] = false;
    for (id, node) in model.iter() {
        if node.inputs.iter().any(|input| !front[input.index()]) {
            front[id.index()] = false;
        }
    }
    let other =
        |id: LayerId| !front[id.index()] && model.node(id).inputs.iter().any(|i| front[i.index()] && *i != boundary);
    let learns = |id: LayerId| front[id.index()] && model.node(id).layer.rule().kind().flattens;
    let ends = |id: LayerId| front[id.index()] && model.node(id).layer.is_loss();
    match model.iter().map(|(id, _)| id).find(|id| other(*id) || learns(*id) || ends(*id)) {
        None => Ok(front),
        Some(id) => refuse(format!(
            "in {} more than one tensor leads from convolutions to dense layers ({} beside {}): use ssgd or \
             model-parallel",
            model.name(),
            model.node(id).name,
            node.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;
    use crate::Strategy;

    #[test]
    fn passes_of_the_paper() {
        let pieces = |scheme: Scheme, ranks, samples| {
            let passes = scheme.passes(ranks, samples).unwrap();
            let of = |pass: &Vec<Piece>| pass.iter().map(|p| (p.worker, p.first, p.count)).collect::<Vec<_>>();
            passes.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(pieces(Scheme::A, 2, 128), [[(0, 0, 128), (1, 0, 128)]]);
        assert_eq!(pieces(Scheme::B, 2, 128), [[(0, 0, 128)], [(1, 0, 128)]]);
        assert_eq!(pieces(Scheme::C, 2, 128), [[(0, 0, 64), (1, 64, 64)], [(0, 64, 64), (1, 0, 64)]]);
        let groups = pieces(Scheme::Groups(2), 4, 128);
        assert_eq!(groups[3], [(2, 64, 64), (3, 0, 64)]);
        assert!(Scheme::Groups(3).passes(4, 8).unwrap_err().to_string().contains("divisor of 4"));
        assert!("g=0".parse::<Scheme>().is_err() && "d".parse::<Scheme>().is_err());
    }

    #[test]
    fn every_form_reads_back_as_written() {
        for text in ["ssgd", "hybrid:a", "hybrid:b", "hybrid:c:variable-batch", "hybrid:g=4", "model-parallel"] {
            assert_eq!(text.parse::<Strategy>().map(|s| s.to_string()).as_deref(), Ok(text));
        }
        for (text, cure) in [
            ("sgd", "ssgd"),
            ("hybrid", "hybrid:b"),
            ("hybrid:d", "a, b, c or g=2"),
            ("hybrid:a:variable-batch", "hybrid:b:variable-batch"),
            ("hybrid:b:often", "variable-batch"),
            ("hybrid:g=0", "g=2"),
            ("ssgd:2", "no settings"),
        ] {
            let refusal = text.parse::<Strategy>().unwrap_err();
            assert!(refusal.contains(cure), "{text}: {refusal}");
        }
    }

    proptest! {
        /// Every sample of every rank is in one pass, and passes are equally large.
        #[test]
        fn passes_cover_all_samples_once(groups in 1u32..5, size in 1u32..6, samples in 1u32..40, everybody in proptest::bool::ANY) {
            let ranks = groups * size;
            let scheme = if everybody { Scheme::A } else { Scheme::Groups(size) };
            let passes = scheme.passes(ranks, samples).unwrap();
            let mut seen = vec![vec![0; samples as usize]; ranks as usize];
            for pass in &passes {
                let total: u32 = pass.iter().map(|piece| piece.count).sum();
                prop_assert_eq!(total, ranks * samples / passes.len() as u32);
                prop_assert!(pass.windows(2).all(|pair| pair[0].worker < pair[1].worker));
                for piece in pass {
                    let range = piece.first as usize..(piece.first + piece.count) as usize;
                    seen[piece.worker as usize][range].iter_mut().for_each(|count| *count += 1);
                }
            }
            prop_assert!(seen.iter().flatten().all(|count| *count == 1));
        }
    }
}
