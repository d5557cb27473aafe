//! Input: how samples get from storage to a device while it computes (Kumar et al. 2018, §4.1).
//!
//! Threads of a node take samples one after the other, whoever is free the next one: they read it, from storage or from memory,
//! decode it, and crop, flip and normalise it. What is ready is copied to the device of the rank that asks for it. So a batch
//! passes two stages, production and copy, and up to `prefetch` batches are on their way while a device computes. With
//!
//! ```text
//! P = max(missed bytes / storage's bandwidth, samples · (missed · latency + decoding + transformation) / threads)
//! C = bytes of fp32 samples / bandwidth of the route, and its latency
//! ```
//!
//! and a step of T that computes, a batch comes every max(T, P, C, (P + C) / prefetch), or every T + P + C without prefetching. What
//! a shuffle takes is added to the steps from one to the next, in equal parts: nobody loads meanwhile, and few batches are ahead.
//! Figures are a node's; its ranks share threads and storage by the samples that they load.

use lockstep_models::{Op, Program, RankRange};
use lockstep_topology::{Bandwidth, Bytes, Collective, Group, Hosting, HostingRule, InputError, Limits, Placement};
use lockstep_topology::{PlacementRule, Rank, Time};

use crate::collective::{CollectiveRun, simulate_collective};
use crate::fold::FoldRule;
use crate::platform::Platform;
use crate::simulate::SimError;

/// How samples reach devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Samples of the whole set.
    pub samples: u64,
    /// Bytes of one as it is stored, compressed.
    pub sample_bytes: Bytes,
    /// Where a node reads them.
    pub source: Source,
    /// Threads of a node that read, decode and transform.
    pub threads: u32,
    /// What decoding one sample takes of a thread.
    pub decode: Time,
    /// What cropping, flipping and normalising one takes.
    pub transform: Time,
    /// Who does that.
    pub transform_at: TransformAt,
    /// Batches on their way to a rank while it computes; 1 is double buffering, 0 none at all.
    pub prefetch: u32,
    /// What the end of a job of one of its devices takes of a node's main thread (Kumar et al. 2018, §4.3).
    pub callback: Time,
}

/// Where stored samples are.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// In files: a request for each, unless the page cache has it.
    Files {
        /// What a node gets of the storage.
        bandwidth: Bandwidth,
        /// From a request to its first byte.
        latency: Time,
        /// A node's page cache; of a set drawn at random it has that share.
        page_cache: Bytes,
    },
    /// In the nodes' memory.
    Memory {
        /// Groups of nodes that each hold the whole set; as many as nodes: everybody does.
        groups: u32,
        /// Steps from one shuffle among the nodes of a group to the next, if there are any.
        shuffle_every: Option<u32>,
    },
}

/// Who transforms samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformAt {
    /// The threads that decode.
    Host,
    /// The device, before it computes.
    Device,
    /// The threads, until a device has waited for them; from then on the device.
    WhenLate,
}

/// What one batch of a rank takes, in each stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stages {
    /// Production where threads transform, and where they do not.
    pub(crate) produce: [Time; 2],
    /// The copy to the device.
    pub(crate) copy: Time,
    /// The transformation on the device.
    pub(crate) device: Time,
    /// What a shuffle takes, in which nobody loads, spread over the batches from one to the next.
    pub(crate) shuffle: Time,
    /// Whether storage is what production waits for.
    stored: bool,
}

#[cfg(test)]
impl Stages {
    /// Of a test's figures.
    pub(crate) fn of_test(produce: [Time; 2], copy: Time, device: Time) -> Stages {
        Stages { produce, copy, device, shuffle: Time::ZERO, stored: false }
    }
}

impl Input {
    /// Bytes of the whole set.
    pub fn bytes(&self) -> u64 {
        self.samples.saturating_mul(self.sample_bytes.0)
    }

    /// The share of reads that go to the storage.
    fn missed(&self) -> f64 {
        match &self.source {
            Source::Files { page_cache, .. } => (1.0 - page_cache.0 as f64 / self.bytes().max(1) as f64).max(0.0),
            Source::Memory { .. } => 0.0,
        }
    }

