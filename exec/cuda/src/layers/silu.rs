//! SiLU.

super::of_input::of_input!(Silu, "silu.cu": SiluForward = silu_forward, SiluBackward = silu_backward);
