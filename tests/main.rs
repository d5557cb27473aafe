//! Integration tests over the library and the binary: one module a subject, one binary to link.

mod architecture;
mod bad_input;
mod checkpoint;
mod clock_steps;
mod commands;
mod device_table;
mod devices;
mod equivalence;
mod fabrics;
mod firecaffe;
mod folding;
mod fuzz;
mod hybrid;
mod in_memory;
mod large_minibatch;
mod learners;
mod memory;
mod profiles;
mod reference_models;
mod resume;
mod scenarios;
mod stalls;
mod sweeps;
mod symmetry;
mod tuning;
mod zoo;
