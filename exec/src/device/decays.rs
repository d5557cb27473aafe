//! Lists, range by range, which parameters are subject to weight decay.

use std::ops::Range;

use lockstep_models::Model;

/// Ranges of the parameters, one per tensor, with whether weight decay applies.
#[derive(Debug, Clone)]
pub(crate) struct Decays(Vec<(Range<usize>, bool)>);

impl Decays {
    /// The ranges of a model.
    pub(crate) fn of(model: &Model) -> Decays {
        let parameters = model.layers().iter().flat_map(|node| &node.parameters);
        Decays(parameters.map(|p| (p.range.start as usize..p.range.end as usize, p.decay)).collect())
    }

    /// The parts of `range`, each of one parameter, with whether weight decay applies; with `always` it applies
    /// everywhere.
    pub(crate) fn parts(&self, range: Range<usize>, always: bool) -> impl Iterator<Item = (Range<usize>, bool)> {
        self.0.iter().filter_map(move |(of, decays)| {
            let part = range.start.max(of.start)..range.end.min(of.end);
            (!part.is_empty()).then_some((part, *decays || always))
        })
    }
}
