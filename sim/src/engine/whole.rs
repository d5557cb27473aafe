//! Simulates library collectives with a known total time, measured or by NCCL's model: each ends a fixed time after its
//! last member has started it, and a member's run in sequence. They use wires without sharing. NCCL's hold a known
//! number of multiprocessors, and use a known share of a GPU's memory bandwidth, from start to end: kernels beside them
//! are slower.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockstep_topology::cluster::DeviceKind;
use lockstep_topology::nccl::NcclAnswer;
use lockstep_topology::{Collective, Dtype, InputError, Rank, Time};

use super::input::STREAMS;
use super::shortcuts::{Condition, WhyNot};
use super::{Engine, Event, overflow};
use crate::fluid::{ActivityId, ClassId, Fluid};
use crate::nccl;
use crate::plan::GroupExchange;
use crate::platform::Platform;
use crate::trace::{Slot, Took};

/// An exchange with a known total time.
#[derive(Debug)]
pub(super) struct Whole {
    span: Time,
    /// Its members that are simulated.
    ranks: BTreeSet<u32>,
    /// The flights of the members that have started.
    started: Vec<u32>,
    /// Bytes that each wire carries, where that is known.
    carries: Vec<(ClassId, f64)>,
    /// By rank, where that is known: the class of its kernel.
    kernels: BTreeMap<u32, ClassId>,
}

/// The kernels of a library on one rank, which run one after the other: the flight and the class of each.
#[derive(Debug, Default)]
struct Kernels {
    queue: VecDeque<(u32, ClassId)>,
    /// The first of them.
    running: Option<ActivityId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Wholes {
    /// By exchange.
    known: BTreeMap<u32, Whole>,
    /// By rank: when its last sum ends.
    free: BTreeMap<u32, Time>,
    /// By rank.
    kernels: BTreeMap<u32, Kernels>,
}

impl Wholes {
    /// An exchange with a known total time.
    pub(super) fn add(&mut self, group_exchange: u32, whole: Whole) {
        self.known.insert(group_exchange, whole);
    }

    /// When the last sum of `rank` ends or has ended.
    pub(super) fn last(&self, rank: u32) -> Time {
        self.free.get(&rank).copied().unwrap_or(Time::ZERO)
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// The total time of an exchange, if it is known, and what it uses meanwhile.
    ///
    /// # Errors
    /// As [`seconds_of`]; a time that is none.
    pub(super) fn whole(&mut self, group_exchange: u32) -> Result<Condition<Whole>, InputError> {
        let (number, group_exchange) = (group_exchange, &self.plan.group_exchanges[group_exchange as usize]);
        let members = || group_exchange.members.iter();
        if group_exchange.algorithm.library().is_none() {
            return Ok(Err(WhyNot::NotOfALibrary));
        }
        let Some((seconds, modelled)) = seconds_of(self.platform, group_exchange)? else {
            return Ok(Err(WhyNot::TimeUnknown));
        };
        let on =
            |platform: &Platform<'_>| Ok(seconds_of(platform, group_exchange)?.map_or(0.0, |(seconds, _)| seconds));
        self.resources.fluid.whole(number, &on)?;
        if !(seconds >= 0.0 && seconds.is_finite()) {
            let message = "a library's sum must take zero seconds or more, and finitely many";
            return Err(InputError::new("costs", seconds.to_string(), message));
        }
        let ranks: BTreeSet<u32> = members().map(|rank| self.resources.orbits().representative(rank)).collect();
        let mut carries = Vec::new();
        if let Some(answer) = &modelled {
            let all = ranks.len() == members().count();
            let followed = if all { nccl::followed(self.platform, members(), answer)? } else { None };
            for (link, bytes) in followed.unwrap_or_else(|| nccl::wires(self.platform, &ranks, answer)) {
                carries.push(self.resources.carrying(self.platform.cluster.link(link), bytes)?);
            }
        }
        let mut kernels = BTreeMap::new();
        for rank in &ranks {
            let device = &self.platform.cluster.devices()[self.platform.placement.device(Rank(*rank)).0 as usize];
            if let (Some(answer), DeviceKind::Gpu(gpu)) = (&modelled, &device.kind)
                && seconds > 0.0
            {
                let multiprocessors = f64::from(answer.choice.channels) / f64::from(gpu.multiprocessors);
                let memory = answer.carried.memory / seconds / gpu.memory_bandwidth.bytes_per_s();
                let class = self.resources.holding(device, multiprocessors.min(1.0), memory.min(1.0))?;
                kernels.insert(*rank, class);
            }
        }
        let (span, started) = (Time::from_secs_f64(seconds), Vec::new());
        Ok(Ok(Whole { span, ranks, started, carries, kernels }))
    }

    /// A member has started such an exchange; with the last one, its end is known.
    pub(super) fn join_whole(&mut self, group_exchange: u32, flight: u32) -> Result<(), InputError> {
        let rank = self.flights.at(flight).rank;
        let Some(whole) = self.wholes.known.get_mut(&group_exchange) else { return Ok(()) };
        whole.started.push(flight);
        if let Some(class) = whole.kernels.get(&rank).copied() {
            self.wholes.kernels.entry(rank).or_default().queue.push_back((flight, class));
            self.launch(rank)?;
        }
        let Some(whole) = self.wholes.known.get_mut(&group_exchange) else { return Ok(()) };
        if whole.started.len() < whole.ranks.len() {
            return Ok(());
        }
        let last = whole.ranks.iter().copied().max_by_key(|rank| self.wholes.free.get(rank));
        let free = &mut self.wholes.free;
        let begin = whole.ranks.iter().filter_map(|rank| free.get(rank)).fold(self.now, |latest, at| latest.max(*at));
        let end = begin.0.checked_add(whole.span.0).map(Time).ok_or_else(overflow)?;
        free.extend(whole.ranks.iter().map(|rank| (*rank, end)));
        for (class, bytes) in &whole.carries {
            self.resources.done.take(*class, *bytes);
        }
        let (ranks, flights) = (whole.ranks.clone(), std::mem::take(&mut whole.started));
        let since = last.filter(|_| begin > self.now).map_or(Slot::Now, Slot::Free);
        for flight in flights {
            self.keep(Slot::Through(flight), since, Took::Whole { group_exchange });
            self.events.push(end, Event::Through(flight));
        }
        if F::TRACES {
            // The slot of the rank that is free last is written last, since `since` may refer to it.
            let (first, rest): (Vec<u32>, Vec<u32>) = ranks.into_iter().partition(|rank| Some(*rank) == last);
            for rank in rest.into_iter().chain(first) {
                self.keep(Slot::Free(rank), since, Took::Whole { group_exchange });
            }
        }
        Ok(())
    }
}

impl<F: Fluid> Engine<'_, F> {
    /// Runs the first of a library's kernels on `rank`, if none runs.
    fn launch(&mut self, rank: u32) -> Result<(), InputError> {
        let Some(kernels) = self.wholes.kernels.get_mut(&rank) else { return Ok(()) };
        if let (None, Some((_, class))) = (kernels.running, kernels.queue.front()) {
            // After the tokens of units and input tasks; it is stopped and never done.
            let token = self.units.len() + STREAMS * self.ranks.len() + rank as usize;
            kernels.running = Some(self.resources.fluid.start(*class, f64::INFINITY, token as u64)?);
        }
        Ok(())
    }

