//! Prints tables: aligned plain text, figures to four digits; a single row is shown as a list of its fields. A table that
//! is wider than the terminal continues below, in blocks that begin with the columns that distinguish rows.

use lockstep_topology::printable_line;
use serde_json::Value;

use super::columns::Columns;
use super::rounded::rounded;

/// Texts longer than this are cut where there are several rows and more columns follow.
const WIDEST: usize = 72;
/// Names of columns are broken where they are wider than this and than their figures.
const NARROWEST: usize = 12;
/// Spaces between columns.
const GAP: usize = 2;
/// Wrapped texts have at least this many characters a line.
const LEAST_TEXT: usize = 32;
/// Hashes are distinguished by their first digits.
const HASH: usize = 12;

/// A cell as it is shown.
struct Cell {
    text: String,
    number: bool,
}

/// The text; `setting` names the columns that are printed above the table where all rows agree on them, `factors` those that
/// distinguish rows. With `width`, lines have at most that many characters where columns allow it.
pub(super) fn render(columns: &Columns, setting: &[&str], factors: &[&str], width: Option<usize>) -> String {
    match columns.rows.as_slice() {
        [] => "nothing to show\n".to_owned(),
        [only] => list(columns, only),
        _ => table(columns, setting, factors, width),
    }
}

/// `name  value`, a line per field that has one.
fn list(columns: &Columns, row: &[Value]) -> String {
    let width = columns.names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let shown = columns.names.iter().zip(row).filter(|(_, value)| !is_empty(value));
    shown.map(|(name, value)| format!("{name:width$}  {}\n", cell(value).text)).collect()
}

/// Whether a cell has nothing to show.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// `rows` of texts below `names`, aligned; columns of figures are aligned to the right.
pub fn aligned(names: &[&str], rows: &[Vec<String>]) -> String {
    aligned_within(names, rows, None)
}

/// As [`aligned`], in lines of at most `width` characters where columns allow it: the last column's texts are wrapped,
/// and other columns continue below, after the first one.
pub fn aligned_within(names: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let most = width.unwrap_or(usize::MAX);
    let cell = |text: &String| Cell { number: text.parse::<f64>().is_ok(), text: printable_line(text).into_owned() };
    let column = |index: usize| rows.iter().map(|row| cell(&row[index])).collect();
    let mut cells: Vec<Vec<Cell>> = (0..names.len()).map(column).collect();
    if let [first, .., last] = cells.as_mut_slice() {
        let left = most.saturating_sub(widest(first).max(names[0].len()) + GAP).max(LEAST_TEXT);
        last.iter_mut().for_each(|cell| cell.text = wrapped(&cell.text, left));
    }
    let all: Vec<Column<'_>> = std::iter::zip(names.iter().copied(), &cells).collect();
    let blocks = blocks(&all, &names[..names.len().min(1)], most);
    blocks.iter().map(|block| lines(block)).collect::<Vec<_>>().join("\n")
}

