//! `Placement`: assigns each rank a device; `Hosting`: assigns each rank a process.
//!
//! Both map many to one: several ranks may share a CPU or a GPU, and several ranks a process. Everything that they
//! share (cores, memory bandwidth, an address space) follows from the two maps alone.

mod hosting;
mod switches;
#[cfg(test)]
mod tests;

use crate::InputError;
use crate::cluster::{Cluster, DeviceId, DeviceKind, HostId, order_parts};
pub use hosting::{Hosting, HostingRule, blocks};

/// A logical participant of a job, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// How ranks are spread over devices.
///
/// `Pack` and `Scatter` use the GPUs of a cluster that has any, else the CPUs, and put a second rank on a core or GPU
/// only when each has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementRule {
    /// Fill a host's cores or GPUs before the next host's: neighbouring ranks share hosts. Where hosts share one
    /// machine's cores ([`Cluster::shares_cores`]), none has its own: ranks on CPUs go as by `Scatter`, as in a lab.
    Pack,
    /// Round-robin over the hosts, a rank each: neighbouring ranks are on different hosts.
    Scatter,
    /// Put this many on each host before the next one's, spread over its devices.
    PerHost(u32),
    /// The device of each rank.
    Listed(Vec<DeviceId>),
}

/// How many ranks a device may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ranks on a CPU, for each of its cores.
    pub ranks_per_core: u32,
    /// Ranks on a GPU.
    pub ranks_per_gpu: u32,
    /// Whether `Pack` and `Scatter` use the CPUs even where there are GPUs.
    pub on_cpus: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { ranks_per_core: 4, ranks_per_gpu: 1, on_cpus: false }
    }
}

/// Rank → device, many to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    devices: Vec<DeviceId>,
    hosts: Vec<HostId>,
    /// How many ranks each device has.
    loads: Vec<u32>,
}

/// A device with the number of ranks that it takes without sharing a core or itself.
struct DeviceSlots {
    device: DeviceId,
    slots: u32,
    most: u64,
}

impl Placement {
    /// `ranks` ranks on the devices of `cluster`, with the default [`Limits`].
    ///
    /// # Errors
    /// No rank, more ranks than places, or a list that is not one known device for each rank.
    ///
    /// ```
    /// # use lockstep_topology::{Placement, PlacementRule, Rank, cluster::Cluster};
    /// let cluster = Cluster::load("ethernet-4").unwrap();
    /// let packed = Placement::new(&cluster, 20, &PlacementRule::Pack).unwrap();
    /// let all: Vec<Rank> = packed.all().collect();
    /// assert_eq!(packed.node_sizes(&all), [16, 4]);
    /// ```
    pub fn new(cluster: &Cluster, ranks: u32, rule: &PlacementRule) -> Result<Placement, InputError> {
        Placement::within(cluster, ranks, rule, Limits::default())
    }

    /// Like [`Placement::new`] with other limits.
    ///
    /// # Errors
    /// As there.
    pub fn within(
        cluster: &Cluster,
        ranks: u32,
        rule: &PlacementRule,
        limits: Limits,
    ) -> Result<Placement, InputError> {
        let wrong = |value: String, message: String| Err(InputError::flag("ranks", value, message));
        if ranks == 0 {
            return wrong("0".into(), "must be at least 1".into());
        }
        let devices = match rule {
            PlacementRule::Listed(devices) => {
                if devices.len() != ranks as usize {
                    let message = format!("{} devices are listed; list one for each rank", devices.len());
                    return wrong(ranks.to_string(), message);
                }
                devices.clone()
            }
            PlacementRule::Pack | PlacementRule::Scatter | PlacementRule::PerHost(_) => {
                let places = places(cluster, limits);
                let of_host = || of_hosts(cluster, &places).map(most).max().unwrap_or(0);
                if let PlacementRule::PerHost(each) = rule
                    && u64::from(*each) > of_host()
                {
                    let message =
                        format!("a host of cluster {} has places for {}: use at most that", cluster.name(), of_host());
                    return Err(InputError::flag("ranks_per_node", each.to_string(), message));
                }
                let most = match rule {
                    PlacementRule::PerHost(each) => {
                        of_hosts(cluster, &places).map(|host| most(host).min(u64::from(*each))).sum()
                    }
                    _ => most(&places),
                };
                if u64::from(ranks) > most {
                    let per = if on_gpus(cluster, limits) { "GPU" } else { "core" };
                    let each = if per == "GPU" { limits.ranks_per_gpu } else { limits.ranks_per_core };
                    let on_host = match rule {
                        PlacementRule::PerHost(count) => format!(", and at most {count} on a host"),
                        _ => String::new(),
                    };
                    let message = format!(
                        "cluster {} has places for {most}, {each} per {per}{on_host}; use fewer ranks or a larger cluster",
                        cluster.name()
                    );
                    return wrong(ranks.to_string(), message);
                }
                let shared = cluster.shares_cores() && !on_gpus(cluster, limits);
                match rule {
                    PlacementRule::Pack if shared => scatter(cluster, &places, ranks),
                    PlacementRule::Scatter => scatter(cluster, &places, ranks),
                    PlacementRule::PerHost(each) => per_host(cluster, &places, ranks, *each),
                    _ => pack(&places, ranks),
                }
            }
        };
        let loads = loads(cluster, &devices, limits)?;
        let hosts = devices.iter().map(|device| cluster.devices()[device.0 as usize].host).collect();
        Ok(Placement { devices, hosts, loads })
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.devices.len() as u32
    }

