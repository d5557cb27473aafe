//! `[[fit]]`: fits parameters of a machine to the paper's own rows, and predicts each row with a fit to the others.
//! Rows that state one measurement in several units are left out together.
//!
//! A parameter gets the value with the least sum of squared logarithms of predicted over published. Predictions are
//! smooth in it, so they are interpolated between a few simulations, each at the expected minimum; parameters alternate
//! until none moves. Everything is a function of the file.

use super::case::{Case, Known};
use super::figures::Cores;
use super::machine::{Machine, MachineParameter};
use super::paper::{Paper, PaperFit};
use super::row::CaseRow;
use lockstep_report::failure::Failure;

/// A parameter's value and, for each of its rows, the value without that row's measurement and the row's prediction over
/// the published figure with it; `None` where no other measurement is left.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FitResult {
    pub(super) value: f64,
    pub(super) without: Vec<Option<(f64, f64)>>,
}

/// Values are searched on a grid of this many steps between the ends.
const GRID: u32 = 4000;
/// A turn ends when the minimum is within this many steps (half a percent of the way) of a simulation.
const NEAR: u32 = 20;
/// Simulations of one parameter in a turn, beyond the first three.
const MOST_MORE: usize = 4;
/// Turns that parameters take.
const MOST_TURNS: usize = 4;

/// Predictions of a fit's rows over published, by position on the grid.
type Trials = Vec<(u32, Vec<f64>)>;

impl PaperFit {
    /// The value at a position on the grid: evenly spaced, for factors evenly in their logarithm.
    fn at(&self, place: u32) -> f64 {
        let (share, [low, high]) = (f64::from(place) / f64::from(GRID), self.between);
        match self.parameter {
            MachineParameter::Scale(_) => low * libm::pow(high / low, share),
            _ => low + (high - low) * share,
        }
    }

    fn rows<'a>(&self, paper: &'a Paper) -> Vec<&'a CaseRow> {
        self.rows.iter().filter_map(|name| paper.rows.iter().find(|row| row.name == *name)).collect()
    }
}

/// All parameters of the paper, fitted.
///
/// # Errors
/// As [`Case::new`] and [`Case::predict`].
pub(super) fn fit(paper: &Paper, cores: &Cores, known: &Known) -> Result<Vec<FitResult>, Failure> {
    let mut places: Vec<u32> = vec![0; paper.fits.len()];
    let mut trials: Vec<Trials> = vec![Vec::new(); paper.fits.len()];
    for _ in 0..MOST_TURNS {
        let before = places.clone();
        for (index, trials) in trials.iter_mut().enumerate() {
            turn(paper, cores, known, index, &mut places, trials)?;
        }
        if paper.fits.len() < 2 || places.iter().zip(&before).all(|(now, before)| now.abs_diff(*before) <= NEAR) {
            break;
        }
    }
    let found = |(index, fit): (usize, &PaperFit)| {
        let facts: Vec<&str> = fit.rows(paper).into_iter().map(CaseRow::fact).collect();
        let without = |row: usize| {
            let left_out: Vec<usize> = (0..facts.len()).filter(|other| facts[*other] == facts[row]).collect();
            let place = (left_out.len() < facts.len()).then(|| least(&trials[index], &left_out))?;
            Some((fit.at(place), interpolated(&trials[index], row, place)))
        };
        FitResult { value: fit.at(places[index]), without: (0..facts.len()).map(without).collect() }
    };
    Ok(paper.fits.iter().enumerate().map(found).collect())
}

