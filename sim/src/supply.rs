//! Prices input tasks: the costs of reads, decoding, uploads and loads on a platform, and of a shuffle among nodes.
//!
//! A shuffle of nodes' memory that no program contains is spread over the loads between two shuffles, in equal parts.

use lockstep_models::{CopiedBy, Input, Op, Program, SampleSource, SetPerNode, TransformAt};
use lockstep_topology::cluster::{Device, DeviceKind};
use lockstep_topology::{
    Algorithm, Bytes, Collective, Dtype, Group, Hosting, HostingRule, InputError, Limits, Placement,
};
use lockstep_topology::{PlacementRule, Rank, Time};

use crate::collective::{CollectiveRun, simulate_collective};
use crate::conditions::Conditions;
use crate::costs::Cost;
use crate::engine::Job;
use crate::error::SimError;
use crate::fluid::Fluid;
use crate::machine::{Resources, Upload};
use crate::platform::Platform;

/// The costs of input on a platform, task by task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Supply<'a> {
    input: &'a Input,
    transform_at: TransformAt,
    /// Whether devices transform samples; else threads do.
    on_device: bool,
    /// Seconds that a shuffle adds to each step between two; no rank loads meanwhile.
    shuffle_s: f64,
}

impl<'a> Supply<'a> {
    /// The input of `program` under the conditions; `None` where its input is not tasks, or the conditions state none.
    ///
    /// # Errors
    /// Groups that do not divide the nodes, nodes whose memory is too small.
    pub(crate) fn of(program: &Program, platform: &Platform<'a>) -> Result<Option<Supply<'a>>, SimError> {
        let input = platform.conditions.input.as_ref().filter(|_| program.has_input());
        let Some(input) = input else { return Ok(None) };
        let shuffle_s = match &input.source {
            SampleSource::Memory { groups, shuffle_every } => {
                let mut nodes: Vec<_> = (0..program.ranks()).map(|rank| platform.placement.host(Rank(rank))).collect();
                nodes.sort_unstable();
                nodes.dedup();
                let held = held(input, platform, nodes.len() as u32, *groups)?;
                // Ranks that hold parts of the samples have their shuffles in a program.
                match shuffle_every.filter(|_| held.nodes > 1 && program.partition.is_none()) {
                    Some(every) => shuffle_time(platform, held)?.as_secs_f64() / f64::from(every.max(1)),
                    None => 0.0,
                }
            }
            SampleSource::Files { .. } => 0.0,
        };
        let transform_at = program.transform_at;
        Ok(Some(Supply { input, transform_at, on_device: transform_at == TransformAt::Device, shuffle_s }))
    }

    /// The same once devices transform, if threads do so until they are late.
    pub(crate) fn when_late(self) -> Option<Supply<'a>> {
        (self.transform_at == TransformAt::WhenLate).then_some(Supply { on_device: true, ..self })
    }

    /// The cost of a load of `samples` samples whose batch is on `device`, of a role with `per_step` loads per step;
    /// `None` where loads have their usual cost, which `usual` gives. A CPU transforms samples as threads do, a GPU in
    /// the time in which its memory is copied.
    pub(crate) fn load(
        &self,
        device: &Device,
        samples: u32,
        per_step: u32,
        usual: impl FnOnce() -> Cost,
    ) -> Option<Cost> {
        let transformed = match device.kind {
            _ if !self.on_device => Cost::default(),
            DeviceKind::Cpu(_) => {
                let seconds = f64::from(samples) * self.input.transform.as_secs_f64();
                Cost { seconds, memory: self.input.decode_memory, ..Cost::default() }
            }
            DeviceKind::Gpu(_) | DeviceKind::Switch(_) => usual(),
        };
        if self.input.copied_by == CopiedBy::Load {
            return self.on_device.then_some(transformed);
        }
        let seconds = transformed.seconds + self.shuffle_s / f64::from(per_step.max(1));
        // A shuffle of samples uses nothing of the device.
        let share = if seconds > 0.0 { transformed.seconds / seconds } else { 0.0 };
        Some(Cost { seconds, memory: transformed.memory * share, occupancy: transformed.occupancy * share })
    }

