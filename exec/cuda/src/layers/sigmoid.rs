//! Lowers sigmoid.

super::curve::curve!(Sigmoid, "curve.cu": SigmoidForward = sigmoid_forward, SigmoidBackward = sigmoid_backward, y = |of| of.output);
