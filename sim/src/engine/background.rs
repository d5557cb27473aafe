//! Simulates background traffic: flows of the fluid solver that belong to no rank and end with the last one's work.

use lockstep_topology::{InputError, Time};

use super::{Engine, MESSAGE};
use crate::conditions::Load;
use crate::fluid::{ActivityId, ClassId, Fluid};
use crate::network::Pace;

/// Tokens of background flows have this bit, and the flow's number below it.
pub(super) const BACKGROUND: u64 = MESSAGE << 1;

/// One flow.
#[derive(Debug)]
pub(super) struct Flow {
    class: ClassId,
    load: Load,
    running: Option<(ActivityId, f64)>,
    /// Iterations whose bytes were requested, and those whose bytes have arrived.
    asked: u32,
    carried: u32,
}

impl<F: Fluid> Engine<'_, F> {
    /// Finds the flows' routes and starts those that are always active.
    pub(super) fn start_background(&mut self) -> Result<(), InputError> {
        for background in &self.platform.conditions.background {
            let route = self.platform.cluster.route(background.from, background.to)?;
            let cap = match background.load {
                Load::Always(bytes_per_s) | Load::Forward(bytes_per_s) => bytes_per_s,
                Load::PerIteration(_) => f64::INFINITY,
            };
            let class = self.resources.sharing(&route, Pace::OF_THE_ROUTE.below(cap), &[])?;
            self.background.push(Flow { class, load: background.load, running: None, asked: 0, carried: 0 });
            if let Load::Always(_) = background.load {
                self.run_flow(self.background.len() - 1)?;
            }
        }
        Ok(())
    }

    /// Starts one flow: the bytes of an iteration, or more than any run can carry.
    fn run_flow(&mut self, index: usize) -> Result<(), InputError> {
        let flow = &mut self.background[index];
        let bytes = match flow.load {
            Load::PerIteration(bytes) => bytes as f64,
            Load::Always(bytes_per_s) | Load::Forward(bytes_per_s) => 2.0 * bytes_per_s * Time::MAX.as_secs_f64(),
        };
        let activity = self.resources.fluid.start(flow.class, bytes, BACKGROUND | index as u64)?;
        flow.running = Some((activity, bytes));
        Ok(())
    }

    /// Stops a flow, and records what it carried.
    fn stop_flow(&mut self, index: usize) {
        let flow = &mut self.background[index];
        if let Some((activity, bytes)) = flow.running.take() {
            let left = self.resources.fluid.cancel(activity).unwrap_or(0.0);
            self.resources.done.take(flow.class, bytes - left);
        }
    }

    /// The bytes of a flow's iteration have arrived: those of the next one follow.
    pub(super) fn flow_done(&mut self, index: usize) -> Result<(), InputError> {
        self.stop_flow(index);
        let flow = &mut self.background[index];
        flow.carried += 1;
        if flow.carried < flow.asked { self.run_flow(index) } else { Ok(()) }
    }

    /// Some rank begins its `iteration`-th iteration (from 0).
    pub(super) fn iteration_begins(&mut self, iteration: u32) -> Result<(), InputError> {
        for index in 0..self.background.len() {
            let flow = &mut self.background[index];
            if matches!(flow.load, Load::PerIteration(_)) && iteration >= flow.asked {
                flow.asked = iteration + 1;
                if flow.running.is_none() {
                    self.run_flow(index)?;
                }
            }
        }
        Ok(())
    }

    /// Starts and stops the flows of forward passes after every unit has picked its work; stops all flows once all
    /// ranks are finished.
    pub(super) fn attend_background(&mut self) -> Result<(), InputError> {
        let finished = |rank: u32| self.ranks[rank as usize].finished(self.role(rank));
        if self.stopped as usize == self.ranks.len() && (0..self.stopped).all(finished) {
            self.end_background();
            return Ok(());
        }
        for index in 0..self.background.len() {
            let flow = &self.background[index];
            match (flow.load, flow.running.is_some(), self.forward > 0) {
                (Load::Forward(_), false, true) => self.run_flow(index)?,
                (Load::Forward(_), true, false) => self.stop_flow(index),
                _ => {}
            }
        }
        Ok(())
    }

    /// All ranks are done: stops all flows.
    pub(super) fn end_background(&mut self) {
        (0..self.background.len()).for_each(|index| self.stop_flow(index));
    }
}
