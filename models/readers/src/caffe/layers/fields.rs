//! Lists fields of `caffe.proto`: the settings of layers, by type, and the fields of fillers.

/// The settings of layers by type (`caffe.proto`), of which a layer reads its own. Those that layers of several types
/// read are not among them.
pub(super) const OTHERS: &[&str] = &[
    "accuracy_param",
    "argmax_param",
    "batch_norm_param",
    "bias_param",
    "clip_param",
    "concat_param",
    "contrastive_loss_param",
    "convolution_param",
    "crop_param",
    "data_param",
    "dropout_param",
    "dummy_data_param",
    "eltwise_param",
    "elu_param",
    "embed_param",
    "exp_param",
    "flatten_param",
    "hdf5_data_param",
    "hdf5_output_param",
    "hinge_loss_param",
    "image_data_param",
    "infogain_loss_param",
    "inner_product_param",
    "input_param",
    "log_param",
    "lrn_param",
    "memory_data_param",
    "mvn_param",
    "parameter_param",
    "pooling_param",
    "power_param",
    "prelu_param",
    "python_param",
    "recurrent_param",
    "reduction_param",
    "relu_param",
    "reshape_param",
    "scale_param",
    "sigmoid_param",
    "slice_param",
    "spp_param",
    "swish_param",
    "tanh_param",
    "threshold_param",
    "tile_param",
    "window_data_param",
];

/// The fields of a filler (`FillerParameter`).
pub(super) const FILLER: &[&str] = &["type", "value", "min", "max", "mean", "std", "sparse", "variance_norm"];

/// Fields of forks that choose how a layer is computed, not what: they are left out with a note.
pub(super) const FORKS: &[&str] = &[
    "backward_math",
    "backward_type",
    "cublas_algo",
    "cudnn_convolution_algo_seeker",
    "cudnn_math_override",
    "debug",
    "engine",
    "forward_math",
    "forward_type",
    "quantization_param",
];
