//! Splits what a tool prints into words with their lines, without terminals' escapes and launchers' prefixes.

/// A line of the text.
pub(crate) struct Line<'a> {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    pub(crate) words: Vec<&'a str>,
}

/// The lines that have words. A launcher's prefix (`[1,0]<stdout>:GPU0`, `0: GPU0`, `node1| GPU0`) is words of its own.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let line = |(index, text)| Line { number: index + 1, text, words: words(text) };
    text.lines().enumerate().map(line).filter(|line| !line.words.is_empty()).collect()
}

fn words(line: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for word in line.split_whitespace() {
        // The prefix and the first word after it may touch.
        let rest = word.rfind([':', '>', ']', '|']).map(|at| at + 1).filter(|at| *at < word.len());
        let (prefix, rest) = word.split_at(rest.unwrap_or(0));
        // Tables and comments of documents.
        let marks = |c: char| matches!(c, '*' | '`' | '#' | '|' | '"' | '\'');
        let pieces = [prefix, rest].map(|word| word.trim_matches(marks).trim_start_matches("//"));
        all.extend(pieces.into_iter().filter(|word| !word.is_empty()));
    }
    all
}

/// The text without the escape sequences by which a terminal underlines or colours it.
pub(crate) fn without_escapes(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let after = piece.strip_prefix('[').and_then(|rest| rest.split_once(|c: char| c.is_ascii_alphabetic()));
        plain.push_str(after.map_or(piece, |(_, rest)| rest));
    }
    plain
}
