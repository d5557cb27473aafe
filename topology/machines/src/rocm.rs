//! Reads the output of `rocm-smi --showtopo` and `amd-smi topology`: tables of the kind of link, the weight and the hops
//! between each two GPUs, and, of the former, the NUMA node of each.

use std::collections::BTreeMap;

use lockstep_topology::{ErrorPlace, InputError};

use crate::machine::{Machine, Rate};
use crate::matrix_rows::is_gpu;
use crate::threads::Threads;
use crate::words::{self, Line};
use crate::{gpu, pcie, socket};

/// The weight of a path over one Infinity Fabric link; each further link adds as much.
const DIRECT: u32 = 15;
/// GPUs of a host, at most.
const MOST: usize = 512;

/// Rows of a table with their lines.
type Table<'a> = Vec<(usize, Vec<&'a str>)>;

/// Whether a text is of that tool.
pub(crate) fn is_its(text: &str) -> bool {
    ["Link Type between two GPUs", "Weight between two GPUs", "Hops between two GPUs"]
        .iter()
        .any(|of| text.contains(of))
        || is_of_amd_smi(text)
}

/// Whether the tables are those of amd-smi, whose rows and columns are the GPUs' addresses on the bus.
fn is_of_amd_smi(text: &str) -> bool {
    ["LINK TYPE TABLE", "WEIGHT TABLE", "HOPS TABLE"].iter().any(|of| text.contains(of))
}

/// The text with `GPU0`, `GPU1`, … for addresses like `0000:0c:00.0`, in the order in which they appear.
fn numbered(text: &str) -> String {
    let is_address = |word: &str| {
        let parts: Vec<&str> = word.split([':', '.']).collect();
        let is_hex = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_hexdigit());
        matches!(parts.as_slice(), [_, bus, device, _] if bus.len() == 2 && device.len() == 2)
            && parts.iter().all(is_hex)
            && word.matches(':').count() == 2
    };
    let mut known: Vec<&str> = Vec::new();
    let mut number = |word| {
        let at = known.iter().position(|other| *other == word).unwrap_or_else(|| {
            known.push(word);
            known.len() - 1
        });
        format!("GPU{at}")
    };
    // Spaces stay, so that a table stays one.
    let pieces = text.split_inclusive(char::is_whitespace).map(|piece| {
        let word = piece.trim_end();
        if is_address(word) { number(word) + &piece[word.len()..] } else { piece.to_owned() }
    });
    pieces.collect()
}

/// The host that the tables describe; its GPUs are called `model`.
pub(crate) fn read(file: &str, text: &str, model: Option<&str>) -> Result<Machine, InputError> {
    let text = words::without_escapes(text);
    let (text, tool, headings) = match is_of_amd_smi(&text) {
        true => (numbered(&text), "amd-smi topology", ["LINK TYPE TABLE", "WEIGHT TABLE"]),
        false => (text, "rocm-smi --showtopo", ["Link Type between", "Weight between"]),
    };
    let lines = words::lines(&text);
    let Some(kinds) = table(file, &lines, headings[0])? else {
        let message = format!("has no table of the link type between GPUs: use all that {tool} prints");
        return Err(InputError::new(ErrorPlace::line(file, 1), "", message));
    };
    let weights = table(file, &lines, headings[1])?.filter(|weights| weights.len() == kinds.len());
    let Some(model) = model else {
        let message =
            format!("is needed, since {file} does not say which GPUs these are: lockstep clusters gpus lists them");
        return Err(InputError::flag("gpu", "", message));
    };
    let model = gpu::named(model)?;
    let mut machine = Machine { origin: format!("{tool} in {file}"), gpus: kinds.len(), ..Machine::default() };
    let lanes = model.spec.pcie.unwrap_or(pcie::UNKNOWN);
    let nodes = nodes(&lines);
    let all: std::collections::BTreeSet<u32> = nodes.values().copied().collect();
    for _ in 0..all.len().max(1) {
        machine.sockets.push(socket::of_time(lanes, Threads::default()));
    }
    if nodes.len() < kinds.len() {
        machine
            .notes
            .push("it does not say the NUMA node of each GPU: those it leaves open are in the first".to_owned());
    }
    for gpu in 0..kinds.len() {
        let node = nodes.get(&gpu).map_or(0, |node| all.range(..node).count());
        let socket = machine.socket(node);
        machine.link(&socket, &format!("gpu{gpu}"), Rate::Pcie(lanes), true);
    }
    let mut pairs = Vec::new();
    for one in 0..kinds.len() {
        for other in 0..one {
            if kind(file, &kinds, one, other)? {
                pairs.push((other, one));
            }
        }
    }
    if !pairs.is_empty() {
        let Some(rate) = gpu::xgmi(&model.name) else {
            let message = format!("has no Infinity Fabric, and {file} has: name the right model, such as mi300x");
            return Err(InputError::flag("gpu", model.name, message));
        };
        let weight = |(one, other): &(usize, usize)| {
            weights.as_ref().and_then(|weights| weights[*one].1[*other].parse::<u32>().ok())
        };
        let (direct, others): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|pair| weight(pair).is_none_or(|weight| weight <= DIRECT));
        direct.iter().for_each(|(one, other)| {
            machine.link(&format!("gpu{one}"), &format!("gpu{other}"), Rate::Xgmi(rate), true);
        });
        machine.notes.push("it does not say how many links join two GPUs: one each".to_owned());
        if !others.is_empty() {
            let message = "pairs of GPUs are joined by way of a third, by their weight, and go over PCI Express here";
            machine.notes.push(format!("{} {message}", others.len()));
        }
    }
    machine.model = model.name;
    Ok(machine)
}

