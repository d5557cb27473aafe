//! `Look`: the colour, mark and dash of a picture's series; no two numbers look alike.

use std::fmt::Write as _;

/// Colours that most people can distinguish (Okabe and Ito 2008).
pub const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
/// Lengths of dashes, in points; a pattern is a row of them with short gaps, and ends with a long one.
const DASHES: [usize; 3] = [6, 2, 11];
const GAP: &str = "3";
const LAST_GAP: &str = "7";
/// Corners of the marks around a point, as shares of their radius; without corners it is a circle.
const MARKS: [&[(f64, f64)]; 5] = [
    &[],
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.2), (1.2, 0.9), (-1.2, 0.9)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, 1.2), (1.2, -0.9), (-1.2, -0.9)],
];

/// How a series is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its place in a list of seven colours such as [`COLOURS`].
    pub colour: usize,
    /// Its dashes as an attribute of a stroke; empty: none.
    pub dash: String,
    mark: usize,
}

impl Look {
    /// The look of the series with this number: seven colours, then the same with other marks and dashes, and so on.
    ///
    /// ```
    /// # use lockstep_report::svg::Look;
    /// assert_eq!((Look::of(0).colour, Look::of(7).colour), (0, 0));
    /// assert_ne!(Look::of(0), Look::of(7));
    /// ```
    pub fn of(number: usize) -> Look {
        let round = number / COLOURS.len();
        Look { colour: number % COLOURS.len(), dash: dash(round), mark: round % MARKS.len() }
    }

    /// Draws a mark of `radius` points around a point, with further attributes and what hovering over it shows.
    pub fn mark(&self, out: &mut String, (x, y): (f64, f64), radius: f64, attributes: &str, title: &str) {
        let title = if title.is_empty() { String::new() } else { format!("<title>{title}</title>") };
        let corners = MARKS[self.mark];
        let _ = if corners.is_empty() {
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {attributes}>{title}</circle>")
        } else {
            let corners = super::points(corners.iter().map(|(right, down)| (x + radius * right, y + radius * down)));
            writeln!(out, "<polygon points=\"{corners}\" {attributes}>{title}</polygon>")
        };
    }
}

/// The dashes of a round of colours: the round's digits, written with the digits 1, 2 and 3, as lengths. The long gap
/// ends the pattern, so that no two repeat alike.
fn dash(mut round: usize) -> String {
    if round == 0 {
        return String::new();
    }
    let mut lengths = Vec::new();
    while round > 0 {
        lengths.push(DASHES[(round - 1) % DASHES.len()].to_string());
        round = (round - 1) / DASHES.len();
    }
    format!(" stroke-dasharray=\"{} {LAST_GAP}\"", lengths.join(&format!(" {GAP} ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Round 4 is written 11, round 5 is 21, and so on: each has a pattern of its own.
    #[test]
    fn no_two_series_look_alike() {
        let looks = (0..5000).map(Look::of).map(|look| (look.colour, look.mark, look.dash));
        assert_eq!(looks.collect::<BTreeSet<_>>().len(), 5000);
        assert_eq!(
            ["", " stroke-dasharray=\"6 7\"", " stroke-dasharray=\"2 7\""],
            [0, 7, 14].map(|n| Look::of(n).dash).each_ref().map(|s| s.as_str())
        );
        assert_eq!(Look::of(28).dash, " stroke-dasharray=\"6 3 6 7\"");
    }
}
