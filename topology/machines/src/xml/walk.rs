//! `Walk`: adds the parts under each `<cpu>` to a machine.

use lockstep_topology::InputError;
use lockstep_topology::cluster::Lanes;

use super::Gpu;
use super::element::Element;
use crate::machine::{Machine, Nic, Rate};
use crate::pcie;

/// Bridges inside each other, at most; machines have up to three.
const DEEPEST: usize = 32;
/// Parts of a host, at most.
const MOST: usize = 4_096;
/// Mbit/s of a NIC, at most; beyond, the file has another unit.
const FASTEST: u64 = 10_000_000;

/// The parts under the `<cpu>`s.
pub(super) struct Walk<'m, 'a> {
    machine: &'m mut Machine,
    gpus: Vec<Gpu<'a>>,
    socket: usize,
    /// Whether a job wrote the GPUs and the NICs, so that others are none of its own.
    has_gpus: bool,
    has_nics: bool,
    /// Devices of a GPU's or a NIC's class that no job used.
    unused: [usize; 2],
    /// NICs whose slot is unknown: their names in the file and here.
    slotless: Vec<(&'a str, String)>,
}

impl<'m, 'a> Walk<'m, 'a> {
    pub(super) fn new(machine: &'m mut Machine, has_gpus: bool, has_nics: bool) -> Self {
        Walk { machine, gpus: Vec::new(), socket: 0, has_gpus, has_nics, unused: [0; 2], slotless: Vec::new() }
    }

    /// Adds what is under the socket `index`.
    pub(super) fn cpu(&mut self, cpu: Element<'a>, index: usize) -> Result<(), InputError> {
        self.socket = index;
        let name = self.machine.socket(index);
        self.children(cpu, &name, 0)
    }

