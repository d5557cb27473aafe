//! `Table`: the layouts along one axis that a strategy states, by pattern of names. Where the tensors of a layer then lie,
//! and which collectives lead there, follows from the layers' signatures (`place.rs`).

use lockstep_topology::InputError;

use crate::{AxisLayout, LayerId, Model, Node};

/// A layout, and whether tensors are brought to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Where operands are in this layout already, or in the one that leads to it without an exchange.
    If(AxisLayout),
    /// Wherever a rule serves it: exchanges bring the operands.
    Always(AxisLayout),
}

/// Which layers a row is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Names {
    /// Those whose name the pattern matches; `*` stands for any characters.
    Pattern(&'static str),
    /// The samples.
    Input,
    /// These, by position.
    Layers(Vec<bool>),
}

/// Layouts along an axis. Of the rows about a layer the first counts, and of a row the first entry that is possible.
///
/// `weights` are those of matrix products and of tables, `outputs` are all layers' where weights leave a choice, and `whole_gradients` says
/// where summands of a gradient are added up as soon as they arise.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    weights: Vec<(Names, Vec<Entry>)>,
    outputs: Vec<(Names, Vec<Entry>)>,
    whole_gradients: Vec<Names>,
}

impl Names {
    fn are(&self, id: LayerId, node: &Node) -> bool {
        match self {
            Names::Pattern(pattern) => matches(pattern, &node.name),
            Names::Input => node.layer.is_input(),
            Names::Layers(layers) => layers[id.index()],
        }
    }
}

/// Whether a pattern matches a name.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            let mut ends = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
            ends.any(|at| matches(rest, &name[at..]))
        }),
    }
}

impl Table {
    /// With a row about weights.
    pub(crate) fn weights(mut self, names: Names, entries: &[Entry]) -> Table {
        self.weights.push((names, entries.to_vec()));
        self
    }

    /// With a row about outputs.
    pub(crate) fn outputs(mut self, names: Names, entries: &[Entry]) -> Table {
        self.outputs.push((names, entries.to_vec()));
        self
    }

    /// With a row of outputs that all ranks have, of which each rank then has the whole gradient.
    pub(crate) fn whole_gradients(mut self, names: Names) -> Table {
        self.whole_gradients.push(names);
        self
    }

    /// The entries about the weights of a layer; none where nothing is stated.
    pub(super) fn of_weights(&self, id: LayerId, node: &Node) -> &[Entry] {
        first(&self.weights, id, node)
    }

    /// The entries about the output of a layer.
    pub(super) fn of_output(&self, id: LayerId, node: &Node) -> &[Entry] {
        first(&self.outputs, id, node)
    }

    /// Whether each rank has the whole gradient of the output of a layer.
    pub(super) fn has_whole_gradient(&self, id: LayerId, node: &Node) -> bool {
        self.whole_gradients.iter().any(|names| names.are(id, node))
    }

    /// Refuses rows that are about no layer of `model`.
    pub(super) fn check(&self, model: &Model) -> Result<(), InputError> {
        let rows = self.weights.iter().chain(&self.outputs).map(|(names, _)| names).chain(&self.whole_gradients);
        for names in rows {
            if let Names::Pattern(pattern) = names
                && !model.iter().any(|(id, node)| names.are(id, node))
            {
                let message = format!("its table names {pattern}, and {} has no such layer", model.name());
                return Err(InputError::flag("strategy", "", message));
            }
        }
        Ok(())
    }
}

fn first<'a>(rows: &'a [(Names, Vec<Entry>)], id: LayerId, node: &Node) -> &'a [Entry] {
    rows.iter().find(|(names, _)| names.are(id, node)).map_or(&[], |(_, entries)| entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_by_hand() {
        for (pattern, name, holds) in [
            ("*", "", true),
            ("*", "dense1", true),
            ("dense1", "dense1", true),
            ("dense1", "dense12", false),
            ("block*.attention.*", "block3.attention.output", true),
            ("block*.attention.*", "block3.norm", false),
            ("*norm", "layer.norm", true),
            ("*norm", "norm.layer", false),
            ("a*b*c", "a-b-b-c", true),
            ("*ß", "größß", true),
        ] {
            assert_eq!(matches(pattern, name), holds, "{pattern} {name}");
        }
    }
}