/// The words of `text` in lines of at most `most` characters, where words allow it.
fn wrapped(text: &str, most: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

fn table(columns: &Columns, setting: &[&str], factors: &[&str], width: Option<usize>) -> String {
    let (mut above, mut names, mut cells): (Vec<String>, Vec<&str>, Vec<Vec<Cell>>) = Default::default();
    for (index, name) in columns.names.iter().enumerate() {
        let column = || columns.rows.iter().map(|row| &row[index]);
        let first = &columns.rows[0][index];
        if column().all(is_empty) {
            continue;
        }
        if setting.contains(&name.as_str()) && column().all(|value| value == first) {
            above.push(format!("{name} {}", cell(first).text));
            continue;
        }
        names.push(name);
        // No column follows the last one, so it may have any length.
        let last = index + 1 == columns.names.len();
        let shorten =
            |cell: Cell| if last && !is_hash(&cell.text) { cell } else { Cell { text: cut(&cell.text), ..cell } };
        cells.push(column().map(cell).map(shorten).collect());
    }
    let mut text = if above.is_empty() { String::new() } else { above.join(", ") + "\n" };
    let all: Vec<Column<'_>> = std::iter::zip(names, &cells).collect();
    let blocks = blocks(&all, factors, width.unwrap_or(usize::MAX));
    text.push_str(&blocks.iter().map(|block| lines(block)).collect::<Vec<_>>().join("\n"));
    text
}

/// A column's name and cells.
type Column<'a> = (&'a str, &'a Vec<Cell>);

/// The columns in blocks of at most `most` characters a line, each of which begins with `factors`. A block has
/// one other column at least.
fn blocks<'a>(all: &[Column<'a>], factors: &[&str], most: usize) -> Vec<Vec<Column<'a>>> {
    let gap = |column: &Column<'_>| width(column) + GAP;
    if all.iter().map(gap).sum::<usize>() <= most.saturating_add(GAP) {
        return vec![all.to_vec()];
    }
    let (keys, others): (Vec<Column<'_>>, Vec<Column<'_>>) = all.iter().partition(|(name, _)| factors.contains(name));
    let start: usize = keys.iter().map(gap).sum();
    let mut blocks: Vec<Vec<Column<'_>>> = Vec::new();
    let mut used = usize::MAX;
    for column in others {
        if used.saturating_add(width(&column)) > most {
            blocks.push(keys.clone());
            used = start;
        }
        used += gap(&column);
        blocks.last_mut().expect("there is a block").push(column);
    }
    blocks
}

/// Characters of the longest cell.
fn widest(column: &[Cell]) -> usize {
    let lines = column.iter().flat_map(|cell| cell.text.lines());
    lines.map(|line| line.chars().count()).max().unwrap_or(0)
}

/// The lines of a column's header.
fn header<'a>((name, column): &Column<'a>) -> Vec<&'a str> {
    broken(name, widest(column).max(NARROWEST))
}

/// Characters of a column.
fn width(column: &Column<'_>) -> usize {
    header(column).iter().map(|line| line.chars().count()).max().unwrap_or(0).max(widest(column.1))
}

/// A header and a line per row of the columns `cells`.
fn lines<'a>(columns: &[Column<'a>]) -> String {
    let headers: Vec<Vec<&str>> = columns.iter().map(header).collect();
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let cells: Vec<&Vec<Cell>> = columns.iter().map(|(_, cells)| *cells).collect();
    let right: Vec<bool> = cells.iter().map(|column| column.iter().any(|cell| cell.number)).collect();
    let line = |texts: Vec<&str>| {
        let padded =
            texts.iter().zip(&widths).zip(&right).map(|((text, width), right)| {
                if *right { format!("{text:>width$}") } else { format!("{text:width$}") }
            });
        padded.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    };
    let rows = cells.first().map_or(0, |column| column.len());
    let body = (0..rows).flat_map(|row| {
        let texts: Vec<Vec<&str>> = cells.iter().map(|column| column[row].text.split('\n').collect()).collect();
        let height = texts.iter().map(Vec::len).max().unwrap_or(0);
        (0..height)
            .map(|at| line(texts.iter().map(|text| text.get(at).copied().unwrap_or("")).collect()))
            .collect::<Vec<_>>()
    });
    // Headers are on the row above their figures, however many lines they take.
    let tallest = headers.iter().map(Vec::len).max().unwrap_or(0);
    let head = (0..tallest).map(|level| {
        let part = |header: &Vec<&'a str>| (level + header.len()).checked_sub(tallest).map_or("", |at| header[at]);
        line(headers.iter().map(part).collect())
    });
    head.collect::<String>() + &body.collect::<String>()
}

/// A column's name broken after underscores into lines of at most `width` characters, where it has enough underscores.
fn broken(name: &str, width: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for part in name.split_inclusive('_') {
        if end > start && end + part.len() - start > width {
            lines.push(&name[start..end]);
            start = end;
        }
        end += part.len();
    }
    lines.push(&name[start..]);
    lines
}