    /// The GPUs, those without a number after the others.
    pub(super) fn finish(self) -> Result<Vec<Gpu<'a>>, InputError> {
        for (count, of) in self.unused.into_iter().zip(["GPUs without their <gpu>", "NICs without their <nic>"]) {
            if count > 0 {
                let message = "which no process of the job used, are left out: dump it in a job that uses them all";
                self.machine.notes.push(format!("{count} {of}, {message}"));
            }
        }
        if !self.has_nics && !self.machine.nics.is_empty() {
            let message = "NICs are in it without names and rates, so they are numbered and of any rate";
            self.machine.notes.push(message.to_owned());
        }
        Ok(self.gpus)
    }

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
                "nic" => self.nic(&[child], name, (pcie::UNKNOWN, true), true)?,
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
                "nic" | "net" => nics.push(child),
                _ => others += 1,
            }
        }
        match (gpus.as_slice(), nics.as_slice(), others) {
            ([gpu], [], 0) => {
                let dev = gpu.whole("dev", 0..=1 << 20)?;
                self.gpu(*gpu, pci, parent, lanes, dev)
            }
            ([], [_, ..], 0) => self.nic(&nics, parent, lanes, false),
            ([], [], 0) if is_gpu(pci) => match self.has_gpus {
                true => {
                    self.unused[0] += 1;
                    Ok(())
                }
                false => self.gpu(pci, pci, parent, lanes, None),
            },
            ([], [], 0) if pci.attribute("class").is_some_and(|class| class.starts_with("0x02")) => {
                if self.has_nics {
                    self.unused[1] += 1;
                    return Ok(());
                }
                let name = self.machine.free_name("", "nic");
                self.machine.link(parent, &name, Rate::Pcie(lanes.0), lanes.1);
                self.machine.nics.push(Nic::new(name, []));
                Ok(())
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
            ([_, second, ..], [], 0) => Err(second
                .error("is a second part of one GPU: dump it without partitions of GPUs, each in a <pci> of its own")),
            _ => Err(pci.error("holds more than one of a GPU, NICs and other devices: give each a <pci> of its own")),
        }
    }

    fn gpu(
        &mut self,
        element: Element<'a>,
        pci: Element<'a>,
        parent: &str,
        lanes: (Lanes, bool),
        dev: Option<u64>,
    ) -> Result<(), InputError> {
        let bus_id = pci.attribute("busid").unwrap_or("").to_lowercase();
        if !bus_id.is_empty() && self.gpus.iter().any(|gpu| gpu.bus_id == bus_id) {
            return Err(pci.error_in("busid", "is that of another GPU: every part has one of its own"));
        }
        // Numbers in the file are below these.
        let dev = dev.map_or((1 << 21) + self.gpus.len() as u32, |dev| dev as u32);
        let (parent, socket) = (parent.to_owned(), self.socket);
        self.gpus.push(Gpu { dev, element, pci, bus_id, parent, lanes, socket });
        Ok(())
    }

    /// The ports of a card, which share its lanes.
    fn nic(
        &mut self,
        nics: &[Element<'a>],
        parent: &str,
        lanes: (Lanes, bool),
        is_slotless: bool,
    ) -> Result<(), InputError> {
        let mut ports = Vec::new();
        let nets = nics.iter().flat_map(|nic| {
            let (own, inside) = if nic.name() == "net" { (Some(*nic), None) } else { (None, Some(nic.children())) };
            own.into_iter().chain(inside.into_iter().flatten())
        });
        for child in nets {
            if child.name() != "net" {
                return Err(child.error("must be a <net> in a <nic>"));
            }
            let gbit = self.speed(child)?;
            let latency = child.attribute("latency").map(str::parse::<f64>);
            if latency.is_some_and(|latency| !latency.is_ok_and(|micros| (0.0..=1e6).contains(&micros))) {
                return Err(child.error_in("latency", "must be a time in microseconds, 0 or more"));
            }
            // NCCL gives an interface of sockets neither an identity nor a port.
            let has = |key, zeros: &[&str]| child.attribute(key).is_some_and(|text| !zeros.contains(&text));
            let is_plain = child.attribute("guid").is_some() && !has("guid", &["0x0", "0"]) && !has("port", &["0"]);
            ports.push((child.attribute("name").unwrap_or(""), gbit, is_plain));
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
        for (wanted, gbit_per_s, is_plain) in ports {
            // One whose slot is unknown is under every CPU.
            let known = self.slotless.iter().find(|(name, _)| is_slotless && !wanted.is_empty() && *name == wanted);
            let name = match known {
                Some((_, name)) => name.clone(),
                None => {
                    let name = self.machine.free_name(wanted, "nic");
                    self.machine.nics.push(Nic { gbit_per_s, is_plain, ..Nic::new(name.clone(), [wanted]) });
                    name
                }
            };
            self.machine.link(&parent, &name, Rate::Pcie(lanes.0), lanes.1);
            if is_slotless {
                self.slotless.push((wanted, name));
            }
        }
        Ok(())
    }

    /// The rate of a port in Gbit/s; none where the file has no possible one, which is noted.
    fn speed(&mut self, net: Element<'_>) -> Result<Option<f64>, InputError> {
        let unknown = matches!(net.attribute("speed").map(str::trim), None | Some("" | "0" | "-1"));
        let speed = if unknown { None } else { net.whole("speed", 1..=1_000_000_000)? };
        if let Some(speed) = speed.filter(|speed| *speed <= FASTEST) {
            return Ok(Some(speed as f64 * 1e-3));
        }
        let said = speed.map_or("has no speed".to_owned(), |speed| format!("has a speed of {speed} Mbit/s"));
        let name = net.attribute("name").unwrap_or("a NIC");
        self.machine.notes.push(format!("{name} {said}: its rate is left open (speed=\"200000\" is 200 Gbit/s)"));
        Ok(None)
    }
}

/// Whether a `<pci>` is a GPU by its class: a display or an accelerator of a maker of GPUs, or of none that is named.
fn is_gpu(pci: Element<'_>) -> bool {
    let is_class = |class: &str| ["0x0300", "0x0302", "0x0380", "0x1200"].iter().any(|of| class.starts_with(of));
    // What servers show their console by: ASPEED, Matrox.
    let is_console = matches!(pci.attribute("vendor"), Some("0x1a03" | "0x102b"));
    pci.attribute("class").is_some_and(is_class) && !is_console
}