    /// Seconds of production of `samples` samples by a node, by its storage and by its threads.
    fn production(&self, samples: f64, transforms: bool) -> (f64, f64) {
        let missed = self.missed();
        let (stored, latency) = match &self.source {
            Source::Files { bandwidth, latency, .. } => {
                (missed * samples * self.sample_bytes.0 as f64 / bandwidth.bytes_per_s(), latency.as_secs_f64())
            }
            Source::Memory { .. } => (0.0, 0.0),
        };
        let transform = if transforms { self.transform.as_secs_f64() } else { 0.0 };
        let each = missed * latency + self.decode.as_secs_f64() + transform;
        (stored, samples * each / f64::from(self.threads.max(1)))
    }

    /// The stages of each rank's batches; `None` for a rank that loads nothing.
    ///
    /// # Errors
    /// Groups that do not divide the nodes, nodes whose memory is too small, devices that a host cannot reach.
    pub(crate) fn stages(&self, program: &Program, platform: &Platform<'_>) -> Result<Vec<Option<Stages>>, SimError> {
        let loads = loads(program);
        let mut of_host = vec![0u64; platform.cluster.hosts().len()];
        let mut nodes = Vec::new();
        for (rank, (samples, _)) in (0..).zip(&loads) {
            let host = platform.placement.host(Rank(rank));
            of_host[host.0 as usize] += u64::from(*samples);
            if !nodes.contains(&host) {
                nodes.push(host);
            }
        }
        let shuffle = match &self.source {
            Source::Memory { groups, shuffle_every } => {
                let held = self.held(platform, nodes.len() as u32, *groups)?;
                let every = shuffle_every.filter(|_| held.nodes > 1);
                match every {
                    Some(every) => shuffle_time(platform, held)?.0 / u64::from(every.max(1)),
                    None => 0,
                }
            }
            Source::Files { .. } => 0,
        };
        let mut all = Vec::with_capacity(loads.len());
        for (rank, (samples, per_step)) in (0..).zip(loads) {
            if samples == 0 {
                all.push(None);
                continue;
            }
            let device = platform.placement.device(Rank(rank));
            let host = &platform.cluster.hosts()[platform.placement.host(Rank(rank)).0 as usize];
            let copy = if host.devices[0] == device {
                Time::ZERO
            } else {
                let route = platform.cluster.route(host.devices[0], device)?;
                let bytes = u64::from(samples) * program.model.input().elements() * 4;
                Time(route.bandwidth.time_for(bytes).0 + route.latency.0)
            };
            let of_node = of_host[host.id.0 as usize] as f64;
            let produce = [true, false].map(|transforms| {
                let (stored, threads) = self.production(of_node, transforms);
                Time::from_secs_f64(stored.max(threads))
            });
            let (stored, threads) = self.production(of_node, self.transform_at == TransformAt::Host);
            let spec = &platform.cluster.devices()[device.0 as usize];
            let device = Time::from_secs_f64(platform.costs.load(spec, program, samples).seconds);
            let each = Time(shuffle / u64::from(per_step));
            all.push(Some(Stages { produce, copy, device, shuffle: each, stored: stored > threads }));
        }
        Ok(all)
    }

    /// What each node of a group holds.
    fn held(&self, platform: &Platform<'_>, nodes: u32, groups: u32) -> Result<Held, SimError> {
        if groups == 0 || !nodes.is_multiple_of(groups) {
            let message = format!("groups must be a divisor of the {nodes} nodes");
            return Err(InputError::flag("input", format!("groups = {groups}"), message).into());
        }
        let held = Held { nodes: nodes / groups, bytes: self.bytes() / u64::from(nodes / groups) };
        let first = &platform.cluster.devices()[platform.cluster.hosts()[0].devices[0].0 as usize];
        if let lockstep_topology::cluster::DeviceKind::Cpu(cpu) = &first.kind
            && held.bytes > cpu.memory.0
        {
            let message = format!(
                "{} of the set on each node do not fit into its {}: take fewer groups, or source = \"files\"",
                Bytes(held.bytes),
                cpu.memory
            );
            return Err(InputError::flag("input", format!("groups = {groups}"), message).into());
        }
        Ok(held)
    }
}

