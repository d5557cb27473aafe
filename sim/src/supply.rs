//! What input takes on a platform: the stages of each rank's batches, a shuffle among nodes, and the pace that input alone allows.

use lockstep_models::{Op, Program};
use lockstep_topology::{Algorithm, Bytes, Collective, Group, Hosting, HostingRule, InputError, Limits, Placement};
use lockstep_topology::{PlacementRule, Rank, Time};

use crate::collective::{CollectiveRun, simulate_collective};
use crate::conditions::Conditions;
use crate::error::SimError;
use crate::input::{Held, Input, SampleSource, Stages, TransformAt};
use crate::platform::Platform;

/// The stages of each rank's batches; `None` for a rank that loads nothing.
///
/// # Errors
/// Groups that do not divide the nodes, nodes whose memory is too small, devices that a host cannot reach.
pub(crate) fn stages(
    input: &Input,
    program: &Program,
    platform: &Platform<'_>,
) -> Result<Vec<Option<Stages>>, SimError> {
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
    let shuffle = match &input.source {
        SampleSource::Memory { groups, shuffle_every } => {
            let held = held(input, platform, nodes.len() as u32, *groups)?;
            // Ranks that hold parts of the samples have their shuffles in a program.
            let every = shuffle_every.filter(|_| held.nodes > 1 && program.partition.is_none());
            match every {
                Some(every) => shuffle_time(platform, held)?.0 / u64::from(every.max(1)),
                None => 0,
            }
        }
        SampleSource::Files { .. } => 0,
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
            let (stored, threads) = input.production(of_node, transforms);
            Time::from_secs_f64(stored.max(threads))
        });
        let (stored, threads) = input.production(of_node, input.transform_at == TransformAt::Host);
        let spec = &platform.cluster.devices()[device.0 as usize];
        let device = Time::from_secs_f64(platform.costs.load(spec, program, samples).seconds);
        let each = Time(shuffle / u64::from(per_step));
        all.push(Some(Stages { produce, copy, device, shuffle: each, stored: stored > threads }));
    }
    Ok(all)
}

/// What each node of a group holds.
fn held(input: &Input, platform: &Platform<'_>, nodes: u32, groups: u32) -> Result<Held, SimError> {
    if groups == 0 || !nodes.is_multiple_of(groups) {
        let message = format!("groups must be a divisor of the {nodes} nodes");
        return Err(InputError::flag("input", format!("groups = {groups}"), message).into());
    }
    let held = Held { nodes: nodes / groups, bytes: input.bytes() / u64::from(nodes / groups) };
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
    let collective = Collective::AllToAllV { counts: counts.into() };
    let elements = pair * u64::from(members);
    let run = CollectiveRun::new(collective, Algorithm::pairwise(), Group::flat(members), elements);
    let here = Platform { placement: &placement, hosting: &hosting, conditions: Conditions::none(), ..*platform };
    Ok(Time(simulate_collective(&run, &here)?.time.0 + 2 * copied.0))
}

/// By rank: the samples that it loads at once, and how often in a step.
fn loads(program: &Program) -> Vec<(u32, u32)> {
    let mut all = vec![(0, 1); program.ranks() as usize];
    for role in &program.roles {
        let load = role.tasks.iter().enumerate().find_map(|(id, task)| match task.op {
            Op::Load { samples, .. } => Some((samples, role.runs_of(id))),
            _ => None,
        });
        role.ranks.iter().for_each(|rank| all[rank as usize] = load.unwrap_or((0, 1)));
    }
    all
}

/// What input alone would allow: the slowest stage of any rank, by its name, and the seconds that it takes for a batch.
///
/// # Errors
/// As a simulation's.
pub(crate) fn pace(program: &Program, platform: &Platform<'_>) -> Result<Option<(&'static str, f64)>, SimError> {
    let input = platform.conditions.input.as_ref().filter(|_| !program.reads_ahead());
    let Some(input) = input else { return Ok(None) };
    let host = usize::from(input.transform_at != TransformAt::Host);
    let of = |stages: &Stages| {
        let (produce, copy) = (stages.produce[host].as_secs_f64(), stages.copy.as_secs_f64());
        let producer = if stages.stored { "input: storage" } else { "input: threads" };
        let each = [(producer, produce), ("input: copies to the device", copy)];
        let (name, slowest) = if produce >= copy { each[0] } else { each[1] };
        // With fewer buffers than stages these take turns.
        (name, slowest.max((produce + copy) / f64::from(input.prefetch.max(1))))
    };
    let all = stages(input, program, platform)?;
    let loads = loads(program);
    let of_step = all.iter().zip(loads).filter_map(|(stages, (_, per_step))| {
        let (name, seconds) = of(stages.as_ref()?);
        Some((name, seconds * f64::from(per_step)))
    });
    Ok(of_step.max_by(|a, b| a.1.total_cmp(&b.1)))
}
