//! Lowers SiLU.

super::curve::curve!(Silu, "silu.cu": SiluForward = silu_forward, SiluBackward = silu_backward, x = |of| of.inputs[0]);
