//! Recognises the lines of nccl-tests among what launchers, shells and NCCL print before, after and within them.

/// The types that nccl-tests, rccl-tests and nccom-test print.
const TYPES: [&str; 25] = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "char", "int",
    "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "fp16", "fp32", "fp64", "bf16", "float16", "float32", "float64", "f16",
    "f32",
];

/// Names of columns; a header ends before the first other word.
const COLUMNS: [&str; 29] = [
    "size",
    "bytes",
    "count",
    "n",
    "elements",
    "type",
    "redop",
    "op",
    "root",
    "time",
    "algbw",
    "busbw",
    "error",
    "wrong",
    "res",
    "delta",
    "repetitions",
    "t_min",
    "t_max",
    "t_avg",
    "avglatency",
    "minlatency",
    "maxlatency",
    "iterations",
    "cputime",
    "i_min",
    "i_max",
    "i_p99",
    "i_cv%",
];

/// Where a table has what, as numbers of cells in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Columns {
    /// Cells of a row.
    pub(super) cells: usize,
    pub(super) count: Option<usize>,
    pub(super) kind: Option<usize>,
    pub(super) redop: Option<usize>,
    pub(super) root: Option<usize>,
    /// Of the times: out of place and in place, where a table has both.
    pub(super) times: Vec<usize>,
    /// Whether these are the CPU's times.
    pub(super) is_of_cpu: bool,
    /// Whether the header itself has units, as that of nccom-test, whose columns are the same for all collectives.
    pub(super) has_units: bool,
}

impl Columns {
    /// The columns of a table whose header is lost, as all versions from 2.12 on print them.
    pub(super) fn usual() -> Columns {
        Columns {
            cells: 13,
            count: Some(1),
            kind: Some(2),
            redop: Some(3),
            root: Some(4),
            times: vec![5, 9],
            is_of_cpu: false,
            has_units: false,
        }
    }

    /// The columns that the header `words` names, if it is one.
    pub(super) fn of(words: &[&str]) -> Option<Columns> {
        let names = names(words);
        let first = names.iter().position(|name| matches!(name.as_str(), "size" | "bytes"))?;
        let names: Vec<&str> = names[first..].iter().map(String::as_str).take_while(|n| COLUMNS.contains(n)).collect();
        let at = |of: &[&str]| names.iter().position(|name| of.contains(name));
        let is_time = |name: &str| matches!(name, "time" | "t_avg" | "avglatency" | "cputime");
        let times: Vec<usize> = (0..).zip(&names).filter(|(_, name)| is_time(name)).map(|(at, _)| at).collect();
        let known = !times.is_empty();
        let columns = Columns {
            cells: names.len(),
            count: at(&["count", "n", "elements"]),
            kind: at(&["type"]),
            redop: at(&["redop", "op"]),
            root: at(&["root"]),
            times,
            is_of_cpu: at(&["cputime"]).is_some(),
            has_units: words.iter().any(|word| word.to_ascii_lowercase().ends_with("size(b)")),
        };
        known.then_some(columns)
    }

    /// The cells of a row that begins in `words`: all, or those before other output cut it off.
    pub(super) fn row(&self, words: &[&str]) -> Option<Vec<String>> {
        let Some(kind) = self.kind else {
            let run = trailing(words);
            return (run.len() == self.cells && run[0].parse::<u64>().is_ok()).then_some(owned(run));
        };
        let first = (0..words.len().saturating_sub(kind)).find(|at| {
            let counts = self.count.is_none_or(|count| words[at + count].parse::<u64>().is_ok());
            is_type(words[at + kind]) && unglued(words[*at]).is_some() && counts
        })?;
        let mut cells = vec![unglued(words[first])?.to_owned()];
        for word in &words[first + 1..] {
            let names = self.kind == Some(cells.len()) || self.redop == Some(cells.len());
            if cells.len() == self.cells {
                break;
            }
            if names && word.starts_with(|c: char| c.is_ascii_alphabetic()) || !names && is_value(word) {
                cells.push((*word).to_owned());
                continue;
            }
            // Other output follows without a space where a program printed in the middle of the line.
            let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-').len();
            if self.root == Some(cells.len()) && digits > 0 {
                cells.push(word[..digits].to_owned());
            }
            break;
        }
        Some(cells)
    }
}

