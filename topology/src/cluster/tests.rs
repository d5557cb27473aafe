//! Tests clusters: routes against hand-worked cases and a slow reference, and every kind of bad file.

mod bad_fabrics;
mod bad_input;
mod changes;
mod fabrics;
mod gpus;
mod machines;
mod presets;
mod protocols;
mod routes;

use super::{Cluster, Device};

/// The device called `name`, e.g. `node0.gpu1`.
fn device_named<'c>(cluster: &'c Cluster, name: &str) -> &'c Device {
    let named = cluster.devices().iter().find(|device| device.name == name);
    named.unwrap_or_else(|| panic!("{} has no {name}", cluster.name()))
}
