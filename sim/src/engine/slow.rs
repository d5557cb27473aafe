//! Applies slowdowns in a run: at each start and end, work in progress on the ranks concerned continues at the new
//! speed.

use lockstep_topology::{InputError, Rank as RankId, Time};

use super::{Engine, Event};
use crate::conditions::Slowdown;
use crate::fluid::Fluid;
use crate::platform::Platform;

/// The slowdown of a rank at a moment.
fn factor_at(platform: &Platform<'_>, rank: u32, now: Time) -> f64 {
    let concerns = |slow: &&Slowdown| {
        let hosted = !slow.hosts.is_empty() && slow.hosts.contains(&platform.placement.host(RankId(rank)));
        (hosted || slow.ranks.contains(&rank)) && slow.from <= now && now < slow.until
    };
    platform.conditions.slow.iter().filter(concerns).map(|slow| slow.factor).product()
}

impl<F: Fluid> Engine<'_, F> {
    /// Schedules every slowdown before anything runs.
    pub(super) fn plan_slowdowns(&mut self) -> Result<(), InputError> {
        let moments = self.platform.conditions.slow.iter().flat_map(|slow| [slow.from, slow.until]);
        for moment in moments.filter(|moment| *moment > Time::ZERO && *moment < Time::MAX) {
            self.events.push(moment, Event::Pace);
        }
        self.change_paces()
    }

    /// Sets every rank to its present pace.
    pub(super) fn change_paces(&mut self) -> Result<(), InputError> {
        if self.platform.conditions.slow.is_empty() {
            return Ok(());
        }
        for rank in 0..self.ranks.len() as u32 {
            let factor = factor_at(self.platform, rank, self.now);
            let before = std::mem::replace(&mut self.ranks[rank as usize].slowdown, factor);
            if factor == before {
                continue;
            }
            for unit in [2 * rank, 2 * rank + 1] {
                let Some((activity, class)) = self.units[unit as usize].activity else { continue };
                let Some(left) = self.resources.fluid.cancel(activity) else { continue };
                let work = left * factor / before;
                self.resources.done.take(class, work - left);
                let activity = self.resources.fluid.start(class, work, u64::from(unit))?;
                self.units[unit as usize].activity = Some((activity, class));
            }
        }
        Ok(())
    }
}
