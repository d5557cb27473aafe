//! Draws the common parts of pictures in SVG: axes, the lines of a grid with their figures, strokes, text.

mod axis;

use std::fmt::{Display, Write as _};

pub use axis::{PlotAxis, Spacing, tick};

/// Strokes of the first seven lines of a picture, of the next seven, and of the rest.
pub const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 2\""];

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
    /// Attributes of the grid's lines.
    pub lines: &'static str,
    /// Attributes of the figures on the axes.
    pub figures: &'static str,
}

impl Frame {
    /// A line upwards at `x` with its figure below.
    pub fn upward(&self, out: &mut String, x: f64, figure: impl Display) {
        let (top, bottom, lines, figures) = (self.top, self.bottom, self.lines, self.figures);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\" {lines}/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\"{figures}>{figure}</text>",
            bottom + 15.0
        );
    }

    /// A line across at `y` with its figure to the left.
    pub fn across(&self, out: &mut String, y: f64, figure: impl Display) {
        let (left, right, lines, figures) = (self.left, self.right, self.lines, self.figures);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" {lines}/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\"{figures}>{figure}</text>",
            left - 6.0,
            y + 4.0
        );
    }
}

/// Coordinates in the form of a polyline.
pub fn points(places: impl Iterator<Item = (f64, f64)>) -> String {
    places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Text as SVG and HTML show it; characters that XML does not have become `U+FFFD`.
pub fn escaped(text: &str) -> String {
    let unknown = |c: char| c.is_control() && !"\t\n\r".contains(c) || matches!(c, '\u{fffe}' | '\u{ffff}');
    let text = text.replace(unknown, "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Four significant digits at most.
pub fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_xml() {
        assert_eq!(escaped("a<b>&\"c\u{1}\u{ffff}\n"), "a&lt;b&gt;&amp;&quot;c\u{fffd}\u{fffd}\n");
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [(0.0, "0"), (15500.0, "15500"), (1.9375, "1.938"), (0.1012, "0.1012"), (29.0, "29")] {
            assert_eq!(significant(value), text);
        }
    }
}
