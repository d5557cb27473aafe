//! GELU by its tanh approximation.

super::of_input::of_input!(Gelu, "gelu.cu": GeluForward = gelu_forward, GeluBackward = gelu_backward);
