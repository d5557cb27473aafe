//! Reads attributes of ONNX nodes: numbers by name with their defaults, and windows, whose padding must be the same
//! on both sides.

use lockstep_topology::InputError;

use super::proto::{Attribute, Node};
use lockstep_models::layer::Attributes;

/// A node and its place, for errors.
pub(super) struct Placed<'a, 'b> {
    pub(super) node: &'b Node<'a>,
    pub(super) place: &'b str,
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
        InputError::new(self.place, super::called(self.node), message)
    }
}

/// A node's window: (vertical, horizontal).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kernel: (u32, u32),
    pub(super) stride: (u32, u32),
    pub(super) dilation: (u32, u32),
    /// Above and left.
    pub(super) before: (u32, u32),
    /// Below and right.
    pub(super) after: (u32, u32),
}

impl<'a> Node<'a> {
    fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
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
    pub(super) fn tensor(&self, name: &str) -> Option<&super::Tensor<'a>> {
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

    /// The window; `kernel` is the weight's if the node gives none.
    pub(super) fn window(&self, kernel: Option<&[i64]>) -> Result<Window, String> {
        match self.attribute("auto_pad").map(|attribute| attribute.text) {
            None | Some(b"NOTSET" | b"VALID" | b"") => {}
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                return Err(format!("auto_pad is {other}: export with explicit pads"));
            }
        }
        let Some(kernel) = self.integers("kernel_shape").or(kernel) else {
            return Err("has no kernel_shape: export it with one".to_owned());
        };
        let ones = [1, 1];
        let pads = match self.integers("pads").unwrap_or(&[0, 0, 0, 0]) {
            [] => &[0, 0, 0, 0],
            pads => pads,
        };
        if pads.len() != 4 {
            return Err(format!("pads are {pads:?}: only windows over height and width are supported"));
        }
        Ok(Window {
            kernel: pair("kernel_shape", kernel)?,
            stride: pair("strides", self.integers("strides").unwrap_or(&ones))?,
            dilation: pair("dilations", self.integers("dilations").unwrap_or(&ones))?,
            before: pair("pads", &pads[..2])?,
            after: pair("pads", &pads[2..])?,
        })
    }
}

impl Window {
    /// The padding of both sides, if it is the same.
    pub(super) fn padding(&self) -> Result<(u32, u32), String> {
        if self.before == self.after {
            return Ok(self.before);
        }
        Err(format!(
            "pads are {:?} before and {:?} after: they must be the same on both sides, since the layer has one padding",
            self.before, self.after
        ))
    }
}

/// Two sizes that fit.
fn pair(name: &str, sizes: &[i64]) -> Result<(u32, u32), String> {
    let [vertical, horizontal] = sizes else {
        return Err(format!("{name} is {sizes:?}: only windows over height and width are supported"));
    };
    match (u32::try_from(*vertical), u32::try_from(*horizontal)) {
        (Ok(vertical), Ok(horizontal)) => Ok((vertical, horizontal)),
        _ => Err(format!("{name} is {sizes:?}: sizes are whole numbers from 0 to {}", u32::MAX)),
    }
}