/// The names in a header: without hashes and units, `Avg Latency(us)` as one.
fn names(words: &[&str]) -> Vec<String> {
    let plain = |word: &&str| {
        let word = word.trim_start_matches(['#', '|']).to_ascii_lowercase();
        word.split(['(', '[', ':']).next().unwrap_or_default().to_owned()
    };
    let mut names: Vec<String> = Vec::new();
    for word in words.iter().map(plain).filter(|word| !word.is_empty()) {
        match names.last_mut() {
            Some(last) if word == "latency" && matches!(last.as_str(), "avg" | "min" | "max") => last.push_str(&word),
            _ => names.push(word),
        }
    }
    names
}

/// The values at the end of a line, after whatever a launcher put before them.
pub(super) fn trailing<'a, 'b>(words: &'a [&'b str]) -> &'a [&'b str] {
    let before = words.iter().rposition(|word| !is_value(word)).map_or(0, |at| at + 1);
    &words[before..]
}

/// Copies of the words.
pub(super) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Whether the word is a number, or the sign of a missing one.
fn is_value(word: &str) -> bool {
    word == "N/A" || word == "-" || word.parse::<f64>().is_ok()
}

/// The number at the end of a word that a launcher's prefix begins: `[1,0]<stdout>:1048576`.
fn unglued(word: &str) -> Option<&str> {
    let number = word.rsplit([':', '>', ']', '|']).next()?;
    number.parse::<u64>().is_ok().then_some(number)
}

fn is_type(word: &str) -> bool {
    TYPES.contains(&word.to_ascii_lowercase().as_str())
}

/// A line that lists a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RankLine {
    pub(super) rank: u32,
    /// Of `NCCL_TESTS_SPLIT`.
    pub(super) group: u32,
    pub(super) pid: Option<u64>,
    pub(super) host: String,
    /// Its number and bus address, as printed.
    pub(super) device: String,
    /// As the driver names it.
    pub(super) gpu: String,
}

/// The rank that the line lists, if it lists one.
pub(super) fn rank(words: &[&str]) -> Option<RankLine> {
    let first = words.iter().position(|word| word.trim_start_matches(|c| c != 'R') == "Rank")?;
    let words = &words[first + 1..];
    let device = words.iter().position(|word| *word == "device")?;
    let after = |name: &str| words[..device].iter().position(|word| *word == name).and_then(|at| words.get(at + 1));
    let number = |name: &str| after(name).and_then(|word| word.parse::<u64>().ok());
    let bus = words.get(device + 2).filter(|word| word.starts_with('['))?;
    Some(RankLine {
        rank: words.first()?.trim_end_matches(':').parse().ok()?,
        group: number("Group").and_then(|group| u32::try_from(group).ok()).unwrap_or(0),
        pid: number("Pid"),
        host: after("on").map_or_else(String::new, |host| (*host).to_owned()),
        device: format!("{} {bus}", words.get(device + 1)?),
        gpu: words[device + 3..].join(" "),
    })
}

/// The program of nccl-tests that a word of the line names, without its ending: `all_reduce` of
/// `./build/all_reduce_perf`.
pub(super) fn program(words: &[&str]) -> Option<String> {
    let parts = words.iter().flat_map(|word| word.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    parts
        .filter_map(|part| part.strip_suffix("_mpi").unwrap_or(part).strip_suffix("_perf"))
        .next_back()
        .map(str::to_owned)
}

/// The collective in the titles of OSU's and Intel's benchmarks.
pub(super) fn title(words: &[&str]) -> Option<(&'static str, String)> {
    let at = |of: &str| words.iter().position(|word| word.eq_ignore_ascii_case(of));
    if let (Some(_), Some(latency)) = (at("OSU"), at("Latency")) {
        return words[..latency].last().map(|word| ("osu", word.to_ascii_lowercase()));
    }
    let name = words.get(at("Benchmarking")? + 1)?;
    Some(("imb", name.to_ascii_lowercase()))
}

/// The version of NCCL that the line states: major and minor.
pub(super) fn version(words: &[&str]) -> Option<(u32, u32)> {
    if let Some(code) = words.iter().find_map(|word| word.strip_prefix("nccl-library=")) {
        let code: u32 = code.parse().ok()?;
        return Some((code / 10_000, code / 100 % 100));
    }
    let at = words.windows(2).position(|two| two[0].ends_with("NCCL") && two[1] == "version")?;
    let mut numbers = words.get(at + 2)?.split('.').map(|part| part.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}
