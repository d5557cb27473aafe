//! What makes two sweeps the same: a hash of everything that decides their rows.

use std::path::Path;

use lockstep_models::{Bucket, Strategy};
use sha2::{Digest, Sha256};

use super::plan::Sweep;
use super::points::How;
use crate::experiment::{Batch, Experiment, Length, THIS_MACHINE};
use crate::site::PROFILE_PATH;

/// Digits that stand in each row.
const DIGITS: usize = 12;

/// The first digits of the SHA-256 over the version, all lists, everything that points share, and the files behind them.
pub fn identity(sweep: &Sweep, how: &How) -> String {
    // Without what lists have taken the place of, and what no prediction depends on.
    let base = Experiment {
        name: String::new(),
        model: String::new(),
        data: String::new(),
        cluster: String::new(),
        ranks: Vec::new(),
        batch: Batch::PerRank(Vec::new()),
        strategy: Strategy::Ssgd,
        learners: 1,
        accumulate: 1,
        algorithms: Vec::new(),
        bucket: Bucket::Whole,
        chunk: None,
        concurrent_exchanges: 1,
        length: Length::Steps(1),
        published: None,
        places: Default::default(),
        ..sweep.base.clone()
    };
    let common = Sweep { base, ..sweep.clone() };
    let mut text = format!("lockstep {} {common:?} {:?} {:?}\n", env!("CARGO_PKG_VERSION"), how.network, how.fold);
    let clusters = sweep.entries.iter().filter_map(|entry| entry.find(".toml").map(|end| &entry[..end + 5]));
    let on_this_machine = sweep.entries.iter().any(|entry| entry == THIS_MACHINE);
    let profile = match &how.profile {
        Some(path) => Some(path.as_path()),
        None => on_this_machine.then(|| Path::new(PROFILE_PATH)),
    };
    for path in clusters.map(Path::new).chain(profile) {
        // What cannot be read is refused when it is opened.
        let content = std::fs::read_to_string(path).unwrap_or_default();
        text.push_str(&format!("{} {content}\n", content.len()));
    }
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}
