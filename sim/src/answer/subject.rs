//! `Subject`: simulates a program on a platform, and on others with changed figures, for sensitivities.
//!
//! Sensitivities are computed in one simulation that carries derivatives, which are valid for small changes. Where
//! parallel exchanges leave a step many critical paths of about the same length, the time is a rugged function, and a
//! change of a percent has another effect. So two simulations, with all computation faster and slower, give the
//! reaction of the step to computation and to communication as a whole, and the derivatives divide it among parameters.
//! Where a run does something that is not differentiated, each parameter takes two simulations.

use std::sync::Arc;

use lockstep_models::Program;
use lockstep_topology::cluster::Figure;

use super::perturbed::{Changed, CostParameter, OwnTime};
use super::sensitivity::{SMOOTH, STEP, Sensitivity, by_differences, on_scaled, strongest_first};
use crate::conditions::Conditions;
use crate::derivative::differentiate;
use crate::error::SimError;
use crate::fluid::System;
use crate::fold::SimulatedRanks;
use crate::platform::Platform;
use crate::simulate::{Prediction, SimOptions, simulate_ranks};
use crate::trace::LANES;

/// Runs of tasks and messages of an iteration beyond which it is not simulated one by one, unlike in normal runs, which
/// skip periodic parts.
const MOST_EVENTS: u64 = 1 << 21;
/// How close the step must be to that of the prediction, as a share of it. A first one, which begins with nothing in
/// flight, may be almost as long and yet depend on other figures.
const EQUAL: f64 = 1e-12;
/// Factors between derivatives and differences beyond which the two are unrelated.
const UNLIKE: f64 = 8.0;

/// How sensitivities were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// As derivatives, in one simulation.
    Derivatives,
    /// The same, with the sums over computation and over communication of two simulations.
    Sums,
    /// By two simulations for each parameter.
    Differences,
}

impl Basis {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Derivatives => "derivatives of one simulation",
            Basis::Sums => "derivatives of one simulation, scaled to two with computation 2 % faster and slower",
            Basis::Differences => "differences of two simulations for each parameter",
        }
    }
}

/// Sensitivities to small changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Derivatives {
    /// By parameter.
    pub all: Vec<Sensitivity>,
    /// Options of a simulation that has this step.
    pub options: SimOptions,
}

/// A program on a platform, with what all its simulations have in common.
#[derive(Clone)]
pub struct Subject<'a> {
    program: &'a Program,
    platform: Platform<'a>,
    options: SimOptions,
    ranks: Arc<SimulatedRanks>,
}

impl<'a> Subject<'a> {
    /// `program` on `platform`, simulated as `options` say.
    pub fn new(program: &'a Program, platform: Platform<'a>, options: &SimOptions) -> Subject<'a> {
        let ranks = SimulatedRanks::of(program, &platform, options.fold);
        Subject { program, platform, options: *options, ranks: Arc::new(ranks) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.program
    }

