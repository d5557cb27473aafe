//! `Attributes`: gives a layer's constructor the attributes from a file, in any format.

use lockstep_topology::InputError;

use super::{Layer, Shape};

/// The attributes of one layer in a file, by the format's own keys; `None` where one is absent.
///
/// Errors name the place in the file, the value and the cure.
pub trait Attributes {
    /// A whole number from 0.
    ///
    /// # Errors
    /// A value of another type.
    fn size(&self, key: &str) -> Result<Option<u32>, InputError>;

    /// Two sizes, vertical and horizontal.
    ///
    /// # Errors
    /// Values of another type or number.
    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError>;

    /// A finite number.
    ///
    /// # Errors
    /// A value of another type.
    fn number(&self, key: &str) -> Result<Option<f32>, InputError>;

    /// Yes or no.
    ///
    /// # Errors
    /// A value of another type.
    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError>;

    /// One of several names.
    ///
    /// # Errors
    /// A value of another type.
    fn word(&self, key: &str) -> Result<Option<&str>, InputError>;

    /// Shape of a sample of the first input, where the format's reader knows it already.
    fn input(&self) -> Option<Shape> {
        None
    }

    /// An error about the value of `key`, or about the layer where it has none.
    fn refuse(&self, key: &str, message: &str) -> InputError;

    /// The error where `key` has no value.
    fn missing(&self, key: &str, example: &str) -> InputError {
        self.refuse(key, &format!("lacks the key {key}: {example}"))
    }
}

/// Makes a layer from its attributes.
pub type Maker = fn(&dyn Attributes) -> Result<Layer, InputError>;
