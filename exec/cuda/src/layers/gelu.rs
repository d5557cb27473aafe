//! Lowers GELU by its tanh approximation.

super::curve::curve!(Gelu, "gelu.cu": GeluForward = gelu_forward, GeluBackward = gelu_backward, x = |of| of.inputs[0]);
