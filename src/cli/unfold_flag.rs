//! The flag that restores batch normalisation in an ONNX file's model, of commands without the settings of an experiment.

use clap::Args;
use lockstep_models::Model;
use lockstep_topology::InputError;

/// The flag.
#[derive(Debug, Args)]
pub(super) struct UnfoldFlag {
    /// Restore the batch normalisation that an export in eval mode has folded into the convolutions of an ONNX file
    #[arg(long)]
    unfold: bool,
}

impl UnfoldFlag {
    /// The model of that name or path.
    pub(super) fn load(&self, name: &str) -> Result<Model, InputError> {
        match self.unfold {
            true => lockstep_readers::load_model(&lockstep_readers::unfolded_name(name)?),
            false => lockstep_readers::load_model(name),
        }
    }
}
