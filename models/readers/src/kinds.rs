//! Reads the tables of layers in model files: the keys of a kind, and its attributes.

use lockstep_topology::InputError;
use lockstep_topology::document::{Entry, Table, suggestion};

use super::expression::{Arguments, pair, size};
use lockstep_models::Init;
use lockstep_models::Layer;
use lockstep_models::layer::{Attributes, Inits, KINDS};

/// Keys that every layer has.
const COMMON: [&str; 4] = ["name", "kind", "inputs", "when"];

/// The layer of the table whose `kind` entry is given.
pub(super) fn layer(table: &Table<'_>, kind: &Entry<'_>, arguments: &Arguments) -> Result<(Layer, Inits), InputError> {
    let name = kind.text()?;
    if name == "input" {
        return Err(kind.error("a model has one input: give its shape at the top, input = [channels, height, width]"));
    }
    let Some(known) = KINDS.iter().find(|known| known.name == name) else {
        let cure = suggestion(name, KINDS.iter().map(|known| known.name));
        return Err(kind.error(format!("there is no kind of layer \"{name}\": {cure}")));
    };
    table.allow(name, &[&COMMON, known.keys].concat())?;
    let reader = Reader { table, arguments };
    let layer = (known.read)(&reader)?;
    if let (Some(false), Some(entry)) = (reader.boolean("bias")?, table.get("bias_init")) {
        return Err(entry.error("is of a bias, and bias = false: leave one of the two out"));
    }
    let defaults = Inits::default();
    let inits = Inits {
        weight: table.get("weight_init").map_or(Ok(defaults.weight), |entry| init(&entry))?,
        bias: reader.number("bias_init")?.unwrap_or(defaults.bias),
        gamma: reader.number("gamma_init")?.or(reader.number("scale_init")?).unwrap_or(defaults.gamma),
    };
    Ok((layer, inits))
}

/// The weight of a loss in the sum of losses: Caffe's `loss_weight`.
pub(super) fn loss_weight(table: &Table<'_>) -> Result<f32, InputError> {
    match table.optional("loss_weight", Entry::float)?.unwrap_or(1.0) {
        weight if weight > 0.0 => Ok(weight),
        _ => Err(table.error_at("loss_weight", "loss_weight must be positive, e.g. 0.3")),
    }
}

/// `"he"`, `"xavier"`, `{ gaussian = 0.01 }` or `{ constant = 0.0 }`.
fn init(entry: &Entry<'_>) -> Result<Init, InputError> {
    if let Some(name) = entry.plain_text() {
        return match name {
            "he" => Ok(Init::He),
            "xavier" => Ok(Init::Xavier),
            _ => Err(entry.error("must be \"he\", \"xavier\", { gaussian = 0.01 } or { constant = 0.0 }")),
        };
    }
    let table = entry.table()?;
    table.allow("weight_init", &["gaussian", "constant"])?;
    match (table.get("gaussian"), table.get("constant")) {
        (Some(deviation), None) => match deviation.float()? {
            value if value < 0.0 => Err(deviation.error("a standard deviation must not be negative")),
            value => Ok(Init::Gaussian(value)),
        },
        (None, Some(value)) => value.float().map(Init::Constant),
        _ => Err(entry.error("must have one of the keys gaussian (a standard deviation) and constant")),
    }
}

/// Reads the keys of a layer.
struct Reader<'a> {
    table: &'a Table<'a>,
    arguments: &'a Arguments,
}

impl Attributes for Reader<'_> {
    fn size(&self, key: &str) -> Result<Option<u32>, InputError> {
        self.table.optional(key, |entry| size(entry, self.arguments))
    }

    fn pair(&self, key: &str) -> Result<Option<(u32, u32)>, InputError> {
        self.table.optional(key, |entry| pair(entry, self.arguments))
    }

    fn number(&self, key: &str) -> Result<Option<f32>, InputError> {
        self.table.optional(key, Entry::float)
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, InputError> {
        self.table.optional(key, Entry::boolean)
    }

    fn word(&self, key: &str) -> Result<Option<&str>, InputError> {
        self.table.optional(key, Entry::text)
    }

    fn refuse(&self, key: &str, message: &str) -> InputError {
        self.table.error_at(key, message)
    }
}