    /// Ends the kernel of a flight with a known total time.
    pub(super) fn end_kernel(&mut self, rank: u32, flight: u32) -> Result<(), InputError> {
        let Some(kernels) = self.wholes.kernels.get_mut(&rank) else { return Ok(()) };
        // A call of one group may end before an earlier one of another group, whose members have not all started it.
        let place = kernels.queue.iter().position(|(other, _)| *other == flight);
        place.and_then(|place| kernels.queue.remove(place));
        if let (Some(0), Some(running)) = (place, kernels.running) {
            kernels.running = None;
            self.resources.fluid.stop(running);
        }
        self.launch(rank)
    }
}

/// The total time of an exchange, and the result of NCCL's model where that is used; `None` where it is known only by
/// its lanes.
///
/// # Errors
/// A request that the machine or the collective does not serve.
pub(crate) fn seconds_of(
    platform: &Platform<'_>,
    group_exchange: &GroupExchange,
) -> Result<Option<(f64, Option<NcclAnswer>)>, InputError> {
    let Some(library) = group_exchange.algorithm.library() else { return Ok(None) };
    let members = || group_exchange.members.iter();
    let devices: Vec<_> =
        members().map(|rank| &platform.cluster.devices()[platform.placement.device(Rank(rank)).0 as usize]).collect();
    let (collective, elements) = (group_exchange.schedule.collective(), group_exchange.schedule.elements());
    let measured = match collective {
        // Measured in fp32.
        Collective::AllReduce if group_exchange.schedule.dtype() == Dtype::F32 => {
            platform.costs.library(library, &devices, elements)
        }
        _ => None,
    };
    let modelled = match (measured, group_exchange.algorithm.nccl()) {
        (None, Some(request)) => {
            let bytes = group_exchange.schedule.dtype().bytes(elements);
            platform.costs.modelled(platform.cluster, &|cluster| {
                let platform = Platform { cluster, ..*platform };
                nccl::library(&platform, members(), &request, collective, bytes)
            })?
        }
        _ => None,
    };
    Ok(measured.or(modelled.as_ref().map(|answer| answer.seconds)).map(|seconds| (seconds, modelled)))
}
