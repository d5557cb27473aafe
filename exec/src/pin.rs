//! Ranks keep to cores of their own where there are enough, so that measurements repeat.

/// Binds the calling thread to cores `first .. first + count`; does nothing where the system refuses.
pub fn pin(first: usize, count: usize) {
    let Some(all) = core_affinity::get_core_ids() else { return };
    // One thread per rank is the rule that timing needs; pools of several share their cores.
    if let (1, Some(core)) = (count, all.get(first)) {
        core_affinity::set_for_current(*core);
    }
}
