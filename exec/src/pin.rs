//! Ranks keep to one core each, so that measurements repeat.

/// Binds the calling thread to the core with index `first`, counted over and over through those of this machine: where there
/// are more ranks than cores, each core gets its share of them. Does nothing for a pool of several threads (`count` beyond
/// 1), which share their cores, nor where the system refuses.
pub fn pin(first: usize, count: usize) {
    let Some(all) = core_affinity::get_core_ids().filter(|all| !all.is_empty()) else { return };
    if count == 1 {
        core_affinity::set_for_current(all[first % all.len()]);
    }
}
