//! Writes a `Machine` as a cluster file in TOML, every figure with its source.

use std::fmt::Write;

use lockstep_topology::Bandwidth;

use crate::Import;
use crate::machine::{Link, Machine, NVSWITCH, Rate};
use crate::threads::Threads;

/// The file's text.
pub(crate) fn toml(machine: &Machine, import: &Import) -> String {
    let mut text = String::new();
    let origin = plain(&machine.origin);
    let mut line = |of: String| writeln!(text, "{of}").expect("strings take all");
    line(format!("name = \"{}\"", plain(&import.name)));
    line(format!("description = \"{} x {}, as {origin} says\"", machine.gpus, machine.model));
    // Figures have their own sources, except latencies.
    line(format!("provenance = \"assumed: {origin} has none\""));
    if let Some(network) = &import.network {
        line(format!("network = \"{}\"", plain(network)));
    }
    line(format!("\n[[host]]\nname = \"node\"\ncount = {}", import.hosts.max(1)));
    if machine.sockets.len() > 1 {
        line("peer_to_peer = \"host-memory\"".to_owned());
    }
    line(format!("\n{}", cpu(machine)));
    line(format!("[[host.gpu]]\nname = \"gpu\"\ncount = {}\nmodel = \"{}\"", machine.gpus, machine.model));
    for nic in &machine.nics {
        let speed = nic.gbit_per_s.map_or(String::new(), |gbit| format!("    # {gbit} Gbit/s"));
        line(format!("\n[[host.nic]]\nname = \"{}\"{speed}", nic.name));
    }
    for switch in &machine.switches {
        let sums = if switch == NVSWITCH { sums(machine) } else { String::new() };
        line(format!("\n[[host.switch]]\nname = \"{switch}\"{sums}"));
    }
    if let [first, _, ..] = machine.sockets.as_slice() {
        line(format!("\n[[host.switch]]\nname = \"socket\"\ncount = {}", machine.sockets.len()));
        line(format!(
            "\n[[host.link]]\nkind = \"host-bridge\"\nbetween = [\"cpu\", \"socket*\"]\nlatency = \"200ns\"\nbandwidth = \"{}\"\n\
             provenance = \"assumed: {}{}\"",
            rate(first.bridge),
            if first.of_nccl { "as NCCL does for " } else { "" },
            first.maker
        ));
    }
    for wire in &machine.links {
        line(format!("\n{}", link(wire, &origin)));
    }
    text
}

/// The table of the CPU: unknown figures are assumed.
fn cpu(machine: &Machine) -> String {
    let threads = Threads::count(machine.sockets.iter().map(|socket| &socket.threads));
    // Two threads per core; figures that no file states are those of an average server.
    let (cores, of) = match threads {
        0 => (64, "cores, ".to_owned()),
        threads => ((threads / 2).clamp(1, 1_000_000), format!("two of the {threads} hardware threads a core, ")),
    };
    format!(
        "[host.cpu]\ncores = {cores}\nflops_per_core = \"64GFLOP/s\"\nmemory_bandwidth = \"200GB/s\"\nmemory = \"512GiB\"\n\
         message_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\
         provenance = \"assumed: {of}rates and memory, which the topology does not say\"\n"
    )
}

/// The sums of an NVSwitch of Hopper and later, over all its NVLinks; empty for earlier ones.
fn sums(machine: &Machine) -> String {
    let of_link = |link: &Link| match link.rate {
        Rate::NvLink(lanes) if link.between.iter().any(|end| end == NVSWITCH) => {
            // The share of NCCL's rate of a link that sums reach.
            let (share, gigabytes) = match lanes.generation {
                4 => (0.85, 20.6),
                5 => (0.74, 40.1),
                _ => return 0.0,
            };
            share * gigabytes * f64::from(lanes.count)
        }
        _ => 0.0,
    };
    let sums: f64 = machine.links.iter().map(of_link).sum();
    if sums == 0.0 {
        return String::new();
    }
    format!(
        "\nsums = \"{sums:.0}GB/s\"\nprovenance = \"paper: NVIDIA/nccl, src/graph/tuning.cc, nvlsEfficiency, for each NVLink\""
    )
}

fn link(link: &Link, origin: &str) -> String {
    let [one, other] = &link.between;
    let head = |latency: &str| format!("between = [\"{one}\", \"{other}\"]\nlatency = \"{latency}\"");
    let assumed = "provenance = \"assumed: the topology leaves the lanes open\"";
    let by_nvlink = if one == NVSWITCH || other == NVSWITCH { "350ns" } else { "700ns" };
    match link.rate {
        Rate::Pcie(lanes) => {
            let source = if link.is_assumed { format!("\n{assumed}") } else { String::new() };
            format!("[[host.link]]\n{}\npcie = \"{lanes}\"{source}", head("500ns"))
        }
        Rate::NvLink(lanes) => {
            let source = if link.is_assumed { format!("\n{assumed}") } else { String::new() };
            format!("[[host.link]]\n{}\nnvlink = \"{lanes}\"{source}", head(by_nvlink))
        }
        Rate::SlowNvLink(bandwidth) => format!(
            "[[host.link]]\nkind = \"nvlink\"\n{}\nbandwidth = \"{}\"\n\
             provenance = \"datasheet: NVIDIA GA102, NVLink of 112.5 GB/s both ways by four links; latency assumed\"",
            head(by_nvlink),
            rate(bandwidth)
        ),
        Rate::Xgmi(bandwidth) => format!(
            "[[host.link]]\nkind = \"host-bridge\"\n{}\nbandwidth = \"{}\"\n\
             provenance = \"datasheet: AMD Instinct, Infinity Fabric links of the model; latency assumed\"",
            head("700ns"),
            rate(bandwidth)
        ),
        Rate::C2c(bandwidth) => {
            let source = match link.is_assumed {
                true => "NVIDIA's superchip, NVLink-C2C",
                false => origin,
            };
            format!(
                "[[host.link]]\nkind = \"host-bridge\"\n{}\nbandwidth = \"{}\"\nprovenance = \"datasheet: {source}; latency assumed\"",
                head("500ns"),
                rate(bandwidth)
            )
        }
    }
}

fn rate(bandwidth: Bandwidth) -> String {
    format!("{}GB/s", bandwidth.bytes_per_s() * 1e-9)
}

/// The text without characters that would end a TOML string.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '"' | '\\') { '_' } else { c }).collect()
}
