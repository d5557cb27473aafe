//! `[input]`: how samples reach the devices in predictions, every figure with its provenance.

use std::collections::BTreeMap;

use lockstep_sim::{Input, SampleSource, TransformAt};
use lockstep_topology::cluster::Provenance;
use lockstep_topology::{Bandwidth, Bytes, InputError, Time};

use crate::identity::Identity;
use lockstep_topology::document::Entry;

/// Keys of `[input]`.
const KEYS: [&str; 15] = [
    "source",
    "groups",
    "shuffle_every",
    "transform_at",
    "prefetch",
    "samples",
    "image",
    "storage_bandwidth",
    "storage_latency",
    "page_cache",
    "threads",
    "decode",
    "transform",
    "callback",
    "provenance",
];
/// Those before this one are choices; the figures behind say where they come from.
const FIRST_FIGURE: usize = 5;

/// What an experiment says of its input; a later table replaces key by key what an earlier one has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stated {
    in_memory: Option<bool>,
    groups: Option<u32>,
    shuffle_every: Option<u32>,
    transform_at: Option<TransformAt>,
    prefetch: Option<u32>,
    samples: Option<u64>,
    image: Option<Bytes>,
    storage_bandwidth: Option<Bandwidth>,
    storage_latency: Option<Time>,
    page_cache: Option<Bytes>,
    threads: Option<u32>,
    decode: Option<Time>,
    transform: Option<Time>,
    callback: Option<Time>,
    /// By key, as it stands there: the figure and where it comes from.
    figures: BTreeMap<String, (String, Option<Provenance>)>,
}

