//! Identifies sweeps by a hash of everything that determines their rows.

use std::path::Path;

use lockstep_topology::{RECORD, read_text};

use super::points::How;
use crate::site::PROFILE_PATH;
use lockstep_experiment::THIS_MACHINE;
use lockstep_experiment::identity::Identity;
use lockstep_experiment::sweep::Sweep;

/// The hash of the version, all lists, the settings that points share and predictions read, and the files
/// that they name.
pub fn identity(sweep: &Sweep, how: &How) -> String {
    let mut identity = Identity::default();
    identity.set("lockstep", env!("CARGO_PKG_VERSION"));
    identity.set("network", how.network.name());
    identity.set("fold", how.fold.name());
    sweep.identify(&mut identity);
    files(sweep, how, &mut identity);
    identity.hash()
}

/// The content of clusters' and profiles' files; one that cannot be read is refused when it is opened.
fn files(sweep: &Sweep, how: &How, identity: &mut Identity) {
    let clusters = sweep.entries.iter().filter_map(|entry| entry.find(".toml").map(|end| &entry[..end + 5]));
    let on_this_machine = sweep.entries.iter().any(|entry| entry == THIS_MACHINE);
    let profile = match &how.profile {
        Some(path) => Some(path.as_path()),
        None => on_this_machine.then(|| Path::new(PROFILE_PATH)),
    };
    let contents = clusters.map(Path::new).chain(profile);
    identity.set_list("files", contents.map(|path| read_text(path, RECORD).unwrap_or_default()));
}
