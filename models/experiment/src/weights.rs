//! Loads the initial weights of an experiment from the file that it names.

use std::path::Path;
use std::sync::Arc;

use lockstep_models::{InitialValues, Model};
use lockstep_topology::{InputError, MODEL, read_bytes};

use crate::experiment::Experiment;

impl Experiment {
    /// The values in the file under `weights` for `model`, and a text that lists the layers that only one of the two
    /// has; `None` where no file is named.
    ///
    /// # Errors
    /// An unreadable file, or one whose layers do not fit.
    pub fn initial_values(&self, model: &Model) -> Result<Option<(Arc<InitialValues>, String)>, InputError> {
        let Some(file) = &self.weights else { return Ok(None) };
        let refused = |message: String| self.locate(InputError::flag("weights", file, message));
        if !file.ends_with(".caffemodel") {
            return Err(refused("is not a file of weights that is read: name a .caffemodel".to_owned()));
        }
        let bytes =
            read_bytes(Path::new(file), MODEL).map_err(|error| refused(error.with_cure("name a .caffemodel")))?;
        let (values, summary) = lockstep_readers::read_caffe_weights(file, &bytes, model)?;
        Ok(Some((Arc::new(values), summary)))
    }
}
