//! Writes a plan as commands of `ip` and `tc`, in their order.
//!
//! Interfaces are created in their namespaces, so nothing of a lab is visible outside of these.

use std::fmt;

use crate::plan::{Cable, End, LabNode, LabPlan};
use crate::rate::Rate;

/// One call of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabStep {
    /// `ip` or `tc`.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl fmt::Display for LabStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.arguments.join(" "))
    }
}

/// A command whose words are separated by spaces; names of interfaces and namespaces have none.
fn step(program: &'static str, line: &str) -> LabStep {
    LabStep { program, arguments: line.split(' ').map(str::to_owned).collect() }
}

/// The steps that build the lab.
pub fn up(plan: &LabPlan) -> Vec<LabStep> {
    let switches = plan.lab.switches();
    let namespaces: Vec<&str> =
        std::iter::once(switches.as_str()).chain(plan.hosts.iter().map(|host| host.namespace.as_str())).collect();
    let mut steps: Vec<LabStep> = namespaces.iter().map(|name| step("ip", &format!("netns add {name}"))).collect();
    steps.extend(namespaces.iter().map(|name| step("ip", &format!("-n {name} link set lo up"))));
    for number in 0..plan.switches.len() {
        // Without a spanning tree ports forward at once; without snooping multicast needs no querier.
        let line = format!("-n {switches} link add b{number} type bridge stp_state 0 mcast_snooping 0");
        steps.push(step("ip", &line));
        steps.push(step("ip", &format!("-n {switches} link set b{number} up")));
    }
    // A switch filters no packets, and the kernel's filters take as long as forwarding.
    let filters = ["iptables", "ip6tables", "arptables"].map(|table| format!("net/bridge/bridge-nf-call-{table}"));
    steps.extend(filters.iter().map(|key| setting(&switches, key, "0")));
    // The host's default differs from machine to machine and may pace streams; every kernel has reno.
    steps.extend(plan.hosts.iter().map(|host| setting(&host.namespace, "net/ipv4/tcp_congestion_control", "reno")));
    steps.extend(plan.cables.iter().flat_map(|cable| lay(plan, cable)));
    steps
}

/// Writes a setting of the kernel in a namespace, where it has that setting.
fn setting(namespace: &str, key: &str, value: &str) -> LabStep {
    let write = format!("[ ! -e /proc/sys/{key} ] || echo {value} >/proc/sys/{key}");
    let words = ["netns", "exec", namespace, "sh", "-c", &write];
    LabStep { program: "ip", arguments: words.map(str::to_owned).to_vec() }
}

/// Makes a cable and plugs it in.
fn lay(plan: &LabPlan, cable: &Cable) -> Vec<LabStep> {
    let [one, other] = &cable.ends;
    let [near, far] = [one, other].map(|end| plan.namespace(end.place));
    let pair = format!("-n {near} link add {} type veth peer name {} netns {far}", one.interface, other.interface);
    let mut steps = vec![step("ip", &pair)];
    for end in &cable.ends {
        let set = format!("-n {} link set {}", plan.namespace(end.place), end.interface);
        steps.push(step("ip", &format!("{set} gso_max_size {}", end.rate.packet_bytes())));
        steps.push(shape(plan, end, end.rate, "add"));
        match end.place {
            LabNode::Host(host) => {
                let host = &plan.hosts[host];
                let line = format!("-n {} address add {}/24 dev {}", host.namespace, host.address, end.interface);
                steps.push(step("ip", &line));
            }
            LabNode::Switch(switch) => steps.push(step("ip", &format!("{set} master b{switch}"))),
        }
        steps.push(step("ip", &format!("{set} up")));
    }
    steps
}

/// Sets the egress rate of an end; `verb` is `add` for the first time, then `change`.
///
fn shape(plan: &LabPlan, end: &End, rate: Rate, verb: &str) -> LabStep {
    let (bits, burst) = (rate.shaped_bit_per_s(), rate.burst_bytes());
    let (peak, least) = (rate.peak_bit_per_s(), rate.at_once_bytes());
    let (namespace, interface) = (plan.namespace(end.place), &end.interface);
    let queue = rate.queue_us;
    let bucket = format!("tbf rate {bits}bit burst {burst}b peakrate {peak}bit minburst {least}b latency {queue}us");
    step("tc", &format!("-n {namespace} qdisc {verb} dev {interface} root {bucket}"))
}

/// Unplugs the cable, or plugs it in again: at its switch, where the host loses its carrier and nothing else.
pub fn plug(plan: &LabPlan, cable: &Cable, word: &str) -> LabStep {
    let at = cable.ends.iter().find(|end| matches!(end.place, LabNode::Switch(_))).unwrap_or(&cable.ends[0]);
    step("ip", &format!("-n {} link set {} {word}", plan.namespace(at.place), at.interface))
}

/// Drops each host's neighbour table: a resolution that began before a cable was plugged in fails afterwards, and new
/// connections with it.
pub fn flush_neighbours(plan: &LabPlan) -> Vec<LabStep> {
    plan.hosts.iter().map(|host| step("ip", &format!("-n {} neigh flush all", host.namespace))).collect()
}

/// Gives both directions of the cable other rates.
pub fn reshape(plan: &LabPlan, cable: &Cable, rate: impl Fn(&End) -> Rate) -> Vec<LabStep> {
    cable.ends.iter().map(|end| shape(plan, end, rate(end), "change")).collect()
}
