//! Finds the columns and rows of a matrix among other lines: rows in any order, wrapped by a terminal or not.

use lockstep_topology::{ErrorPlace, InputError};

use crate::relation::{Matrix, Relation, Row, is_cell, is_open, is_permission, is_self, relation};
use crate::threads::Threads;
use crate::words::Line;

/// Devices of a host, at most.
const MOST: usize = 512;

/// A row as it is in the text.
struct Found<'a> {
    line: usize,
    cells: Vec<&'a str>,
    near: Near<'a>,
}

/// What follows a row's cells.
#[derive(Default)]
struct Near<'a> {
    cpus: Option<&'a str>,
    numa: Option<&'a str>,
}

/// The first matrix of ways in the text.
///
/// # Errors
/// There is none, a row is missing, cut or there twice with other cells, or a cell is no way.
pub(crate) fn parse<'f>(file: &'f str, lines: &[Line<'_>], notes: &mut Vec<String>) -> Result<Matrix<'f>, InputError> {
    let mut permissions = None;
    for start in 0..lines.len() {
        if !lines[start].words.iter().any(|word| is_gpu(word)) || is_row(&lines[start].words) {
            continue;
        }
        let Some((columns, tail, first)) = header(&lines[start..]) else { continue };
        if columns.len() > MOST {
            let message = format!("has {} columns; a host has at most {MOST} devices", columns.len());
            return Err(InputError::new(ErrorPlace::line(file, lines[start].number), columns[0], message));
        }
        let (top, own) = (lines[start].number, notes.len());
        let found = rows(file, top, &columns, &tail, &lines[start + first..], notes)?;
        if found.iter().flat_map(|row| &row.cells).any(|cell| is_permission(cell)) {
            permissions.get_or_insert(top);
            notes.truncate(own);
            continue;
        }
        return matrix(file, &columns, found, notes);
    }
    let (line, message) = match permissions {
        Some(line) => (line, "is what nvidia-smi topo -p2p prints, which has no ways: print nvidia-smi topo -m"),
        None => (
            1,
            "has no matrix of devices, whose first line names GPU0: use what nvidia-smi topo -m or rocm-smi --showtopo \
             prints, or the XML that NCCL writes to NCCL_TOPO_DUMP_FILE",
        ),
    };
    Err(InputError::new(ErrorPlace::line(file, line), "", message))
}

pub(crate) fn is_gpu(word: &str) -> bool {
    word.strip_prefix("GPU").is_some_and(|number| number.parse::<u32>().is_ok())
}

fn is_nic(word: &str) -> bool {
    word.strip_prefix("NIC").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether words hold a name and a cell after it.
fn is_row(words: &[&str]) -> bool {
    words.windows(2).any(|pair| !is_cell(pair[0]) && is_cell(pair[1]))
}

/// A header's columns, the words after them, and how many lines it has; `None` where no row follows.
fn header<'a>(lines: &[Line<'a>]) -> Option<(Vec<&'a str>, Vec<&'a str>, usize)> {
    let rest = lines.iter().take(2 * MOST);
    // What stands before the first cell of a line is a row's name.
    let named: Vec<&str> = rest
        .filter_map(|line| line.words.windows(2).find(|pair| !is_cell(pair[0]) && is_cell(pair[1])))
        .map(|pair| pair[0])
        .collect();
    let is_device = |word: &str| is_gpu(word) || is_nic(word) || named.contains(&word);
    let length = lines.iter().position(|line| is_row(&line.words))?;
    if length > 8 || length == 0 {
        return None;
    }
    let words: Vec<&str> = lines[..length].iter().flat_map(|line| line.words.iter().copied()).collect();
    let first = words.iter().position(|word| is_device(word))?;
    let is_tail = |word: &&str| matches!(*word, "CPU" | "NUMA" | "GPU");
    let end = words[first..].iter().position(is_tail).map_or(words.len(), |end| first + end);
    // Lines drawn under a header have no letters.
    let columns = words[first..end].iter().copied().filter(|word| word.contains(char::is_alphanumeric)).collect();
    // `GPU NUMA ID` is one heading.
    let near = ["CPU", "NUMA", "GPU"].into_iter().filter(|heading| words[end..].contains(heading)).collect();
    Some((columns, near, length))
}

