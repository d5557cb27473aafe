//! Lowers the layer `hard_sigmoid`.

super::curve::curve!(HardSigmoid, "piecewise.cu": HardSigmoidForward = hard_sigmoid_forward, HardSigmoidBackward = hard_sigmoid_backward, y = |of| of.output);
