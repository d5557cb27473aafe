//! `TextBox`: the space that a line of text takes on a picture, so that texts do not lie on each other.

/// Width of a character of usual fonts, as a share of the font's size.
const CHARACTER: f64 = 0.58;

/// The space of a text or a mark, in points.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextBox {
    /// Its left edge.
    pub left: f64,
    /// Its right edge.
    pub right: f64,
    /// Its upper edge.
    pub top: f64,
    /// Its lower edge, where the text stands.
    pub bottom: f64,
}

impl TextBox {
    /// A text that begins at a point.
    pub fn after((x, y): (f64, f64), font: f64, text: &str) -> TextBox {
        TextBox { left: x, right: x + width(font, text), top: y - font, bottom: y }
    }

    /// A text that ends at a point.
    pub fn before((x, y): (f64, f64), font: f64, text: &str) -> TextBox {
        TextBox { left: x - width(font, text), right: x, top: y - font, bottom: y }
    }

    /// A text with its middle at a point.
    pub fn around((x, y): (f64, f64), font: f64, text: &str) -> TextBox {
        let half = width(font, text) / 2.0;
        TextBox { left: x - half, right: x + half, top: y - font, bottom: y }
    }

    /// Whether both take the same space somewhere.
    pub fn meets(&self, other: &TextBox) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

/// Width of a text in a font of this size, both in points.
pub fn width(font: f64, text: &str) -> f64 {
    CHARACTER * font * text.chars().count() as f64
}

/// The text, or its beginning and an ellipsis where it is wider than `room` points.
pub fn shortened(font: f64, text: &str, room: f64) -> String {
    if width(font, text) <= room {
        return text.to_owned();
    }
    let fits = (room / (CHARACTER * font)) as usize;
    let begin: String = text.chars().take(fits.saturating_sub(1)).collect();
    format!("{}…", begin.trim_end())
}
