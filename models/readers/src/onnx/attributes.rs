//! Reads attributes of ONNX nodes: numbers by name with their defaults.

use lockstep_topology::InputError;

use super::graph::Step;
use super::proto::Attribute;
use super::tensor::Tensor;
use lockstep_models::layer::Attributes;

/// A step and its file, for errors.
pub(super) struct Placed<'a, 'b> {
    pub(super) node: &'b Step<'a>,
    pub(super) file: &'b str,
}

impl Attributes for Placed<'_, '_> {
    fn size(&self, key: &str) -> Result<Option<u32>, InputError> {
        let Some(attribute) = self.node.attribute(key) else { return Ok(None) };
        let size = u32::try_from(attribute.integer);
        size.map(Some).map_err(|_| self.refuse(key, &format!("{key} is {}: it is not a size", attribute.integer)))
    }

    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError> {
        let sizes = self.node.integers(key).map(|sizes| pair(key, sizes)).transpose();
        sizes.map_err(|message| self.refuse(key, &message))
    }

    fn number(&self, key: &str) -> Result<Option<f32>, InputError> {
        Ok(self.node.attribute(key).map(|attribute| attribute.float))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError> {
        Ok(self.node.attribute(key).map(|attribute| attribute.integer != 0))
    }

    fn word(&self, key: &str) -> Result<Option<&str>, InputError> {
        let word = self.node.attribute(key).map(|attribute| std::str::from_utf8(attribute.text)).transpose();
        word.map_err(|_| self.refuse(key, &format!("{key} is not text")))
    }

    fn refuse(&self, _: &str, message: &str) -> InputError {
        self.node.error(self.file, message)
    }
}

impl<'a> Step<'a> {
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// A whole number.
    pub(super) fn integer(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.integer)
    }

    /// A number.
    pub(super) fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).map_or(default, |attribute| attribute.float)
    }

    /// A list, if the node has it.
    pub(super) fn integers(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.integers.as_slice())
    }

    /// The tensor of a constant.
    pub(super) fn tensor(&self, name: &str) -> Option<&Tensor<'a>> {
        self.attribute(name).and_then(|attribute| attribute.tensor.as_ref())
    }

    /// Refuses attributes whose value differs from what our layers do.
    pub(super) fn demand(&self, wanted: &[(&str, i64)]) -> Result<(), String> {
        for (name, only) in wanted {
            let found = self.integer(name, *only);
            if found != *only {
                return Err(format!("{name} is {found}: only {only} is supported"));
            }
        }
        Ok(())
    }
}

/// Two sizes that fit.
pub(super) fn pair(name: &str, sizes: &[i64]) -> Result<(u32, u32), String> {
    let [vertical, horizontal] = sizes else {
        return Err(format!("{name} is {sizes:?}: only windows over height and width are supported"));
    };
    match (u32::try_from(*vertical), u32::try_from(*horizontal)) {
        (Ok(vertical), Ok(horizontal)) => Ok((vertical, horizontal)),
        _ => Err(format!("{name} is {sizes:?}: sizes are whole numbers from 0 to {}", u32::MAX)),
    }
}