    /// All ranks in order.
    pub fn all(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks()).map(Rank)
    }

    /// The device of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn device(&self, rank: Rank) -> DeviceId {
        self.devices[rank.0 as usize]
    }

    /// The host of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn host(&self, rank: Rank) -> HostId {
        self.hosts[rank.0 as usize]
    }

    /// How many ranks run on a device; 0 where there is no such device.
    pub fn ranks_on(&self, device: DeviceId) -> u32 {
        self.loads.get(device.0 as usize).copied().unwrap_or(0)
    }

    /// Sizes of the runs of consecutive `ranks` that share a host: the nodes of a hierarchical group.
    ///
    /// Ranks of a scattered placement make runs of one; sort them by host first.
    pub fn node_sizes(&self, ranks: &[Rank]) -> Vec<u32> {
        let nodes = ranks.chunk_by(|a, b| self.host(*a) == self.host(*b));
        nodes.map(|node| node.len() as u32).collect()
    }
}

fn on_gpus(cluster: &Cluster, limits: Limits) -> bool {
    !limits.on_cpus && cluster.devices().iter().any(|device| matches!(device.kind, DeviceKind::Gpu(_)))
}

fn places(cluster: &Cluster, limits: Limits) -> Vec<DeviceSlots> {
    let on_gpus = on_gpus(cluster, limits);
    let place = |device: &crate::cluster::Device| {
        let (slots, each) = match &device.kind {
            DeviceKind::Cpu(spec) if !on_gpus => (spec.cores, limits.ranks_per_core),
            DeviceKind::Gpu(_) if on_gpus => (1, limits.ranks_per_gpu),
            _ => return None,
        };
        Some(DeviceSlots { device: device.id, slots, most: u64::from(slots) * u64::from(each) })
    };
    cluster.devices().iter().filter_map(place).collect()
}

/// Ranks per slot that every place has in full, and how many ranks are left for one more.
fn levels(places: &[DeviceSlots], ranks: u32) -> (u32, u64) {
    let slots: u64 = places.iter().map(|place| u64::from(place.slots)).sum();
    ((u64::from(ranks) / slots) as u32, u64::from(ranks) % slots)
}

/// Place by place; the remainder when all slots are equally full goes to the first.
fn pack(places: &[DeviceSlots], ranks: u32) -> Vec<DeviceId> {
    let (full, mut left) = levels(places, ranks);
    let mut devices = Vec::with_capacity(ranks as usize);
    for place in places {
        let more = left.min(u64::from(place.slots));
        left -= more;
        let here = u64::from(full) * u64::from(place.slots) + more;
        devices.extend((0..here).map(|_| place.device));
    }
    devices
}

/// How many ranks fit.
fn most(places: &[DeviceSlots]) -> u64 {
    places.iter().map(|place| place.most).sum()
}

