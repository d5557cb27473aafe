//! The models that come with the project, compiled in so that the program needs no folder beside it.

use lockstep_topology::InputError;

use super::Model;
use super::read::suggestion;

/// Names and texts, by name.
pub(super) const ZOO: &[(&str, &str)] = &[
    ("lenet", include_str!("../../zoo/lenet.toml")),
    ("mlp", include_str!("../../zoo/mlp.toml")),
    ("resnet-32", include_str!("../../zoo/resnet-32.toml")),
    ("resnet-50", include_str!("../../zoo/resnet-50.toml")),
];

/// The model of that name, else of that path.
pub(super) fn load(name_or_path: &str) -> Result<Model, InputError> {
    if let Some((name, text)) = ZOO.iter().find(|(name, _)| *name == name_or_path) {
        return Model::parse(&format!("models/zoo/{name}.toml"), text);
    }
    let is_path = name_or_path.ends_with(".toml") || name_or_path.contains(std::path::MAIN_SEPARATOR);
    if !is_path {
        let cure = suggestion(name_or_path, ZOO.iter().map(|(name, _)| *name));
        let message = format!("there is no such model in the zoo, and a path ends in .toml: {cure}");
        return Err(InputError::new("", format!("model \"{name_or_path}\""), message));
    }
    let text = std::fs::read_to_string(name_or_path)
        .map_err(|error| InputError::new(name_or_path, "", format!("cannot read the model: {error}")))?;
    Model::parse(name_or_path, &text)
}
