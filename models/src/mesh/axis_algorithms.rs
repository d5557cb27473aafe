//! Parses the algorithms of exchanges along an axis, where they differ from that of the gradients.

use std::fmt;
use std::str::FromStr;

use lockstep_topology::Algorithm;

use crate::{Axis, AxisSet};

/// Algorithms by axis. Exchanges along an axis without one take the job's algorithm where they are of parameters, and
/// its default of activations where they are of activations.
///
/// ```
/// # use lockstep_models::{Axis, AxisAlgorithms, AxisSet};
/// let algorithms: AxisAlgorithms = "tensor=ring,data=hierarchical:ring".parse().unwrap();
/// let along = |axes: &[Axis]| algorithms.along(AxisSet::of(axes)).map(ToString::to_string);
/// assert_eq!(along(&[Axis::Data, Axis::Tensor]).as_deref(), Some("hierarchical:ring"));
/// assert_eq!((along(&[Axis::Tensor]).as_deref(), along(&[Axis::Device])), (Some("ring"), None));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AxisAlgorithms(Vec<(Axis, Algorithm)>);

impl AxisAlgorithms {
    /// The algorithm of exchanges along `axes`: that of the first of them that has one, in the order of [`Axis`].
    pub fn along(&self, axes: AxisSet) -> Option<&Algorithm> {
        axes.iter().find_map(|axis| self.0.iter().find(|(of, _)| *of == axis)).map(|(_, algorithm)| algorithm)
    }

    /// Axes with their algorithms, as they were given.
    pub fn iter(&self) -> impl Iterator<Item = (Axis, &Algorithm)> {
        self.0.iter().map(|(axis, algorithm)| (*axis, algorithm))
    }

    /// Whether no axis has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for AxisAlgorithms {
    type Err = String;

    /// Reads `data=ring,tensor=library:nccl`.
    fn from_str(text: &str) -> Result<AxisAlgorithms, String> {
        let mut all: Vec<(Axis, Algorithm)> = Vec::new();
        for part in text.split(',') {
            let Some((axis, algorithm)) = part.split_once('=') else {
                return Err(format!("{part:?} is not an axis with its algorithm: write data=ring,tensor=direct"));
            };
            let axis: Axis = axis.trim().parse()?;
            let algorithm: Algorithm =
                algorithm.trim().parse().map_err(|error: lockstep_topology::InputError| error.to_string())?;
            if axis == Axis::Pipeline {
                return Err(
                    "stages send to one neighbour at a time, without an algorithm: leave pipeline out".to_owned()
                );
            }
            if algorithm.servers() > 0 {
                let kind = algorithm.kind_of_servers();
                return Err(format!(
                    "{algorithm} has {kind}, which serve all ranks: give it as the algorithm of all axes"
                ));
            }
            if all.iter().any(|(other, _)| *other == axis) {
                return Err(format!("axis {axis} is given twice: leave one out"));
            }
            all.push((axis, algorithm));
        }
        Ok(AxisAlgorithms(all))
    }
}

impl fmt::Display for AxisAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |(axis, algorithm): &(Axis, Algorithm)| format!("{axis}={algorithm}");
        f.write_str(&self.0.iter().map(part).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_parse_back() {
        for text in ["data=ring", "tensor=library:nccl@2.20,data=rings:4", "learner=direct,device=double-tree:2"] {
            assert_eq!(text.parse::<AxisAlgorithms>().map(|all| all.to_string()).as_deref(), Ok(text));
        }
        for (text, cure) in [
            ("ring", "write data=ring"),
            ("sideways=ring", "tensor"),
            ("data=rong", "ring"),
            ("pipeline=ring", "leave pipeline out"),
            ("data=ring,data=direct", "twice"),
            ("data=parameter-server:1:dedicated", "all axes"),
        ] {
            let error = text.parse::<AxisAlgorithms>().unwrap_err();
            assert!(error.contains(cure), "{text}: {error}");
        }
    }
}
