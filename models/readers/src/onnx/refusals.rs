//! Says of an operator without a layer what it does, whether a prediction could do without it, and what to do.

use super::patterns::ELEMENTWISE;
use lockstep_models::layer::KINDS;

/// Operators that are read besides those that are a layer for any tensors.
const KNOWN: &str = "Conv, Gemm, MatMul, BatchNormalization, LayerNormalization, Dropout, MaxPool, AveragePool, ReduceMean, Pad, Add, \
                     Sub, Mul, Div, Clip, Slice, Split, Concat, Reshape, Transpose, Softmax, InstanceNormalization, GroupNormalization, Resize, \
                     ReduceSum, constants";

/// The refusal of an operator.
pub(super) fn no_layer(op: &str) -> String {
    if ELEMENTWISE.contains(&op) {
        return format!(
            "there is no layer for {op}, which changes each element by itself and learns little or nothing: a prediction \
             does as well with Relu or HardSwish in its place, so replace it there before export; to train it, choose \
             another activation"
        );
    }
    match op {
        "Einsum" | "Attention" | "MultiHeadAttention" | "SkipLayerNormalization" | "RotaryEmbedding" => {
            format!(
                "there is no layer for {op}: it belongs to attention, which is not supported yet; a prediction cannot do \
                     without it. Take a network of convolutions, e.g. from lockstep models list"
            )
        }
        "Loop" | "Scan" | "LSTM" | "GRU" | "RNN" => format!(
            "there is no layer for {op}: a model has no loops, and a prediction cannot do without it; unroll it before export"
        ),
        "NonMaxSuppression" | "TopK" | "ArgMax" | "NonZero" | "RoiAlign" | "ScatterND" => format!(
            "there is no layer for {op}, which selects results after training: a prediction does without it; export the \
             network up to its scores"
        ),
        "ConvTranspose" | "DepthToSpace" | "SpaceToDepth" => format!(
            "there is no layer for {op}, which changes an image's size: a prediction cannot do without it, since all layers \
             after it depend on that; export the part of the network before it (onnx.utils.extract_model) as a lower bound"
        ),
        _ => {
            let names: Vec<&str> = KINDS.iter().flat_map(|kind| kind.onnx).map(|(name, _)| *name).collect();
            format!(
                "there is no layer for {op}: known are {KNOWN}, {}. A prediction cannot do without it unless it changes no \
                 shape: replace it by one of these before export",
                names.join(", ")
            )
        }
    }
}