/// Reads `[input]` over what is there already.
pub(crate) fn read(before: Option<&Stated>, entry: &Entry<'_>) -> Result<Stated, InputError> {
    let mut stated = before.cloned().unwrap_or_default();
    let section = entry.section("[input]", &KEYS)?;
    for entry in section.entries() {
        match entry.key() {
            "source" => {
                stated.in_memory = Some(match entry.text()? {
                    "files" => false,
                    "memory" => true,
                    _ => return Err(entry.error("write files or memory")),
                });
            }
            "groups" => stated.groups = Some(entry.count()?),
            "shuffle_every" => stated.shuffle_every = Some(entry.count()?),
            "transform_at" => {
                stated.transform_at = Some(match entry.text()? {
                    "host" => TransformAt::Host,
                    "device" => TransformAt::Device,
                    "when-late" => TransformAt::WhenLate,
                    _ => return Err(entry.error("write host, device or when-late")),
                });
            }
            "prefetch" => stated.prefetch = Some(entry.whole(0..=1024)? as u32),
            "samples" => stated.samples = Some(entry.whole(1..=(1 << 40) - 1)?),
            "image" => stated.image = Some(entry.read(str::parse)?),
            "storage_bandwidth" => stated.storage_bandwidth = Some(entry.read(str::parse)?),
            "storage_latency" => stated.storage_latency = Some(entry.read(str::parse)?),
            "page_cache" => stated.page_cache = Some(entry.read(str::parse)?),
            "threads" => stated.threads = Some(entry.count()?),
            "decode" => stated.decode = Some(entry.read(str::parse)?),
            "transform" => stated.transform = Some(entry.read(str::parse)?),
            "callback" => stated.callback = Some(entry.read(str::parse)?),
            _ => continue,
        }
        if KEYS[FIRST_FIGURE..].contains(&entry.key()) {
            let shown = entry.shown();
            let figure = shown.rsplit("= ").next().unwrap_or_default().trim_matches('"');
            stated.figures.insert(entry.key().to_owned(), (figure.to_owned(), None));
        }
    }
    if let Some(entry) = section.get("provenance") {
        for entry in entry.section("provenance of [input]", &KEYS[FIRST_FIGURE..KEYS.len() - 1])?.entries() {
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
    /// What it means to a simulation.
    ///
    /// # Errors
    /// A figure that is missing.
    pub fn input(&self) -> Result<Input, InputError> {
        let source = match self.in_memory.unwrap_or(true) {
            true => SampleSource::Memory { groups: self.groups.unwrap_or(1), shuffle_every: self.shuffle_every },
            false => SampleSource::Files {
                bandwidth: need(self.storage_bandwidth, "storage_bandwidth", "\"1GB/s\"")?,
                latency: self.storage_latency.unwrap_or(Time::ZERO),
                page_cache: self.page_cache.unwrap_or(Bytes(0)),
            },
        };
        Ok(Input {
            samples: need(self.samples, "samples", "1281167")?,
            sample_bytes: need(self.image, "image", "\"110KiB\"")?,
            source,
            threads: need(self.threads, "threads", "8")?,
            decode: need(self.decode, "decode", "\"8ms\"")?,
            transform: self.transform.unwrap_or(Time::ZERO),
            transform_at: self.transform_at.unwrap_or(TransformAt::Host),
            prefetch: self.prefetch.unwrap_or(1),
            callback: self.callback.unwrap_or(Time::ZERO),
        })
    }

    /// Adds what decides predictions: every figure and choice that is stated, without where the figures come from.
    pub fn identify(&self, identity: &mut Identity) {
        let transform_at = self.transform_at.map(|at| match at {
            TransformAt::Host => "host",
            TransformAt::Device => "device",
            TransformAt::WhenLate => "when-late",
        });
        let source = self.in_memory.map(|in_memory| if in_memory { "memory" } else { "files" });
        let bandwidth = self.storage_bandwidth.map(|bandwidth| bandwidth.bytes_per_s());
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0);
        let time = |time: Option<Time>| time.map(|time| time.0);
        identity.set_some("input.source", source);
        identity.set_some("input.groups", self.groups);
        identity.set_some("input.shuffle_every", self.shuffle_every);
        identity.set_some("input.transform_at", transform_at);
        identity.set_some("input.prefetch", self.prefetch);
        identity.set_some("input.samples", self.samples);
        identity.set_some("input.image", bytes(self.image));
        identity.set_some("input.storage_bandwidth", bandwidth);
        identity.set_some("input.storage_latency", time(self.storage_latency));
        identity.set_some("input.page_cache", bytes(self.page_cache));
        identity.set_some("input.threads", self.threads);
        identity.set_some("input.decode", time(self.decode));
        identity.set_some("input.transform", time(self.transform));
        identity.set_some("input.callback", time(self.callback));
    }

    /// The same with another latency of files, if it reads any, and another end of jobs.
    pub fn with_times(&self, storage_latency: Option<Time>, callback: Option<Time>) -> Stated {
        let latency = storage_latency.filter(|_| self.in_memory == Some(false));
        Stated {
            storage_latency: latency.or(self.storage_latency),
            callback: callback.or(self.callback),
            ..self.clone()
        }
    }

    /// Every figure with where it comes from.
    pub fn account(&self) -> String {
        let figure = |(key, (shown, provenance)): (&String, &(String, Option<Provenance>))| {
            let provenance = provenance.as_ref().map(|provenance| format!(" ({provenance})")).unwrap_or_default();
            format!("{key} {shown}{provenance}")
        };
        format!("input: {}", self.figures.iter().map(figure).collect::<Vec<_>>().join(", "))
    }
}

fn need<T>(figure: Option<T>, key: &str, example: &str) -> Result<T, InputError> {
    figure.ok_or_else(|| InputError::flag("input", key, format!("is missing: add {key} = {example} to [input]")))
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
        assert_eq!((input.samples, input.threads, input.prefetch, input.transform_at), (1000, 4, 2, TransformAt::Host));
        let SampleSource::Files { bandwidth, latency, .. } = input.source else { panic!("files") };
        assert_eq!((bandwidth.bytes_per_s(), latency, input.decode), (1e9, Time(5_000_000_000), Time(8_000_000_000)));
        let account = stated.account();
        assert!(account.contains("storage_latency 5ms (assumed: a disk)"), "{account}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (change, cure) in [
            (("decode = \"8ms\"\n", "decode = \"8ms\"\ncallback = \"1ms\"\n"), "[input]: callback comes from nowhere"),
            (("source = \"files\"", "source = \"disk\""), "write files or memory"),
            (("prefetch = 2", "transform_at = \"gpu\""), "when-late"),
            (("storage_latency = \"5ms\"\n", ""), "storage_latency has no figure"),
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
