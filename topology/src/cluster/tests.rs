//! Tests of clusters: routes against hand-worked cases and a slow twin, and every way to get a file wrong.

mod bad_fabrics;
mod bad_input;
mod changes;
mod fabrics;
mod gpus;
mod machines;
mod presets;
mod protocols;
mod routes;
