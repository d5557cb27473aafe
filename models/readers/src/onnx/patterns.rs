//! Lists expressions of ONNX operators that are one layer here: a line for each form in which exporters write it.

use lockstep_models::Layer;

use super::pattern::Pattern;

/// What an expression of x becomes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Made {
    /// A layer that takes x.
    Layer(Layer),
    /// A normalisation of x over channels with factors w, biases b and ε = e.
    LayerNorm,
    /// A scaling of x's channels by their norms g and the mean m of these, with factors w, biases b and ε = e.
    ResponseNorm,
}

use Layer::{ExactGelu, Gelu, HardSigmoid, HardSwish, Relu, Relu6, Silu, Square};

/// (x − mean) / √(variance + e), squared by a power or by a product.
macro_rules! normalised {
    ($square:literal) => {
        concat!("Add(Mul(Div(Sub(x, ReduceMean(x)), Sqrt(Add(ReduceMean(", $square, "), e))), w), b)")
    };
}

const LAYERS: &[(&str, Layer)] = &[
    ("Clip(x, 0, 6)", Relu6),
    ("Min(Relu(x), 6)", Relu6),
    ("Min(Max(x, 0), 6)", Relu6),
    ("Max(Min(x, 6), 0)", Relu6),
    ("Max(x, 0)", Relu),
    ("Pow(x, 2)", Square),
    ("Mul(x, x)", Square),
    ("Mul(x, Sigmoid(x))", Silu),
    ("HardSigmoid(x, 0.1666667, 0.5)", HardSigmoid),
    ("Div(Clip(Add(x, 3), 0, 6), 6)", HardSigmoid),
    ("Mul(Clip(Add(x, 3), 0, 6), 0.1666667)", HardSigmoid),
    ("Mul(x, HardSigmoid(x, 0.1666667, 0.5))", HardSwish),
    ("Mul(x, Div(Clip(Add(x, 3), 0, 6), 6))", HardSwish),
    ("Mul(x, Mul(Clip(Add(x, 3), 0, 6), 0.1666667))", HardSwish),
    ("Div(Mul(x, Clip(Add(x, 3), 0, 6)), 6)", HardSwish),
    ("Mul(Mul(x, Clip(Add(x, 3), 0, 6)), 0.1666667)", HardSwish),
    ("Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)", ExactGelu),
    ("Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.4142135)), 1))", ExactGelu),
    ("Mul(x, Mul(Add(Erf(Div(x, 1.4142135)), 1), 0.5))", ExactGelu),
    ("Mul(Mul(x, Add(Erf(Mul(x, 0.7071068)), 1)), 0.5)", ExactGelu),
    ("Mul(Mul(x, 0.5), Add(Erf(Mul(x, 0.7071068)), 1))", ExactGelu),
    ("Mul(x, Mul(Add(Erf(Mul(x, 0.7071068)), 1), 0.5))", ExactGelu),
    ("Mul(Mul(x, 0.5), Add(Tanh(Mul(Add(x, Mul(Pow(x, 3), 0.044715)), 0.7978846)), 1))", Gelu),
    ("Mul(Mul(x, Add(Tanh(Mul(Add(x, Mul(Pow(x, 3), 0.044715)), 0.7978846)), 1)), 0.5)", Gelu),
    ("Mul(x, Mul(Add(Tanh(Mul(Add(x, Mul(Pow(x, 3), 0.044715)), 0.7978846)), 1), 0.5))", Gelu),
    ("Mul(Mul(x, 0.5), Add(Tanh(Mul(Add(x, Mul(Mul(Mul(x, x), x), 0.044715)), 0.7978846)), 1))", Gelu),
    ("Mul(Mul(x, 0.5), Add(Tanh(Mul(Mul(x, Add(Mul(Mul(x, x), 0.044715), 1)), 0.7978846)), 1))", Gelu),
];

/// In PyTorch's exports the product with w may be multiplied by 1, `addcmul`'s value.
const RESPONSE_NORMS: &[&str] = &[
    "Add(x, Add(b, Mul(w, Mul(x, Div(g=ReduceL2(x), Add(m=ReduceMean(g), e))))))",
    "Add(x, Add(b, Mul(Mul(w, Mul(x, Div(g=ReduceL2(x), Add(m=ReduceMean(g), e)))), 1)))",
];

const LAYER_NORMS: &[&str] =
    &[normalised!("Pow(Sub(x, ReduceMean(x)), 2)"), normalised!("Mul(Sub(x, ReduceMean(x)), Sub(x, ReduceMean(x)))")];

/// All expressions, the table's lines in order.
pub(super) fn all() -> Vec<(Pattern, Made)> {
    let layers = LAYERS.iter().map(|(text, layer)| (Pattern::parse(text), Made::Layer(layer.clone())));
    let norms = LAYER_NORMS.iter().map(|text| (Pattern::parse(text), Made::LayerNorm));
    let responses = RESPONSE_NORMS.iter().map(|text| (Pattern::parse(text), Made::ResponseNorm));
    layers.chain(norms).chain(responses).collect()
}

/// The elementwise operators that occur in such expressions or change nothing but values, for which a refusal can say what
/// a prediction would miss.
pub(super) const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Celu",
    "Clip",
    "Cos",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "HardSigmoid",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Neg",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Selu",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "ThresholdedRelu",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_expression_with_x() {
        for (pattern, _) in all() {
            assert!(!pattern.root().is_empty() && format!("{pattern:?}").contains("Tensor('x')"), "{pattern:?}");
        }
    }
}