/// The table under a heading, every row with as many cells as there are rows; `None` where it is not there.
fn table<'a>(file: &str, lines: &[Line<'a>], heading: &str) -> Result<Option<Table<'a>>, InputError> {
    let error = |line, value: &str, message: String| InputError::new(ErrorPlace::line(file, line), value, message);
    let Some(start) = lines.iter().position(|line| line.text.contains(heading)) else { return Ok(None) };
    let header = lines[start + 1..].iter().find(|line| line.words.iter().any(|word| is_gpu(word)));
    let Some(header) = header else {
        return Err(error(lines[start].number, "", "has no table below: print it again".to_owned()));
    };
    let columns: Vec<&str> = header.words.iter().copied().filter(|word| is_gpu(word)).collect();
    if columns.len() > MOST {
        return Err(error(header.number, columns[0], format!("is one of more than {MOST} GPUs: a host has fewer")));
    }
    let mut rows = Table::new();
    for line in lines[start + 1..].iter().filter(|line| line.number > header.number) {
        let Some(wanted) = columns.get(rows.len()) else { break };
        let at = line.words.iter().position(|word| word == wanted);
        let Some(cells) = at.and_then(|at| line.words.get(at + 1..)) else { break };
        if cells.len() < columns.len() {
            let message = format!("has {} of {} cells: print it again", cells.len(), columns.len());
            return Err(error(line.number, wanted, message));
        }
        rows.push((line.number, cells[..columns.len()].to_vec()));
    }
    match columns.get(rows.len()) {
        None => Ok(Some(rows)),
        Some(missing) => {
            let last = rows.last().map_or(header.number, |(line, _)| *line);
            Err(error(last, missing, "is a column without a row: the text was cut; print it again".to_owned()))
        }
    }
}

/// Whether two GPUs are joined by Infinity Fabric, and not by PCI Express.
fn kind(file: &str, kinds: &Table<'_>, one: usize, other: usize) -> Result<bool, InputError> {
    let ((line, cells), (back_line, back)) = (&kinds[one], &kinds[other]);
    let (cell, back) = (cells[other], back[one]);
    let pair = format!("GPU{one} - GPU{other}");
    if cell != back {
        let message = format!(
            "is one way and another: line {line} says {cell}, and line {back_line} says {back}; correct one of the two \
             cells, or print it again"
        );
        return Err(InputError::new(ErrorPlace::line(file, *line), pair, message));
    }
    match cell {
        "XGMI" => Ok(true),
        "PCIE" | "PCIe" | "N/A" => Ok(false),
        _ => {
            let message = "is not a supported kind of link: there are XGMI and PCIE";
            Err(InputError::new(ErrorPlace::line(file, *line), cell, message))
        }
    }
}

/// NUMA nodes by GPU, from lines like `GPU[0] : (Topology) Numa Node: 0`.
fn nodes(lines: &[Line<'_>]) -> BTreeMap<usize, u32> {
    let node = |line: &Line<'_>| {
        let gpu = line.text.split_once("GPU[")?.1.split_once(']')?.0.parse().ok()?;
        let (_, node) = line.text.split_once("Numa Node:")?;
        Some((gpu, node.trim().parse().ok()?))
    };
    lines.iter().filter_map(node).collect()
}
