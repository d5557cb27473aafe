//! Applies a scenario to a cluster: wires that are worse or have failed, and the conditions of the run.

use std::borrow::Cow;
use std::sync::Arc;

use lockstep_sim::{Background, Conditions, Load, NetworkModel, Slowdown};
use lockstep_topology::cluster::{DeviceId, HostId, LinkId};
use lockstep_topology::document::nearest_or_all;
use lockstep_topology::{Bytes, Cluster, ErrorPlace, InputError, Time};

use crate::setup::{NOISY_STEPS, Setup};
use crate::site::Site;
use lockstep_experiment::{Configuration, Experiment, NONE, Scenario, ScenarioEntry, TrafficLoad, Trouble};
use lockstep_report::failure::Failure;

/// A hint is chosen among at most this many names.
const HINTS: usize = 5_000;
/// The patterns of one entry may expand to at most this many flows.
const MOST_FLOWS: usize = 10_000;

/// A scenario applied to a cluster.
struct Understood<'c> {
    /// The cluster with its remaining wires.
    pub(crate) cluster: Cow<'c, Cluster>,
    /// Slowdowns and background traffic.
    pub(crate) conditions: Conditions,
    /// Whether something begins or ends during the run.
    pub(crate) passing: bool,
    /// Each slowdown's entry, by position.
    slow: Vec<ScenarioEntry>,
}

/// What `scenario` does to `cluster` and to a run under `conditions`.
///
/// # Errors
/// Names that match nothing, with the nearest; a partition, with the ranks that cannot reach each other; entries that
/// contradict each other; traffic in a network without sharing.
fn understand<'c>(
    scenario: &Scenario,
    cluster: &'c Cluster,
    conditions: &Conditions,
    network: NetworkModel,
) -> Result<Understood<'c>, InputError> {
    let mut found = Understood {
        cluster: Cow::Borrowed(cluster),
        conditions: conditions.clone(),
        passing: false,
        slow: Vec::new(),
    };
    let mut touched: Vec<LinkId> = Vec::new();
    for entry in &scenario.entries {
        let wrong = |message: String| InputError::new(&entry.place, &entry.shown, message);
        match &entry.what {
            Trouble::Slow { hosts, ranks, factor, from, until } => {
                let mut slowed = Vec::new();
                for pattern in hosts {
                    slowed.extend(hosts_named(cluster, pattern).map_err(wrong)?);
                }
                slowed.sort_unstable();
                slowed.dedup();
                let slowdown =
                    Slowdown { hosts: slowed, ranks: ranks.clone(), factor: *factor, from: *from, until: *until };
                if let Some(other) = found.conditions.slow.iter().find(|other| meet(other, &slowdown)) {
                    let message = format!(
                        "slows down a host or rank that an entry with factor {} slows down at the same time: merge the two",
                        other.factor
                    );
                    return Err(wrong(message));
                }
                found.passing |= *from > Time::ZERO || *until < Time::MAX;
                found.slow.push(entry.clone());
                found.conditions.slow.push(slowdown);
            }
            Trouble::Degraded { between, count, bandwidth, latency } => {
                let wires = wires(cluster, between, *count, &mut touched).map_err(wrong)?;
                let worse = found.cluster.degraded(&wires, *bandwidth, *latency).map_err(wrong)?;
                found.cluster = Cow::Owned(worse);
            }
            Trouble::Failed { between, count } => {
                let wires = wires(cluster, between, *count, &mut touched).map_err(wrong)?;
                found.cluster = Cow::Owned(found.cluster.without(&wires).map_err(wrong)?);
            }
            Trouble::Traffic { from, to, load } => {
                if network != NetworkModel::MaxMin {
                    let network = ErrorPlace::Flag("network");
                    return Err(wrong(format!("shares no links in this network: use {network} max-min")));
                }
                let ends = [from, to].map(|pattern| devices_named(cluster, pattern));
                let [from, to] = ends.map(|end| end.map_err(wrong));
                found.conditions.background.extend(flows(&from?, &to?, *load).map_err(wrong)?);
            }
        }
    }
    // A slowdown by 1.0 slows nothing: such a run folds like any other.
    found.conditions.slow.retain(|slow| slow.factor != 1.0);
    Ok(found)
}

impl Understood<'_> {
    /// Whether it slows any rank.
    fn slows(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Refuses slowdowns that hit none of the hosts in use (sorted) and none of `ranks` ranks.
    ///
    /// # Errors
    /// The entry, with the hosts that are in use.
    fn check_slow(&self, used: &[HostId], ranks: u32) -> Result<(), InputError> {
        for entry in &self.slow {
            let Trouble::Slow { hosts, ranks: slow, .. } = &entry.what else { continue };
            let wrong = |message: String| InputError::new(&entry.place, &entry.shown, message);
            if let Some(rank) = slow.iter().find(|rank| **rank >= ranks) {
                let message = format!("there is no rank {rank}; the experiment has at most {ranks}, counted from 0");
                return Err(wrong(message));
            }
            let mut named = Vec::new();
            for pattern in hosts {
                named.extend(hosts_named(&self.cluster, pattern).map_err(wrong)?);
            }
            if !hosts.is_empty() && !named.iter().any(|host| used.binary_search(host).is_ok()) {
                let name = |host: Option<&HostId>| {
                    host.map_or_else(String::new, |host| self.cluster.hosts()[host.0 as usize].name.clone())
                };
                let (first, last) = (name(used.first()), name(used.last()));
                return Err(wrong(format!("affects no rank (ranks are on {first} to {last}): leave it out")));
            }
        }
        Ok(())
    }
}

