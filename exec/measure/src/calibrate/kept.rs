//! Decides whether an older profile still holds (same host, kernels and speed), and merges new figures into it.

use std::collections::BTreeSet;
use std::path::Path;

use lockstep_models::profile::{
    CONTENTION, ComputeEntry, FormulaEntry, PROFILE_VERSION, Point, Profile, THREAD_MESSAGES,
};
use lockstep_report::output::{make_place, write_atomically};
use lockstep_topology::{ErrorPlace, InputError};

use super::needs::Need;
use crate::host::HostInfo;
use crate::quiet::Quiet;

/// An older profile as far as it is valid, or why it is not.
#[derive(Debug)]
pub struct Kept {
    /// The valid part.
    pub profile: Option<Profile>,
    /// Why it is invalid, if there was a profile.
    pub why: Option<String>,
}

impl Kept {
    /// The profile at `path`, if it is of this machine in its present state: the pulses of `quiet` compare its speed.
    pub fn open(path: &Path, quiet: &mut Quiet) -> Kept {
        if !path.exists() {
            return Kept { profile: None, why: None };
        }
        let profile = match Profile::load(path) {
            Ok(profile) => profile,
            Err(error) => return Kept { profile: None, why: Some(error.to_string()) },
        };
        let host = [THREAD_MESSAGES, CONTENTION].iter().find(|name| profile.disturbed.iter().any(|of| of == *name));
        let disturbed = host.map(|name| format!("other programs disturbed the measurement of: {name}"));
        let differs = difference(&profile, &HostInfo::find(), quiet.cores().count()).or(disturbed).or_else(|| {
            let pulse_s = profile.pulse_s?;
            let why = "this machine runs at another speed than when it was measured";
            (!quiet.keeps(pulse_s)).then(|| why.to_owned())
        });
        match differs {
            None => Kept { profile: Some(profile), why: None },
            Some(why) => Kept { profile: None, why: Some(format!("{}: {why}", path.display())) },
        }
    }
}

/// Why the figures of a profile do not apply to `host` and to this program's kernels.
pub fn difference(profile: &Profile, host: &HostInfo, cores: usize) -> Option<String> {
    let Profile { host: name, cpu, kernels, .. } = profile;
    if !profile.gpus.is_empty() {
        return Some("it is of GPUs".to_owned());
    }
    if (name, cpu) != (&host.name, &host.cpu) {
        return Some(format!("it is of {name} ({cpu}), and this is {} ({})", host.name, host.cpu));
    }
    if profile.cores as usize != cores {
        return Some(format!("it is of {} cores, and there are {cores}", profile.cores));
    }
    let current = lockstep_exec::kernels();
    if *kernels != current || profile.pulse_s.is_none() {
        let of = if kernels.is_empty() { "unknown kernels" } else { kernels };
        return Some(format!("it is of {of}, and these are {current}"));
    }
    None
}

/// Whether two entries are of the same operation.
pub(super) fn same(one: &ComputeEntry, other: &ComputeEntry) -> bool {
    (&one.chain, &one.phase, one.samples) == (&other.chain, &other.phase, other.samples)
}

/// Adds figures of operations on parameters, except those of sizes that are known.
pub(super) fn merge_formulas(known: &mut Vec<FormulaEntry>, new: Vec<FormulaEntry>) {
    for entry in new {
        if known.iter().all(|of| (&of.formula, of.elements) != (&entry.formula, entry.elements)) {
            known.push(entry);
        }
    }
    known.sort_by(|a, b| (&a.formula, a.elements).cmp(&(&b.formula, b.elements)));
}

/// Replaces the figures in `profile` of the operations in `fresh`, a later profile of the same host, and keeps all
/// others.
pub fn lay_over(profile: &mut Profile, fresh: Profile) {
    let again: BTreeSet<String> = Need::all(&fresh).map(|need| need.to_string()).collect();
    profile.disturbed.retain(|name| !again.contains(name) && !fresh.disturbed.contains(name));
    let Profile { date, command, compute, update, formulas, load, decode, moves, storage, noise, disturbed, .. } =
        fresh;
    profile.disturbed.extend(disturbed);
    profile.compute.retain(|known| !compute.iter().any(|entry| same(known, entry)));
    profile.compute.extend(compute);
    for (known, fresh) in [(&mut profile.update, update), (&mut profile.load, load)] {
        known.retain(|point: &Point| fresh.iter().all(|entry| entry.elements != point.elements));
        super::merge(known, fresh);
    }
    profile.formulas.retain(|known| {
        formulas.iter().all(|entry| (&entry.formula, entry.elements) != (&known.formula, known.elements))
    });
    merge_formulas(&mut profile.formulas, formulas);
    profile.decode.retain(|known| {
        decode
            .iter()
            .all(|entry| (entry.bytes, entry.pixels, entry.elements) != (known.bytes, known.pixels, known.elements))
    });
    profile.decode.extend(decode);
    profile.moves.retain(|known| moves.iter().all(|entry| entry.elements != known.elements));
    profile.moves.extend(moves);
    profile.storage = storage.or(profile.storage);
    if let Some(noise) = noise {
        super::append(&mut profile.noise, noise);
    }
    (profile.version, profile.date, profile.command) = (PROFILE_VERSION, date, command);
}

/// The flag that names the file.
const PROFILE: ErrorPlace = ErrorPlace::Flag("profile");

/// Writes a profile to `path`, making its folder if it is missing.
///
/// # Errors
/// A path that cannot be written.
pub fn save(profile: &Profile, path: &Path) -> Result<(), InputError> {
    make_place(PROFILE, path)?;
    write_atomically(PROFILE, path, |file| file.write_all(profile.to_json().as_bytes()))
}
