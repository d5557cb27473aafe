//! Defines a matrix of devices and their relations, in the words of `nvidia-smi topo -m`.

use lockstep_topology::{ErrorPlace, InputError};

/// A cell of the matrix, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Relation {
    /// By at most one PCI Express bridge.
    Pix,
    /// By several bridges, and not through a CPU.
    Pxb,
    /// Through the PCI Express host bridge of a CPU.
    Phb,
    /// Through several host bridges of a NUMA node.
    Node,
    /// From one NUMA node to another.
    Sys,
    /// By this number of NVLinks.
    NvLinks(u32),
}

/// The relation of a cell; `None` for an unknown word.
pub(crate) fn relation(word: &str) -> Option<Relation> {
    Some(match word {
        "PIX" => Relation::Pix,
        "PXB" => Relation::Pxb,
        "PHB" => Relation::Phb,
        "NODE" => Relation::Node,
        "SYS" | "SOC" => Relation::Sys,
        _ => {
            let count: u32 = word.strip_prefix("NV")?.parse().ok()?;
            Relation::NvLinks((1..=1_024).contains(&count).then_some(count)?)
        }
    })
}

/// A GPU or a NIC.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) is_gpu: bool,
    /// To every device, in the order of the columns; none to itself.
    pub(crate) cells: Vec<Option<Relation>>,
    /// The nearest NUMA node, where the file states it.
    pub(crate) numa: Option<u32>,
    /// The number of hardware threads nearby.
    pub(crate) threads: u32,
}

/// The matrix with the name of its file.
pub(crate) struct Matrix<'a> {
    pub(crate) file: &'a str,
    pub(crate) rows: Vec<Row>,
}

impl Matrix<'_> {
    /// An error about the row `row`.
    pub(crate) fn error(&self, row: usize, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError::new(ErrorPlace::line(self.file, self.rows[row].line), value, message)
    }
}
