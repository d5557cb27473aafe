//! Tells sweeps apart: a hash of everything that decides their rows.

use std::path::Path;

use lockstep_sim::FoldRule;
use lockstep_topology::{RECORD, read_text};

use super::points::How;
use crate::site::PROFILE_PATH;
use lockstep_experiment::identity::Identity;
use lockstep_experiment::sweep::Sweep;
use lockstep_experiment::{Batch, SETTINGS, THIS_MACHINE};

/// The hash of the version, all lists, the settings that points share and predictions read, and the files behind them.
pub fn identity(sweep: &Sweep, how: &How) -> String {
    let mut identity = Identity::default();
    identity.set("lockstep", env!("CARGO_PKG_VERSION"));
    identity.set("network", how.network.name());
    identity.set(
        "fold",
        match how.fold {
            FoldRule::Never => "never",
            FoldRule::Exact => "exact",
            FoldRule::Padded => "padded",
        },
    );
    lists(sweep, &mut identity);
    common(sweep, &mut identity);
    files(sweep, how, &mut identity);
    identity.hash()
}

/// What a sweep goes through.
fn lists(sweep: &Sweep, identity: &mut Identity) {
    identity.set_list("cluster", &sweep.entries);
    for scale in &sweep.scales {
        identity.set_list(&format!("scale.{}", scale.name), &scale.factors);
    }
    // Factors multiply out in the order of the scales.
    identity.set_list("scale", sweep.scales.iter().map(|scale| &scale.name));
    identity.set_list("model", &sweep.model_names);
    for (index, model) in sweep.models.iter().enumerate() {
        identity.set_model(&format!("model.{index}"), model);
    }
    identity.set_list("strategy", &sweep.strategies);
    identity.set_list("learners", &sweep.learners);
    match &sweep.batch {
        Batch::PerRank(batches) => identity.set_list("batch_per_rank", batches),
        Batch::Global(batches) => identity.set_list("global_batch", batches),
    }
    identity.set_list("accumulate", &sweep.accumulate);
    identity.set_list("bucket", &sweep.buckets);
    let chunks = sweep.chunks.iter().map(|chunk| chunk.map_or("auto".to_owned(), |bytes| bytes.0.to_string()));
    identity.set_list("chunk", chunks);
    identity.set_list("concurrent_exchanges", &sweep.concurrent_exchanges);
    identity.set_list("ranks", &sweep.ranks);
    let algorithms = sweep.algorithms.iter();
    identity
        .set_list("algorithm", algorithms.map(|one| one.as_ref().map_or("default".to_owned(), ToString::to_string)));
}

/// What all points have in common.
fn common(sweep: &Sweep, identity: &mut Identity) {
    let base = &sweep.base;
    for setting in SETTINGS {
        identity.set_some(setting.key, (setting.canonical)(base));
    }
    identity.set_some("processes", base.processes);
    if let Some(anchor) = &base.anchor {
        identity.set("anchor.ranks", anchor.ranks);
        identity.set_some("anchor.batch_per_rank", anchor.batch_per_rank);
        identity.set("anchor.images_per_s", anchor.images_per_s);
    }
    if let Some(input) = &base.input {
        input.identify(identity);
    }
    if let Some(noise) = &base.noise {
        noise.identify(identity);
    }
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
