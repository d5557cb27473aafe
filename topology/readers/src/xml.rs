//! Reads NCCL's topology XML: a `<system>` of `<cpu>`s, each with trees of `<pci>` whose leaves are `<gpu>` and
//! `<nic>`.
//!
//! The `link_speed` and `link_width` of a `<pci>` are those of its link to its parent element (NCCL,
//! `src/graph/xml.cc`).

mod element;
mod nvlink;

use lockstep_topology::InputError;
use lockstep_topology::cluster::{CatalogueGpu, Lanes};

use crate::machine::{Machine, Nic, Rate};
use crate::{gpu, pcie, socket};
use element::Element;

/// A `<gpu>` that was found.
struct Gpu<'a> {
    dev: u32,
    element: Element<'a>,
    bus_id: String,
    /// The parent of its slot, and its lanes there.
    parent: String,
    lanes: (Lanes, bool),
    /// Index of its socket.
    socket: usize,
}

/// Bridges inside each other, at most; machines have up to three.
const DEEPEST: usize = 32;
/// Parts of a host, at most.
const MOST: usize = 4_096;

/// The host that the XML describes; its GPUs are called `model` where that is given.
pub(crate) fn read(file: &str, text: &str, model: Option<&str>) -> Result<Machine, InputError> {
    let document = element::parse(file, text)?;
    let root = Element { file, text, node: document.root_element() };
    if root.name() != "system" {
        return Err(
            root.error("is not NCCL's topology, which is one <system>: set NCCL_TOPO_DUMP_FILE and use that file")
        );
    }
    let mut machine = Machine { origin: format!("NCCL's topology in {file}"), ..Machine::default() };
    let (mut numbers, mut cpus, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in root.children() {
        if cpu.name() != "cpu" {
            return Err(cpu.error("is not in any <cpu>, so nothing leads to it: put it into one"));
        }
        let number = cpu.whole("numaid", 0..=u32::MAX.into())?;
        if number.is_some() && numbers.contains(&number) {
            return Err(cpu.error("appears twice by its numaid; remove one"));
        }
        numbers.push(number);
        hosts.extend(cpu.attribute("host_hash").filter(|hash| !hosts.contains(hash)));
        if hosts.len() > 1 {
            return Err(cpu.error("is of another host, by its host_hash: keep one host, and give a number of hosts"));
        }
        machine.sockets.push(read_socket(cpu)?);
        cpus.push(cpu);
    }
    let mut gpus = Vec::new();
    for (index, cpu) in cpus.into_iter().enumerate() {
        let name = machine.socket(index);
        let mut walk = Walk { machine: &mut machine, gpus: &mut gpus, socket: index };
        walk.children(cpu, &name, 0)?;
    }
    gpus.sort_by_key(|gpu| gpu.dev);
    if let Some(twice) = gpus.windows(2).find(|pair| pair[0].dev == pair[1].dev) {
        return Err(twice[1].element.error("has the dev of another GPU: number them from 0"));
    }
    let Some(first) = gpus.first() else {
        return Err(root.error("has no <gpu>: use the file that NCCL_TOPO_DUMP_FILE names in a job that uses them all"));
    };
    let model = match model {
        Some(name) => gpu::named(name)?,
        None => by_capability(first, &gpus)?,
    };
    for (i, gpu) in gpus.iter().enumerate() {
        machine.link(&gpu.parent, &format!("gpu{i}"), Rate::Pcie(gpu.lanes.0), gpu.lanes.1);
    }
    nvlink::read(&gpus, &model, &mut machine)?;
    (machine.gpus, machine.model) = (gpus.len(), model.name);
    Ok(machine)
}

fn read_socket(cpu: Element<'_>) -> Result<crate::machine::Socket, InputError> {
    let threads = match cpu.attribute("affinity") {
        None => 0,
        Some(mask) => socket::threads_of_mask(mask)
            .ok_or_else(|| cpu.error_in("affinity", "is not a mask of threads: hexadecimal words with commas"))?,
    };
    let [arch, vendor] = ["arch", "vendor"].map(|key| cpu.attribute(key).unwrap_or(""));
    let number = |key| Ok::<_, InputError>(cpu.whole(key, 0..=u32::MAX.into())?.map(|number| number as u32));
    // Below family 6 there is no Intel CPU with such buses; like NCCL, an unknown one is taken for the slowest.
    let model = if number("familyid")? == Some(6) { number("modelid")? } else { None };
    Ok(socket::socket(arch, vendor, model, threads))
}

/// The model of GPUs that have one compute capability.
fn by_capability(first: &Gpu<'_>, gpus: &[Gpu<'_>]) -> Result<CatalogueGpu, InputError> {
    let capability = |gpu: &Gpu<'_>| gpu.element.whole("sm", 1..=999);
    let Some(sm) = capability(first)? else {
        return Err(first.element.error("has no sm, its compute capability: add sm=\"80\", or name the GPU's model"));
    };
    for gpu in gpus {
        if capability(gpu)? != Some(sm) {
            let message = format!("has another sm than {sm}: a host has one kind of GPU; name the model of all");
            return Err(gpu.element.error_in("sm", message));
        }
    }
    let has_nvlink = gpus.iter().any(|gpu| gpu.element.children().any(|child| child.name() == "nvlink"));
    let mut above = first.element.node.ancestors();
    let is_arm = above.any(|node| matches!(node.attribute("arch"), Some("arm64" | "aarch64")));
    let name = gpu::by_capability(sm as u32, has_nvlink, is_arm);
    let unknown = || first.element.error_in("sm", "is of no GPU in the catalogue: name the model that comes nearest");
    gpu::named(name.ok_or_else(unknown)?)
}

