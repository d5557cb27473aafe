//! Reads NCCL's topology XML: a `<system>` of `<cpu>`s, each with trees of `<pci>` whose leaves are `<gpu>` and
//! `<nic>`. A file that a vendor publishes has leaves of their class alone.
//!
//! The `link_speed` and `link_width` of a `<pci>` are those of its link to its parent element (NCCL,
//! `src/graph/xml.cc`).

mod element;
mod links;
mod model;
mod walk;

use lockstep_topology::InputError;
use lockstep_topology::cluster::Lanes;

use crate::machine::{Machine, Rate};
use crate::socket;
use crate::threads::Threads;
use element::Element;
use walk::Walk;

/// A GPU that was found.
struct Gpu<'a> {
    /// Its number; those without one follow in the file's order.
    dev: u32,
    /// Its `<gpu>`; the `<pci>` where a vendor's file has none.
    element: Element<'a>,
    /// Its `<pci>`.
    pci: Element<'a>,
    bus_id: String,
    /// The parent of its slot, and its lanes there.
    parent: String,
    lanes: (Lanes, bool),
    /// Index of its socket.
    socket: usize,
}

impl Gpu<'_> {
    /// Whether it is a `<pci>` of a GPU's class and nothing more.
    fn is_bare(&self) -> bool {
        self.element.name() == "pci"
    }
}

/// The host that the XML describes; its GPUs are called `model` where that is given.
pub(crate) fn read(file: &str, text: &str, model: Option<&str>) -> Result<Machine, InputError> {
    let text = text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    let document = element::parse(file, text)?;
    let root = Element { file, text, node: document.root_element() };
    if root.name() != "system" {
        let message = match root.name() {
            "graphs" => {
                "is what NCCL_GRAPH_DUMP_FILE names, rings and trees: use the file that NCCL_TOPO_DUMP_FILE names"
            }
            _ => "is not NCCL's topology, which is one <system>: set NCCL_TOPO_DUMP_FILE and use that file",
        };
        return Err(root.error(message));
    }
    let mut machine = Machine { origin: format!("NCCL's topology in {file}"), ..Machine::default() };
    let cpus = sockets(root, &mut machine)?;
    // Elements that a job wrote; a vendor's file has none.
    let has = |tag: &str| root.node.descendants().any(|node| node.has_tag_name(tag));
    let (has_gpus, has_nics) = (has("gpu"), has("net"));
    let mut walk = Walk::new(&mut machine, has_gpus, has_nics);
    for (index, cpu) in cpus.into_iter().enumerate() {
        walk.cpu(cpu, index)?;
    }
    let mut gpus = walk.finish()?;
    gpus.sort_by_key(|gpu| gpu.dev);
    if let Some(twice) = gpus.windows(2).find(|pair| pair[0].dev == pair[1].dev) {
        return Err(twice[1].element.error("has the dev of another GPU: number them from 0"));
    }
    if gpus.is_empty() {
        return Err(root.error(
            "has no GPU, neither a <gpu> nor a <pci> of its class: use the file that NCCL_TOPO_DUMP_FILE names in a job \
             that uses them all, or give the <pci> of each GPU class=\"0x030200\" and name their model by the setting gpu",
        ));
    }
    let model = model::of(&gpus, model, &mut machine.notes)?;
    for (i, gpu) in gpus.iter().enumerate() {
        machine.link(&gpu.parent, &format!("gpu{i}"), Rate::Pcie(gpu.lanes.0), gpu.lanes.1);
    }
    links::read(&gpus, &model, &mut machine)?;
    (machine.gpus, machine.model) = (gpus.len(), model.name);
    Ok(machine)
}

/// Adds the sockets, and returns their elements.
fn sockets<'a>(root: Element<'a>, machine: &mut Machine) -> Result<Vec<Element<'a>>, InputError> {
    let (mut numbers, mut cpus, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in root.children() {
        if cpu.name() != "cpu" {
            return Err(cpu.error("is not in any <cpu>, so nothing leads to it: put it into one"));
        }
        // Linux writes -1 where a machine has no NUMA nodes.
        let number = match cpu.attribute("numaid").map(str::trim) {
            Some("-1") => Some(u64::MAX),
            _ => cpu.whole("numaid", 0..=u32::MAX.into())?,
        };
        if number.is_some() && numbers.contains(&number) {
            return Err(cpu.error("appears twice by its numaid; remove one"));
        }
        numbers.push(number);
        hosts.extend(cpu.attribute("host_hash").filter(|hash| !hosts.contains(hash)));
        if hosts.len() > 1 {
            let message = "is of another host, by its host_hash: keep one host, and give a number of hosts; trays of a rack \
                           that NVLinks join are the cluster gb200-nvl72 or gb300-nvl72";
            return Err(cpu.error(message));
        }
        machine.sockets.push(read_socket(cpu)?);
        cpus.push(cpu);
    }
    Ok(cpus)
}

fn read_socket(cpu: Element<'_>) -> Result<crate::machine::Socket, InputError> {
    let threads = match cpu.attribute("affinity") {
        None => Threads::default(),
        Some(mask) => {
            let is_ranges = mask.contains('-');
            let threads = if is_ranges { Threads::of_ranges(mask) } else { Threads::of_mask(mask) };
            threads.ok_or_else(|| {
                cpu.error_in(
                    "affinity",
                    "is not a mask of threads: hexadecimal words with commas; leave it out if unknown",
                )
            })?
        }
    };
    let [arch, vendor] = ["arch", "vendor"].map(|key| cpu.attribute(key).unwrap_or(""));
    let number = |key| Ok::<_, InputError>(cpu.whole(key, 0..=u32::MAX.into())?.map(|number| number as u32));
    // Below family 6 there is no Intel CPU with such buses; like NCCL, an unknown one is taken for the slowest.
    let model = if number("familyid")? == Some(6) { number("modelid")? } else { None };
    Ok(socket::socket(arch, vendor, model, threads))
}
