//! `AxisSizes`: the axes of a mesh by their sizes, of which ranks decide the one that is not given.

use std::fmt::{self, Display, Formatter};

use lockstep_models::{Axis, Mesh, Strategy};
use lockstep_topology::{ErrorPlace, InputError};

use crate::experiment::Experiment;

/// The axes with the names of their sizes, outer ones first.
pub const AXIS_SIZES: [(Axis, &str); 3] = [(Axis::Pipeline, "pp"), (Axis::Data, "dp"), (Axis::Tensor, "tp")];
/// The name of the chunks of layers of a stage.
pub const INTERLEAVE: &str = "interleave";

/// The sizes that are given, by the position of the axis in [`AXIS_SIZES`], and the chunks of layers of each stage.
#[derive(Debug, Clone, Copy, Default)]
pub struct AxisSizes {
    /// Sizes.
    pub sizes: [Option<u32>; 3],
    /// Chunks.
    pub chunks: Option<u32>,
}

impl AxisSizes {
    /// Whether any of them sets that key.
    pub(crate) fn gives(&self, key: &str) -> bool {
        match key {
            "mesh" => self.sizes.iter().any(Option::is_some),
            "schedule" => self.chunks.is_some(),
            _ => false,
        }
    }

    /// Makes them the mesh of the experiment; a strategy that splits layers is chosen where none is stated.
    ///
    /// # Errors
    /// Ranks that the other axes do not divide.
    pub fn apply(&self, experiment: &mut Experiment) -> Result<(), InputError> {
        if let Some(chunks) = self.chunks {
            let schedule = if chunks == 1 { "1f1b".parse() } else { format!("interleaved:{chunks}").parse() };
            experiment.schedule = schedule.map_err(|wrong| InputError::flag(INTERLEAVE, chunks.to_string(), wrong))?;
            experiment.overridden("schedule");
            experiment.places.insert("schedule".to_owned(), ErrorPlace::Flag(INTERLEAVE));
        }
        if self.sizes.iter().all(Option::is_none) {
            return Ok(());
        }
        let [stages, data, tensor] = self.sizes;
        let others = stages.unwrap_or(1).saturating_mul(tensor.unwrap_or(1));
        let data = match (data, experiment.states("ranks"), experiment.ranks.as_slice()) {
            (Some(data), ..) => data,
            (None, true, &[ranks]) if ranks.is_multiple_of(others) => ranks / others,
            (None, true, ranks @ [_, _, ..]) => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let [stages, data, tensor] = names();
                let message = format!(
                    "are several, and {tensor}, {stages} and {data} make one mesh of one number of ranks: give one"
                );
                return Err(InputError::flag("ranks", ranks.join(","), message));
            }
            (None, true, ranks) => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                let [stages, data, tensor] = names();
                let message = format!(
                    "are not a multiple of the {others} that {tensor} and {stages} take: give one that is, or {data}"
                );
                return Err(InputError::flag("ranks", ranks.join(","), message));
            }
            _ => 1,
        };
        // A file's number of ranks is replaced; a flag's must be the mesh's.
        if matches!(experiment.places.get("ranks"), Some(place) if !matches!(place, ErrorPlace::Flag(_))) {
            experiment.places.remove("ranks");
        }
        let sizes = [stages.unwrap_or(1), data, tensor.unwrap_or(1)];
        let axes: Vec<(Axis, u32)> =
            AXIS_SIZES.iter().map(|(axis, _)| *axis).zip(sizes).filter(|(_, size)| *size > 1).collect();
        let alone = [(Axis::Data, 1)];
        experiment.mesh = Some(Mesh::new(if axes.is_empty() { &alone } else { &axes })?);
        experiment.overridden("mesh");
        if tensor.is_some_and(|size| size > 1) && !experiment.states("strategy") {
            let megatron: Result<Strategy, String> = "megatron".parse();
            experiment.set_strategies(vec![megatron.map_err(|wrong| InputError::flag("strategy", "megatron", wrong))?]);
            experiment.overridden("strategy");
        }
        Ok(())
    }
}

/// As on a command line, each preceded by a space.
impl Display for AxisSizes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let given = AXIS_SIZES.iter().zip(self.sizes).filter_map(|((_, flag), size)| Some((*flag, size?)));
        let chunks = self.chunks.map(|chunks| (INTERLEAVE, chunks));
        given.chain(chunks).try_for_each(|(flag, size)| write!(f, " {} {size}", ErrorPlace::Flag(flag)))
    }
}

/// How the sizes are written as flags.
fn names() -> [ErrorPlace; 3] {
    AXIS_SIZES.map(|(_, name)| ErrorPlace::Flag(name))
}
