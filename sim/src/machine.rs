//! Maps the platform to resources of the fluid solver: cores and memory of each device in use, each wire
//! that is crossed.
//!
//! Resources are created when the first rank or route needs them, so a job on four of ten thousand hosts is as cheap as
//! on four. The use of each is summed, to find what bounds a step.

mod bound;
mod done;
mod input;

use lockstep_topology::cluster::{Device, DeviceId, DeviceKind, HostId, Link, LinkId};
use lockstep_topology::{InputError, Time};

use crate::costs::{Cost, MessageCost};
use crate::fluid::{ClassId, Fluid, ResourceId, Use};
use crate::orbits::Orbits;
use crate::platform::Platform;
use bound::BoundCores;
pub(crate) use done::{Done, Taken};
pub(crate) use input::Upload;

/// A resource with its name and its capacity.
#[derive(Debug, Clone)]
struct Resource {
    name: String,
    /// `None`: its use is not counted separately.
    part: Option<Part>,
    /// Its capacity without disturbances.
    capacity: f64,
    /// The share that each cause leaves of it at present; empty: all.
    shares: Vec<(&'static str, f64)>,
}

/// Cores (or a GPU's multiprocessors as one) and memory of a device.
#[derive(Debug, Clone, Copy)]
struct DeviceResources {
    cores: ResourceId,
    memory: ResourceId,
    /// For a GPU: what transfers leave of its memory to kernels.
    beside: Option<ResourceId>,
}

/// All resources of a run, and the solver that divides them.
pub(crate) struct Resources<'a, F> {
    pub(crate) platform: &'a Platform<'a>,
    pub(crate) fluid: F,
    all: Vec<Resource>,
    devices: Vec<Option<DeviceResources>>,
    wires: Vec<Option<ResourceId>>,
    /// Storage, and threads that decode.
    inputs: Vec<Option<[ResourceId; 2]>>,
    /// Cores of ranks, and classes on them.
    bound: BoundCores,
    /// The use of resources by an activity of each class per unit of work.
    uses: Vec<Vec<Use>>,
    /// Work that activities of each class have done.
    pub(crate) done: Done,
    /// The speed cap of each class.
    caps: Vec<f64>,
    /// Which ranks, wires and devices represent which.
    orbits: Orbits,
}

/// The part of the platform that a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The cores of a CPU, the multiprocessors of a GPU.
    Compute(DeviceId),
    /// The memory bandwidth of a device.
    Memory(DeviceId),
    /// The wire of this link.
    Link(LinkId),
    /// The storage that a host reads samples from.
    Storage(HostId),
    /// The threads of a host that decode samples.
    Decoders(HostId),
}

/// How much of a resource was used.
#[derive(Debug, Clone, PartialEq)]
pub struct Utilisation {
    /// `node0.cpu cores`, `node0.cpu memory`, `node0.eth0 > switch`.
    pub resource: String,
    /// The part of the platform.
    pub part: Part,
    /// Mean share of its capacity over the counted steps (of a collective: over its time), from 0 to 1.
    pub share: f64,
}