/// The row of each column, in the columns' order.
fn rows<'a>(
    file: &str,
    top: usize,
    columns: &[&'a str],
    tail: &[&str],
    lines: &[Line<'a>],
    notes: &mut Vec<String>,
) -> Result<Vec<Found<'a>>, InputError> {
    let error = |line, value: &str, message: String| InputError::new(ErrorPlace::line(file, line), value, message);
    if let Some(twice) = (1..columns.len()).find(|at| columns[..*at].contains(&columns[*at])) {
        return Err(error(top, columns[twice], "is the name of two columns: print the matrix again".to_owned()));
    }
    let mut found: Vec<Option<Found>> = columns.iter().map(|_| None).collect();
    let mut last = top;
    for index in 0..lines.len() {
        let Some((column, row)) = row(file, columns, tail, &lines[index..])? else { continue };
        last = row.line;
        match &found[column] {
            None => found[column] = Some(row),
            Some(before) if before.cells == row.cells => {}
            // Permissions after ways.
            Some(before)
                if row.cells.iter().any(|cell| is_permission(cell))
                    && !before.cells.iter().any(|cell| is_permission(cell)) => {}
            Some(_) if found.iter().all(Option::is_some) => {
                notes.push(format!("line {}: another matrix begins, and only the first is read", row.line));
                break;
            }
            Some(before) => {
                let message = format!(
                    "has other cells than its row in line {}: keep the matrix of one machine, or of one rank",
                    before.line
                );
                return Err(error(row.line, columns[column], message));
            }
        }
    }
    fill(columns, last, &mut found, notes).map_err(|(column, message)| error(last, column, message))?;
    Ok(found.into_iter().flatten().collect())
}

/// The row that the first of `lines` begins, and its column; `None` where it begins none.
fn row<'a>(
    file: &str,
    columns: &[&'a str],
    tail: &[&str],
    lines: &[Line<'a>],
) -> Result<Option<(usize, Found<'a>)>, InputError> {
    let line = &lines[0];
    // A name with a cell somewhere after it; before it stands what a launcher adds.
    let starts = |words: &[&str]| words.iter().position(|word| columns.contains(word));
    let Some(at) = starts(&line.words) else { return Ok(None) };
    if !line.words[at + 1..].iter().take(columns.len()).any(|word| is_cell(word)) {
        return Ok(None);
    }
    let column = columns.iter().position(|column| *column == line.words[at]).expect("it is one");
    let mut words = line.words[at + 1..].to_vec();
    // A terminal may have wrapped the row.
    let more = lines[1..].iter().take_while(|line| starts(&line.words).is_none());
    for wrapped in more.take(MOST) {
        if words.len() >= columns.len() || !wrapped.words.iter().any(|word| is_cell(word)) {
            break;
        }
        words.extend(&wrapped.words);
    }
    let Some(cells) = words.get(..columns.len()) else {
        let message = format!("has {} of {} cells: print the matrix again", words.len(), columns.len());
        return Err(InputError::new(ErrorPlace::line(file, line.number), line.words[at], message));
    };
    let near = near(line.text, line.words[at], cells, tail, &words[columns.len()..]);
    Ok(Some((column, Found { line: line.number, cells: cells.to_vec(), near })))
}

/// Makes the rows of NICs that have none out of the columns of the other rows; `last` is the last line that was read.
///
/// # Errors
/// A GPU without a row, and what is wrong.
fn fill<'a>(
    columns: &[&'a str],
    last: usize,
    found: &mut [Option<Found<'a>>],
    notes: &mut Vec<String>,
) -> Result<(), (&'a str, String)> {
    let missing: Vec<usize> = (0..columns.len()).filter(|column| found[*column].is_none()).collect();
    if let Some(missing) = missing.iter().find(|column| is_gpu(columns[**column])) {
        let message =
            format!("is a column without a row: the text was cut after {} rows", found.iter().flatten().count());
        return Err((columns[*missing], message));
    }
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|column| columns[*column]).collect();
        notes.push(format!("{} have no rows, as if cut: placed by the other rows alone", names.join(", ")));
    }
    for column in missing {
        let cell = |other: usize| match &found[other] {
            _ if other == column => "X",
            Some(row) => row.cells[column],
            None => "",
        };
        let cells = (0..columns.len()).map(cell).collect();
        found[column] = Some(Found { line: last, cells, near: Near::default() });
    }
    Ok(())
}

