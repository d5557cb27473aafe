//! The kinds of layers as model files write them: their keys, defaults and nothing else.

use lockstep_topology::InputError;

use super::Init;
use super::build::Inits;
use super::expression::{Arguments, pair, size};
use super::read::{Entry, Table, suggestion};
use crate::{BatchNorm, Conv2d, Dense, Dropout, Layer, LocalResponseNorm, Pool2d, PoolKind, Scale};

/// Keys that every layer has.
const COMMON: [&str; 4] = ["name", "kind", "inputs", "when"];

/// Every kind with its own keys; [`Layer::kind`] gives the same names.
pub(super) const KINDS: [(&str, &[&str]); 17] = [
    (
        "conv2d",
        &["out_channels", "kernel", "stride", "padding", "dilation", "groups", "bias", "weight_init", "bias_init"],
    ),
    ("dense", &["out_features", "bias", "weight_init", "bias_init"]),
    ("batch_norm", &["epsilon", "momentum", "gamma_init"]),
    ("scale", &["bias", "scale_init", "bias_init"]),
    ("relu", &[]),
    ("sigmoid", &[]),
    ("tanh", &[]),
    ("local_response_norm", &["size", "alpha", "beta", "k"]),
    ("dropout", &["rate"]),
    ("max_pool", &["kernel", "stride", "padding", "ceil"]),
    ("average_pool", &["kernel", "stride", "padding", "ceil"]),
    ("global_pool", &[]),
    ("add", &[]),
    ("concat", &[]),
    ("flatten", &[]),
    ("softmax_cross_entropy", &["loss_weight"]),
    ("logistic_cross_entropy", &["loss_weight"]),
];

/// The layer of the table whose `kind` entry is given.
pub(super) fn layer(table: &Table<'_>, kind: &Entry<'_>, arguments: &Arguments) -> Result<(Layer, Inits), InputError> {
    let name = kind.string()?;
    if name == "input" {
        return Err(kind.error("a model has one input: give its shape at the top, input = [channels, height, width]"));
    }
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == name) else {
        let cure = suggestion(name, KINDS.iter().map(|(known, _)| *known));
        return Err(kind.error(format!("there is no kind of layer \"{name}\": {cure}")));
    };
    table.allow(name, &[&COMMON, *own].concat())?;
    let reader = Reader { table, arguments };
    let layer = match name {
        "conv2d" => Layer::Conv2d(Conv2d {
            out_channels: reader.need("out_channels", "the output's feature maps, e.g. out_channels = 32")?,
            kernel: reader.need_pair("kernel", "the window's sides, e.g. kernel = 3 or [3, 5]")?,
            stride: reader.pair("stride", (1, 1))?,
            padding: reader.pair("padding", (0, 0))?,
            dilation: reader.pair("dilation", (1, 1))?,
            groups: reader.size("groups", 1)?,
            bias: reader.boolean("bias", true)?,
        }),
        "dense" => Layer::Dense(Dense {
            out_features: reader.need("out_features", "the output's features, e.g. out_features = 10")?,
            bias: reader.boolean("bias", true)?,
        }),
        "batch_norm" => Layer::BatchNorm(BatchNorm {
            epsilon: reader.float("epsilon", 1e-5)?,
            momentum: reader.float("momentum", 0.9)?,
        }),
        "max_pool" => Layer::Pool2d(reader.pool(PoolKind::Max)?),
        "average_pool" => Layer::Pool2d(reader.pool(PoolKind::Average)?),
        "scale" => Layer::Scale(Scale { bias: reader.boolean("bias", true)? }),
        "relu" => Layer::Relu,
        "sigmoid" => Layer::Sigmoid,
        "tanh" => Layer::Tanh,
        // The figures of Krizhevsky, Sutskever, Hinton 2012, §3.3.
        "local_response_norm" => Layer::LocalResponseNorm(LocalResponseNorm {
            size: reader.size("size", 5)?,
            alpha: reader.float("alpha", 1e-4)?,
            beta: reader.float("beta", 0.75)?,
            k: reader.float("k", 2.0)?,
        }),
        "dropout" => Layer::Dropout(Dropout { rate: reader.float("rate", 0.5)? }),
        "global_pool" => Layer::GlobalPool,
        "add" => Layer::Add,
        "concat" => Layer::Concat,
        "flatten" => Layer::Flatten,
        "logistic_cross_entropy" => Layer::LogisticCrossEntropy,
        _ => Layer::SoftmaxCrossEntropy,
    };
    let defaults = Inits::default();
    let inits = Inits {
        weight: table.get("weight_init").map_or(Ok(defaults.weight), |entry| init(&entry))?,
        bias: reader.float("bias_init", defaults.bias)?,
        gamma: reader.float(if name == "scale" { "scale_init" } else { "gamma_init" }, defaults.gamma)?,
    };
    Ok((layer, inits))
}

/// What a loss counts in the sum of losses: Caffe's `loss_weight`.
pub(super) fn loss_weight(table: &Table<'_>) -> Result<f32, InputError> {
    let Some(entry) = table.get("loss_weight") else { return Ok(1.0) };
    match entry.float()? {
        weight if weight > 0.0 => Ok(weight),
        _ => Err(entry.error("loss_weight must be positive, e.g. 0.3")),
    }
}

/// `"he"`, `"xavier"`, `{ gaussian = 0.01 }` or `{ constant = 0.0 }`.
fn init(entry: &Entry<'_>) -> Result<Init, InputError> {
    if let Some(name) = entry.value.as_str() {
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

impl Reader<'_> {
    fn need(&self, key: &str, example: &str) -> Result<u32, InputError> {
        size(&self.table.need(key, example)?, self.arguments)
    }

    fn need_pair(&self, key: &str, example: &str) -> Result<(u32, u32), InputError> {
        pair(&self.table.need(key, example)?, self.arguments)
    }

    fn size(&self, key: &str, default: u32) -> Result<u32, InputError> {
        self.table.get(key).map_or(Ok(default), |entry| size(&entry, self.arguments))
    }

    fn pair(&self, key: &str, default: (u32, u32)) -> Result<(u32, u32), InputError> {
        self.table.get(key).map_or(Ok(default), |entry| pair(&entry, self.arguments))
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool, InputError> {
        self.table.get(key).map_or(Ok(default), |entry| entry.boolean())
    }

    fn float(&self, key: &str, default: f32) -> Result<f32, InputError> {
        self.table.get(key).map_or(Ok(default), |entry| entry.float())
    }

    /// A window moves by its own size unless the file says otherwise.
    fn pool(&self, kind: PoolKind) -> Result<Pool2d, InputError> {
        let kernel = self.need_pair("kernel", "the window's sides, e.g. kernel = 2 or [3, 2]")?;
        Ok(Pool2d {
            kind,
            kernel,
            stride: self.pair("stride", kernel)?,
            padding: self.pair("padding", (0, 0))?,
            ceil: self.boolean("ceil", false)?,
        })
    }
}