fn cell(value: &Value) -> Cell {
    let (text, number) = match value {
        Value::Null => ("-".to_owned(), false),
        Value::String(text) => (printable_line(text).into_owned(), text.contains(" ± ")),
        Value::Bool(true) => ("yes".to_owned(), false),
        Value::Bool(false) => ("no".to_owned(), false),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => (whole.to_string(), true),
            (None, Some(real)) => (rounded(real), true),
            (None, None) => (number.to_string(), true),
        },
        other => (other.to_string(), false),
    };
    Cell { text, number }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cut(text: &str) -> String {
    let most = if is_hash(text) { HASH } else { WIDEST };
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(rows: Vec<Vec<Value>>) -> Columns {
        Columns { names: ["model", "ranks", "algorithm", "time_s"].map(str::to_owned).to_vec(), rows }
    }

    #[test]
    fn constant_settings_are_above_and_empty_columns_are_omitted() {
        let rows = vec![
            vec![Value::from("lenet"), Value::from(1), Value::from("-"), Value::Null],
            vec![Value::from("lenet"), Value::from(16), Value::from("ring"), Value::Null],
        ];
        let text = render(&columns(rows), &["model"], &[], None);
        assert_eq!(text, "model lenet\nranks  algorithm\n    1  -\n   16  ring\n");
    }

    #[test]
    fn one_row_is_a_list() {
        let rows = vec![vec![Value::from("lenet"), Value::from(1), Value::Null, Value::from(0.012_345)]];
        let text = render(&columns(rows), &["model"], &[], None);
        assert_eq!(text, "model      lenet\nranks      1\ntime_s     0.01235\n");
    }

    #[test]
    fn a_wide_table_continues_below() {
        let row = |ranks: u32| vec![Value::from("lenet"), Value::from(ranks), Value::from("ring"), Value::from(0.5)];
        let all = columns(vec![row(1), row(16)]);
        let whole = render(&all, &["model"], &["ranks"], None);
        assert_eq!(
            whole,
            "model lenet\nranks  algorithm  time_s\n    1  ring       0.5000\n   16  ring       0.5000\n"
        );
        assert_eq!(render(&all, &["model"], &["ranks"], Some(24)), whole, "it fits exactly");
        let parts =
            "model lenet\nranks  algorithm\n    1  ring\n   16  ring\n\nranks  time_s\n    1  0.5000\n   16  0.5000\n";
        for width in [1, 10, 23] {
            assert_eq!(render(&all, &["model"], &["ranks"], Some(width)), parts, "{width}");
        }
    }

    #[test]
    fn long_texts_are_wrapped_and_columns_continue_below() {
        let source = "datasheet: a long name of a long document, and what it says of each of the figures";
        let row = |name: &str| [name, "16", source].map(str::to_owned).to_vec();
        let names = ["host", "cores", "provenance"];
        let rows = [row("node0"), row("node1")];
        let whole = aligned_within(&names, &rows, None);
        assert_eq!(whole, aligned(&names, &rows));
        assert_eq!(whole.lines().count(), 3);
        for width in [40, 60, 80] {
            let text = aligned_within(&names, &rows, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            let words = |text: &str| text.split_whitespace().filter(|word| source.contains(word)).count();
            assert_eq!(words(&text), words(&whole), "{width}: {text}");
        }
    }

    #[test]
    fn figures_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1.000"),
            (12_345.6, "12346"),
            (999.96, "1000.0"),
            (0.000_123_456, "0.0001235"),
            (-0.5, "-0.5000"),
            (1e-30, "0"),
            (-4e-12, "-0.000000000004"),
        ] {
            assert_eq!(rounded(value), text, "{value}");
        }
    }

    #[test]
    fn hashes_are_truncated_in_tables() {
        assert_eq!(cut(&"a".repeat(64)), "aaaaaaaaaaaa…");
        assert_eq!(cut("parameter-server:1"), "parameter-server:1");
    }
}
