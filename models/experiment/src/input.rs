//! `[input]`: reads how samples reach the devices in predictions, every figure with its provenance.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use lockstep_models::{CopiedBy, Input, SampleSource};
use lockstep_topology::cluster::Provenance;
use lockstep_topology::{Bandwidth, Bytes, InputError, Time};

use crate::identity::Identity;
use lockstep_topology::document::Entry;

/// How the value of a key is written.
enum Form {
    Word(&'static [&'static str]),
    Whole(RangeInclusive<u64>),
    Count,
    Bytes,
    Rate,
    Time,
}

/// Keys of `[input]` with their forms: first choices, then figures, which have sources.
const KEYS: [(&str, Form); 13] = [
    ("source", Form::Word(&["files", "memory"])),
    ("groups", Form::Count),
    ("shuffle_every", Form::Count),
    ("prefetch", Form::Whole(0..=1024)),
    ("samples", Form::Whole(1..=(1 << 40) - 1)),
    ("image", Form::Bytes),
    ("storage_bandwidth", Form::Rate),
    ("storage_latency", Form::Time),
    ("page_cache", Form::Bytes),
    ("threads", Form::Count),
    ("decode", Form::Time),
    ("transform", Form::Time),
    ("callback", Form::Time),
];
/// Keys that samples from one source alone have.
const OF_SOURCE: [(&str, &[&str]); 2] =
    [("files", &["storage_bandwidth", "storage_latency", "page_cache"]), ("memory", &["groups", "shuffle_every"])];
/// The keys before this one are choices.
const FIRST_FIGURE: usize = 4;

/// The value of a key, displayed as identities spell it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Word(&'static str),
    Whole(u64),
    Bytes(Bytes),
    Rate(Bandwidth),
    Time(Time),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => word.fmt(f),
            Value::Whole(number) => number.fmt(f),
            Value::Bytes(bytes) => bytes.0.fmt(f),
            Value::Rate(rate) => rate.bytes_per_s().fmt(f),
            Value::Time(time) => time.0.fmt(f),
        }
    }
}

impl Form {
    fn read(&self, entry: &Entry<'_>) -> Result<Value, InputError> {
        match self {
            Form::Word(words) => {
                let text = entry.text()?;
                let [others @ .., last] = words else { unreachable!("there is a choice") };
                let wrong = || entry.error(format!("write {} or {last}", others.join(", ")));
                words.iter().find(|word| **word == text).map(|word| Value::Word(word)).ok_or_else(wrong)
            }
            Form::Whole(range) => entry.whole(range.clone()).map(Value::Whole),
            Form::Count => entry.count().map(|count| Value::Whole(count.into())),
            Form::Bytes => entry.read(str::parse).map(Value::Bytes),
            Form::Rate => entry.read(str::parse).map(Value::Rate),
            Form::Time => entry.read(str::parse).map(Value::Time),
        }
    }
}

/// The input that an experiment states; a later table replaces an earlier one key by key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stated {
    values: BTreeMap<&'static str, Value>,
    /// By key, as written in the file: the figure and its source.
    figures: BTreeMap<&'static str, (String, Option<Provenance>)>,
}

/// Reads `[input]` on top of an earlier one.
pub(crate) fn read(before: Option<&Stated>, entry: &Entry<'_>) -> Result<Stated, InputError> {
    let mut stated = before.cloned().unwrap_or_default();
    let keys = KEYS.map(|(key, _)| key);
    let section = entry.section("[input]", &[keys.as_slice(), &["provenance"]].concat())?;
    for (place, (key, form)) in KEYS.iter().enumerate() {
        let Some(entry) = section.get(key) else { continue };
        stated.values.insert(key, form.read(&entry)?);
        if place >= FIRST_FIGURE {
            let shown = entry.shown();
            let figure = shown.rsplit("= ").next().unwrap_or_default().trim_matches('"');
            stated.figures.insert(key, (figure.to_owned(), None));
        }
    }
    let own = if stated.reads_files() { "files" } else { "memory" };
    for (source, keys) in OF_SOURCE.iter().filter(|(source, _)| *source != own) {
        if let Some(entry) = keys.iter().find_map(|key| section.get(key)) {
            let message =
                format!("is of source = \"{source}\", and the source is {own}: give that source, or leave it out");
            return Err(entry.error(message));
        }
    }
    if let Some(entry) = section.get("provenance") {
        for entry in entry.section("provenance of [input]", &keys[FIRST_FIGURE..])?.entries() {
            let Some((_, provenance)) = stated.figures.get_mut(entry.key()) else {
                return Err(entry.error(format!("{} has no figure: add it, or leave this out", entry.key())));
            };
            *provenance = Some(entry.read(str::parse)?);
        }
    }
    if let Some((key, _)) = stated.figures.iter().find(|(_, (_, provenance))| provenance.is_none()) {
        return Err(entry.error(format!("{key} comes from nowhere: add provenance = {{ {key} = \"assumed: why\" }}")));
    }
    Ok(stated)
}

