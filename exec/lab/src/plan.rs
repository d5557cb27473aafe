//! `Plan`: maps a cluster to a lab: namespaces with addresses, bridges, cables with the rate of each direction.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use lockstep_topology::cluster::{Link, Vertex, VertexId};
use lockstep_topology::{Cluster, ErrorPlace, InputError, Time};
use serde::{Deserialize, Serialize};

use crate::name::LabName;
use crate::rate::{Rate, usual_queue_us};
use crate::tree::closing_edge;

/// Hosts, and switches, of a lab at most.
pub const MOST_HOSTS: usize = 64;
/// Limit on the sum of all hosts' line rates, in bit/s: about what one core forwards through veth pairs and bridges.
pub(crate) const MOST_BIT_PER_S: f64 = 10e9;
/// The slowest link: the longest packet handed to the shaper takes a second on it.
const LEAST_BIT_PER_S: f64 = 131_072.0;
/// The longest name of a host that Linux takes.
const LONGEST_NAME: usize = 63;

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabHost {
    /// As the cluster file has it; also its host name.
    pub name: String,
    /// Its network namespace.
    pub namespace: String,
    /// On its one interface, in a /24.
    pub address: Ipv4Addr,
}

/// A cable's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabNode {
    /// A host: position in [`LabPlan::hosts`].
    Host(usize),
    /// A switch: position in [`LabPlan::switches`].
    Switch(usize),
}

/// One end of a cable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// What it is plugged into.
    pub place: LabNode,
    /// The NIC, CPU or switch of the cluster file: `node0.eth0`.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// Its egress rate.
    pub rate: Rate,
}

/// A link between hosts or switches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cable {
    /// Both ends.
    pub ends: [End; 2],
    /// The cluster file's latency in picoseconds, which a lab does not imitate.
    pub latency_ps: u64,
}

impl Cable {
    /// The cluster file's latency.
    pub fn latency(&self) -> Time {
        Time(self.latency_ps)
    }
}

/// All of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabPlan {
    /// The lab's name.
    pub lab: LabName,
    /// The cluster's name.
    pub cluster: String,
    /// Hosts, by the cluster's numbers.
    pub hosts: Vec<LabHost>,
    /// Names of the switches between hosts.
    pub switches: Vec<String>,
    /// Cables, in the order of the cluster's links.
    pub cables: Vec<Cable>,
    /// What the lab leaves out of the cluster, in sentences.
    pub left_out: Vec<String>,
}

impl LabPlan {
    /// The lab of a cluster with addresses 10.213.`subnet`.1 and up, all rates times `scale`.
    ///
    /// # Errors
    /// One host or more than [`MOST_HOSTS`], a host with several cables, a loop, a link whose directions share their
    /// rate, rates that one machine does not reach.
    pub fn new(cluster: &Cluster, lab: &LabName, subnet: u8, scale: f64) -> Result<LabPlan, InputError> {
        let refuse = |value: &str, message: String| InputError::new(cluster.name(), value, message);
        if !(scale > 0.0 && scale <= 1.0) {
            let message = "is not a factor for all rates: write a number above 0 and at most 1, as in 0.1";
            return Err(InputError::flag("scale", scale.to_string(), message));
        }
        let count = cluster.hosts().len();
        if !(2..=MOST_HOSTS).contains(&count) {
            let message =
                format!("a lab has from 2 to {MOST_HOSTS} hosts: order another number of them, as in ethernet-4:8");
            return Err(refuse(&format!("hosts {count}"), message));
        }
        let host = |host: &lockstep_topology::cluster::Host| LabHost {
            name: host.name.clone(),
            namespace: lab.host(&host.name),
            address: Ipv4Addr::new(10, 213, subnet, host.id.0 as u8 + 1),
        };
        let hosts: Vec<LabHost> = cluster.hosts().iter().map(host).collect();
        if let Some(host) = hosts.iter().find(|host| host.name.len() > LONGEST_NAME) {
            return Err(refuse(
                &host.name,
                format!("is longer than the {LONGEST_NAME} characters of a host's name: shorten it"),
            ));
        }
        let between: Vec<&Vertex> = cluster.switches().filter(|switch| switch.host.is_none()).collect();
        if between.len() > MOST_HOSTS {
            let message = format!("a lab has at most {MOST_HOSTS} switches: use larger ones");
            return Err(refuse(&format!("switches {}", between.len()), message));
        }
        let cables = cables(cluster, &between, scale)?;
        check_shape(&hosts, &between, &cables).map_err(|(value, message)| refuse(&value, message))?;
        check_rates(&cables, scale)?;
        let switches = between.iter().map(|switch| switch.name.clone()).collect();
        let outside = |end: VertexId| cluster.vertex(end).host;
        let of_lab = |link: &&Link| outside(link.from) != outside(link.to) || outside(link.from).is_none();
        let queues = cluster.links().iter().filter(of_lab).all(|link| link.protocol.transmit_queue > Time::ZERO);
        let mut left_out = vec![
            "latency is this kernel's own, file_latency_us is that of the cluster file".to_owned(),
            format!(
                "GPUs, memories and links within hosts are not imitated: all hosts share this machine's cores{}",
                if cluster.shares_cores() { "" } else { "; shared_cores = true in the file predicts so" }
            ),
        ];
        if !queues {
            let usual = usual_queue_us() / 1_000;
            let predicted = format!("transmit_queue = \"{usual}ms\" on each [[link]] predicts so");
            left_out.push(format!("short messages of a port queue for up to {usual} ms; {predicted}"));
        }
        left_out.extend(bursts(&cables));
        Ok(LabPlan { lab: lab.clone(), cluster: cluster.name().to_owned(), hosts, switches, cables, left_out })
    }