/// The places of each host.
fn of_hosts<'a>(cluster: &'a Cluster, places: &'a [DeviceSlots]) -> impl Iterator<Item = &'a [DeviceSlots]> {
    let host = |place: &DeviceSlots| cluster.devices()[place.device.0 as usize].host;
    places.chunk_by(move |a, b| host(a) == host(b))
}

/// Host by host, `each` on one as long as it has slots for them.
fn per_host(cluster: &Cluster, places: &[DeviceSlots], ranks: u32, each: u32) -> Vec<DeviceId> {
    let mut devices = Vec::with_capacity(ranks as usize);
    for host in of_hosts(cluster, places) {
        let left = u64::from(ranks) - devices.len() as u64;
        devices.extend(pack(host, left.min(most(host)).min(u64::from(each)) as u32));
    }
    devices
}

/// Round-robin over the hosts, and in each round over their devices, as long as slots are free; then again
/// from the start.
fn scatter(cluster: &Cluster, places: &[DeviceSlots], ranks: u32) -> Vec<DeviceId> {
    // For each host, the order in which its slots of one level are taken: a slot of each device in turn.
    let mut hosts: Vec<Vec<DeviceId>> = Vec::new();
    for places in of_hosts(cluster, places) {
        let deepest = places.iter().map(|place| place.slots).max().unwrap_or(0);
        let turn = |slot: u32| places.iter().filter(move |place| slot < place.slots).map(|place| place.device);
        hosts.push((0..deepest).flat_map(turn).collect());
    }
    let deepest = hosts.iter().map(Vec::len).max().unwrap_or(0);
    let level = || (0..deepest).flat_map(|slot| hosts.iter().filter_map(move |host| host.get(slot).copied()));
    let mut devices = Vec::with_capacity(ranks as usize);
    while devices.len() < ranks as usize {
        devices.extend(level().take(ranks as usize - devices.len()));
    }
    devices
}

/// The number of ranks on each device, refusing unknown devices and more ranks on one than its limit.
fn loads(cluster: &Cluster, devices: &[DeviceId], limits: Limits) -> Result<Vec<u32>, InputError> {
    let mut loads = vec![0u32; cluster.devices().len()];
    for id in devices {
        let Some(device) = cluster.device(*id) else {
            let message = format!("no such device in cluster {}; it has {}", cluster.name(), cluster.devices().len());
            return Err(InputError::new("placement", format!("device {}", id.0), message));
        };
        loads[id.0 as usize] += 1;
        let most = match &device.kind {
            DeviceKind::Cpu(spec) => u64::from(spec.cores) * u64::from(limits.ranks_per_core),
            DeviceKind::Gpu(_) => u64::from(limits.ranks_per_gpu),
            DeviceKind::Switch(_) => u64::from(u32::MAX),
        };
        if u64::from(loads[id.0 as usize]) > most {
            let message = format!("takes {most} ranks at most; list another device for the rest or raise the limit");
            return Err(InputError::new("placement", device.name.clone(), message));
        }
    }
    Ok(loads)
}

/// The order of the cluster in `asked` with as many hosts as `ranks` ranks need, as in `dgx-h100:8`; `None` where its file
/// cannot have that many, as with several kinds of hosts.
///
/// ```
/// # use lockstep_topology::placement::with_room;
/// assert_eq!(with_room("dgx-h100", 64), Some("dgx-h100:8".to_owned()));
/// assert_eq!(with_room("dgx-a100:2@infiniband-hdr", 17), Some("dgx-a100:3@infiniband-hdr".to_owned()));
/// ```
pub fn with_room(asked: &str, ranks: u32) -> Option<String> {
    let (name, network) = order_parts(asked)?;
    let of = |hosts: u32| format!("{name}:{hosts}{network}");
    let fits = |hosts: u32, ranks: u32| {
        let cluster = Cluster::load(&of(hosts)).ok()?;
        Placement::new(&cluster, ranks, &PlacementRule::Pack).ok()
    };
    // Places of a host: twice as many, until they do not fit.
    let each = (0..12).map(|power| 1u32 << power).take_while(|ranks| fits(1, *ranks).is_some()).last()?;
    let hosts = ranks.div_ceil(each);
    fits(hosts, ranks).map(|_| of(hosts))
}