impl Stated {
    /// The input as a simulation takes it.
    ///
    /// # Errors
    /// A figure that is missing.
    pub fn input(&self) -> Result<Input, InputError> {
        let count = |key| self.whole(key).map(|count| count as u32);
        let source = match self.reads_files() {
            false => {
                SampleSource::Memory { groups: count("groups").unwrap_or(1), shuffle_every: count("shuffle_every") }
            }
            true => SampleSource::Files {
                bandwidth: match self.values.get("storage_bandwidth") {
                    Some(Value::Rate(rate)) => *rate,
                    _ => return Err(missing("storage_bandwidth", "\"1GB/s\"")),
                },
                latency: self.time("storage_latency").unwrap_or(Time::ZERO),
                page_cache: self.bytes("page_cache").unwrap_or(Bytes(0)),
            },
        };
        Ok(Input {
            samples: self.whole("samples").ok_or_else(|| missing("samples", "1281167"))?,
            sample_bytes: self.bytes("image").ok_or_else(|| missing("image", "\"110KiB\""))?,
            source,
            threads: count("threads").ok_or_else(|| missing("threads", "8"))?,
            decode: self.time("decode").ok_or_else(|| missing("decode", "\"8ms\""))?,
            decode_memory: 0.0,
            transform: self.time("transform").unwrap_or(Time::ZERO),
            prefetch: self.prefetch(),
            copied_by: CopiedBy::Upload,
        })
    }

    fn whole(&self, key: &str) -> Option<u64> {
        if let Value::Whole(number) = self.values.get(key)? { Some(*number) } else { None }
    }

    fn bytes(&self, key: &str) -> Option<Bytes> {
        if let Value::Bytes(bytes) = self.values.get(key)? { Some(*bytes) } else { None }
    }

    fn time(&self, key: &str) -> Option<Time> {
        if let Value::Time(time) = self.values.get(key)? { Some(*time) } else { None }
    }

    /// Batches that are fetched for a rank while it computes.
    pub fn prefetch(&self) -> u32 {
        self.whole("prefetch").map_or(1, |count| count as u32)
    }

    /// The time on a node's main thread at the end of a device's job.
    pub fn callback(&self) -> Time {
        self.time("callback").unwrap_or(Time::ZERO)
    }

    /// Whether samples come from files; else from memory.
    fn reads_files(&self) -> bool {
        self.values.get("source") == Some(&Value::Word("files"))
    }

    /// Adds what decides predictions: every stated figure and choice, without sources.
    pub fn identify(&self, identity: &mut Identity) {
        self.values.iter().for_each(|(key, value)| identity.set(&format!("input.{key}"), value));
    }

    /// The same with another latency of files, if it reads any, and another callback time.
    pub fn with_times(&self, storage_latency: Option<Time>, callback: Option<Time>) -> Stated {
        let latency = storage_latency.filter(|_| self.reads_files()).map(|time| ("storage_latency", time));
        let times = latency.into_iter().chain(callback.map(|time| ("callback", time)));
        let mut with = self.clone();
        with.values.extend(times.map(|(key, time)| (key, Value::Time(time))));
        with
    }

    /// Lists every figure with its source.
    pub fn account(&self) -> String {
        let figure = |(key, (shown, provenance)): (&&str, &(String, Option<Provenance>))| {
            let provenance = provenance.as_ref().map(|provenance| format!(" ({provenance})")).unwrap_or_default();
            format!("{key} {shown}{provenance}")
        };
        format!("input: {}", self.figures.iter().map(figure).collect::<Vec<_>>().join(", "))
    }
}

fn missing(key: &str, example: &str) -> InputError {
    InputError::flag("input", key, format!("is missing: add {key} = {example} to [input]"))
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    fn experiment(input: &str) -> Result<Experiment, InputError> {
        let text = format!("name = \"e\"\nmodel = \"mlp\"\n[input]\n{input}\n");
        Experiment::parse("e.toml", &text)
    }

    const WHOLE: &str = "source = \"files\"\nsamples = 1000\nimage = \"100KiB\"\nstorage_bandwidth = \"1GB/s\"\n\
                         storage_latency = \"5ms\"\nthreads = 4\ndecode = \"8ms\"\nprefetch = 2\n\
                         provenance = { samples = \"paper: A\", image = \"assumed\", storage_bandwidth = \"datasheet: B\", \
                         storage_latency = \"assumed: a disk\", threads = \"paper: A\", decode = \"assumed\" }";

    #[test]
    fn every_key_is_read() {
        let stated = experiment(WHOLE).unwrap().input.unwrap();
        let input = stated.input().unwrap();
        assert_eq!((input.samples, input.threads, input.prefetch), (1000, 4, 2));
        let SampleSource::Files { bandwidth, latency, .. } = input.source else { panic!("files") };
        assert_eq!((bandwidth.bytes_per_s(), latency, input.decode), (1e9, Time(5_000_000_000), Time(8_000_000_000)));
        let account = stated.account();
        assert!(account.contains("storage_latency 5ms (assumed: a disk)"), "{account}");
    }

    #[test]
    fn errors_state_what_is_wrong() {
        for (change, cure) in [
            (("decode = \"8ms\"\n", "decode = \"8ms\"\ncallback = \"1ms\"\n"), "[input]: callback comes from nowhere"),
            (("source = \"files\"", "source = \"disk\""), "write files or memory"),
            (("storage_latency = \"5ms\"\n", ""), "storage_latency has no figure"),
            (("source = \"files\"", "source = \"memory\""), "is of source = \"files\", and the source is memory"),
            (("threads = 4", "groups = 2\nthreads = 4"), "is of source = \"memory\", and the source is files"),
            (("assumed: a disk", "somebody"), "assumed"),
        ] {
            let text = WHOLE.replace(change.0, change.1);
            let error = experiment(&text).unwrap_err().to_string();
            assert!(error.contains(cure) && error.contains("e.toml:"), "{error}");
        }
        let without = WHOLE.replace("threads = 4\n", "").replace("threads = \"paper: A\", ", "");
        let missing = experiment(&without).unwrap().input.unwrap().input().unwrap_err().to_string();
        assert!(missing.contains("add threads = 8"), "{missing}");
    }
}
