//! `Machine`: describes one host as a reader found it, before it is written as a cluster file.

use lockstep_topology::Bandwidth;
use lockstep_topology::cluster::Lanes;

/// One host.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// The file that was read, for the provenance of its figures.
    pub(crate) origin: String,
    /// NUMA nodes, in the file's order.
    pub(crate) sockets: Vec<Socket>,
    /// The GPUs' model in the catalogue.
    pub(crate) model: String,
    /// How many GPUs; they are called `gpu0`, `gpu1`, …
    pub(crate) gpus: usize,
    pub(crate) nics: Vec<Nic>,
    /// Names of switches: of PCI Express, and NVSwitch.
    pub(crate) switches: Vec<String>,
    pub(crate) links: Vec<Link>,
}

/// A NUMA node.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Hardware threads; 0 where the file does not state them.
    pub(crate) threads: u32,
    /// To the other sockets.
    pub(crate) bridge: Bandwidth,
    /// The vendor and generation of that interconnect: `AMD`, `Intel Skylake`.
    pub(crate) maker: &'static str,
}

/// A network interface.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) name: String,
    /// Its line rate, where the file states it.
    pub(crate) gbit_per_s: Option<f64>,
}

/// A link between two parts by their names; `cpu` is the host's.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) between: [String; 2],
    pub(crate) rate: Rate,
    /// Whether the file does not state the rate.
    pub(crate) is_assumed: bool,
}

/// The kind and rate of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rate {
    Pcie(Lanes),
    /// To a GPU, or to a switch that adds its latency.
    NvLink(Lanes),
    /// NVLink-C2C between a GPU and its CPU.
    C2c(Bandwidth),
}

impl Machine {
    /// The name of a socket as an end of links: a single one is the CPU itself.
    pub(crate) fn socket(&self, index: usize) -> String {
        if self.sockets.len() < 2 { "cpu".to_owned() } else { format!("socket{index}") }
    }

    /// A name that no part has yet, made of the valid letters of `wanted`.
    pub(crate) fn free_name(&self, wanted: &str, otherwise: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = wanted.chars().take(60).map(plain).collect();
        let own = |name: &str| {
            let numbered = |stem: &str| name.strip_prefix(stem).is_some_and(|rest| rest.parse::<u64>().is_ok());
            matches!(name, "" | "cpu" | "memory" | "nvswitch") || ["gpu", "socket", "pcie"].into_iter().any(numbered)
        };
        let is_taken =
            |name: &str| self.nics.iter().any(|nic| nic.name == name) || self.switches.iter().any(|s| s == name);
        if !own(&name) && !is_taken(&name) {
            return name;
        }
        (0..).map(|i| format!("{otherwise}{i}")).find(|name| !is_taken(name)).expect("numbers do not end")
    }

    pub(crate) fn link(&mut self, one: &str, other: &str, rate: Rate, is_assumed: bool) {
        self.links.push(Link { between: [one.to_owned(), other.to_owned()], rate, is_assumed });
    }

    /// The switch through which GPUs with NVSwitch reach each other.
    pub(crate) fn nvswitch(&mut self) -> &'static str {
        if !self.switches.iter().any(|name| name == NVSWITCH) {
            self.switches.push(NVSWITCH.to_owned());
        }
        NVSWITCH
    }
}

/// All NVSwitches together carry every GPU at full rate, so they are one switch here.
pub(crate) const NVSWITCH: &str = "nvswitch";
