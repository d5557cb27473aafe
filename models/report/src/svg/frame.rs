//! `Frame`: the area between two axes, its grid, the figures along it and the names of its axes.

use std::fmt::Write as _;

use super::{TextBox, escaped};

/// The area between two axes, in points.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Its left edge.
    pub left: f64,
    /// Its right edge.
    pub right: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its lower edge.
    pub bottom: f64,
    /// Size of the font, in points.
    pub font: f64,
    /// Attributes of the grid's lines.
    pub lines: &'static str,
    /// Attributes of the figures on the axes.
    pub figures: &'static str,
    /// Attributes of the axes' names.
    pub names: &'static str,
}

impl Frame {
    /// Between these edges, `(left, right)` and `(top, bottom)`: grey lines, plain figures, bold names.
    pub const fn plain((left, right): (f64, f64), (top, bottom): (f64, f64)) -> Frame {
        let (lines, figures, names) = ("stroke=\"#e4e4e4\"", "", " font-weight=\"bold\"");
        Frame { left, right, top, bottom, font: 11.0, lines, figures, names }
    }

    /// The horizontal axis: lines upwards at their places with figures below, where there is space for them, and the
    /// axis's name with its unit in words.
    pub fn horizontal(&self, out: &mut String, ticks: impl IntoIterator<Item = (f64, String)>, name: &str) {
        let (top, bottom, lines, figures) = (self.top, self.bottom, self.lines, self.figures);
        let foot = bottom + 15.0;
        let boxes = ticks.into_iter().map(|(x, figure)| {
            let text = TextBox::around((x, foot), self.font, &figure);
            // Figures beside each other have half a letter between them.
            (x, figure, TextBox { left: text.left - self.font / 4.0, right: text.right + self.font / 4.0, ..text })
        });
        for (x, figure, shown) in free(boxes.collect()) {
            let _ = writeln!(out, "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" {lines}/>");
            if shown {
                let figure = escaped(&figure);
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{foot}\" text-anchor=\"middle\" data-tick=\"x\"{figures}>{figure}</text>"
                );
            }
        }
        let (right, foot, names, name) = (self.right, bottom + 31.0, self.names, escaped(name));
        let _ =
            writeln!(out, "<text x=\"{right}\" y=\"{foot}\" text-anchor=\"end\" data-axis=\"x\"{names}>{name}</text>");
    }

    /// The vertical axis: lines across at their places with figures to the left, where there is space for them, and the
    /// axis's name with its unit in words above.
    pub fn vertical(&self, out: &mut String, ticks: impl IntoIterator<Item = (f64, String)>, name: &str) {
        let (left, right, lines, figures) = (self.left, self.right, self.lines, self.figures);
        let boxes = ticks.into_iter().map(|(y, figure)| {
            let text = TextBox::before((left - 6.0, y + 4.0), self.font, &figure);
            (y, figure, text)
        });
        for (y, figure, shown) in free(boxes.collect()) {
            let _ = writeln!(out, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" {lines}/>");
            if shown {
                let (end, foot, figure) = (left - 6.0, y + 4.0, escaped(&figure));
                let _ = writeln!(
                    out,
                    "<text x=\"{end}\" y=\"{foot:.1}\" text-anchor=\"end\" data-tick=\"y\"{figures}>{figure}</text>"
                );
            }
        }
        let (foot, names, name) = (self.top - 14.0, self.names, escaped(name));
        let _ = writeln!(out, "<text x=\"4\" y=\"{foot}\" data-axis=\"y\"{names}>{name}</text>");
    }
}

/// Places and figures, and whether each figure is shown: of evenly spaced ones each second, third or n-th from the first on, so
/// that none meet; of others the first, the last, and between them those that meet none.
fn free(boxes: Vec<(f64, String, TextBox)>) -> Vec<(f64, String, bool)> {
    let each_shown = |each: usize| {
        let shown: Vec<&TextBox> = boxes.iter().step_by(each).map(|(.., text)| text).collect();
        shown.windows(2).all(|pair| !pair[0].meets(pair[1]))
    };
    // At least two.
    if let Some(each) = (1..boxes.len()).find(|each| are_even(&boxes) && each_shown(*each)) {
        let shown = boxes.into_iter().enumerate().map(|(index, (at, figure, _))| (at, figure, index % each == 0));
        return shown.collect();
    }
    let last = boxes.last().map(|(.., text)| *text);
    let count = boxes.len();
    let mut taken: Vec<TextBox> = Vec::new();
    let decided = boxes.into_iter().enumerate().map(|(index, (at, figure, text))| {
        let ends = index + 1 == count || last.is_none_or(|last| !last.meets(&text));
        let shown = ends && taken.iter().all(|other| !other.meets(&text));
        if shown {
            taken.push(text);
        }
        (at, figure, shown)
    });
    decided.collect()
}

/// Whether places are equally far from their neighbours, to a point.
fn are_even(boxes: &[(f64, String, TextBox)]) -> bool {
    let gaps = || boxes.windows(2).map(|pair| (pair[1].0 - pair[0].0).abs());
    gaps().reduce(f64::max).zip(gaps().reduce(f64::min)).is_some_and(|(most, least)| most - least < 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame =
        Frame { left: 50.0, right: 150.0, top: 30.0, bottom: 100.0, font: 10.0, lines: "", figures: "", names: "" };

    /// Eleven figures, each 17.4 points wide, every ten points: with 5 points between them each third is shown.
    #[test]
    fn figures_do_not_meet() {
        let mut out = String::new();
        let ticks = (0..=10u32).map(|index| (50.0 + 10.0 * f64::from(index), format!("{}", 100 + index)));
        FRAME.horizontal(&mut out, ticks, "size, bytes");
        let shown = |name: &str| out.contains(&format!(">{name}<"));
        assert!(["100", "103", "106", "109", "size, bytes"].into_iter().all(shown), "{out}");
        assert_eq!(out.matches("data-tick=\"x\"").count(), 4, "{out}");
        // Uneven ones: both outer ones, and between them what has space.
        let mut out = String::new();
        let ticks = [(50.0, "8"), (52.0, "16"), (60.0, "32"), (100.0, "128"), (150.0, "352")];
        FRAME.horizontal(&mut out, ticks.map(|(x, name)| (x, name.to_owned())), "number of GPUs");
        let shown = |name: &str| out.contains(&format!(">{name}<"));
        assert!(["8", "128", "352"].into_iter().all(shown) && !shown("16") && !shown("32"), "{out}");
        let mut out = String::new();
        FRAME.vertical(&mut out, [(90.0, "1".to_owned()), (85.0, "2".to_owned()), (40.0, "3".to_owned())], "a < b, ms");
        assert!(!out.contains(">2<") && out.contains(">3<") && out.contains("a &lt; b, ms"), "{out}");
    }
}