/// The parts under one `<cpu>`.
struct Walk<'m, 'g, 'a> {
    machine: &'m mut Machine,
    gpus: &'g mut Vec<Gpu<'a>>,
    socket: usize,
}

impl<'a> Walk<'_, '_, 'a> {
    /// Adds what is in `parent`, the part called `name`.
    fn children(&mut self, parent: Element<'a>, name: &str, depth: usize) -> Result<(), InputError> {
        for child in parent.children() {
            if depth > DEEPEST || self.machine.links.len() + self.gpus.len() > MOST {
                let message = format!("is more than a host has: at most {MOST} parts, {DEEPEST} inside each other");
                return Err(child.error(message));
            }
            match child.name() {
                "pci" => self.pci(child, name, depth)?,
                // A NIC of a virtual machine, whose slot is unknown.
                "nic" => self.nic(&[child], name, (pcie::UNKNOWN, true))?,
                "gpu" => return Err(child.error("must be in a <pci>, which says how it is wired")),
                _ => {
                    return Err(
                        child.error("is not a supported part of a topology: remove it, or dump it with another NCCL")
                    );
                }
            }
        }
        Ok(())
    }

    fn pci(&mut self, pci: Element<'a>, parent: &str, depth: usize) -> Result<(), InputError> {
        let [speed, width] = ["link_speed", "link_width"].map(|key| pci.attribute(key).unwrap_or(""));
        let lanes = pcie::lanes(speed, width).map_err(|(key, message)| pci.error_in(key, message))?;
        let (mut gpus, mut nics, mut others) = (Vec::new(), Vec::new(), 0);
        for child in pci.children() {
            match child.name() {
                "gpu" => gpus.push(child),
                "nic" => nics.push(child),
                _ => others += 1,
            }
        }
        let class = pci.attribute("class").unwrap_or("");
        match (gpus.as_slice(), nics.as_slice(), others) {
            ([gpu], [], 0) => {
                let dev = gpu.whole("dev", 0..=u32::MAX.into())?;
                let Some(dev) = dev else { return Err(gpu.error("has no dev: number the GPUs from 0")) };
                let bus_id = pci.attribute("busid").unwrap_or("").to_lowercase();
                if !bus_id.is_empty() && self.gpus.iter().any(|gpu| gpu.bus_id == bus_id) {
                    return Err(pci.error_in("busid", "is that of another GPU: every part has one of its own"));
                }
                let (parent, socket) = (parent.to_owned(), self.socket);
                self.gpus.push(Gpu { dev: dev as u32, element: *gpu, bus_id, parent, lanes, socket });
                Ok(())
            }
            ([], [_, ..], 0) => self.nic(&nics, parent, lanes),
            ([], [], 0) if class.starts_with("0x0302") || class.starts_with("0x0300") => Err(pci.error(
                "is a GPU without its <gpu>: use the file that NCCL_TOPO_DUMP_FILE names in a job that uses them all",
            )),
            ([], [], 0) if class.starts_with("0x02") => {
                Err(pci.error("is a NIC without its <nic> and <net>: use the file that NCCL_TOPO_DUMP_FILE names"))
            }
            // A bridge without children, or a part that carries no data.
            ([], [], 0) => Ok(()),
            ([], [], _) => {
                let bridges = self.machine.switches.iter().filter(|name| name.starts_with("pcie")).count();
                let name = format!("pcie{bridges}");
                self.machine.switches.push(name.clone());
                self.machine.link(parent, &name, Rate::Pcie(lanes.0), lanes.1);
                self.children(pci, &name, depth + 1)
            }
            _ => Err(pci.error("holds more than one of a GPU, NICs and other devices: give each a <pci> of its own")),
        }
    }

    /// The ports of a card, which share its lanes.
    fn nic(&mut self, nics: &[Element<'a>], parent: &str, lanes: (Lanes, bool)) -> Result<(), InputError> {
        let mut ports = Vec::new();
        for child in nics.iter().flat_map(|nic| nic.children()) {
            if child.name() != "net" {
                return Err(child.error("must be a <net> in a <nic>"));
            }
            let Some(speed) = child.whole("speed", 1..=10_000_000)? else {
                return Err(child.error("has no speed: add speed=\"200000\", in Mbit/s"));
            };
            let latency = child.attribute("latency").map(str::parse::<f64>);
            if latency.is_some_and(|latency| !latency.is_ok_and(|micros| (0.0..=1e6).contains(&micros))) {
                return Err(child.error_in("latency", "must be a time in microseconds, 0 or more"));
            }
            ports.push((child.attribute("name").unwrap_or(""), speed as f64 * 1e-3));
        }
        if ports.is_empty() {
            return Err(nics[0].error("has no <net>: use the file that NCCL_TOPO_DUMP_FILE names"));
        }
        let mut parent = parent.to_owned();
        if ports.len() > 1 {
            let card = self.machine.free_name("card0", "card");
            self.machine.link(&parent, &card, Rate::Pcie(lanes.0), lanes.1);
            self.machine.switches.push(card.clone());
            parent = card;
        }
        for (wanted, gbit) in ports {
            let name = self.machine.free_name(wanted, "nic");
            self.machine.link(&parent, &name, Rate::Pcie(lanes.0), lanes.1);
            self.machine.nics.push(Nic { name, gbit_per_s: Some(gbit) });
        }
        Ok(())
    }
}