    /// The activity of an input task for a rank on `device`, and the delay of its start; `None` for other tasks.
    ///
    /// # Errors
    /// As [`Resources::upload`].
    pub(crate) fn job<F: Fluid>(
        &self,
        op: &Op,
        sample_bytes: u64,
        device: &Device,
        resources: &mut Resources<'_, F>,
    ) -> Result<Option<(Job, Time)>, InputError> {
        let found = match op {
            Op::Read { samples } => {
                let class = resources.reading(device, self.input)?;
                (Job { class, seconds: self.input.stored_s(*samples), threads: 1 }, Time::ZERO)
            }
            Op::Decode { samples } => {
                let (seconds, working) = self.input.threads_s(*samples, !self.on_device);
                let class = resources.decoding(device, self.input, *samples, working)?;
                (Job { class, seconds, threads: self.input.threads_on(*samples) }, Time::ZERO)
            }
            Op::Upload { samples } => {
                let copied = self.input.copied_by == CopiedBy::Upload;
                let bytes = if copied { u64::from(*samples) * sample_bytes } else { 0 };
                let Upload { class, seconds, latency } = resources.upload(device, bytes)?;
                (Job { class, seconds, threads: 1 }, latency)
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }
}

/// What each node of a group holds.
fn held(input: &Input, platform: &Platform<'_>, nodes: u32, groups: u32) -> Result<SetPerNode, SimError> {
    if groups == 0 || !nodes.is_multiple_of(groups) {
        let message = format!("groups must be a divisor of the {nodes} nodes");
        return Err(InputError::flag("input", format!("groups = {groups}"), message).into());
    }
    let held = SetPerNode { nodes: nodes / groups, bytes: input.bytes() / u64::from(nodes / groups) };
    let first = &platform.cluster.devices()[platform.cluster.hosts()[0].devices[0].0 as usize];
    if let DeviceKind::Cpu(cpu) = &first.kind
        // A calibrated machine states none.
        && (1..held.bytes).contains(&cpu.memory.0)
    {
        let message = format!(
            "{} of the set on each node do not fit into its {}: use fewer groups, or source = \"files\"",
            Bytes(held.bytes),
            cpu.memory
        );
        return Err(InputError::flag("input", format!("groups = {groups}"), message).into());
    }
    Ok(held)
}

/// How long a group takes to shuffle what it holds: each node packs the samples that leave it by destination, all
/// exchange their parts, pairwise, each unpacks what it received. Packing and unpacking are copies by one thread. Of N
/// nodes each keeps 1/N of its part, which does not move; a group of one node moves nothing (§4.1).
///
/// # Errors
/// A cluster with fewer nodes.
pub fn shuffle_time(platform: &Platform<'_>, held: SetPerNode) -> Result<Time, SimError> {
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
    let pair = Dtype::F32.elements_within(held.bytes) / u64::from(members);
    let leaving = pair * u64::from(members - 1);
    let copied = cluster.route(cpus[0], cpus[0])?.bandwidth.time_for(Dtype::F32.bytes(leaving));
    let placement = Placement::within(cluster, members, &PlacementRule::Listed(cpus), Limits::default())?;
    let hosting = Hosting::new(&placement, &HostingRule::PerRank)?;
    let pairs = (0..members).flat_map(|from| (0..members).map(move |to| if from == to { 0 } else { pair }));
    let collective = Collective::AllToAllV { counts: pairs.collect() };
    let run = CollectiveRun::new(collective, Algorithm::pairwise(), Group::flat(members), leaving);
    let here = Platform { placement: &placement, hosting: &hosting, conditions: Conditions::none(), ..*platform };
    Ok(Time(simulate_collective(&run, &here)?.time.0 + 2 * copied.0))
}
