//! Writes the picture's style sheet and text, cut where space is short.

use std::fmt::Write as _;

use crate::svg::escaped;

/// Width of the picture, in points.
pub(super) const WIDTH: f64 = 800.0;
/// Its margin at the left and the right.
pub(super) const MARGIN: f64 = 12.0;

/// The colour of data common to all ranks (Okabe and Ito 2008).
pub(super) const COMMON: &str = "#0072b2";
/// The colours of versions that ranks have of their own, also distinguished by letters; light enough for dark letters.
pub(super) const VERSIONS: [&str; 8] =
    ["#e69f00", "#56b4e9", "#3fbf8f", "#e0a0c8", "#f0e442", "#b4b4b4", "#b9a1e6", "#d19a6a"];

/// The classes of texts, cells and exchanges.
pub(super) const STYLE: &str = "text{fill:#222}.heading{font-size:14px;font-weight:bold}\
.name{font-size:12px;font-weight:bold}.plain{font-size:11px}.small{font-size:10px;fill:#555}\
.by{font-size:12px;font-weight:bold;fill:#a63c00}.middle{text-anchor:middle}.end{text-anchor:end}\
.letter{font-size:13px;font-weight:bold;text-anchor:middle}.halo{stroke:#fff;stroke-width:5px;paint-order:stroke}\
.rule{stroke:#ddd}.span{stroke:#777}.cell{fill:#f4f4f4;stroke:#999}.none{stroke-dasharray:3 3}.strip{fill:#fff;stroke:#999}\
.all{fill:#0072b2;stroke:#0072b2}.sum{stroke:#0072b2}.own{stroke:#555}\
.line{stroke:#a63c00;stroke-width:2.5px}.dashed{stroke-dasharray:3 3}.stem{stroke:#a63c00;stroke-width:1.3px}\
.dot,.tip{fill:#a63c00}.still{stroke:#555;stroke-width:1.3px}.rest{fill:#555}";

/// Width of a character of the widest usual fonts, as a share of their size.
const CHARACTER: f64 = 0.6;
const BOLD_CHARACTER: f64 = 0.68;
/// Smallest size to which a text is shrunk.
const SMALLEST: f64 = 6.0;

/// How a text is set: a class of [`STYLE`] with its size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    class: &'static str,
    size: f64,
    bold: bool,
}

pub(super) const HEADING: Type = Type { class: "heading", size: 14.0, bold: true };
pub(super) const NAME: Type = Type { class: "name", size: 12.0, bold: true };
pub(super) const PLAIN: Type = Type { class: "plain", size: 11.0, bold: false };
pub(super) const SMALL: Type = Type { class: "small", size: 10.0, bold: false };
pub(super) const COLLECTIVE: Type = Type { class: "by", size: 12.0, bold: true };

impl Type {
    /// Width of a character, in points.
    fn character(self) -> f64 {
        self.size * if self.bold { BOLD_CHARACTER } else { CHARACTER }
    }
}

/// Where a text begins, or ends, or has its middle.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Writes a line of text whose foot is at `y`, smaller or cut where it is longer than `room` points.
pub(super) fn text(out: &mut String, kind: Type, anchor: Anchor, (x, y): (f64, f64), room: f64, content: &str) {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " middle",
        Anchor::End => " end",
    };
    let (class, count) = (kind.class, content.chars().count());
    let fits = room / (kind.character() / kind.size * count as f64);
    let smaller = Type { size: fits.max(SMALLEST), ..kind };
    let style = match count as f64 * kind.character() > room {
        true => format!(" style=\"font-size:{:.1}px\"", smaller.size),
        false => String::new(),
    };
    let most = if style.is_empty() { count } else { (room / smaller.character() + 1e-6) as usize };
    let content = escaped(&shortened(content, most));
    let _ = writeln!(out, "<text x=\"{x:.0}\" y=\"{y:.0}\" class=\"{class}{anchor}\"{style}>{content}</text>");
}

/// The text, or its beginning and an ellipsis.
fn shortened(content: &str, characters: usize) -> String {
    if content.chars().count() <= characters {
        return content.to_owned();
    }
    let begin: String = content.chars().take(characters.saturating_sub(1)).collect();
    format!("{}…", begin.trim_end())
}

/// A horizontal line.
pub(super) fn rule(out: &mut String, y: f64) {
    let _ = writeln!(out, "<path class=\"rule\" d=\"M{MARGIN} {y:.1}H{}\"/>", WIDTH - MARGIN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_shrunk_and_truncated() {
        let written = |content: &str| {
            let mut out = String::new();
            text(&mut out, PLAIN, Anchor::Start, (0.0, 0.0), 66.0, content);
            out
        };
        // 66 points are ten characters of 11 points, and eighteen of 6.
        assert!(written("0123456789").contains("class=\"plain\">0123456789<"));
        assert!(written("0123456789ab").contains("style=\"font-size:9.2px\">0123456789ab<"));
        assert!(written("0123456789abcdefghij").contains("font-size:6.0px\">0123456789abcdefg…<"));
        assert!(written("<&>").contains(">&lt;&amp;&gt;<"));
    }
}
