//! Reads the output of `nvidia-smi topo -m`: a row and a column for each GPU and NIC, and the CPUs near each GPU.
//!
//! The matrix has no rates: NVLinks and lanes are those of the GPUs' model, and all PCI Express links are
//! like the GPUs'.

use std::collections::BTreeMap;

use lockstep_topology::InputError;

use crate::machine::{Machine, Nic};
use crate::matrix_rows::{self, is_gpu};
use crate::relation::{Matrix, Relation};
use crate::words::{self, Line};
use crate::{gpu, matrix_links};

/// The host that the matrix describes; its GPUs are called `model`.
pub(crate) fn read(file: &str, text: &str, model: Option<&str>) -> Result<Machine, InputError> {
    let text = words::without_escapes(text);
    let lines = words::lines(&text);
    let mut machine = Machine { origin: format!("nvidia-smi topo -m in {file}"), ..Machine::default() };
    let matrix = matrix_rows::parse(file, &lines, &mut machine.notes)?;
    check_symmetry(&matrix)?;
    let Some(model) = model else {
        let message =
            format!("is needed, since {file} does not say which GPUs these are: lockstep clusters gpus lists them");
        return Err(InputError::flag("gpu", "", message));
    };
    let model = gpu::named(model)?;
    machine.gpus = matrix.rows.iter().filter(|row| row.is_gpu).count();
    let names = legend(&lines);
    for row in matrix.rows.iter().filter(|row| !row.is_gpu) {
        let wanted = names.get(row.name.as_str()).copied().unwrap_or(&row.name);
        let name = machine.free_name(wanted, "nic");
        machine.nics.push(Nic::new(name, [row.name.as_str(), wanted]));
    }
    mark_near(&matrix, &mut machine);
    matrix_links::join(&matrix, &model, &mut machine)?;
    machine.model = model.name;
    Ok(machine)
}

/// The names of NICs by their columns, from lines like `  NIC0: mlx5_0`.
fn legend<'a>(lines: &[Line<'a>]) -> BTreeMap<&'a str, &'a str> {
    let named = |line: &Line<'a>| {
        let [.., number, name] = line.words.as_slice() else { return None };
        Some((number.strip_suffix(':').filter(|number| number.starts_with("NIC"))?, *name))
    };
    lines.iter().filter_map(named).collect()
}

/// Marks the NICs that share a bridge with a GPU, where every GPU has one such NIC.
fn mark_near(matrix: &Matrix<'_>, machine: &mut Machine) {
    let is_near = |one: usize, other: usize| matrix.rows[one].cells[other].is_some_and(|cell| cell <= Relation::Pxb);
    let of = |wanted: bool| (0..matrix.rows.len()).filter(move |row| matrix.rows[*row].is_gpu == wanted);
    let all_have = of(true).all(|gpu| of(false).any(|nic| is_near(gpu, nic)));
    for (nic, row) in machine.nics.iter_mut().zip(of(false)) {
        nic.is_far = all_have && !of(true).any(|gpu| is_near(row, gpu));
    }
}

/// Refuses a matrix whose two cells of a pair differ.
fn check_symmetry(matrix: &Matrix<'_>) -> Result<(), InputError> {
    for (i, row) in matrix.rows.iter().enumerate() {
        for (j, other) in matrix.rows.iter().enumerate().take(i) {
            if row.cells[j] != other.cells[i] {
                let message = format!(
                    "is one way and another: {}, and {}; correct one of the two cells, or print the matrix again",
                    matrix.cell(i, j),
                    matrix.cell(j, i)
                );
                return Err(matrix.error(i, format!("{} - {}", row.name, other.name), message));
            }
        }
        let is_linked = |cell: &Option<Relation>| matches!(cell, Some(Relation::NvLinks(_)));
        if !is_gpu(&row.name) && row.cells.iter().any(is_linked) {
            return Err(matrix.error(i, &row.name, "is a NIC and has NVLinks: print the matrix again"));
        }
    }
    Ok(())
}
