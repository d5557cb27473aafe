//! Computes the median of repeated measurements with a confidence interval that assumes nothing about their
//! distribution.

use lockstep_models::median;
use lockstep_models::profile::Interval;
use statrs::distribution::{Binomial, DiscreteCDF};

/// Median and 95 % confidence interval of `values`, from the order statistics: how many of n values lie below the true
/// median is binomial with p = 1/2 (Hollander, Wolfe 1999, §3.6).
pub(crate) fn interval(mut values: Vec<f64>) -> Interval {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let (Some(first), Some(last)) = (values.first().copied(), values.last().copied()) else {
        return Interval::exact(0.0);
    };
    let tail = Binomial::new(0.5, n as u64).map_or(0, |below| below.inverse_cdf(0.025)) as usize;
    // Fewer than six values cannot give 95 %: then the whole range.
    let (low, high) = if tail == 0 { (first, last) } else { (values[tail - 1], values[n - tail]) };
    Interval { value: median(values), low, high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_values_by_hand() {
        // P(below ≤ 5) = 0.0207, P(below ≤ 6) = 0.0577 of 20: the 6th from either end bounds the median.
        let interval = interval((1..=20).rev().map(f64::from).collect());
        assert_eq!((interval.low, interval.value, interval.high), (6.0, 10.5, 15.0));
    }

    #[test]
    fn few_values_give_their_range() {
        let got = interval(vec![2.0, 1.0, 4.0]);
        assert_eq!((got.low, got.value, got.high), (1.0, 2.0, 4.0));
        assert_eq!(interval(Vec::new()).value, 0.0);
    }
}
