//! Brings a lab up, and removes its parts where a step fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use lockstep_report::Failure;
use lockstep_topology::{Cluster, InputError};

use crate::commands;
use crate::down::take_back;
use crate::name::LabName;
use crate::plan::LabPlan;
use crate::run::agent;
use crate::state::{Lab, Lock, OWN_FILES, folder, save, survey};
use crate::tools::{check, run};

/// Makes the lab of a cluster under this name, all rates times `scale`.
///
/// # Errors
/// No root, no `ip` or `tc`; a name that is taken; what [`LabPlan::new`] refuses; a step that the kernel refuses.
pub fn up(cluster: &Cluster, name: &LabName, scale: f64) -> Result<Lab, Failure> {
    // A fault of the cluster is reported on any machine.
    LabPlan::new(cluster, name, 0, scale)?;
    check(&["ip", "tc", "unshare"])?;
    let _lock = Lock::take()?;
    let all = survey()?;
    if let Some(found) = all.iter().find(|found| found.name == *name) {
        let what = if found.whole().is_some() { "is up already" } else { "is a leftover" };
        let message = format!("{what}: lockstep lab down {name}, or use another name");
        return Err(InputError::flag("name", name.as_str(), message).into());
    }
    let taken: BTreeSet<u8> = all.iter().filter_map(|found| Some(found.lab.as_ref()?.subnet)).collect();
    let free = (0..=u8::MAX).find(|subnet| !taken.contains(subnet));
    let subnet = free.ok_or_else(|| InputError::flag("name", name.as_str(), "256 labs are up: take some down"))?;
    let lab = Lab { plan: LabPlan::new(cluster, name, subnet, scale)?, subnet, changes: BTreeMap::new() };
    make(&lab).inspect_err(|_| {
        // The first failure is reported; `lab list` shows what is left if this fails too.
        let _ = take_back(name);
    })?;
    Ok(lab)
}

fn make(lab: &Lab) -> Result<(), Failure> {
    let (plan, folder) = (&lab.plan, folder(&lab.plan.lab));
    let failed = |path: &Path, error: io::Error| Failure::Run(format!("{}: {error}", path.display()));
    let write = |path: &Path, text: &str| fs::write(path, text).map_err(|error| failed(path, error));
    let make = |path: &Path| fs::create_dir_all(path).map_err(|error| failed(path, error));
    make(&folder)?;
    write(&folder.join("agent"), &agent(&plan.lab))?;
    for host in &plan.hosts {
        let own = Path::new(OWN_FILES).join(&host.namespace);
        make(&own)?;
        write(&own.join("hosts"), &plan.hosts_file())?;
    }
    for step in commands::up(plan) {
        run(&step)?;
    }
    save(lab)
}
