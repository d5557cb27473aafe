//! Collects notes below a table: each names the rows it is about, unless it is about all of them.

use std::collections::BTreeSet;

/// The notes below a table, in the order in which they were found.
#[derive(Debug, Clone, Default)]
pub struct Notes(Vec<Note>);

#[derive(Debug, Clone)]
struct Note {
    text: String,
    /// Rows by position; `None`: the table.
    rows: Option<BTreeSet<usize>>,
    /// The configuration of the first of them.
    first: String,
}

impl Notes {
    /// Adds a note about the whole table.
    pub fn add(&mut self, text: &str) {
        if !self.0.iter().any(|known| known.rows.is_none() && known.text == text) {
            self.0.push(Note { text: text.to_owned(), rows: None, first: String::new() });
        }
    }

    /// Adds a note about the row at position `row`, whose configuration is called `label`.
    pub fn add_of_row(&mut self, text: &str, row: usize, label: &str) {
        let known = self.0.iter_mut().filter(|known| known.text == text).find_map(|known| known.rows.as_mut());
        match known {
            Some(rows) => drop(rows.insert(row)),
            None => {
                let (text, rows) = (text.to_owned(), Some(BTreeSet::from([row])));
                self.0.push(Note { text, rows, first: label.to_owned() });
            }
        }
    }

    /// The notes below a table of `count` rows; a note that holds for all rows names none.
    pub fn lines(&self, count: usize) -> Vec<String> {
        let line = |note: &Note| match &note.rows {
            None => note.text.clone(),
            Some(rows) if rows.len() == count => note.text.clone(),
            Some(rows) if rows.len() == 1 => format!("{} ({}): {}", numbers(rows), note.first, note.text),
            Some(rows) => format!("{}: {}", numbers(rows), note.text),
        };
        self.0.iter().map(line).collect()
    }
}

/// `rows 2-5, 7`, counted from 1.
fn numbers(rows: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *row => *last = *row,
            _ => ranges.push((*row, *row)),
        }
    }
    let shown = |(first, last): &(usize, usize)| match first == last {
        true => (first + 1).to_string(),
        false => format!("{}-{}", first + 1, last + 1),
    };
    let shown: Vec<String> = ranges.iter().map(shown).collect();
    format!("{} {}", if rows.len() == 1 { "row" } else { "rows" }, shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_their_rows_unless_they_apply_to_all() {
        let mut notes = Notes::default();
        notes.add("measured here");
        notes.add("measured here");
        for row in 0..8 {
            notes.add_of_row("every row has it", row, "a");
            notes.add_of_row(if row == 0 { "alone" } else { "with others" }, row, "lenet, 1 rank x 16");
        }
        notes.add_of_row("some", 1, "b");
        notes.add_of_row("some", 4, "c");
        notes.add_of_row("some", 5, "d");
        let expected = [
            "measured here",
            "every row has it",
            "row 1 (lenet, 1 rank x 16): alone",
            "rows 2-8: with others",
            "rows 2, 5-6: some",
        ];
        assert_eq!(notes.lines(8), expected);
        // A table that ends early has notes about the rows that it has.
        let mut one = Notes::default();
        one.add_of_row("alone", 0, "a");
        assert_eq!(one.lines(1), ["alone"]);
    }
}
