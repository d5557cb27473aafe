//! Lowers the layer `hard_swish`.

super::curve::curve!(HardSwish, "piecewise.cu": HardSwishForward = hard_swish_forward, HardSwishBackward = hard_swish_backward, x = |of| of.inputs[0]);