/// A group that holds a whole set among its nodes.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Nodes of the group.
    pub nodes: u32,
    /// Bytes on each of them.
    pub bytes: u64,
}

/// How long a group takes to shuffle what it holds: each node packs its samples by destination, all exchange their parts, pairwise,
/// each unpacks what it got. Packing and unpacking are copies by one thread; a group of one node moves nothing (§4.1).
///
/// # Errors
/// A cluster with fewer nodes.
pub fn shuffle_time(platform: &Platform<'_>, held: Held) -> Result<Time, SimError> {
    let members = held.nodes;
    if members <= 1 {
        return Ok(Time::ZERO);
    }
    let cluster = platform.cluster;
    let Some(hosts) = cluster.hosts().get(..members as usize) else {
        let message = format!("there are only {}", cluster.hosts().len());
        return Err(InputError::flag("input", format!("{members} nodes"), message).into());
    };
    let cpus: Vec<_> = hosts.iter().map(|host| host.devices[0]).collect();
    let copied = cluster.route(cpus[0], cpus[0])?.bandwidth.time_for(held.bytes);
    let placement = Placement::within(cluster, members, &PlacementRule::Listed(cpus), Limits::default())?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let pair = held.bytes / 4 / u64::from(members);
    let counts = vec![pair; members as usize * members as usize];
    let run = CollectiveRun {
        collective: Collective::AllToAllV { counts: counts.into() },
        algorithm: lockstep_topology::Algorithm::pairwise(),
        group: Group::flat(members),
        elements: pair * u64::from(members),
        chunk: 0,
        window: 0,
        fold: FoldRule::Exact,
        long_way: false,
    };
    let here =
        Platform { placement: &placement, hosting: &hosting, conditions: crate::Conditions::none(), ..*platform };
    Ok(Time(simulate_collective(&run, &here)?.time.0 + 2 * copied.0))
}

/// By rank: the samples that it loads at once, and how often in a step.
fn loads(program: &Program) -> Vec<(u32, u32)> {
    let mut all = Vec::with_capacity(program.ranks() as usize);
    for role in &program.roles {
        let load = role.tasks.iter().enumerate().find_map(|(id, task)| match task.op {
            Op::Load { samples, .. } => Some((samples, role.repeat_of(id).map_or(1, |(_, count)| count))),
            _ => None,
        });
        let RankRange { count, .. } = role.ranks;
        all.extend(std::iter::repeat_n(load.unwrap_or((0, 1)), count as usize));
    }
    all
}

/// What input alone would allow: the slowest stage of any rank, by its name, and the seconds that it takes for a batch.
///
/// # Errors
/// As a simulation's.
pub(crate) fn pace(program: &Program, platform: &Platform<'_>) -> Result<Option<(&'static str, f64)>, SimError> {
    let Some(input) = &platform.conditions.input else { return Ok(None) };
    let host = usize::from(input.transform_at != TransformAt::Host);
    let of = |stages: &Stages| {
        let (produce, copy) = (stages.produce[host].as_secs_f64(), stages.copy.as_secs_f64());
        let producer = if stages.stored { "input: storage" } else { "input: threads" };
        let each = [(producer, produce), ("input: copies to the device", copy)];
        let (name, slowest) = if produce >= copy { each[0] } else { each[1] };
        // With fewer buffers than stages these take turns.
        (name, slowest.max((produce + copy) / f64::from(input.prefetch.max(1))))
    };
    let all = input.stages(program, platform)?;
    let loads = loads(program);
    let of_step = all.iter().zip(loads).filter_map(|(stages, (_, per_step))| {
        let (name, seconds) = of(stages.as_ref()?);
        Some((name, seconds * f64::from(per_step)))
    });
    Ok(of_step.max_by(|a, b| a.1.total_cmp(&b.1)))
}
