//! Loads the initial weights of an experiment from the file that it names.

use std::path::Path;
use std::sync::Arc;

use lockstep_models::{InitialValues, Model};
use lockstep_topology::{InputError, MODEL, read_bytes};

use crate::experiment::Experiment;

/// What else to name.
const CURE: &str =
    "name a .safetensors, the .safetensors.index.json of several, a folder with either, or a .caffemodel";

/// Values of a file, and a text that says what was found.
type Found = (Arc<dyn InitialValues>, String);

impl Experiment {
    /// The values in the file under `weights` for `model`; `None` where no file is named.
    ///
    /// # Errors
    /// An unreadable file, or one whose layers do not fit.
    pub fn initial_values(&self, model: &Model) -> Result<Option<Found>, InputError> {
        let Some(file) = &self.weights else { return Ok(None) };
        let refused = |message: String| self.locate(InputError::flag("weights", file, message));
        if file.ends_with(".caffemodel") {
            let bytes = read_bytes(Path::new(file), MODEL).map_err(|error| refused(error.with_cure(CURE)))?;
            let (values, summary) = lockstep_readers::read_caffe_weights(file, &bytes, model)?;
            return Ok(Some((Arc::new(values), summary)));
        }
        let is_known = [".safetensors", ".safetensors.index.json"].iter().any(|ending| file.ends_with(ending));
        if !is_known && !Path::new(file).is_dir() {
            return Err(refused(format!("is not a file of weights that is read: {CURE}")));
        }
        let (values, summary) = lockstep_readers::open_weights(file, model).map_err(|error| self.locate(error))?;
        Ok(Some((Arc::new(values), summary)))
    }
}