/// The CPUs and NUMA nodes after the cells of the row `name`, under the headings `tail`.
fn near<'a>(text: &'a str, name: &str, cells: &[&str], tail: &[&str], words: &[&'a str]) -> Near<'a> {
    let said = |word: &&str| !word.is_empty() && !is_open(word);
    let has = |heading: &str| tail.contains(&heading);
    // Between single tabs a cell may be empty.
    let fields: Vec<&str> = text.split('\t').map(str::trim).collect();
    let start = fields.iter().position(|field| field.ends_with(name)).map_or(fields.len(), |at| at + 1);
    if let Some((_, rest)) = fields[start..].split_at_checked(cells.len()).filter(|(own, _)| *own == cells) {
        let mut rest = rest.iter().copied();
        let cpus = if has("CPU") { rest.next().filter(said) } else { None };
        let numa = if has("NUMA") { rest.next().filter(said) } else { None };
        return Near { cpus, numa };
    }
    // Between blanks it is not seen; a range or list of CPUs is.
    let is_list = words.first().is_some_and(|word| word.contains(['-', ',']) || is_open(word));
    let is_whole = words.len() >= tail.len() || (is_list && words.len() + 1 >= tail.len());
    let [cpus, numa] = if has("CPU") && (is_list || is_whole) { [0, 1] } else { [usize::MAX, 0] };
    let word = |at: usize| words.get(at).copied().filter(said);
    Near { cpus: word(cpus), numa: if has("NUMA") { word(numa) } else { None } }
}

/// The matrix with every cell read.
fn matrix<'f>(
    file: &'f str,
    columns: &[&str],
    found: Vec<Found<'_>>,
    notes: &mut Vec<String>,
) -> Result<Matrix<'f>, InputError> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, row) in found.into_iter().enumerate() {
        let error =
            |value: &str, message: String| Err(InputError::new(ErrorPlace::line(file, row.line), value, message));
        let name = columns[index];
        let mut cells: Vec<Option<Relation>> = Vec::new();
        for (column, word) in row.cells.iter().enumerate() {
            cells.push(match relation(word) {
                None if column == index && is_self(word) => None,
                _ if column == index => {
                    return error(word, format!("is on the diagonal ({name} to itself), which has X"));
                }
                Some(relation) => Some(relation),
                None if is_open(word) => {
                    // A row that is missing has been noted.
                    if column < index && !word.is_empty() {
                        let other = columns[column];
                        notes.push(format!(
                            "line {}: {word} leaves open how {name} reaches {other}: by what other cells say, or the CPUs",
                            row.line
                        ));
                    }
                    None
                }
                None => {
                    let message = "is not a supported kind of path: there are X, NV1 and up, PIX, PXB, PHB, NODE and \
                                   SYS (SOC in old versions)";
                    return error(word, message.to_owned());
                }
            });
        }
        let threads = row.near.cpus.and_then(Threads::of_ranges).unwrap_or_default();
        let numa = row.near.numa.map(str::to_owned);
        rows.push(Row { name: name.to_owned(), line: row.line, is_gpu: is_gpu(name), cells, numa, threads });
    }
    Ok(Matrix { file, rows })
}
