//! Reads `[[scenario]]`: disturbances and failures that predictions apply to a cluster.

use lockstep_topology::{Bytes, ErrorPlace, InputError, Time};

use lockstep_topology::document::{Entry, Table};

/// One thing that may go wrong, or several at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// The name of its rows.
    pub name: String,
    /// Its entries, in the order of the kinds below.
    pub entries: Vec<ScenarioEntry>,
}

/// An entry of a scenario and its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioEntry {
    /// File and line.
    pub place: ErrorPlace,
    /// The entry as written in the file, shortened.
    pub shown: String,
    /// Its meaning.
    pub what: Trouble,
}

/// The meaning of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum Trouble {
    /// Work of the ranks on some hosts, or of some ranks, takes longer.
    Slow {
        /// Patterns of hosts.
        hosts: Vec<String>,
        /// Numbers of ranks.
        ranks: Vec<u32>,
        /// How many times longer.
        factor: f64,
        /// Start, in simulated time.
        from: Time,
        /// End.
        until: Time,
    },
    /// Wires between things of two patterns are slower or have more latency.
    Degraded {
        /// The patterns.
        between: (String, String),
        /// Only the first `count` wires.
        count: Option<u32>,
        /// The share of their rate that is left.
        bandwidth: f64,
        /// Latency added to theirs.
        latency: Time,
    },
    /// Wires between things of two patterns have failed.
    Failed {
        /// The patterns.
        between: (String, String),
        /// Only the first `count` wires.
        count: Option<u32>,
    },
    /// Other traffic from devices of one pattern to those of another.
    Traffic {
        /// The senders.
        from: String,
        /// The receivers.
        to: String,
        /// The amount.
        load: TrafficLoad,
    },
}

/// The amount of other traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrafficLoad {
    /// At most this many bytes per second, only in the forward pass or always.
    Rate {
        /// Bytes per second.
        bytes_per_s: f64,
        /// Whether only while a rank computes a forward pass.
        forward: bool,
    },
    /// This many bytes each iteration.
    PerIteration(Bytes),
}

/// The scenario name of rows without one.
pub const NONE: &str = "none";

