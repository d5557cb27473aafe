//! Changes a lab while jobs run in it: cuts a cable, slows it, heals it.

use std::fmt;

use lockstep_report::Failure;
use lockstep_topology::{Bandwidth, InputError, nearest};

use crate::commands::{LabStep, flush_neighbours, plug, reshape};
use crate::name::LabName;
use crate::plan::{Cable, LabPlan};
use crate::state::{Lock, known, save};
use crate::tools::{check, run};

/// What is done to a cable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// It carries no packets.
    Cut,
    /// Both directions have this line rate.
    Slow(Bandwidth),
    /// As the cluster file has it.
    Heal,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Cut => f.write_str("cut"),
            Change::Slow(rate) => write!(f, "slowed to {} Mbit/s", rate.bytes_per_s() * 8e-6),
            Change::Heal => f.write_str("healed"),
        }
    }
}

/// Changes the cable that `text` names: `HOST` its only one, `ONE-OTHER` that between two things.
///
/// # Errors
/// No such lab or cable, with the nearest; a rate that is not below that of the cable; a step that the kernel refuses.
pub fn change(name: &LabName, text: &str, change: Change) -> Result<String, Failure> {
    check(&["ip", "tc"])?;
    let _lock = Lock::take()?;
    let mut lab = known(name)?;
    let number = find(&lab.plan, text)?;
    let cable = &lab.plan.cables[number];
    for step in steps(&lab.plan, cable, change)? {
        run(&step)?;
    }
    let summary = format!("{} - {}: {change}", cable.ends[0].name, cable.ends[1].name);
    match change {
        Change::Heal => drop(lab.changes.remove(&number)),
        Change::Cut | Change::Slow(_) => drop(lab.changes.insert(number, summary.clone())),
    }
    save(&lab)?;
    Ok(summary)
}

/// Slowing a cut cable plugs it in again.
fn steps(plan: &LabPlan, cable: &Cable, change: Change) -> Result<Vec<LabStep>, InputError> {
    let line = cable.ends[0].rate.line_bit_per_s.min(cable.ends[1].rate.line_bit_per_s);
    Ok(match change {
        Change::Cut => vec![plug(plan, cable, "down")],
        Change::Slow(rate) if !(131_072.0..line).contains(&(rate.bytes_per_s() * 8.0)) => {
            let message = format!(
                "does not slow the link: write a rate from 131072 bit/s to less than the link's {} Mbit/s",
                line * 1e-6
            );
            return Err(InputError::new("RATE", format!("{} Mbit/s", rate.bytes_per_s() * 8e-6), message));
        }
        Change::Slow(rate) => [reshape(plan, cable, |end| end.rate.at(rate)), plugged(plan, cable)].concat(),
        Change::Heal => [reshape(plan, cable, |end| end.rate), plugged(plan, cable)].concat(),
    })
}

/// Plugs a cable in.
fn plugged(plan: &LabPlan, cable: &Cable) -> Vec<LabStep> {
    [vec![plug(plan, cable, "up")], flush_neighbours(plan)].concat()
}

/// The names by which each end of a cable is known: host or switch, and NIC.
fn ends(plan: &LabPlan, cable: &Cable) -> [[String; 2]; 2] {
    [&cable.ends[0], &cable.ends[1]].map(|end| [plan.name(end.place).to_owned(), end.name.clone()])
}

/// The cable that a text names. Names have hyphens too, so every cable's own names are tried.
fn find(plan: &LabPlan, text: &str) -> Result<usize, InputError> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for (number, cable) in plan.cables.iter().enumerate() {
        let [one, other] = ends(plan, cable);
        for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            names.extend([(format!("{a}-{b}"), number), (format!("{b}-{a}"), number)]);
        }
    }
    for host in &plan.hosts {
        let own = |cable: &Cable| ends(plan, cable).iter().any(|end| end[0] == host.name);
        names.extend(plan.cables.iter().position(own).map(|number| (host.name.clone(), number)));
    }
    if let Some((_, number)) = names.iter().find(|(name, _)| name == text) {
        return Ok(*number);
    }
    names.sort();
    names.dedup();
    let near = nearest(text, names.iter().map(|(name, _)| name.as_str()));
    let near = if near.is_empty() { vec![names[names.len() - 1].0.as_str(), names[0].0.as_str()] } else { near };
    Err(InputError::new("LINK", text, format!("no link has that name; did you mean {}?", near.join(" or "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_topology::Cluster;

    fn plan() -> LabPlan {
        let cluster = Cluster::load("ethernet-4").unwrap();
        LabPlan::new(&cluster, &"a".parse().unwrap(), 0, 0.01).unwrap()
    }

    #[test]
    fn a_cable_has_the_names_of_its_ends() {
        let plan = plan();
        for text in ["node2", "node2-switch", "switch-node2", "node2.eth0-switch"] {
            assert_eq!(find(&plan, text), Ok(2), "{text}");
        }
        let error = find(&plan, "node22").unwrap_err().to_string();
        assert!(error.contains("node2"), "{error}");
        assert!(find(&plan, "node0-node1").is_err() && find(&plan, "").is_err());
    }

    #[test]
    fn healing_undoes_cuts_and_slowdowns() {
        let plan = plan();
        let cable = &plan.cables[1];
        let of = |change: Change| {
            steps(&plan, cable, change).map(|steps| steps.iter().map(LabStep::to_string).collect::<Vec<_>>())
        };
        let namespace = plan.lab.switches();
        assert_eq!(of(Change::Cut), Ok(vec![format!("ip -n {namespace} link set c1b down")]));
        let healed = of(Change::Heal).unwrap();
        assert_eq!(healed[2], format!("ip -n {namespace} link set c1b up"));
        assert!(
            healed[3..].iter().all(|step| step.ends_with("neigh flush all")) && healed.len() == 3 + 4,
            "{healed:?}"
        );
        // `up`'s commands for both ends, except the verb.
        let first: Vec<String> = crate::commands::up(&plan).iter().map(LabStep::to_string).collect();
        for step in healed.iter().filter(|step| step.starts_with("tc ")) {
            assert!(first.contains(&step.replace("qdisc change", "qdisc add")), "{step}");
        }
        assert!(of(Change::Slow("100Mbit/s".parse().unwrap())).is_err(), "as fast as it is");
        assert_eq!(of(Change::Slow("10Mbit/s".parse().unwrap())).unwrap().len(), 3 + 4);
    }
}
