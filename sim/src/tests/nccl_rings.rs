//! Compares the rates that NCCL's model finds in a cluster's graph with simulations of the same rings, and with what
//! was measured on machines of their kinds.

use std::fmt::Write;

use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::nccl::{NcclCall, NcclMachine, NcclProtocol, answer};
use lockstep_topology::{Algorithm, Cluster, Collective, Group, Hosting, HostingRule, Placement, PlacementRule, Rank};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::fold::FoldRule;
use crate::{CollectiveRun, Platform, Roofline, simulate_collective};

/// Time of the launch, in the model alone.
const LAUNCH: f64 = 16e-6;

/// Seconds of an allreduce of `bytes` by Ring/Simple among the first `ranks` GPUs: of the model, and of a simulation of
/// the rings that its search finds.
fn both(cluster: &Cluster, ranks: u32, bytes: u64) -> (f64, f64) {
    let placement = Placement::new(cluster, ranks, &PlacementRule::Pack).expect("room");
    let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("processes");
    let devices: Vec<_> = (0..ranks).map(|rank| placement.device(Rank(rank))).collect();
    let machine = NcclMachine::of(cluster, &devices, 1).expect("ways").expect("GPUs of NCCL");
    let call = NcclCall { collective: &Collective::AllReduce, bytes };
    let answer = answer(&machine, &":ring:simple".parse().expect("a request"), &call).expect("an answer");
    let orders = NcclMachine::orders(cluster, &devices).expect("ways").expect("equal nodes");
    let times = (answer.choice.channels as usize).div_ceil(orders.len());
    let orders: Vec<_> = std::iter::repeat_n(orders, times).flatten().collect();
    let algorithm = Algorithm::rings_along(orders, Some(NcclProtocol::Simple));
    let run = CollectiveRun {
        fold: FoldRule::Never,
        ..CollectiveRun::new(Collective::AllReduce, algorithm, Group::flat(ranks), bytes / 4)
    };
    let simulated =
        simulate_collective(&run, &Platform::new(cluster, &placement, &hosting, &Roofline)).expect("a time");
    (answer.seconds - LAUNCH, simulated.time.as_secs_f64())
}

fn is_gpu(device: &Device) -> bool {
    matches!(device.kind, DeviceKind::Gpu(_))
}

/// Whether more machines are asked for than every test has time for.
fn thorough() -> bool {
    std::env::var_os("LOCKSTEP_THOROUGH").is_some()
}

/// Bus bandwidth of a large allreduce in GB/s.
fn bus(cluster: &Cluster, ranks: u32) -> f64 {
    let bytes = 1u64 << 30;
    bytes as f64 / both(cluster, ranks, bytes).0 * 1e-9 * 2.0 * f64::from(ranks - 1) / f64::from(ranks)
}

/// Machines whose rings are followed in every test; the nightly ones are larger.
const FOLLOWED: u32 = 32;

/// Each preset with GPUs that NCCL knows, alone and as two hosts on its own network, with all of its GPUs.
#[test]
fn rings_of_presets_take_as_long_as_their_simulation() {
    let most = if thorough() { 4 * FOLLOWED } else { FOLLOWED };
    let mut machines = vec![("dgx1-v100".to_owned(), 2), ("dgx1-v100".to_owned(), 4), ("gb200-nvl72".to_owned(), 8)];
    machines.extend([("dgx-h100:4".to_owned(), 32), ("p5.48xlarge:2@efa-100g-rails".to_owned(), 16)]);
    for (preset, _) in Cluster::presets() {
        for name in [preset.to_string(), format!("{preset}:2")] {
            // Some presets are several hosts, and some have no network.
            let Ok(cluster) = Cluster::load(&name) else { continue };
            let gpus: Vec<_> = cluster.devices().iter().filter(|device| is_gpu(device)).map(|gpu| gpu.id).collect();
            let known = NcclMachine::of(&cluster, &gpus, 1).expect("ways").is_some();
            if known && gpus.len() as u32 <= most {
                machines.push((name, gpus.len() as u32));
            }
        }
    }
    assert!(machines.iter().filter(|(name, _)| name.ends_with(":2")).count() > 15, "{machines:?}");
    for (name, ranks) in machines {
        let (model, lanes) = both(&Cluster::load(&name).expect("a preset"), ranks, 1 << 28);
        let ratio = model / lanes;
        assert!((0.97..1.03).contains(&ratio), "{name} {ranks}: {model} beside {lanes}");
    }
}

/// A random machine.
#[derive(Debug, Clone)]
struct Drawn {
    gpus: u32,
    hosts: u32,
    hopper: bool,
    sockets: u32,
    /// Switches of a socket.
    switches: u32,
    /// NVLinks: none, pairs, a mesh, a switch.
    links: u32,
    width: u32,
    /// Where NICs are attached.
    nics: Vec<u32>,
    bridge: u32,
    network: usize,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (
        (2u32..9, 1u32..4, any::<bool>(), 1u32..3, 0u32..3),
        (0u32..4, 1u32..4, prop::collection::vec(0u32..8, 1..5), 6u32..40, 0usize..4),
    )
        .prop_map(|((gpus, hosts, hopper, sockets, switches), (links, width, nics, bridge, network))| Drawn {
            gpus,
            hosts,
            hopper,
            sockets,
            switches,
            links,
            width,
            nics,
            bridge,
            network,
        })
}

