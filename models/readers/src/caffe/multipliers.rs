//! Reads the factors of learning rate and weight decay of a layer's parameters.

use lockstep_models::Multipliers;
use lockstep_topology::InputError;

use super::Import;
use super::text::{Field, Message};

impl<'a> Import<'a> {
    /// Factors of the rate and the decay of a layer's parameters, in either form of the file.
    pub(super) fn multipliers(&mut self, layer: &Message<'a>) -> Result<Vec<Multipliers>, InputError> {
        let mut all: Vec<Multipliers> = Vec::new();
        let mut put = |index: usize, set: &dyn Fn(&mut Multipliers)| {
            all.resize(all.len().max(index + 1), Multipliers::NONE);
            set(&mut all[index]);
        };
        let factor = |field: &Field<'_>| match field.number()? {
            negative if negative < 0.0 => Err(field.error("must be at least 0")),
            factor => Ok(factor),
        };
        let mut named = Vec::new();
        for (index, field) in layer.all("param").enumerate() {
            // In the first form of the file it is a name alone.
            let Ok(of) = field.message() else {
                named.push((field, field.text()?));
                continue;
            };
            of.allow(&[&["name", "share_mode", "lr_mult", "decay_mult"]])?;
            named.extend(of.get("name").map(|name| Ok::<_, InputError>((name, name.text()?))).transpose()?);
            let (rate, decay) = (of.get("lr_mult").map(factor), of.get("decay_mult").map(factor));
            let (rate, decay) = (rate.unwrap_or(Ok(1.0))?, decay.unwrap_or(Ok(1.0))?);
            put(index, &|of| *of = Multipliers { rate, decay });
        }
        for (index, field) in layer.all("blobs_lr").enumerate() {
            let rate = factor(field)?;
            put(index, &|of| of.rate = rate);
        }
        for (index, field) in layer.all("weight_decay").enumerate() {
            let decay = factor(field)?;
            put(index, &|of| of.decay = decay);
        }
        for (field, name) in named {
            if !name.is_empty() && !self.parameters.insert(name) {
                return Err(field.error("layers cannot share parameters here: give each its own name"));
            }
        }
        Ok(all)
    }
}
