//! `Axis`: maps values to positions on a picture and chooses the values of its ticks.

/// How an axis spaces its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spacing {
    /// Equal differences are equal distances; from zero.
    #[default]
    Linear,
    /// Equal ratios are equal distances.
    Log,
}

/// One axis: its range of values, and its length in points.
#[derive(Debug, Clone, Copy)]
pub struct PlotAxis {
    /// The value at its beginning.
    pub low: f64,
    /// The value at its end.
    pub high: f64,
    /// Where it begins, in points.
    pub from: f64,
    /// Where it ends, in points.
    pub to: f64,
    spacing: Spacing,
}

impl PlotAxis {
    /// The axis of `values`, all above zero on a logarithmic one, with a small margin at its ends. It has at least two
    /// [ticks](PlotAxis::ticks).
    pub fn of(values: impl Iterator<Item = f64>, spacing: Spacing, from: f64, to: f64) -> PlotAxis {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high && high > 0.0 { (low, high) } else { (1.0, 10.0) };
        match spacing {
            Spacing::Linear => PlotAxis { low: 0.0, high: 1.08 * high, from, to, spacing },
            Spacing::Log => {
                let room = (high / low).powf(0.04).max(1.1);
                PlotAxis { low: low / room, high: high * room, from, to, spacing }.reaching(&rounded(&ONES_TWOS_FIVES))
            }
        }
    }

    /// The logarithmic axis of whole numbers such as ranks, with at least two [doublings](PlotAxis::doublings).
    pub fn of_counts(values: impl Iterator<Item = f64>, from: f64, to: f64) -> PlotAxis {
        PlotAxis::of(values, Spacing::Log, from, to).reaching(&powers_of_two())
    }

    /// The axis, widened to the nearest of the `marks`, which ascend, until two are on it.
    fn reaching(mut self, marks: &[f64]) -> PlotAxis {
        while marks.iter().filter(|mark| self.holds(**mark)).count() < 2 {
            let below = marks.iter().rev().find(|mark| **mark < self.low).map(|mark| (self.low / mark, *mark));
            let above = marks.iter().find(|mark| **mark > self.high).map(|mark| (mark / self.high, *mark));
            match (below, above) {
                (Some((_, mark)), None) => self.low = mark,
                (Some((near, mark)), Some((far, _))) if near <= far => self.low = mark,
                (_, Some((_, mark))) => self.high = mark,
                (None, None) => return self,
            }
        }
        self
    }

    /// The same linear axis from `low`, which is below its end; a logarithmic one unchanged.
    pub fn begin(self, low: f64) -> PlotAxis {
        if self.spacing == Spacing::Log || low >= self.high { self } else { PlotAxis { low, ..self } }
    }

    /// A logarithmic axis from `1 / end` to `end`.
    pub fn around_one(end: f64, from: f64, to: f64) -> PlotAxis {
        PlotAxis { low: 1.0 / end, high: end, from, to, spacing: Spacing::Log }
    }

    /// The position of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + (self.to - self.from) * share
    }

    /// Whether a value is within the axis.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Powers of two on the axis, at most a dozen.
    pub fn doublings(&self) -> Vec<f64> {
        let all: Vec<f64> = powers_of_two().into_iter().filter(|value| self.holds(*value)).collect();
        all.iter().copied().step_by(all.len().div_ceil(12).max(1)).collect()
    }

    /// Ones, twos and fives of each power of ten; ones alone over many powers, and multiples of one of them on a
    /// linear axis.
    pub fn ticks(&self) -> Vec<f64> {
        match self.spacing {
            Spacing::Linear => {
                let step = rounded(&ONES_TWOS_FIVES).into_iter().find(|step| (self.high - self.low) / step <= 7.0);
                let step = step.unwrap_or(self.high);
                let first = (self.low / step).ceil();
                (0..=7u32).map(|count| (first + f64::from(count)) * step).filter(|value| self.holds(*value)).collect()
            }
            Spacing::Log => {
                let many = (self.high / self.low).log10() > 4.0;
                let steps: &[f64] = if many { &[1.0] } else { &ONES_TWOS_FIVES };
                rounded(steps).into_iter().filter(|value| self.holds(*value)).collect()
            }
        }
    }
}

/// Steps between powers of ten.
const ONES_TWOS_FIVES: [f64; 3] = [1.0, 2.0, 5.0];