impl Drawn {
    /// The vertex of a GPU or NIC on the tree.
    fn place(&self, number: u32) -> String {
        let socket = number % self.sockets;
        match (self.switches, self.sockets) {
            (0, 1) => "cpu".to_owned(),
            (0, _) => format!("socket{socket}"),
            (switches, _) => format!("pcie{}", socket * switches + number / self.sockets % switches),
        }
    }

    fn toml(&self) -> String {
        let network = ["infiniband-edr", "infiniband-hdr", "infiniband-ndr", "roce-100g"][self.network];
        let (model, lanes, generation) =
            if self.hopper { ("h100-sxm", "5.0 x16", "4.0") } else { ("a100-80-sxm", "4.0 x16", "3.0") };
        let mut text = format!(
            "name = \"drawn\"\nprovenance = \"assumed: drawn\"\nnetwork = \"{network}\"\n\n[[host]]\nname = \"node\"\ncount = {}\n\n\
             [host.cpu]\ncores = 32\nflops_per_core = \"64GFLOP/s\"\nmemory_bandwidth = \"200GB/s\"\nmemory = \"512GiB\"\n\
             message_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\n[[host.gpu]]\nname = \"gpu\"\ncount = {}\nmodel = \"{model}\"\n",
            self.hosts, self.gpus
        );
        let mut add = |line: String| writeln!(text, "\n{line}").expect("strings take all");
        add(format!("[[host.nic]]\nname = \"nic\"\ncount = {}", self.nics.len()));
        if self.sockets > 1 {
            add(format!("[[host.switch]]\nname = \"socket\"\ncount = {}", self.sockets));
            add(format!(
                "[[host.link]]\nkind = \"host-bridge\"\nbetween = [\"cpu\", \"socket*\"]\nlatency = \"200ns\"\nbandwidth = \"{}GB/s\"",
                self.bridge
            ));
        }
        let all = self.sockets * self.switches;
        let pcie = |one: &str, other: &str| {
            format!("[[host.link]]\nbetween = [\"{one}\", \"{other}\"]\nlatency = \"500ns\"\npcie = \"{lanes}\"")
        };
        if all > 0 {
            add(format!("[[host.switch]]\nname = \"pcie\"\ncount = {all}"));
        }
        for switch in 0..all {
            let root = if self.sockets > 1 { format!("socket{}", switch / self.switches) } else { "cpu".to_owned() };
            add(pcie(&format!("pcie{switch}"), &root));
        }
        for gpu in 0..self.gpus {
            add(pcie(&format!("gpu{gpu}"), &self.place(gpu)));
        }
        for (number, place) in self.nics.iter().enumerate() {
            add(pcie(&format!("nic{number}"), &self.place(*place)));
        }
        let nvlink = |one: u32, other: u32, width: u32| {
            format!(
                "[[host.link]]\nbetween = [\"gpu{one}\", \"gpu{other}\"]\nlatency = \"700ns\"\nnvlink = \"{generation} x{width}\""
            )
        };
        match self.links {
            1 => (0..self.gpus / 2).for_each(|pair| add(nvlink(2 * pair, 2 * pair + 1, 4 * self.width))),
            2 => (0..self.gpus).for_each(|one| {
                let far = (one + 1..self.gpus).filter(|other| (one * 7 + other * 3) % 4 != 0 && self.gpus <= 5);
                far.for_each(|other| add(nvlink(one, other, self.width)));
                if self.gpus > 5 && one + 1 < self.gpus {
                    add(nvlink(one, one + 1, self.width));
                }
            }),
            3 => {
                add("[[host.switch]]\nname = \"nvswitch\"".to_owned());
                add(format!(
                    "[[host.link]]\nbetween = [\"gpu*\", \"nvswitch\"]\nlatency = \"350ns\"\nnvlink = \"{generation} x{}\"",
                    4 * self.width
                ));
            }
            _ => {}
        }
        text
    }
}

