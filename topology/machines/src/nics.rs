//! Decides which of a host's network interfaces belong to the fabric that joins hosts, and removes the others.

use lockstep_topology::{InputError, nearest};

use crate::machine::{Machine, NVSWITCH, Nic};

/// Keeps the NICs that `wanted` names, or those that look like a fabric's; names the others in a note.
///
/// # Errors
/// A name of `wanted` that no NIC has.
pub(crate) fn choose(machine: &mut Machine, wanted: Option<&str>, network: Option<&str>) -> Result<(), InputError> {
    let reasons: Vec<Option<String>> = match wanted {
        Some("all") => return Ok(()),
        Some(wanted) => named(&machine.nics, wanted)?,
        None => likely(&machine.nics, network),
    };
    let out: Vec<String> = machine
        .nics
        .iter()
        .zip(&reasons)
        .filter_map(|(nic, reason)| {
            reason
                .as_ref()
                .map(|reason| if reason.is_empty() { nic.name.clone() } else { format!("{} ({reason})", nic.name) })
        })
        .collect();
    if !out.is_empty() && wanted.is_none() {
        let message = "left out as no part of the fabric; the setting nics names the NICs to keep, or all";
        machine.notes.push(format!("{}: {message}", out.join(", ")));
    }
    let mut is_out = reasons.iter().map(Option::is_some);
    let mut removed = Vec::new();
    machine.nics.retain(|nic| {
        let keep = is_out.next() != Some(true);
        if !keep {
            removed.push(nic.name.clone());
        }
        keep
    });
    machine.links.retain(|link| !link.between.iter().any(|end| removed.contains(end)));
    prune(machine);
    Ok(())
}

/// Of NICs by name, whether each is left out.
fn named(nics: &[Nic], wanted: &str) -> Result<Vec<Option<String>>, InputError> {
    let mut keep = vec![false; nics.len()];
    for name in wanted.split(',').map(str::trim) {
        let is_it = |known: &str| match name.strip_suffix('*') {
            Some(start) => known.starts_with(start),
            None => known == name,
        };
        let mut found = false;
        for (nic, keep) in nics.iter().zip(&mut keep) {
            if is_it(&nic.name) || nic.known_as.iter().any(|known| is_it(known)) {
                (*keep, found) = (true, true);
            }
        }
        if !found {
            let near = nearest(name, nics.iter().map(|nic| nic.name.as_str())).join(", ");
            let all = nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
            let known = if near.is_empty() { format!("there are {all}") } else { format!("did you mean {near}?") };
            let known = if nics.is_empty() { "the file has none: leave it out".to_owned() } else { known };
            return Err(InputError::flag("nics", name, format!("is no NIC of the file; {known}")));
        }
    }
    Ok(keep.into_iter().map(|keep| (!keep).then(String::new)).collect())
}

/// Why each NIC is left out, if it is.
fn likely(nics: &[Nic], network: Option<&str>) -> Vec<Option<String>> {
    let mut reasons: Vec<Option<String>> = vec![None; nics.len()];
    let mut leave = |applies: &dyn Fn(&Nic) -> bool, why: &dyn Fn(&Nic) -> String, even_all: bool| {
        let left: Vec<usize> = (0..nics.len()).filter(|index| reasons[*index].is_none()).collect();
        if even_all || left.iter().any(|index| !applies(&nics[*index])) {
            for index in left.into_iter().filter(|index| applies(&nics[*index])) {
                reasons[index] = Some(why(&nics[index]));
            }
        }
    };
    leave(&|nic| has_name(nic, &is_virtual), &|_| "virtual".to_owned(), true);
    leave(&|nic| has_name(nic, &is_layered), &|_| "over other interfaces".to_owned(), false);
    leave(&|nic| nic.is_plain, &|_| "without an identity in a fabric".to_owned(), false);
    if network.is_some_and(|network| network.starts_with("infiniband")) {
        leave(&|nic| has_name(nic, &is_ethernet), &|_| "Ethernet by its name".to_owned(), false);
    }
    leave(&|nic| nic.is_far, &|_| "farther from every GPU than other NICs".to_owned(), false);
    let left = || nics.iter().zip(&reasons).filter(|(_, reason)| reason.is_none());
    let fastest = left().filter_map(|(nic, _)| nic.gbit_per_s).fold(0.0, f64::max);
    for (nic, reason) in nics.iter().zip(&mut reasons).filter(|(_, reason)| reason.is_none()) {
        // Slower ones are those of management and storage.
        if let Some(gbit) = nic.gbit_per_s.filter(|gbit| *gbit < 0.9 * fastest) {
            *reason = Some(format!("{gbit} Gbit/s, and others have {fastest}"));
        }
    }
    reasons
}

fn has_name(nic: &Nic, is_so: &dyn Fn(&str) -> bool) -> bool {
    is_so(&nic.name) || nic.known_as.iter().any(|name| is_so(name))
}

/// Interfaces that no cable is in.
fn is_virtual(name: &str) -> bool {
    let starts =
        ["veth", "docker", "br-", "br_", "virbr", "tun", "tap", "cni", "flannel", "cali", "vxlan", "dummy", "wg"];
    name == "lo" || starts.into_iter().any(|start| name.starts_with(start))
}

/// Interfaces that others may carry or imitate: bonds, virtual functions, those of a hypervisor, USB.
fn is_layered(name: &str) -> bool {
    let numbered = |stem: &str| name.strip_prefix(stem).is_some_and(|rest| rest.parse::<u32>().is_ok());
    let function =
        name.starts_with("en") && name.rsplit_once('v').is_some_and(|(_, number)| number.parse::<u32>().is_ok());
    numbered("bond") || function || ["virtio", "usb", "idrac", "enx"].into_iter().any(|start| name.starts_with(start))
}

/// Names of Linux and of drivers that are Ethernet only.
fn is_ethernet(name: &str) -> bool {
    ["eth", "eno", "ens", "enp", "bond", "bnxt_re", "efa", "rdmap", "roce"]
        .into_iter()
        .any(|start| name.starts_with(start))
}

/// Removes switches that lead to one part only.
fn prune(machine: &mut Machine) {
    loop {
        let ends = |name: &str| machine.links.iter().filter(|link| link.between.iter().any(|end| end == name)).count();
        let Some(at) = machine.switches.iter().position(|name| name != NVSWITCH && ends(name) < 2) else { return };
        let name = machine.switches.remove(at);
        machine.links.retain(|link| !link.between.contains(&name));
    }
}