    /// The platform.
    pub fn platform(&self) -> &Platform<'a> {
        &self.platform
    }

    /// The same, simulated as `options` say.
    pub fn with(&self, options: SimOptions) -> Subject<'a> {
        Subject { options, ..self.clone() }
    }

    /// The prediction with these rates and times multiplied, each by the factor given with them.
    ///
    /// # Errors
    /// As [`simulate`](crate::simulate).
    pub fn scaled(
        &self,
        rates: (&[CostParameter], f64),
        times: (&[CostParameter], f64),
    ) -> Result<Prediction, SimError> {
        on_scaled(&self.platform, rates, times, |platform| self.on(platform))
    }

    /// The prediction on another platform with the same placement.
    pub(super) fn on(&self, platform: &Platform<'_>) -> Result<Prediction, SimError> {
        let (driver, fluid) = (self.options.driver(), System::new());
        Ok(simulate_ranks(fluid, &self.ranks, self.program, platform, driver, &self.options)?.0)
    }

    /// The sensitivities of the prediction to `parameters`, the strongest first, how they were computed, and options of
    /// a simulation that has that step; `known` may hold the sums that [`Subject::sums`] found, with the options of
    /// their simulations; `progress` gets the numbers of simulations done and in all.
    ///
    /// # Errors
    /// As [`simulate`](crate::simulate).
    pub fn sensitivities(
        &self,
        prediction: &Prediction,
        parameters: &[CostParameter],
        known: impl FnOnce() -> Result<Option<(SimOptions, Sums)>, SimError>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(Vec<Sensitivity>, Basis, SimOptions), SimError> {
        progress(0, 3);
        let derivatives = self.derivatives(prediction, parameters);
        let known = known()?;
        let Some(Derivatives { mut all, options }) = derivatives? else {
            return Ok((self.differences(parameters, progress)?, Basis::Differences, self.options));
        };
        progress(1, 3);
        let sums = match known {
            Some((of, sums)) if of == options => sums,
            _ => self.with(options).sums(parameters)?,
        };
        progress(3, 3);
        let basis = fit(&mut all, sums);
        if basis == Basis::Differences {
            all = self.differences(parameters, progress)?;
        }
        strongest_first(&mut all);
        Ok((all, basis, options))
    }

    /// The sensitivities by two simulations for each parameter.
    ///
    /// # Errors
    /// As [`simulate`](crate::simulate).
    pub fn differences(
        &self,
        parameters: &[CostParameter],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Sensitivity>, SimError> {
        let seconds = |platform: &Platform<'_>| Ok(self.on(platform)?.timeline.step_time_s());
        by_differences(&self.platform, parameters, progress, seconds)
    }

    /// The sensitivities to small changes as derivatives, in the order of `parameters`; `None` where the run does
    /// something that is not differentiated, would take too long, or has other steps.
    ///
    /// # Errors
    /// As [`simulate`](crate::simulate).
    pub fn derivatives(
        &self,
        prediction: &Prediction,
        parameters: &[CostParameter],
    ) -> Result<Option<Derivatives>, SimError> {
        for options in self.attempts(prediction) {
            let long = SimOptions { long_way: true, ..options };
            let mut all = Vec::with_capacity(parameters.len());
            for parameters in parameters.chunks(LANES) {
                match self.lanes(prediction, parameters, &long)? {
                    Some(lanes) => all.extend(lanes),
                    None => break,
                }
            }
            if all.len() == parameters.len() {
                return Ok(Some(Derivatives { all, options }));
            }
        }
        Ok(None)
    }

    /// Options of simulations that may have the step of a prediction, the shortest first; empty
    /// where something is not differentiated, or would take too long.
    fn attempts(&self, prediction: &Prediction) -> Vec<SimOptions> {
        let plain = *self.platform.conditions == Conditions::default() && self.platform.costs.noise().is_none();
        if !plain || self.program.claims() || events(prediction) > MOST_EVENTS {
            return Vec::new();
        }
        let first = SimOptions { warm_up: 0, counted: 1, ..self.options };
        let second = SimOptions { warm_up: 1, counted: 1, ..self.options };
        let expected = prediction.timeline.step_time_s();
        let alike = (prediction.timeline.first_end_s() - expected).abs() <= EQUAL * expected;
        let all = [first, second, self.options];
        all.into_iter().skip(usize::from(!alike)).collect()
    }

    /// The options with which a simulation most likely has the step of a prediction, if that is differentiated.
    pub fn likely(&self, prediction: &Prediction) -> Option<SimOptions> {
        self.attempts(prediction).first().copied()
    }

    /// The same for as many parameters as one simulation can carry.
    fn lanes(
        &self,
        prediction: &Prediction,
        parameters: &[CostParameter],
        options: &SimOptions,
    ) -> Result<Option<Vec<Sensitivity>>, SimError> {
        let changed = Changed::new(&self.platform, parameters);
        let platforms = changed.platforms(&self.platform);
        let (timeline, by) = differentiate(&self.ranks, self.program, &self.platform, options, &platforms)?;
        let expected = prediction.timeline.step_time_s();
        let mut steps = timeline.steps().into_iter();
        let step = steps.find(|step| (step.seconds() - expected).abs() <= EQUAL * expected);
        let (Some(by), Some(step)) = (by, step) else { return Ok(None) };
        let before = step.iteration.checked_sub(1).map(|iteration| &by[iteration as usize]);
        let (end, seconds) = (&by[step.iteration as usize], step.seconds());
        let of = |(lane, parameter): (usize, &CostParameter)| {
            Sensitivity::of(*parameter, (end.by(lane) - before.map_or(0.0, |begin| begin.by(lane))) / seconds)
        };
        Ok(Some(parameters.iter().enumerate().map(of).collect()))
    }

    /// How the step depends on all computation together, by two simulations; `None` where only computation or only
    /// communication matters.
    ///
    /// # Errors
    /// As [`simulate`](crate::simulate).
    pub fn sums(&self, parameters: &[CostParameter]) -> Result<Sums, SimError> {
        let (of_computation, others): (Vec<CostParameter>, Vec<CostParameter>) =
            parameters.iter().copied().partition(computes);
        if of_computation.is_empty() || others.is_empty() {
            return Ok(None);
        }
        let (rates, times): (Vec<CostParameter>, Vec<CostParameter>) =
            of_computation.into_iter().partition(|parameter| parameter.is_rate());
        let at = |by: f64| -> Result<f64, SimError> {
            let predicted = self.scaled((&rates, libm::exp(by)), (&times, libm::exp(-by)))?;
            Ok(libm::log(predicted.timeline.step_time_s()))
        };
        Ok(Some((at(STEP)? - at(-STEP)?) / (2.0 * STEP)))
    }
}

/// d log step / d log of the speed of all computation.
pub type Sums = Option<f64>;

fn computes(parameter: &CostParameter) -> bool {
    use Figure::{CpuMemory, CpuPeak, GpuMemory, GpuPeak, Launch};
    matches!(
        parameter,
        CostParameter::Own(OwnTime::Kernels)
            | CostParameter::Cluster(CpuPeak | CpuMemory | GpuPeak | GpuMemory | Launch)
    )
}

/// Scales derivatives by computation, and those by communication, to the effect of larger changes;
/// [`Basis::Differences`] where the two are unrelated.
fn fit(all: &mut [Sensitivity], sums: Sums) -> Basis {
    let (of_computation, others): (Vec<&mut Sensitivity>, Vec<&mut Sensitivity>) =
        all.iter_mut().partition(|one| computes(&one.parameter));
    let sum = |all: &[&mut Sensitivity]| -> f64 { all.iter().map(|one| one.to_faster()).sum() };
    let (computation, communication) = (sum(&of_computation), sum(&others));
    let Some(found) = sums else { return Basis::Derivatives };
    let factors = [found / computation, (computation + communication - found) / communication];
    let like = |factor: f64| (1.0 / UNLIKE..UNLIKE).contains(&factor);
    if (found - computation).abs() < SMOOTH {
        return Basis::Derivatives;
    }
    if !factors.into_iter().all(like) {
        return Basis::Differences;
    }
    for (group, factor) in [(of_computation, factors[0]), (others, factors[1])] {
        group.into_iter().for_each(|one| one.elasticity *= factor);
    }
    Basis::Sums
}

/// Tasks and messages of an iteration, of the ranks that were simulated.
fn events(prediction: &Prediction) -> u64 {
    let timeline = &prediction.timeline;
    let iterations = u64::from(timeline.steps().last().map_or(1, |step| step.iteration + 1));
    let runs = timeline.spans.len() as u64 + timeline.totals.iter().map(|(_, _, _, total)| total.runs).sum::<u64>();
    let messages: u64 = prediction.traffic.pairs.values().map(|sent| sent.messages).sum();
    let copies = if prediction.traffic.copies == 1 { u64::from(prediction.folding.copies()) } else { 1 };
    (runs + messages) / copies / iterations
}
