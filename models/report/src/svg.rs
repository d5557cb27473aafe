//! Draws the common parts of pictures in SVG: axes, the lines of a grid with their figures, looks of series, text.

mod axis;
mod frame;
mod look;
pub mod rules;
mod text_box;

pub use axis::{PlotAxis, Spacing, tick};
pub use frame::Frame;
pub use look::{COLOURS, Look};
pub use text_box::{TextBox, shortened, width};

/// Coordinates in the form of a polyline.
pub fn points(places: impl Iterator<Item = (f64, f64)>) -> String {
    places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// How a picture of this size in points begins: white, with its title above.
pub fn opening(title: &str, (width, height): (f64, f64), font: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"{font}\">\n<title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"4\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n",
        title = escaped(title)
    )
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
