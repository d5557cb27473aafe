//! Lowers the layer `relu6`.

super::curve::curve!(Relu6, "piecewise.cu": Relu6Forward = relu6_forward, Relu6Backward = relu6_backward, y = |of| of.output);