/// All rows under one scenario, or undisturbed.
pub(crate) struct Block {
    /// Its name; `None` where the experiment has no scenarios.
    pub(crate) scenario: Option<Arc<str>>,
    /// The site with its remaining wires.
    pub(crate) site: Site,
    /// The setup with the disturbances.
    pub(crate) setup: Setup,
}

/// The undisturbed block, then one for each scenario.
///
/// # Errors
/// See [`understand`]; slowdowns that hit no rank.
pub(crate) fn blocks(
    experiment: &Experiment,
    configurations: &[Configuration],
    site: &Site,
    setup: &Setup,
) -> Result<Vec<Block>, Failure> {
    let undisturbed = (!experiment.scenarios.is_empty()).then(|| Arc::from(NONE));
    let mut blocks = vec![Block { scenario: undisturbed, site: site.clone(), setup: setup.clone() }];
    for scenario in &experiment.scenarios {
        let found = understand(scenario, &site.cluster, &setup.conditions, setup.network)?;
        let largest = configurations.iter().max_by_key(|configuration| configuration.job.ranks());
        if let Some(mut largest) = largest.filter(|_| found.slows()).cloned() {
            let input = |error| Failure::Input(experiment.locate(error));
            let (placement, _) = largest.place(&site.cluster, experiment).map_err(input)?;
            let mut used: Vec<_> = placement.all().map(|rank| placement.host(rank)).collect();
            used.sort_unstable();
            used.dedup();
            found.check_slow(&used, largest.job.ranks())?;
        }
        let mut disturbed = Setup { conditions: found.conditions, ..setup.clone() };
        if found.passing && disturbed.trials == 0 {
            (disturbed.trials, disturbed.options.counted) = (1, NOISY_STEPS);
        }
        let site = Site { cluster: found.cluster.into_owned(), ..site.clone() };
        blocks.push(Block { scenario: Some(Arc::from(scenario.name.as_str())), site, setup: disturbed });
    }
    Ok(blocks)
}

/// Whether two slowdowns affect the same host or rank at the same time.
fn meet(one: &Slowdown, other: &Slowdown) -> bool {
    let same = one.hosts.iter().any(|host| other.hosts.contains(host))
        || one.ranks.iter().any(|rank| other.ranks.contains(rank));
    same && one.from < other.until && other.from < one.until
}

/// The wires of an entry, which no earlier entry has changed.
fn wires(
    cluster: &Cluster,
    (one, other): &(String, String),
    count: Option<u32>,
    touched: &mut Vec<LinkId>,
) -> Result<Vec<LinkId>, String> {
    let mut found = cluster.wires_between(one, other)?;
    if let Some(count) = count {
        if count as usize > found.len() {
            return Err(format!("count = {count}: there are only {} such links", found.len()));
        }
        found.truncate(count as usize);
    }
    if let Some(twice) = found.iter().find(|wire| touched.contains(wire)) {
        let name = cluster.wire_name(*twice);
        return Err(format!("{name} is in another entry of the scenario too: describe each link once"));
    }
    touched.extend(&found);
    Ok(found)
}

fn hosts_named(cluster: &Cluster, pattern: &str) -> Result<Vec<HostId>, String> {
    named(cluster.hosts().iter().map(|host| (host.name.as_str(), host.id)), pattern, "host")
}

fn devices_named(cluster: &Cluster, pattern: &str) -> Result<Vec<DeviceId>, String> {
    named(cluster.devices().iter().map(|device| (device.name.as_str(), device.id)), pattern, "device")
}

/// All things of a kind that a pattern matches.
fn named<'a, T>(all: impl Iterator<Item = (&'a str, T)> + Clone, pattern: &str, kind: &str) -> Result<Vec<T>, String> {
    let found: Vec<T> = all.clone().filter(|(name, _)| Cluster::matches(pattern, name)).map(|(_, id)| id).collect();
    if found.is_empty() {
        let names = || all.clone().take(HINTS).map(|(name, _)| name);
        let hint = nearest_or_all(pattern, names(), || names().take(3).collect());
        return Err(format!("{pattern:?} is not a {kind}; did you mean {hint}?"));
    }
    Ok(found)
}

/// A flow from each device to each other one.
fn flows(from: &[DeviceId], to: &[DeviceId], load: TrafficLoad) -> Result<Vec<Background>, String> {
    if from.len().saturating_mul(to.len()) > MOST_FLOWS {
        return Err(format!("matches more than {MOST_FLOWS} flows: name fewer devices"));
    }
    let load = match load {
        TrafficLoad::Rate { bytes_per_s, forward: false } => Load::Always(bytes_per_s),
        TrafficLoad::Rate { bytes_per_s, forward: true } => Load::Forward(bytes_per_s),
        TrafficLoad::PerIteration(Bytes(bytes)) => Load::PerIteration(bytes),
    };
    let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))).filter(|(from, to)| from != to);
    let flows: Vec<Background> = pairs.map(|(from, to)| Background { from, to, load }).collect();
    if flows.is_empty() { Err("flows from a device to itself: name two".into()) } else { Ok(flows) }
}
