//! Relates the model of a rank to the whole one: which of its parameters and running statistics a rank has.

use std::ops::Range;
use std::sync::Arc;

use crate::model::VOCABULARY;
use crate::{
    Axis, AxisLayout, AxisSet, Dimension, LayerId, Model, Multiplied, Multipliers, NoDecay, Pieces, Program, Role,
    pieces_within,
};

/// The layer of the whole model that a rank's layer is, or is a part of, and where the part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The layer.
    pub layer: LayerId,
    /// The first element of a row of its output that the part has, or of a sample where it has some of its rows.
    pub first: u64,
    /// The first entry of its table, or the first class of a loss, that the part has.
    pub entry: u64,
    /// Elements from one row of a sample's output to the next; 0 where the part is not split, or a sample is one row.
    pub row: u64,
    /// The first sample of those that the rank loads.
    pub sample: u32,
}

impl Origin {
    /// A layer of the whole model itself.
    pub fn of_whole(layer: LayerId) -> Origin {
        Origin { layer, first: 0, entry: 0, row: 0, sample: 0 }
    }
}

impl Program {
    /// The model that all ranks train together.
    pub fn whole_model(&self) -> &Arc<Model> {
        self.sharding.as_ref().map_or(&self.model, |sharding| &sharding.whole)
    }

    /// Whether ranks have their own layers, cut out of the whole model.
    pub fn cuts_model(&self) -> bool {
        self.sharding.is_some()
    }

    /// Into how many parts the weights of split layers are divided; 1 where each rank has them whole.
    pub fn weight_parts(&self) -> u32 {
        self.sharding.as_ref().filter(|sharding| sharding.splits_weights()).map_or(1, |sharding| sharding.ranks)
    }

    /// Which parameters of the whole model `rank` has.
    pub fn own_parameters(&self, rank: u32) -> Pieces {
        match &self.sharding {
            Some(sharding) => sharding.parameters(&self.model, self.mesh.coordinate(sharding.axis, rank)),
            None => vec![(0..self.model.parameter_elements(), 0)],
        }
    }

    /// The running statistics of the whole model in shares, each with the workers that have it in whole layers or in
    /// parts of layers.
    pub fn statistics_shares(&self) -> Vec<(Pieces, Vec<u32>)> {
        let workers = 0..self.workers();
        let Some(sharding) = &self.sharding else {
            return vec![(vec![(0..self.model.statistics_elements(), 0)], workers.collect())];
        };
        let of_part = |part: u32| {
            let has = |rank: &u32| self.mesh.coordinate(sharding.axis, *rank) == part;
            (sharding.statistics(&self.model, Some(part)), workers.clone().filter(has).collect())
        };
        let whole = (sharding.statistics(&self.model, None), workers.clone().collect());
        std::iter::once(whole).chain((0..sharding.ranks).map(of_part)).collect()
    }

    /// The parameters of `role` that are equal on all its ranks: those of layers that are not split. None where
    /// parameters are sharded.
    pub fn common_parameters(&self, role: &Role) -> Vec<Range<u64>> {
        if self.shares_parameters() {
            return Vec::new();
        }
        let Some(sharding) = &self.sharding else { return self.parameters_of(role) };
        let kept = self.model.iter().filter(|(id, _)| sharding.weights(*id) == AxisLayout::Replicated);
        let kept = kept
            .flat_map(|(_, node)| &node.parameters)
            .map(|parameter| (parameter.range.clone(), parameter.range.start));
        let kept = pieces_within(&kept.collect::<Pieces>(), &self.parameters_of(role));
        kept.into_iter().map(|(range, _)| range).collect()
    }

    /// The parameters of `rank` that have multipliers, in ascending order; weight decay is multiplied by 0 where `spared`
    /// selects them.
    pub fn multiplied(&self, rank: u32, spared: &NoDecay) -> Vec<Multiplied> {
        let whole = self.whole_model().layers().iter().flat_map(|node| &node.parameters);
        let whole = whole.map(|parameter| match spared.spares(parameter) {
            true => (&parameter.range, Multipliers { decay: 0.0, ..parameter.multipliers }),
            false => (&parameter.range, parameter.multipliers),
        });
        let own = self.own_parameters(rank);
        let mut all: Vec<Multiplied> = whole
            .filter(|(_, multipliers)| *multipliers != Multipliers::NONE)
            .flat_map(|(range, multipliers)| {
                own.iter().filter_map(move |(piece, start)| {
                    let (from, end) = (range.start.max(piece.start), range.end.min(piece.end));
                    (from < end).then(|| (from - piece.start + start..end - piece.start + start, multipliers))
                })
            })
            .collect();
        all.sort_by_key(|(range, _)| range.start);
        all
    }

    /// The axes along which ranks have the same layers: all but that of stages.
    pub fn axes_of_stage(&self) -> AxisSet {
        self.mesh.axes().without(Axis::Pipeline)
    }

    /// The axes along which ranks have the same parts of the same layers.
    pub fn axes_of_part(&self) -> AxisSet {
        let of_stage = self.axes_of_stage();
        self.sharding.as_ref().map_or(of_stage, |sharding| of_stage.without(sharding.axis))
    }

    /// What layer `id` of `rank` computes of the whole model's.
    pub fn origin_of(&self, rank: u32, id: LayerId) -> Origin {
        let Some(sharding) = &self.sharding else { return Origin::of_whole(id) };
        let (node, part) = (self.model.node(id), self.mesh.coordinate(sharding.axis, rank));
        let layer = sharding.layers[id.index()].origin;
        let (rows, splits) = (node.output.rows(), sharding.splits(id));
        let entries = match sharding.weights(id) {
            VOCABULARY => u64::from(node.parameters[0].shape.size(Dimension::Vocabulary)),
            _ if node.layer.rule().kind().reads_labels => u64::from(node.classes()),
            _ => 0,
        };
        let entry = u64::from(part) * entries;
        let row = if splits && rows > 1 { sharding.whole.node(layer).output.elements() / rows } else { 0 };
        let shares = sharding.in_all_passes() && sharding.splits_samples(id);
        let sample = if shares { part * sharding.samples_on(rank, Some(id), 0) / sharding.sample_parts } else { 0 };
        let first = match (splits, shares) {
            (true, _) => u64::from(part) * (node.output.elements() / rows),
            (false, true) => u64::from(part % sharding.sample_parts) * node.output.elements(),
            (false, false) => 0,
        };
        Origin { layer, first, entry, row, sample }
    }
}
