//! Reads a system's curves from its TOML text: points as pairs of bytes and microseconds, or of bus bandwidths in GB/s.

use std::path::Path;
use std::str::FromStr;

use lockstep_experiment::TransportKind;
use lockstep_topology::document::{Entry, SourceText, Table};
use lockstep_topology::{Algorithm, Collective, DESCRIPTION, InputError, read_text};

use super::shipped::SYSTEMS;
use super::{Curve, CurveColumn, CurvePoint, MeasuredSystem};

const KEYS: [&str; 8] = ["name", "source", "cluster", "ranks", "transport", "algorithm", "bytes", "curve"];
const CURVE: [&str; 8] = ["name", "collective", "algorithm", "from", "to", "time_us", "busbw", "busbw_by_ranks"];
/// Sizes that count, unless a curve says otherwise.
const FROM: u64 = 1 << 10;
/// The most ranks, whose alltoall has a count for each pair.
const RANKS: u32 = 4096;

impl MeasuredSystem {
    /// The system called `name`, or that of the file at this path.
    ///
    /// # Errors
    /// An unknown name, an unreadable file, and whatever [`MeasuredSystem::parse`] refuses.
    pub fn load(name: &str) -> Result<MeasuredSystem, InputError> {
        if let Some((_, text)) = SYSTEMS.into_iter().find(|(own, _)| *own == name) {
            return MeasuredSystem::parse(&format!("experiments/collectives/{name}.toml"), text);
        }
        if !name.ends_with(".toml") {
            let names = SYSTEMS.map(|(name, _)| name).join(", ");
            let message = format!("there are no such curves: there are {names}, or name a .toml file");
            return Err(InputError::new("SYSTEM", name, message));
        }
        let text = read_text(Path::new(name), DESCRIPTION).map_err(|error| {
            InputError::new("SYSTEM", name, error.with_cure("name one of lockstep's, or a .toml file"))
        })?;
        MeasuredSystem::parse(name, &text)
    }

    /// The names of those that come with lockstep.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SYSTEMS.into_iter().map(|(name, _)| name)
    }

    /// The curves that `text`, the content of `file`, describes.
    ///
    /// # Errors
    /// Invalid TOML, unknown or missing keys, points that are no pairs of positive numbers: with file, line and cure.
    pub fn parse(file: &str, text: &str) -> Result<MeasuredSystem, InputError> {
        let document = SourceText { file, text }.parse()?;
        let root = document.table("a system", &KEYS)?;
        let transport = root.required("transport", "\"mpi\"", TransportKind::from_str)?;
        let ranks = root.whole("ranks", 1..=RANKS.into())?.map(|ranks| ranks as u32);
        let bytes = root.whole("bytes", 4..=1 << 50)?;
        let algorithm = root.read("algorithm", "\"library:nccl\"", Algorithm::from_str)?;
        let tables = root.tables("curve", "[[curve]]", &CURVE)?;
        let curve = |table: &Table<'_>| curve(table, ranks, bytes, algorithm.as_ref());
        let curves = tables.iter().map(curve).collect::<Result<Vec<_>, _>>()?;
        if curves.is_empty() {
            return Err(root.missing("curve", "[{ name = \"allreduce\" }]"));
        }
        Ok(MeasuredSystem {
            name: root.need("name", "\"a100\"")?.text()?.to_owned(),
            source: root.need("source", "\"who measured\"")?.text()?.to_owned(),
            cluster: root.need("cluster", "\"dgx-a100\"")?.text()?.to_owned(),
            hosting: transport.hosting(),
            curves,
        })
    }
}

fn curve(
    table: &Table<'_>,
    ranks: Option<u32>,
    bytes: Option<u64>,
    common: Option<&Algorithm>,
) -> Result<Curve, InputError> {
    let collective = table.required("collective", "\"allreduce\"", |text| match text {
        "alltoall" => Ok(CurveColumn::AllToAll),
        _ => text.parse::<Collective>().map(CurveColumn::Named),
    })?;
    let own = table.read("algorithm", "\"library:nccl\"", Algorithm::from_str)?;
    let algorithm = own.or_else(|| common.cloned()).ok_or_else(|| table.missing("algorithm", "\"library:nccl\""))?;
    let from = table.whole("from", 0..=u64::MAX >> 1)?.unwrap_or(FROM);
    let to = table.whole("to", 0..=u64::MAX >> 1)?.unwrap_or(u64::MAX);
    let factor = |ranks| collective.of(ranks, 4 * u64::from(ranks)).bus_factor(ranks);
    // GB/s on the bus for a buffer.
    let micros = |bytes: u64, ranks, bus: f64| bytes as f64 * factor(ranks) / bus * 1e-3;
    let need_ranks = || ranks.ok_or_else(|| table.missing("ranks", "8, at the head of the file"));
    let read = |pair: (u64, f64), by_bus: bool| -> Result<CurvePoint, InputError> {
        let (ranks, (bytes, value)) = (need_ranks()?, pair);
        Ok(CurvePoint { ranks, bytes, micros: if by_bus { micros(bytes, ranks, value) } else { value } })
    };
    let points: Vec<CurvePoint> = if let Some(entry) = table.get("time_us") {
        pairs(&entry, 1 << 50)?.into_iter().map(|pair| read(pair, false)).collect::<Result<_, _>>()?
    } else if let Some(entry) = table.get("busbw") {
        pairs(&entry, 1 << 50)?.into_iter().map(|pair| read(pair, true)).collect::<Result<_, _>>()?
    } else if let Some(entry) = table.get("busbw_by_ranks") {
        let bytes = bytes.ok_or_else(|| table.missing("bytes", "8589934592, at the head of the file"))?;
        let point = |(ranks, bus)| CurvePoint { ranks, bytes, micros: micros(bytes, ranks, bus) };
        pairs(&entry, RANKS.into())?.into_iter().map(|(ranks, bus)| point((ranks as u32, bus))).collect()
    } else {
        return Err(table.missing("time_us", "[[1024, 35.4]]"));
    };
    let name = table.need("name", "\"allreduce\"")?.text()?.to_owned();
    Ok(Curve { name, collective, algorithm, counted: from..=to, points })
}

/// Pairs of a whole number up to `most` and a positive one.
fn pairs(entry: &Entry<'_>, most: u64) -> Result<Vec<(u64, f64)>, InputError> {
    let pair = |item: &Entry<'_>| {
        let numbers = item.items()?;
        let [first, second] = &numbers[..] else { return Err(item.error("must be a pair, like [1024, 35.4]")) };
        let value = second.number(0.0)?;
        if value <= 0.0 {
            return Err(second.error("must be positive; leave out what was not measured"));
        }
        Ok((first.whole(1..=most)?, value))
    };
    entry.items()?.iter().map(pair).collect()
}
