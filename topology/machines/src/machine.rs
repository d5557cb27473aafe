//! `Machine`: describes one host as a reader found it, before it is written as a cluster file.

use lockstep_topology::Bandwidth;
use lockstep_topology::cluster::{CatalogueGpu, Lanes};

use crate::gpu;
use crate::threads::Threads;

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
    /// What the file leaves open or has wrong, and what was assumed.
    pub(crate) notes: Vec<String>,
}

/// A NUMA node.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Its hardware threads; empty where the file does not state them.
    pub(crate) threads: Threads,
    /// To the other sockets.
    pub(crate) bridge: Bandwidth,
    /// The vendor and generation of that interconnect: `AMD`, `Intel Skylake`.
    pub(crate) maker: &'static str,
    /// Whether the rate is NCCL's.
    pub(crate) of_nccl: bool,
}

/// A network interface.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) name: String,
    /// Its names in the file.
    pub(crate) known_as: Vec<String>,
    /// Its line rate, where the file states it.
    pub(crate) gbit_per_s: Option<f64>,
    /// Whether it is farther from every GPU than other NICs are.
    pub(crate) is_far: bool,
    /// Whether the file has no identity for it in a fabric of RDMA.
    pub(crate) is_plain: bool,
}

impl Nic {
    /// A NIC that has these names in the file.
    pub(crate) fn new<'a>(name: String, known_as: impl IntoIterator<Item = &'a str>) -> Nic {
        let known_as = known_as.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Nic { name, known_as, gbit_per_s: None, is_far: false, is_plain: false }
    }
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
    /// NVLinks of another rate than their generation's, together.
    SlowNvLink(Bandwidth),
    /// Infinity Fabric between GPUs, all links together.
    Xgmi(Bandwidth),
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

    /// Joins two parts by `count` NVLinks of the model.
    pub(crate) fn nvlink(&mut self, one: &str, other: &str, model: &CatalogueGpu, lanes: Lanes, is_assumed: bool) {
        let rate = gpu::slow_nvlinks(model, lanes).map_or(Rate::NvLink(lanes), Rate::SlowNvLink);
        self.link(one, other, rate, is_assumed);
    }

    /// Whether the GPUs have links to each other besides PCI Express.
    pub(crate) fn has_gpu_links(&self) -> bool {
        self.links.iter().any(|link| matches!(link.rate, Rate::NvLink(_) | Rate::SlowNvLink(_) | Rate::Xgmi(_)))
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