/// These steps of each power of ten, ascending.
fn rounded(steps: &[f64]) -> Vec<f64> {
    (-15..16).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))).collect()
}

fn powers_of_two() -> Vec<f64> {
    (0..41).map(|power| (1u64 << power) as f64).collect()
}

/// `200000`, `0.05`, and with an exponent where that is shorter; at most three digits that are not zero.
pub fn tick(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let power = value.abs().log10().floor();
    // Rounding may reach the next power.
    let power = if (value.abs() / 10f64.powf(power) * 100.0).round() >= 1000.0 { power + 1.0 } else { power };
    if (-4.0..7.0).contains(&power) {
        let places = (2.0 - power).max(0.0) as usize;
        let text = format!("{value:.places$}");
        return if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    }
    let mantissa = (value / 10f64.powf(power) * 100.0).round() / 100.0;
    format!("{mantissa}e{power}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_or_differences_are_equal_distances() {
        let axis = PlotAxis { low: 1.0, high: 100.0, from: 0.0, to: 10.0, spacing: Spacing::Log };
        assert_eq!((axis.at(1.0), axis.at(10.0), axis.at(100.0)), (0.0, 5.0, 10.0));
        let axis = PlotAxis { low: 0.0, high: 100.0, from: 0.0, to: 10.0, spacing: Spacing::Linear };
        assert_eq!((axis.at(0.0), axis.at(10.0), axis.at(100.0)), (0.0, 1.0, 10.0));
        let axis = PlotAxis::around_one(4.0, 0.0, 10.0);
        assert!((axis.at(1.0) - 5.0).abs() < 1e-12 && (axis.at(2.0) - 7.5).abs() < 1e-12);
        // One value, or none at all, still gives an axis.
        for (values, spacing) in [(vec![5.0], Spacing::Log), (vec![], Spacing::Log), (vec![0.0], Spacing::Linear)] {
            let axis = PlotAxis::of(values.into_iter(), spacing, 0.0, 10.0);
            assert!(axis.low < axis.high && axis.at(5.0).is_finite());
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        let of = |low: f64, high: f64, spacing| PlotAxis { low, high, from: 0.0, to: 1.0, spacing }.ticks();
        assert_eq!(of(0.0, 283.0, Spacing::Linear), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0]);
        assert_eq!(of(0.0, 1.5, Spacing::Linear).len(), 4);
        assert_eq!(of(0.9, 1.45, Spacing::Linear).len(), 6);
        assert_eq!(of(15.0, 120.0, Spacing::Log), [20.0, 50.0, 100.0]);
        assert_eq!(of(0.5, 1e6, Spacing::Log).len(), 7);
    }

    /// An axis of one value, of two that are near each other, and of all that lie between two powers has two figures.
    #[test]
    fn every_axis_has_two_ticks() {
        for low in [1e-9, 0.0037, 0.95, 3.0, 8.0, 3800.0, 7e11] {
            for ratio in [1.0, 1.0001, 1.3, 2.2, 40.0, 1e5, 1e12] {
                for spacing in [Spacing::Log, Spacing::Linear] {
                    let axis = PlotAxis::of([low, low * ratio].into_iter(), spacing, 0.0, 100.0);
                    let texts: std::collections::BTreeSet<String> = axis.ticks().into_iter().map(tick).collect();
                    assert!(texts.len() >= 2 && texts.len() == axis.ticks().len(), "{low} x {ratio}: {texts:?}");
                    assert!(axis.holds(low) && axis.holds(low * ratio));
                }
                let counts = [low.ceil(), (low * ratio).ceil()].into_iter();
                let ranks = PlotAxis::of_counts(counts, 0.0, 100.0);
                assert!(low > 1e9 || ratio > 1e9 || ranks.doublings().len() >= 2, "{low} x {ratio}: {ranks:?}");
            }
        }
    }

    #[test]
    fn figures_on_axes_are_short() {
        let shown = [200_000.0, 5.0, 2.5, 0.05, 0.5, 2e-4, 1e-5, 2e7, 0.15, 1.5e7, 0.1 + 0.2, 9_999_999.0].map(tick);
        let wanted = ["200000", "5", "2.5", "0.05", "0.5", "0.0002", "1e-5", "2e7", "0.15", "1.5e7", "0.3", "1e7"];
        assert_eq!(shown, wanted);
    }
}
