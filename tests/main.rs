//! Integration tests over the library and the binary: one module a subject, one binary to link.

mod architecture;
mod equivalence;
