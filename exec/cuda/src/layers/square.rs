//! Lowers squares.

super::curve::curve!(
    Square, "square.cu": SquareForward = square_forward, SquareBackward = square_backward, x = |of| of.inputs[0]
);
