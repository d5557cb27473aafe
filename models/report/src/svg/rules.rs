//! The rules of all pictures with axes, for tests: ticks, names of axes, series, and texts that lie on each other.

use std::collections::BTreeMap;

use super::TextBox;

/// What is wrong with a picture: fewer than two figures on an axis, an axis whose name has no word, a title that is
/// none, two series of one look, texts that lie on each other. Empty for a good one.
pub fn faults(picture: &str) -> Vec<String> {
    let mut found = Vec::new();
    let texts: Vec<Element<'_>> = elements(picture, "text").collect();
    for axis in ["x", "y"] {
        let ticks: Vec<&str> =
            texts.iter().filter(|text| text.get("data-tick") == Some(axis)).map(|text| text.inside).collect();
        if ticks.len() < 2 {
            found.push(format!("axis {axis} has the figures {ticks:?}"));
        }
        if (1..ticks.len()).any(|index| ticks[..index].contains(&ticks[index])) {
            found.push(format!("axis {axis} has a figure twice: {ticks:?}"));
        }
        let name = texts.iter().find(|text| text.get("data-axis") == Some(axis)).map_or("", |text| text.inside);
        if !is_words(name) {
            found.push(format!("axis {axis} is called {name:?}"));
        }
    }
    let title = elements(picture, "title").next().map_or("", |title| title.inside);
    if !is_words(title) {
        found.push(format!("the title is {title:?}"));
    }
    let mut looks: BTreeMap<String, &str> = BTreeMap::new();
    for series in elements(picture, "polyline").filter(|line| line.get("data-series").is_some()) {
        let look = ["stroke", "class", "stroke-dasharray"].map(|name| series.get(name).unwrap_or_default()).join(" ");
        let number = series.get("data-series").unwrap_or_default();
        if let Some(other) = looks.insert(look.clone(), number) {
            found.push(format!("series {other} and {number} are both {look:?}"));
        }
    }
    let font = elements(picture, "svg").next().and_then(|svg| svg.number("font-size")).unwrap_or(12.0);
    let boxes: Vec<(TextBox, &str)> = texts.iter().filter_map(|text| Some((text.space(font)?, text.inside))).collect();
    for (index, (space, text)) in boxes.iter().enumerate() {
        found.extend(
            boxes[..index]
                .iter()
                .filter(|(other, _)| other.meets(space))
                .map(|(_, other)| format!("{other:?} lies on {text:?}")),
        );
    }
    found
}

/// Whether a text has a word of at least three letters, and none that is a hash or the name of a column.
fn is_words(text: &str) -> bool {
    let words = || text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let hash = |word: &str| {
        word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit()) && word.contains(|c: char| c.is_ascii_digit())
    };
    let is_word = |word: &str| word.len() >= 3 && word.chars().all(char::is_alphabetic);
    words().any(is_word) && !words().any(|word| hash(word) || word.ends_with("_s") || word.ends_with("_pct"))
}

/// An element's attributes, and what is inside.
struct Element<'a> {
    attributes: &'a str,
    inside: &'a str,
}

impl<'a> Element<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let begin = self.attributes.find(&format!(" {name}=\""))? + name.len() + 3;
        self.attributes[begin..].split('"').next()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }

    fn space(&self, font: f64) -> Option<TextBox> {
        let at = (self.number("x")?, self.number("y")?);
        let font = self.number("font-size").unwrap_or(font);
        let text = self.inside.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        Some(match self.get("text-anchor") {
            Some("end") => TextBox::before(at, font, &text),
            Some("middle") => TextBox::around(at, font, &text),
            _ => TextBox::after(at, font, &text),
        })
    }
}

/// The elements of a name, none of which holds another of it.
fn elements<'a>(picture: &'a str, name: &str) -> impl Iterator<Item = Element<'a>> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    picture
        .match_indices(&open)
        .map(|(at, open)| &picture[at + open.len()..])
        .collect::<Vec<_>>()
        .into_iter()
        .filter_map(move |rest| {
            let end = rest.find('>')?;
            let attributes = &rest[..end];
            attributes.starts_with([' ', '/']).then_some(()).or_else(|| attributes.is_empty().then_some(()))?;
            let inside = rest[end + 1..].split(&close).next().unwrap_or_default();
            Some(Element { attributes, inside })
        })
}
