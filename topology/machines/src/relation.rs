//! Defines a matrix of devices and their relations, in the words of `nvidia-smi topo -m`.

use lockstep_topology::{ErrorPlace, InputError};

use crate::threads::Threads;

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

/// Whether a word is a cell of a device to itself.
pub(crate) fn is_self(word: &str) -> bool {
    matches!(word, "X" | "x")
}

/// Whether a word leaves a cell open.
pub(crate) fn is_open(word: &str) -> bool {
    matches!(word, "" | "N/A" | "NA" | "n/a" | "-" | "--" | "Unknown" | "UNKNOWN")
}

/// Whether a word is a cell of `nvidia-smi topo -p2p`, which has permissions and not ways.
pub(crate) fn is_permission(word: &str) -> bool {
    matches!(word, "OK" | "CNS" | "GNS" | "TNS" | "NS" | "DR" | "U")
}

/// Whether a word can be a cell.
pub(crate) fn is_cell(word: &str) -> bool {
    relation(word).is_some() || is_self(word) || is_open(word) || is_permission(word)
}

/// A GPU or a NIC.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) is_gpu: bool,
    /// To every device, in the order of the columns; none to itself, and where the file leaves it open.
    pub(crate) cells: Vec<Option<Relation>>,
    /// The nearest NUMA nodes as the file writes them, where it does.
    pub(crate) numa: Option<String>,
    /// The hardware threads nearby; empty where the file does not state them.
    pub(crate) threads: Threads,
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

    /// What the row of `one` says of `other`, in the file's words: `line 3 says PIX`.
    pub(crate) fn cell(&self, one: usize, other: usize) -> String {
        let word = match self.rows[one].cells[other] {
            Some(Relation::NvLinks(count)) => format!("NV{count}"),
            Some(relation) => format!("{relation:?}").to_uppercase(),
            None => "nothing".to_owned(),
        };
        format!("line {} says {word}", self.rows[one].line)
    }
}