/// All of these, from 256 MiB: no flow is slower than the narrowest wire's share, since wires share themselves by the byte.
#[test]
fn rings_of_random_machines_take_as_long_as_their_simulation() {
    let mut runner = TestRunner::deterministic();
    // Of 200 all are within 3 %; of 3,000 all are within 5 %, and no more than one in a hundred is beyond 3 %.
    let machines = if thorough() { 3000 } else { 200 };
    let (mut ratios, mut apart) = (Vec::new(), Vec::new());
    for number in 0..machines {
        let drawn = drawn().new_tree(&mut runner).expect("a machine").current();
        let text = drawn.toml();
        let cluster = Cluster::parse("drawn.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let (model, lanes) = both(&cluster, drawn.gpus * drawn.hosts, 1 << 28);
        let ratio = model / lanes;
        ratios.push(ratio);
        assert!((0.95..1.05).contains(&ratio), "{number}: {model} beside {lanes} on {drawn:?}");
        if !(0.97..1.03).contains(&ratio) {
            apart.push(format!("{number}: {ratio} on {drawn:?}"));
        }
    }
    let allowed = if thorough() { machines / 100 } else { 0 };
    assert!(apart.len() <= allowed, "{apart:#?}");
    ratios.sort_by(f64::total_cmp);
    let median = ratios[machines / 2];
    assert!((median - 1.0).abs() < 1e-3, "{median}");
}

/// The machine with one GPU, of which tests change parts.
const ONE: Drawn = Drawn {
    gpus: 1,
    hosts: 2,
    hopper: false,
    sockets: 1,
    switches: 0,
    links: 0,
    width: 3,
    nics: Vec::new(),
    bridge: 22,
    network: 1,
};

/// Bus bandwidths that people report, in GB/s: A100 PCIe in pairs on two sockets; two A100 and a NIC of 200 Gbit/s a node,
/// at a PCIe switch and at the CPU; an H100 with four of 400 Gbit/s.
#[test]
fn rates_are_near_those_that_were_measured() {
    let near = |what: &str, drawn: &Drawn, text: &str, [least, most]: [f64; 2]| {
        let rate = bus(&Cluster::parse("drawn.toml", text).expect("a cluster"), drawn.gpus * drawn.hosts);
        assert!((0.8 * least..1.2 * most).contains(&rate), "{what}: {rate}, measured {least} to {most}");
        rate
    };
    for (gpus, measured) in [(2, 208.0), (4, 20.0), (8, 20.0)] {
        let drawn = Drawn { gpus, hosts: 1, sockets: 2, links: 1, nics: vec![0], ..ONE };
        // Pairs of neighbours on one socket.
        let text = (0..gpus).fold(drawn.toml(), |text, gpu| {
            let at = |socket: u32| format!("between = [\"gpu{gpu}\", \"socket{socket}\"]");
            text.replace(&at(gpu % 2), &at(2 * gpu / gpus.max(4)))
        });
        near("pairs", &drawn, &text, [measured; 2]);
    }
    let pair = Drawn { gpus: 2, links: 1, nics: vec![0], ..ONE };
    let at_switch = Drawn { switches: 2, ..pair.clone() };
    let at_switch = near("NIC at a switch", &at_switch, &at_switch.toml(), [24.0; 2]);
    let at_cpu = near("NIC at the CPU", &pair, &pair.toml(), [16.0; 2]);
    assert!(at_cpu < 0.75 * at_switch, "{at_cpu} beside {at_switch}");
    let four = Drawn { hopper: true, switches: 1, nics: vec![0; 4], network: 2, ..ONE };
    near("four NICs", &four, &four.toml(), [41.0, 50.0]);
}

/// Each GPU has four NICs beside it: eight channels use one of them, 32 all, and each channel has one of its own.
#[test]
fn channels_that_leave_at_one_gpu_take_its_near_nics_in_turn() {
    let cluster = Cluster::load("p5.48xlarge:2").expect("a preset");
    let placement = Placement::new(&cluster, 16, &PlacementRule::Pack).expect("room");
    let hosting = Hosting::new(&placement, &HostingRule::PerRank).expect("processes");
    let seconds = |algorithm: &str| {
        let algorithm: Algorithm = algorithm.parse().expect("an algorithm");
        let run = CollectiveRun::new(Collective::AllReduce, algorithm, Group::nodes(&[8, 8]), 1 << 26);
        let platform = Platform::new(&cluster, &placement, &hosting, &Roofline);
        simulate_collective(&run, &platform).expect("a time").time.as_secs_f64()
    };
    // Trees send twice the buffer over NVLinks, which then bind.
    for (family, least) in [("rings", 3.0), ("double-tree", 1.5)] {
        let faster = seconds(&format!("{family}:8:simple")) / seconds(&format!("{family}:32:simple"));
        assert!((least..4.2).contains(&faster), "{family}: {faster}");
    }
    let model = both(&cluster, 16, 1 << 28).0;
    assert!((model / seconds("rings:32:simple") - 1.0).abs() < 0.03);
}

/// NICs at another switch than every GPU's, as those for storage, carry nothing.
#[test]
fn nics_far_from_gpus_do_not_count() {
    let alone = Drawn { switches: 2, nics: vec![0], ..ONE };
    let beside = Drawn { nics: vec![0, 1, 1], ..alone };
    let [alone, beside] = [alone, beside].map(|drawn| {
        let cluster = Cluster::parse("drawn.toml", &drawn.toml()).expect("a cluster");
        bus(&cluster, 2)
    });
    assert_eq!(alone, beside);
}
