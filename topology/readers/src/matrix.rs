//! Reads the output of `nvidia-smi topo -m`: a row and a column for each GPU and NIC, and the CPUs near each GPU.
//!
//! The matrix has no rates: NVLinks and lanes are those of the GPUs' model, and all PCI Express links are
//! like the GPUs'.

use std::collections::BTreeMap;

use lockstep_topology::{ErrorPlace, InputError};

use crate::machine::{Machine, Nic};
use crate::relation::{Matrix, Row, relation};
use crate::{gpu, matrix_links, socket};

/// Rows of a matrix, at most.
const MOST: usize = 512;

/// The host that the matrix describes; its GPUs are called `model`.
pub(crate) fn read(file: &str, text: &str, model: Option<&str>) -> Result<Machine, InputError> {
    let text = without_escapes(text);
    let (matrix, names) = parse(file, &text)?;
    check_symmetry(&matrix)?;
    let Some(model) = model else {
        let message =
            format!("is needed, since {file} does not say which GPUs these are: lockstep clusters gpus lists them");
        return Err(InputError::flag("gpu", "", message));
    };
    let model = gpu::named(model)?;
    let mut machine = Machine { origin: format!("nvidia-smi topo -m in {file}"), ..Machine::default() };
    machine.gpus = matrix.rows.iter().filter(|row| row.is_gpu).count();
    for row in matrix.rows.iter().filter(|row| !row.is_gpu) {
        let wanted = names.get(&row.name).unwrap_or(&row.name);
        let name = machine.free_name(wanted, "nic");
        machine.nics.push(Nic { name, gbit_per_s: None });
    }
    matrix_links::join(&matrix, &model, &mut machine)?;
    machine.model = model.name;
    Ok(machine)
}

/// The text without the escape sequences by which a terminal underlines its first line.
fn without_escapes(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let after = piece.strip_prefix('[').and_then(|rest| rest.split_once(|c: char| c.is_ascii_alphabetic()));
        plain.push_str(after.map_or(piece, |(_, rest)| rest));
    }
    plain
}

/// The matrix, and the names of its NICs in the legend after it.
fn parse<'a>(file: &'a str, text: &str) -> Result<(Matrix<'a>, BTreeMap<String, String>), InputError> {
    let error = |line, value: &str, message: String| InputError::new(ErrorPlace::line(file, line), value, message);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let header = lines.find(|(_, line)| line.split_whitespace().next().is_some_and(is_gpu));
    let Some((top, header)) = header else {
        let message = "has no line that starts with GPU0: use NCCL's XML, or what nvidia-smi topo -m prints";
        return Err(error(1, "", message.to_owned()));
    };
    // After the devices come `CPU Affinity` and similar columns.
    let columns: Vec<&str> = header.split_whitespace().take_while(|word| !matches!(*word, "CPU" | "NUMA")).collect();
    if columns.len() > MOST {
        return Err(error(
            top,
            columns[0],
            format!("has {} columns; a host has at most {MOST} devices", columns.len()),
        ));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (line, text) in lines.by_ref() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some(name) = words.first() else { continue };
        if rows.len() == columns.len() {
            if words[0].starts_with("Legend") || !columns.contains(name) {
                break;
            }
            return Err(error(line, name, "is a row more than there are columns: print the matrix again".to_owned()));
        }
        let wanted = columns[rows.len()];
        if *name != wanted {
            return Err(error(
                line,
                name,
                format!("is not the row of {wanted}, which comes next: print the matrix again"),
            ));
        }
        let cells = words.get(1..=columns.len()).ok_or_else(|| {
            let message = format!("has {} of {} cells: print the matrix again", words.len() - 1, columns.len());
            error(line, name, message)
        })?;
        let mut row =
            Row { name: wanted.to_owned(), line, is_gpu: is_gpu(wanted), cells: Vec::new(), numa: None, threads: 0 };
        for (column, word) in cells.iter().enumerate() {
            let is_self = column == rows.len();
            row.cells.push(match (relation(word), is_self) {
                (None, true) if matches!(*word, "X" | "x") => None,
                (Some(relation), false) => Some(relation),
                (None, false) if matches!(*word, "N/A" | "-") => {
                    let message = format!("leaves open how {wanted} reaches {}; both need a way", columns[column]);
                    return Err(error(line, word, message));
                }
                (_, true) => {
                    return Err(error(line, word, format!("is on the diagonal ({wanted} to itself), which has X")));
                }
                (..) => {
                    let message =
                        "is not a supported kind of path: there are X, NV1 and up, PIX, PXB, PHB, NODE and SYS";
                    return Err(error(line, word, message.to_owned()));
                }
            });
        }
        let near = &words[columns.len() + 1..];
        if let Some(threads) = near.first().filter(|_| row.is_gpu) {
            row.threads = socket::threads_of_ranges(threads).unwrap_or(0);
        }
        row.numa = near.get(1).and_then(|word| word.parse().ok());
        rows.push(row);
    }
    if rows.len() < columns.len() {
        let message = format!("is the last of {} rows, of {}: the text was truncated", rows.len(), columns.len());
        let last = rows.last().map_or((top, columns[0]), |row| (row.line, row.name.as_str()));
        return Err(error(last.0, last.1, message));
    }
    // `  NIC0: mlx5_0`
    let named = lines.filter_map(|(_, line)| line.split_once(':'));
    let names = named.map(|(number, name)| (number.trim().to_owned(), name.trim().to_owned())).collect();
    Ok((Matrix { file, rows }, names))
}

fn is_gpu(word: &str) -> bool {
    word.strip_prefix("GPU").is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Refuses a matrix whose two cells of a pair differ.
fn check_symmetry(matrix: &Matrix<'_>) -> Result<(), InputError> {
    for (i, row) in matrix.rows.iter().enumerate() {
        if let Some(twice) = matrix.rows[..i].iter().find(|other| other.name == row.name) {
            return Err(matrix.error(i, &twice.name, "appears twice: print the matrix again"));
        }
        for (j, other) in matrix.rows.iter().enumerate().take(i) {
            if row.cells[j] != other.cells[i] {
                let message = "is another way than in the other's row: print the matrix again";
                return Err(matrix.error(i, format!("{} - {}", row.name, other.name), message));
            }
        }
    }
    Ok(())
}
