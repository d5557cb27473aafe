//! `Board`: a GPU with its memory; the list of them is a data file, each row with its provenance.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use lockstep_topology::document::suggestion;

use crate::stack::GIB;

/// A GPU as it is sold: chip, memory, power limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Board {
    /// By which commands know it.
    pub name: String,
    /// Its name in the catalogue of GPUs (`topology/gpus.toml`), which has its rates.
    pub gpu: String,
    /// A shipped cluster of such GPUs, by whose name predictions know it.
    pub cluster: Option<String>,
    /// MiB that programs can use, as the driver's tool reports the whole less what it keeps.
    pub usable_mib: u64,
    /// Compute capability times ten; 94 stands for AMD's gfx942.
    pub capability: u32,
    /// GPUs of a host, usually.
    pub per_host: u64,
    /// Where the figures of its memory come from.
    pub provenance: String,
}

impl Board {
    /// The memory that programs can use, in GiB.
    pub fn usable_gib(&self) -> f64 {
        (self.usable_mib << 20) as f64 / GIB
    }

    /// The board of that name.
    ///
    /// # Errors
    /// None has it; names that begin with it, or the nearest, are listed.
    pub fn named(name: &str) -> Result<&'static Board, String> {
        let lower = name.to_lowercase();
        BOARDS.iter().find(|board| board.name == lower).ok_or_else(|| {
            let names = BOARDS.iter().map(|board| board.name.as_str());
            let longer: Vec<&str> = names.clone().filter(|of| !lower.is_empty() && of.starts_with(&lower)).collect();
            let cure = if longer.is_empty() {
                suggestion(&lower, names)
            } else {
                format!("did you mean {}?", longer.join(", "))
            };
            format!("there is no board {name:?}; {cure}")
        })
    }
}

/// All boards: name, GPU, cluster, usable MiB, capability, GPUs of a host, provenance, with bars between.
static TABLE: &str = include_str!("boards.txt");

/// The boards of the table, in its order.
pub static BOARDS: LazyLock<Vec<Board>> = LazyLock::new(|| TABLE.lines().filter_map(row).collect());

fn row(line: &str) -> Option<Board> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, gpu, cluster, usable, capability, per_host, provenance] = cells[..] else { return None };
    Some(Board {
        name: name.to_owned(),
        gpu: gpu.to_owned(),
        cluster: (cluster != "-").then(|| cluster.to_owned()),
        usable_mib: usable.parse().ok()?,
        capability: capability.parse().ok()?,
        per_host: per_host.parse().ok()?,
        provenance: provenance.to_owned(),
    })
}

/// Some GPUs of one kind: `8xh100-80`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpus {
    /// How many.
    pub count: u64,
    /// Of which kind.
    pub board: &'static Board,
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Gpus, String> {
        let lower = text.to_lowercase();
        let (count, name) = match lower.split_once(['x', '×']) {
            Some((count, name)) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => {
                (count, name)
            }
            _ => ("1", lower.as_str()),
        };
        let count = count.parse().ok().filter(|count| (1..=1 << 20).contains(count));
        let count = count.ok_or("must begin with a number of GPUs from 1 to 1048576, such as 8xh100-80")?;
        Ok(Gpus { count, board: Board::named(name)? })
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.count, self.board.name)
    }
}
