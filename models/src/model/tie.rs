//! Ties a layer to another one: both read one parameter, such as a decoder whose output layer has the vectors of its token
//! embedding (Press and Wolf 2017).
//!
//! The parameter belongs to the first of the two, the owner: it is counted, drawn, decayed, updated and saved once, by the owner's
//! name. Its gradient is that of the reader plus that of the owner, in this order, since backward passes reach the reader first.

use lockstep_topology::InputError;

use super::{LayerId, Model, Node, Parameter};
use crate::Shape;

/// Two layers with one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tie {
    /// To which it belongs.
    pub owner: LayerId,
    /// Which reads it too.
    pub reader: LayerId,
}

impl Model {
    /// The two layers that share a parameter, if there are any.
    pub fn tie(&self) -> Option<Tie> {
        self.iter().find_map(|(reader, node)| node.tied_to.map(|owner| Tie { owner, reader }))
    }

    /// The parameters that a layer's kernel reads, and whose gradients it makes: its own, or that of another layer.
    pub fn parameters_read_by(&self, id: LayerId) -> &[Parameter] {
        match self.node(id).tied_to {
            Some(owner) => &self.node(owner).parameters[..1],
            None => &self.node(id).parameters,
        }
    }

    /// Refuses a tie for one who splits or stages layers; `who` names the setting, its value and what it does.
    pub(crate) fn refuse_tie(&self, (setting, value, does): (&'static str, String, &str)) -> Result<(), InputError> {
        let Some(Tie { owner, reader }) = self.tie() else { return Ok(()) };
        let (owner, reader) = (&self.node(owner).name, &self.node(reader).name);
        let message = format!(
            "{does}, and {reader} has the weight of {owner} on the same rank: use ssgd, zero-1 to zero-3, megatron or \
             sequence-parallel without stages, or give {reader} a weight of its own"
        );
        Err(InputError::flag(setting, value, message))
    }
}

/// The layer among those before it that has the parameter of a tied layer, whose shape is to be `wanted`; the error says what does
/// not fit.
pub(super) fn owner(nodes: &[Node], name: &str, wanted: Option<Shape>) -> Result<LayerId, String> {
    if let Some(other) = nodes.iter().find(|node| node.tied_to.is_some()) {
        return Err(format!("is tied to {name}, and {} is tied already: tie one layer", other.name));
    }
    let Some(at) = nodes.iter().position(|node| node.name == name) else {
        return Err(format!("is tied to {name}, and no layer before it has that name: name the embedding"));
    };
    let sizes = |shape: Shape| shape.sizes().collect::<Vec<u32>>();
    let own = nodes[at].parameters.first().map(|parameter| sizes(parameter.shape));
    match (own, wanted.map(sizes)) {
        (Some(own), Some(wanted)) if own == wanted => Ok(LayerId(at as u32)),
        (own, wanted) => {
            let list = |sizes: Option<Vec<u32>>| {
                let sizes = sizes.unwrap_or_default();
                sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("×")
            };
            Err(format!(
                "is tied to {name}, whose weight is {}, and needs {}: give both as many features and entries",
                list(own),
                list(wanted)
            ))
        }
    }
}