    /// The namespace that this is in.
    pub fn namespace(&self, place: LabNode) -> String {
        match place {
            LabNode::Host(host) => self.hosts[host].namespace.clone(),
            LabNode::Switch(_) => self.lab.switches(),
        }
    }

    /// The name of a cable's endpoint in the cluster file: a host or a switch.
    pub fn name(&self, place: LabNode) -> &str {
        match place {
            LabNode::Host(host) => &self.hosts[host].name,
            LabNode::Switch(switch) => &self.switches[switch],
        }
    }

    /// `/etc/hosts` of each host.
    pub fn hosts_file(&self) -> String {
        let lines = self.hosts.iter().map(|host| format!("{} {}\n", host.address, host.name));
        std::iter::once("127.0.0.1 localhost\n".to_owned()).chain(lines).collect()
    }
}

/// The links between hosts and switches.
fn cables(cluster: &Cluster, between: &[&Vertex], scale: f64) -> Result<Vec<Cable>, InputError> {
    let place = |id: VertexId| match cluster.vertex(id).host {
        Some(host) => Some(LabNode::Host(host.0 as usize)),
        None => between.iter().position(|switch| switch.id == id).map(LabNode::Switch),
    };
    let mut cables = Vec::new();
    for link in cluster.links().iter().filter(|link| link.id < link.reverse) {
        let (Some(from), Some(to)) = (place(link.from), place(link.to)) else { continue };
        if from == to {
            continue;
        }
        let back = cluster.link(link.reverse);
        let refuse = |message: &str| Err(InputError::new(cluster.name(), cluster.wire_name(link.id), message));
        if link.wire == back.wire {
            return refuse(
                "both directions share one rate, which the kernel's shapers cannot: leave out duplex = \"half\"",
            );
        }
        let number = cables.len();
        let end = |place: LabNode, id: VertexId, side: char, rate: Rate| End {
            place,
            name: cluster.vertex(id).name.clone(),
            interface: match place {
                LabNode::Host(_) => "e0".to_owned(),
                LabNode::Switch(_) => format!("c{number}{side}"),
            },
            rate,
        };
        let ends = [end(from, link.from, 'a', Rate::of(link, scale)), end(to, link.to, 'b', Rate::of(back, scale))];
        if ends.iter().any(|end| end.rate.line_bit_per_s < LEAST_BIT_PER_S) {
            return refuse(
                "is slower than 131072 bit/s, which the kernel's shapers are too coarse for: make it faster",
            );
        }
        cables.push(Cable { ends, latency_ps: link.latency.0 });
    }
    Ok(cables)
}

/// What the cluster file does not say about bursts of its links.
fn bursts(cables: &[Cable]) -> impl Iterator<Item = String> {
    let rates = cables.iter().flat_map(|cable| &cable.ends).map(|end| end.rate).filter(|rate| rate.burst.is_none());
    let notes: BTreeSet<String> = rates
        .map(|rate| {
            let line = 1e-6 * rate.line_bit_per_s;
            format!(
                "links at {line} Mbit/s pass bytes faster after a pause; {} on each [[link]] predicts so",
                rate.burst_keys()
            )
        })
        .collect();
    notes.into_iter()
}

/// Refuses what bridges and one-interface hosts cannot form, as (what, why and the cure).
fn check_shape(hosts: &[LabHost], between: &[&Vertex], cables: &[Cable]) -> Result<(), (String, String)> {
    for (number, host) in hosts.iter().enumerate() {
        let own = cables.iter().flat_map(|cable| &cable.ends).filter(|end| end.place == LabNode::Host(number)).count();
        if own != 1 {
            let message = format!(
                "has {own} links to other hosts and switches, and a host of a lab has one: keep one NIC a host"
            );
            return Err((host.name.clone(), message));
        }
    }
    let number = |end: &End| match end.place {
        LabNode::Host(host) => host,
        LabNode::Switch(switch) => hosts.len() + switch,
    };
    let edges = cables.iter().map(|cable| [number(&cable.ends[0]), number(&cable.ends[1])]);
    let Some(closing) = closing_edge(hosts.len() + between.len(), edges) else { return Ok(()) };
    let [one, other] = &cables[closing].ends;
    let message = "closes a loop, and the bridges of a lab have no ECMP: make the network a tree, with one spine or core \
                   (up = [1], or kind = \"star\") and trunk_bandwidth for the rate that several had together";
    Err((format!("{} - {}", one.name, other.name), message.to_owned()))
}

/// Refuses rates beyond one machine.
fn check_rates(cables: &[Cable], scale: f64) -> Result<(), InputError> {
    let from_hosts = cables.iter().flat_map(|cable| &cable.ends).filter(|end| matches!(end.place, LabNode::Host(_)));
    let sum: f64 = from_hosts.map(|end| end.rate.line_bit_per_s).sum();
    // Sums of rates that are written to a few digits.
    if sum <= MOST_BIT_PER_S * (1.0 + 1e-9) {
        return Ok(());
    }
    // Rounded down to two digits.
    let most = scale * MOST_BIT_PER_S / sum;
    let digit = 10f64.powi(1 - most.log10().floor() as i32);
    let most = (most * digit * (1.0 + 1e-9)).floor() / digit;
    let message = format!(
        "its hosts send {:.3} Gbit/s together, more than the {} Gbit/s that one machine carries: use {most} or less, fewer hosts, or \
         slower links",
        sum * 1e-9,
        MOST_BIT_PER_S * 1e-9
    );
    Err(InputError::new(ErrorPlace::Flag("scale"), scale.to_string(), message))
}
