//! Makes text of unknown origin safe to print: a terminal interprets control characters, and readers are misled by
//! characters that change the direction of text.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters of a text that is shown whole.
const WHOLE: usize = 300;
/// Characters shown of a longer one.
const BEGINNING: usize = 60;

/// Whether a character is invisible and changes how a terminal shows what follows: C0, C1, delete, line and paragraph
/// separators, and marks, embeddings, overrides and isolates of the Unicode bidirectional algorithm (UAX 9).
fn is_unsafe(c: char) -> bool {
    let directs = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || directs || matches!(c, '\u{2028}' | '\u{2029}')
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let escapes = |c: char| is_unsafe(c) && !keeps(c);
    if !text.chars().any(escapes) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if escapes(c) {
            // Writing into a string cannot fail.
            let _ = write!(safe, "{}", c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// The text on one line, with escapes such as `\u{1b}` instead of what a terminal would interpret.
///
/// ```
/// # use lockstep_topology::printable_line;
/// assert_eq!(printable_line("a\u{1b}[2Jb\nc\u{9b}d\u{202e}"), r"a\u{1b}[2Jb\nc\u{9b}d\u{202e}");
/// assert_eq!(printable_line("größe 12 µs"), "größe 12 µs");
/// ```
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The same for text of several lines: ends of lines and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// JSON with escapes instead of what a terminal would interpret; it has the same value. Such characters are inside its
/// strings only.
pub fn printable_json(text: &str) -> Cow<'_, str> {
    let escapes = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t' | '\r');
    if !text.chars().any(escapes) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if escapes(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// The text, or the beginning of a long one with its length.
///
/// ```
/// # use lockstep_topology::shortened;
/// assert_eq!(shortened("short"), "short");
/// assert_eq!(shortened(&"é".repeat(100_000)), format!("{}… (100000 characters)", "é".repeat(60)));
/// ```
pub fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(BEGINNING) {
        Some((end, _)) if text.chars().nth(WHOLE).is_some() => {
            Cow::Owned(format!("{}… ({} characters)", &text[..end], text.chars().count()))
        }
        _ => Cow::Borrowed(text),
    }
}

/// The text with each long word, such as a value that it repeats, shortened.
pub(crate) fn with_short_words(text: &str) -> Cow<'_, str> {
    if text.split(' ').all(|word| matches!(shortened(word), Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split(' ').map(shortened).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_printable_has_no_control_characters(text in any::<String>()) {
            prop_assert!(!printable_line(&text).chars().any(is_unsafe));
            prop_assert!(!printable(&text).chars().any(|c| is_unsafe(c) && c != '\n' && c != '\t'));
            let line = printable_line(&text);
            prop_assert_eq!(printable(&line), line.as_ref());
        }
    }

    #[test]
    fn json_keeps_its_value() {
        assert_eq!(
            printable_json("{\n \"a\": \"\u{9b}\u{202e}\u{7f}b\"\n}"),
            "{\n \"a\": \"\\u009b\\u202e\\u007fb\"\n}"
        );
    }
}
