//! Lowers the layer `exact_gelu`.

super::curve::curve!(ExactGelu, "exact_gelu.cu": ExactGeluForward = exact_gelu_forward, ExactGeluBackward = exact_gelu_backward, x = |of| of.inputs[0]);
