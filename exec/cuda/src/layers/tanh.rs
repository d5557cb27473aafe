//! Lowers tanh.

super::curve::curve!(Tanh, "curve.cu": TanhForward = tanh_forward, TanhBackward = tanh_backward, y = |of| of.output);
