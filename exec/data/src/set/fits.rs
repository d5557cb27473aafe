//! Checks that a model takes the samples of a set, and takes patches of images that are larger.

use lockstep_models::{Dimension, Model, Shape};
use lockstep_topology::{ErrorPlace, InputError};

use super::Dataset;
use super::pixels::Pixels;

impl Dataset {
    /// Whether `model` can be trained on these images: equal shapes, and an output for every label.
    ///
    /// # Errors
    /// The mismatch, with both values.
    pub fn check_fits(&self, model: &Model) -> Result<(), InputError> {
        if model.tokens().is_some() && matches!(self.pixels, Pixels::Tokens(_)) && self.classes > model.classes() {
            let message = format!(
                "the model {} tells {} tokens apart: give it as many, a decoder by vocabulary={}, or use data of fewer",
                model.name(),
                model.classes(),
                self.classes
            );
            return Err(InputError::new(&self.place, format!("a vocabulary of {}", self.classes), message));
        }
        self.check_takes(model.name(), model.input(), model.classes())?;
        if let Some(tokens) = model.tokens().filter(|tokens| self.classes > *tokens) {
            let message = format!("the model {} takes tokens below {tokens}: give its input as many", model.name());
            return Err(InputError::new(&self.place, format!("a vocabulary of {}", self.classes), message));
        }
        let (name, wrong) = (model.name(), |value, message| Err(InputError::new(&self.place, value, message)));
        if self.sample().dtype != model.sample().dtype {
            let message = format!("the model {name} takes {}: choose other data or a model", model.sample());
            return wrong(format!("samples of {}", self.sample()), message);
        }
        match (model.labels(), self.label) {
            (Some(wanted), own) if own != Some(wanted) => {
                let has = own.map_or_else(|| "none".to_owned(), |own| own.to_string());
                let message = format!("the model {name} needs {wanted} for each sample: choose other data or a model");
                wrong(format!("labels: {has}"), message)
            }
            _ => Ok(()),
        }
    }

    /// [`Dataset::check_fits`] for a model known by its name, input and classes.
    pub(super) fn check_takes(&self, model: &str, input: Shape, classes: u32) -> Result<(), InputError> {
        if self.shape() != input {
            let cure = match self.has_patches(input) {
                true => format!("use patches of them ({} patch)", ErrorPlace::Flag("augment")),
                false => {
                    format!("choose other data ({} synthetic fits every model) or a model", ErrorPlace::Flag("data"))
                }
            };
            let message = format!("the model {model} takes {input}: {cure}");
            let samples = if self.shape.as_image().is_some() { "images" } else { "samples" };
            return Err(InputError::new(&self.place, format!("{samples} of {}", self.shape), message));
        }
        if self.classes > classes {
            return Err(InputError::new(
                &self.place,
                format!("{} classes", self.classes),
                format!("the model {model} tells {classes} apart: give its last layer {} outputs", self.classes),
            ));
        }
        Ok(())
    }

    /// Whether images are at least as large as `input`, with as many channels.
    fn has_patches(&self, input: Shape) -> bool {
        let images = (self.shape.as_image(), input.as_image());
        matches!(images, (Some(own), Some(input)) if own.has_patches(input))
    }

    /// The same images, of which patches of shape `input` are used.
    ///
    /// # Errors
    /// Images that are smaller or have other channels.
    pub(super) fn patches(self, input: Shape) -> Result<Dataset, InputError> {
        if let Some((height, width)) = self.smallest()
            && (height < input.size(Dimension::Row) || width < input.size(Dimension::Column))
        {
            let message =
                format!("are too small for patches of {input}: use scale instead of patch, or pack larger images");
            return Err(InputError::new(&self.place, format!("images of {height} × {width} and larger"), message));
        }
        if !self.has_patches(input) {
            let message = format!("are too small for patches of {input}, or have other channels: choose other data");
            return Err(InputError::new(&self.place, format!("images of {}", self.shape), message));
        }
        Ok(Dataset { patch: (input != self.shape).then_some(input), ..self })
    }
}