impl<'a, F: Fluid> Resources<'a, F> {
    /// No resource of `platform` in use yet, and `fluid` empty; `orbits` defines which ranks will use it.
    pub(crate) fn new(platform: &'a Platform<'a>, fluid: F, orbits: Orbits) -> Resources<'a, F> {
        Resources {
            platform,
            fluid,
            all: Vec::new(),
            devices: vec![None; platform.cluster.devices().len()],
            wires: vec![None; platform.cluster.wires() as usize],
            inputs: vec![None; platform.cluster.hosts().len()],
            bound: BoundCores::default(),
            uses: Vec::new(),
            done: Done::default(),
            caps: Vec::new(),
            orbits,
        }
    }

    /// Which ranks, wires and devices represent which.
    pub(crate) fn orbits(&self) -> &Orbits {
        &self.orbits
    }

    fn add(&mut self, name: String, part: Option<Part>, capacity: f64) -> Result<ResourceId, InputError> {
        let id = match part {
            Some(Part::Link(_)) => self.fluid.add_wire(capacity),
            _ => self.fluid.add_resource(capacity),
        };
        let id = id.map_err(|error| error.at(&name))?;
        self.all.push(Resource { name, part, capacity, shares: Vec::new() });
        Ok(id)
    }

    /// The class of activities with these uses, whose work [`Done`] can add up.
    ///
    /// # Errors
    /// Errors of the solver.
    fn class(&mut self, cap: f64, uses: &[Use]) -> Result<ClassId, InputError> {
        let class = self.fluid.class(cap, uses)?;
        self.note(class, cap, uses);
        Ok(class)
    }

    fn note(&mut self, class: ClassId, cap: f64, uses: &[Use]) {
        let index = class.0 as usize;
        if self.uses.len() <= index {
            self.uses.resize(index + 1, Vec::new());
            self.done.know(index + 1);
            self.caps.resize(index + 1, f64::INFINITY);
        }
        self.caps[index] = cap;
        self.uses[index] = uses.to_vec();
    }

    /// The resource of a link's wire.
    ///
    /// # Errors
    /// A bandwidth that the solver refuses.
    pub(crate) fn wire(&mut self, link: &Link) -> Result<ResourceId, InputError> {
        let cluster = self.platform.cluster;
        let (link, crowd) = self.orbits.link(cluster, link);
        if let Some(id) = self.wires[link.wire.0 as usize] {
            return Ok(id);
        }
        let name = format!("{} > {}", cluster.vertex(link.from).name, cluster.vertex(link.to).name);
        let capacity = link.payload().bytes_per_s() / crowd;
        let id = self.add(name, Some(Part::Link(link.id)), capacity)?;
        self.wires[link.wire.0 as usize] = Some(id);
        Ok(id)
    }

    /// The class of bytes that a link carries without sharing, and the part of `bytes` that counts: for a wire that
    /// represents others, the bytes of one.
    ///
    /// # Errors
    /// A bandwidth that the solver refuses.
    pub(crate) fn carrying(&mut self, link: &Link, bytes: f64) -> Result<(ClassId, f64), InputError> {
        let (_, crowd) = self.orbits.link(self.platform.cluster, link);
        let resource = self.wire(link)?;
        let class = self.class(f64::INFINITY, &[Use { resource, per_speed: 1.0 }])?;
        Ok((class, bytes / crowd))
    }

    /// Lets `cause` leave `share` of a resource from now on (above 0; 1: it is over); causes multiply.
    ///
    /// Activities in progress continue with what they then get; transfers of the α-β network keep their rate.
    ///
    /// # Errors
    /// A share that leaves nothing.
    pub(crate) fn set_share(&mut self, id: ResourceId, cause: &'static str, share: f64) -> Result<(), InputError> {
        let resource = &mut self.all[id.0 as usize];
        resource.shares.retain(|(other, _)| *other != cause);
        if share != 1.0 {
            resource.shares.push((cause, share));
        }
        let left: f64 = resource.shares.iter().map(|(_, share)| share).product();
        let place = || format!("{}, {cause}", resource.name);
        self.fluid.set_capacity(id, resource.capacity * left).map_err(|error| error.at(place()))
    }

    /// Creates the resources of a device.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn know(&mut self, device: &Device) -> Result<(), InputError> {
        self.device(device).map(|_| ())
    }

    fn device(&mut self, device: &Device) -> Result<DeviceResources, InputError> {
        let cluster = self.platform.cluster;
        let computing = &cluster.devices()[cluster.cores_of(device).0 as usize];
        let (id, crowd) = self.orbits.device(cluster, computing);
        let device = &cluster.devices()[id.0 as usize];
        if let Some(known) = self.devices[device.id.0 as usize] {
            return Ok(known);
        }
        let (unit, capacity) = match &device.kind {
            DeviceKind::Cpu(cpu) => ("cores", f64::from(cpu.cores)),
            DeviceKind::Gpu(_) => ("multiprocessors", 1.0),
            DeviceKind::Switch(_) => ("sums", 1.0),
        };
        let cores = self.add(format!("{} {unit}", device.name), Some(Part::Compute(device.id)), capacity / crowd)?;
        let memory = self.add(format!("{} memory", device.name), Some(Part::Memory(device.id)), 1.0 / crowd)?;
        let beside = match &device.kind {
            DeviceKind::Cpu(_) | DeviceKind::Switch(_) => None,
            DeviceKind::Gpu(_) => {
                let name = format!("{} memory beside transfers", device.name);
                Some(self.add(name, None, 1.0 / crowd)?)
            }
        };
        let all = DeviceResources { cores, memory, beside };
        if let Some(beside) = beside {
            // Only kernels on the GPU use these.
            self.fluid.enclose(&[cores, memory, beside]);
        }
        self.devices[device.id.0 as usize] = Some(all);
        self.bind_ranks(device)?;
        Ok(all)
    }

    /// The cores of a CPU.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn cores(&mut self, cpu: &Device) -> Result<ResourceId, InputError> {
        self.device(cpu).map(|resources| resources.cores)
    }

    /// The class of tasks on `device` that cost `cost` and run on up to `threads` cores, a unit of work being a second
    /// of one of them.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn task(&mut self, device: &Device, cost: Cost, threads: u32) -> Result<ClassId, InputError> {
        let DeviceResources { cores, memory, beside } = self.device(device)?;
        let (cap, fills) = match device.kind {
            DeviceKind::Cpu(_) => (f64::from(threads.max(1)), 1.0),
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => (1.0, cost.occupancy),
        };
        let mut uses = Vec::with_capacity(3);
        uses.push(Use { resource: cores, per_speed: fills });
        let memories = [Some(memory), beside].into_iter().flatten();
        uses.extend(memories.map(|resource| Use { resource, per_speed: cost.memory }));
        self.class(cap, &uses)
    }

    /// The use by transfers between two devices, per byte, of the memory that kernels of GPUs work in. CPUs have none
    /// of it: their threads' work on a message includes a share of the memory, as it was measured.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn taps(&mut self, ends: [&Device; 2]) -> Result<Vec<Use>, InputError> {
        let mut taps = Vec::new();
        for device in ends {
            if let Some(resource) = self.device(device)?.beside {
                taps.push(Use { resource, per_speed: self.platform.costs.traffic(device) });
            }
        }
        Ok(taps)
    }

    /// The class of transfers with these uses and taps.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn transfer(&mut self, cap: f64, uses: &[Use], taps: &[Use]) -> Result<ClassId, InputError> {
        let class = self.fluid.tapping(cap, uses, taps)?;
        self.note(class, cap, uses);
        Ok(class)
    }

    /// The class of the work that receives messages on `device`: a thread of a CPU; on a GPU a kernel that sums. For
    /// bytes that are only copied there, copy engines need no time of their own.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn receive(&mut self, device: &Device, cost: &MessageCost) -> Result<ClassId, InputError> {
        let DeviceResources { cores, memory, .. } = self.device(device)?;
        let fills = match device.kind {
            DeviceKind::Cpu(_) | DeviceKind::Switch(_) => 1.0,
            DeviceKind::Gpu(_) => cost.occupancy,
        };
        let uses = [Use { resource: cores, per_speed: fills }, Use { resource: memory, per_speed: cost.memory }];
        self.class(1.0, &uses)
    }

    /// The class of a library's kernel on a GPU, which holds `multiprocessors` and takes `memory`, as shares of the
    /// whole, for as long as it runs.
    ///
    /// # Errors
    /// Errors of the solver.
    pub(crate) fn holding(
        &mut self,
        device: &Device,
        multiprocessors: f64,
        memory: f64,
    ) -> Result<ClassId, InputError> {
        let DeviceResources { cores, beside, .. } = self.device(device)?;
        let cores = Use { resource: cores, per_speed: multiprocessors };
        let memory = beside.map(|resource| Use { resource, per_speed: memory });
        let uses: Vec<Use> = std::iter::once(cores).chain(memory).collect();
        self.class(1.0, &uses)
    }

    /// Whether activities of these classes, all at once, would slow each other down.
    pub(crate) fn crowded(&self, classes: &[ClassId]) -> bool {
        let mut demands = vec![(0.0, 0u32); self.all.len()];
        for class in classes {
            let uses = &self.uses[class.0 as usize];
            let alone = uses
                .iter()
                .filter(|used| used.per_speed > 0.0)
                .map(|used| self.all[used.resource.0 as usize].capacity / used.per_speed);
            let speed = alone.fold(self.caps[class.0 as usize], f64::min);
            for used in uses {
                let (demand, users) = &mut demands[used.resource.0 as usize];
                *demand += used.per_speed * speed;
                *users += 1;
            }
        }
        // A single activity is never slowed down, whatever rounding gives.
        demands.iter().zip(&self.all).any(|((demand, users), resource)| *users > 1 && *demand > resource.capacity)
    }

    /// Mean shares over a run of length `end`, the largest first, then by name.
    pub(crate) fn utilisation(&self, end: Time) -> Vec<Utilisation> {
        let seconds = end.as_secs_f64();
        let mut used = vec![0.0; self.all.len()];
        for (uses, taken) in self.uses.iter().zip(self.done.sums()) {
            uses.iter().for_each(|use_| used[use_.resource.0 as usize] += use_.per_speed * taken);
        }
        let share = |r: &Resource, used: f64| if seconds > 0.0 { used / (r.capacity * seconds) } else { 0.0 };
        let mut list: Vec<Utilisation> = (self.all.iter().zip(used))
            .filter_map(|(r, used)| {
                Some(Utilisation { resource: r.name.clone(), part: r.part?, share: share(r, used) })
            })
            .collect();
        list.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.resource.cmp(&b.resource)));
        list
    }
}