/// Reads all `[[scenario]]` tables.
pub(crate) fn read(entry: &Entry<'_>) -> Result<Vec<Scenario>, InputError> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for item in entry.items()? {
        let section = item.section("[[scenario]]", &["name", "slow", "degraded", "failed", "traffic"])?;
        let name = section.need("name", "\"a slow host\"")?;
        let mut scenario = Scenario { name: name.text()?.to_owned(), entries: Vec::new() };
        if scenario.name == NONE || scenarios.iter().any(|other| other.name == scenario.name) {
            return Err(name.error("is taken: give each scenario a name of its own, and none is the undisturbed run"));
        }
        for (kind, of) in KINDS {
            for item in section.get(kind).map_or(Ok(Vec::new()), |entry| entry.items())? {
                scenario.entries.push(ScenarioEntry { place: item.place(), shown: item.shown(), what: of(&item)? });
            }
        }
        if scenario.entries.is_empty() {
            let message = "has no effect: add slow, degraded, failed or traffic, \
                           e.g. slow = { hosts = \"node3\", factor = 1.5 }";
            return Err(name.error(message));
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

/// Reads one kind of entry.
type Read = fn(&Entry<'_>) -> Result<Trouble, InputError>;

const KINDS: [(&str, Read); 4] = [("slow", slow), ("degraded", degraded), ("failed", failed), ("traffic", traffic)];

fn slow(entry: &Entry<'_>) -> Result<Trouble, InputError> {
    let section = entry.section("slow", &["hosts", "ranks", "factor", "from", "until"])?;
    let list = |key: &str| section.get(key).map_or(Ok(Vec::new()), |entry| entry.items());
    let hosts = list("hosts")?.iter().map(|item| item.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    let ranks: Result<Vec<u32>, InputError> =
        list("ranks")?.iter().map(|item| item.whole(0..=u64::from(u32::MAX)).map(|rank| rank as u32)).collect();
    let ranks = ranks?;
    if hosts.is_empty() == ranks.is_empty() {
        return Err(entry.error("needs either hosts = \"node3\" or ranks = [3]: what it slows down"));
    }
    let factor = positive(&section.need("factor", "1.5")?)?;
    let time = |key: &str| section.get(key).map(|entry| entry.read(str::parse::<Time>)).transpose();
    let (from, until) = (time("from")?.unwrap_or(Time::ZERO), time("until")?.unwrap_or(Time::MAX));
    if from >= until {
        return Err(entry.error("ends before it begins: until must be later than from"));
    }
    Ok(Trouble::Slow { hosts, ranks, factor, from, until })
}

fn degraded(entry: &Entry<'_>) -> Result<Trouble, InputError> {
    let section = entry.section("degraded", &["between", "count", "bandwidth", "latency"])?;
    let bandwidth = section.get("bandwidth").map_or(Ok(1.0), |entry| positive(&entry))?;
    let latency = section.get("latency").map_or(Ok(Time::ZERO), |entry| entry.read(str::parse))?;
    if section.get("bandwidth").is_none() && section.get("latency").is_none() {
        return Err(entry.error("has no effect: give bandwidth = 0.5 (a factor), latency = \"5us\" (on top), or both"));
    }
    Ok(Trouble::Degraded { between: between(&section)?, count: count(&section)?, bandwidth, latency })
}

fn failed(entry: &Entry<'_>) -> Result<Trouble, InputError> {
    let section = entry.section("failed", &["between", "count"])?;
    Ok(Trouble::Failed { between: between(&section)?, count: count(&section)? })
}

fn traffic(entry: &Entry<'_>) -> Result<Trouble, InputError> {
    let section = entry.section("traffic", &["from", "to", "bandwidth", "bytes", "during"])?;
    let device = |key: &str| section.need(key, "\"node0.cpu\"").and_then(|entry| entry.text().map(str::to_owned));
    let forward = match section.get("during") {
        None => false,
        Some(during) if during.is("always") => false,
        Some(during) if during.is("forward") => true,
        Some(during) => return Err(during.error("must be \"always\" or \"forward\"")),
    };
    let load = match (section.get("bandwidth"), section.get("bytes")) {
        (Some(rate), None) => {
            let rate: lockstep_topology::Bandwidth = rate.read(str::parse)?;
            TrafficLoad::Rate { bytes_per_s: rate.bytes_per_s(), forward }
        }
        (None, Some(bytes)) if section.get("during").is_none() => TrafficLoad::PerIteration(bytes.read(str::parse)?),
        (None, Some(_)) => return Err(entry.error("bytes leave at the beginning of each iteration: leave during out")),
        _ => {
            let message = "give bandwidth = \"1GB/s\" or bytes = \"100MiB\" (of each iteration), one of the two";
            return Err(entry.error(message));
        }
    };
    Ok(Trouble::Traffic { from: device("from")?, to: device("to")?, load })
}

/// Two patterns; a single one is paired with `*`.
fn between(section: &Table<'_>) -> Result<(String, String), InputError> {
    let entry = section.need("between", "[\"node3.eth0\", \"switch\"]")?;
    let ends: Result<Vec<&str>, InputError> = entry.items()?.iter().map(|item| item.text()).collect();
    match ends?[..] {
        [one] => Ok((one.to_owned(), "*".to_owned())),
        [one, other] => Ok((one.to_owned(), other.to_owned())),
        _ => Err(entry.error("must be one name (all its links), or two (the links between them)")),
    }
}

fn count(section: &Table<'_>) -> Result<Option<u32>, InputError> {
    section.get("count").map(|entry| entry.count()).transpose()
}

fn positive(entry: &Entry<'_>) -> Result<f64, InputError> {
    match entry.number(0.0)? {
        0.0 => Err(entry.error(format!("{} must be more than 0; list what has failed under failed", entry.key()))),
        number => Ok(number),
    }
}