/// Moves one parameter to the minimum for its rows, with the others unchanged.
fn turn(
    paper: &Paper,
    cores: &Cores,
    known: &Known,
    index: usize,
    places: &mut [u32],
    trials: &mut Trials,
) -> Result<(), Failure> {
    let rows = paper.fits[index].rows(paper);
    let others = places.to_vec();
    let simulate = |place: u32| -> Result<Vec<f64>, Failure> {
        let value = |(other, fit): (usize, &'_ PaperFit)| fit.at(if other == index { place } else { others[other] });
        let values: Vec<f64> = paper.fits.iter().enumerate().map(value).collect();
        let case = Case::new(paper, cores, machine(paper, &values), known)?;
        case.predict(&rows, |_| ())?;
        rows.iter().map(|row| Ok(case.value(row)?.unwrap_or(f64::NAN) / row.published.unwrap_or(f64::NAN))).collect()
    };
    match trials.iter().position(|(place, _)| *place == places[index]) {
        // Other parameters have moved since: their effect is assumed to be the same everywhere.
        Some(at) => {
            let now = simulate(places[index])?;
            let moved: Vec<f64> = now.iter().zip(&trials[at].1).map(|(now, before)| now / before).collect();
            for (_, ratios) in trials.iter_mut() {
                ratios.iter_mut().zip(&moved).for_each(|(ratio, moved)| *ratio *= moved);
            }
        }
        None => {
            // What the parameter does not affect, such as anchors, is found once by the first simulation.
            trials.push((0, simulate(0)?));
            let others: [Result<(u32, Vec<f64>), Failure>; 2] = std::thread::scope(|scope| {
                let simulate = &simulate;
                let threads = [GRID / 2, GRID].map(|place| scope.spawn(move || Ok((place, simulate(place)?))));
                threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            for other in others {
                trials.push(other?);
            }
        }
    }
    for _ in 0..MOST_MORE {
        let best = least(trials, &[]);
        if let Some((near, _)) = trials.iter().find(|(place, _)| place.abs_diff(best) <= NEAR) {
            places[index] = *near;
            return Ok(());
        }
        trials.push((best, simulate(best)?));
        places[index] = best;
    }
    Ok(())
}

/// The machine with these values of the paper's parameters.
pub(super) fn machine<'a>(paper: &'a Paper, values: &[f64]) -> Machine<'a> {
    paper.fits.iter().zip(values).map(|(fit, value)| (&fit.parameter, *value)).collect()
}

/// Where the sum of the squared logarithms of all rows but some is expected to be least.
fn least(trials: &Trials, without: &[usize]) -> u32 {
    let off = |place: u32| -> f64 {
        let rows = 0..trials.first().map_or(0, |(_, ratios)| ratios.len());
        let logarithm = |row| libm::log(interpolated(trials, row, place));
        rows.filter(|row| !without.contains(row)).map(|row| logarithm(row) * logarithm(row)).sum()
    };
    let best = (0..=GRID).map(|place| (off(place), place)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(0, |(_, place)| place)
}

/// A row's ratio by the parabola through the three nearest trials (Lagrange); above zero.
fn interpolated(trials: &Trials, row: usize, place: u32) -> f64 {
    let mut nearest: Vec<&(u32, Vec<f64>)> = trials.iter().collect();
    nearest.sort_by_key(|(at, _)| (at.abs_diff(place), *at));
    nearest.truncate(3);
    let x = f64::from(place);
    let term = |one: &&(u32, Vec<f64>)| -> f64 {
        let others = nearest.iter().filter(|other| other.0 != one.0);
        let weight = |other: &&(u32, Vec<f64>)| (x - f64::from(other.0)) / (f64::from(one.0) - f64::from(other.0));
        one.1[row] * others.map(weight).product::<f64>()
    };
    nearest.iter().map(term).sum::<f64>().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parabolas_are_interpolated_exactly_and_their_minimum_is_found() {
        let square = |place: u32| 0.5 + (f64::from(place) / 1000.0 - 1.7).powi(2);
        let line = |place: u32| 2.0 - f64::from(place) / 2000.0;
        let trials: Trials = [0, 1500, GRID].map(|place| (place, vec![square(place), line(place)])).into();
        for place in [0, 1, 999, 2500, GRID] {
            assert!((interpolated(&trials, 0, place) - square(place)).abs() < 1e-12);
            assert!((interpolated(&trials, 1, place) - line(place)).abs() < 1e-12);
        }
        // Without the first row the second alone decides: 1 at 2,000.
        assert_eq!(least(&trials, &[0]), 2000);
        // The square is 1 at 1.7 ± √0.5.
        assert!([993, 2407].contains(&least(&trials, &[1])));
    }
}
