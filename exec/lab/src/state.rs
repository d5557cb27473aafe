//! Lists existing labs: from the kernel's namespaces, `/etc/netns` and the records in `/run/lockstep-lab`.
//!
//! A lab's record is written last, so parts without a record are left over from a command that was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use lockstep_report::Failure;
use lockstep_topology::{InputError, nearest};
use serde::{Deserialize, Serialize};

use crate::name::LabName;
use crate::plan::LabPlan;

/// A folder for each lab.
const RECORDS: &str = "/run/lockstep-lab";
/// The names of all network namespaces, as `ip netns` keeps them.
pub(crate) const NAMESPACES: &str = "/run/netns";
/// Files that `ip netns exec` shows instead of those of `/etc`, a folder for each namespace.
pub(crate) const OWN_FILES: &str = "/etc/netns";

/// A lab that exists, as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// What it is made of.
    pub plan: LabPlan,
    /// The third byte of its addresses.
    pub subnet: u8,
    /// Changes of cables since: by their numbers, in words.
    pub changes: BTreeMap<usize, String>,
}

/// The parts of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct LabParts {
    /// Its name.
    pub name: LabName,
    /// Its record; `None` where it was not finished or the record is not readable.
    pub lab: Option<Lab>,
    /// Its existing namespaces.
    pub namespaces: Vec<String>,
    /// Its folders in `/etc/netns`.
    pub own_files: Vec<PathBuf>,
}

impl LabParts {
    /// The lab, if all of its namespaces are there.
    pub fn whole(&self) -> Option<&Lab> {
        let lab = self.lab.as_ref()?;
        let has = |namespace: &String| self.namespaces.contains(namespace);
        (lab.plan.hosts.iter().all(|host| has(&host.namespace)) && has(&lab.plan.lab.switches())).then_some(lab)
    }
}

/// The folder of a lab's record.
pub(crate) fn folder(name: &LabName) -> PathBuf {
    Path::new(RECORDS).join(name.as_str())
}

fn record(name: &LabName) -> PathBuf {
    folder(name).join("lab.json")
}

/// Held to make, remove or change labs; the kernel drops it as the process ends.
pub(crate) struct Lock(#[allow(dead_code, reason = "it is released when it is dropped")] File);

impl Lock {
    /// Waits for other commands that change labs.
    ///
    /// # Errors
    /// A folder that cannot be made or locked.
    pub(crate) fn take() -> Result<Lock, Failure> {
        let failed = |error: io::Error| Failure::Run(format!("{RECORDS}: {error}"));
        fs::create_dir_all(RECORDS).map_err(failed)?;
        let folder = File::open(RECORDS).map_err(failed)?;
        folder.lock().map_err(failed)?;
        Ok(Lock(folder))
    }
}

/// The names in a folder; none where there is no such folder.
fn entries(folder: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: io::Error| Failure::Run(format!("{folder}: {error}"));
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
        Ok(entries) => {
            let name = |entry: io::Result<fs::DirEntry>| Ok(entry.map_err(failed)?.file_name().into_string().ok());
            let mut names: Vec<String> =
                entries.filter_map(|entry| name(entry).transpose()).collect::<Result<_, Failure>>()?;
            names.sort();
            Ok(names)
        }
    }
}

/// All labs, even incomplete ones, by name.
///
/// # Errors
/// Folders that cannot be read.
pub fn survey() -> Result<Vec<LabParts>, Failure> {
    let (namespaces, own_files) = (entries(NAMESPACES)?, entries(OWN_FILES)?);
    let of_both = namespaces.iter().chain(&own_files).filter_map(|name| LabName::of_namespace(name));
    let recorded = entries(RECORDS)?.into_iter().filter_map(|name| name.parse().ok());
    let names: BTreeSet<LabName> = of_both.chain(recorded).collect();
    let found = |name: LabName| {
        let of_it = |namespace: &&String| LabName::of_namespace(namespace).as_ref() == Some(&name);
        let text = fs::read_to_string(record(&name)).ok();
        LabParts {
            lab: text.and_then(|text| serde_json::from_str(&text).ok()),
            namespaces: namespaces.iter().filter(of_it).cloned().collect(),
            own_files: own_files.iter().filter(of_it).map(|own| Path::new(OWN_FILES).join(own)).collect(),
            name,
        }
    };
    Ok(names.into_iter().map(found).collect())
}

/// The lab of this name.
///
/// # Errors
/// None of this name, with the nearest; an incomplete one.
pub fn known(name: &LabName) -> Result<Lab, Failure> {
    let all = survey()?;
    let Some(found) = all.iter().find(|found| found.name == *name) else {
        let near = nearest(name.as_str(), all.iter().map(|found| found.name.as_str()));
        let cure = match near.is_empty() {
            true => "lockstep lab list shows those that there are, lockstep lab up CLUSTER makes one".to_owned(),
            false => format!("did you mean {}?", near.join(", ")),
        };
        return Err(InputError::new("NAME", name.as_str(), format!("no such lab; {cure}")).into());
    };
    let broken =
        || InputError::new("NAME", name.as_str(), format!("is a leftover: lockstep lab down {name}, then up again"));
    Ok(found.whole().cloned().ok_or_else(broken)?)
}

/// Writes the lab's record atomically.
///
/// # Errors
/// A folder that cannot be written to.
pub(crate) fn save(lab: &Lab) -> Result<(), Failure> {
    let path = record(&lab.plan.lab);
    let failed = |error: io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let text = serde_json::to_string_pretty(lab).map_err(|error| failed(error.into()))?;
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed)
}
