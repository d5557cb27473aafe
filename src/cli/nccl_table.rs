//! Writes predictions as tables of nccl-tests, and reads the measured times of such tables.

use std::fmt::Write;

use lockstep_report::CollectiveRow;
use lockstep_topology::{Bytes, Collective, ErrorPlace, InputError};

/// A size and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeasuredSize {
    pub(super) bytes: Bytes,
    /// Microseconds, out of place.
    pub(super) time_us: f64,
}

/// The sizes of at least 4 bytes in the table `text`, the content of `file`, and their times out of place.
///
/// Lines that do not begin with a number are other output of the program.
///
/// # Errors
/// No header with the columns `size` and `time`, no size, a truncated line, or an invalid time.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<MeasuredSize>, InputError> {
    let mut column = None;
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let wrong = |value: &str, message: &str| InputError::new(ErrorPlace::line(file, line), value, message);
        let is_comment = text.trim_start().starts_with('#');
        let words: Vec<&str> = text.trim().trim_start_matches('#').split_whitespace().collect();
        if is_comment {
            if words.first() == Some(&"size") {
                column = words.iter().position(|word| *word == "time");
            }
            continue;
        }
        let Some(bytes) = words.first().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let Some(column) = column else {
            return Err(wrong(words[0], "comes before the header, the line with size and time: keep that line"));
        };
        let Some(time) = words.get(column) else { return Err(wrong(words[0], "has no time: the line was truncated")) };
        match time.parse::<f64>() {
            Ok(time_us) if time_us > 0.0 && time_us.is_finite() => {
                rows.extend((bytes >= 4).then_some(MeasuredSize { bytes: Bytes(bytes), time_us }));
            }
            _ => return Err(wrong(time, "is not a time above 0 in microseconds: use the table as it was printed")),
        }
    }
    if rows.is_empty() {
        return Err(InputError::new(
            file,
            "",
            "has no size with a time: name what nccl-tests printed, with its header",
        ));
    }
    Ok(rows)
}

/// Formats the rows like nccl-tests, with the same times in place and out of place: predictions do not distinguish the
/// two.
pub(super) fn render(rows: &[(Collective, CollectiveRow)]) -> String {
    let mut text = String::new();
    let mut line = |of: &str| writeln!(text, "{}", of.trim_end()).expect("strings take all");
    let columns = ["time", "algbw", "busbw", "#wrong"];
    let units = ["(us)", "(GB/s)", "(GB/s)", ""];
    let group = |cells: [&str; 4]| format!("  {:>7}  {:>6}  {:>6}  {:>6}", cells[0], cells[1], cells[2], cells[3]);
    let head = |cells: [&str; 5]| {
        let [size, count, kind, operation, root] = cells;
        format!("{size:>11}  {count:>12}  {kind:>8}  {operation:>6}  {root:>6}")
    };
    line(&format!("#{}{:^33}{:^33}", head([""; 5]), "out-of-place", "in-place"));
    line(&format!("#{}{}{}", head(["size", "count", "type", "redop", "root"]), group(columns), group(columns)));
    line(&format!("#{}{}{}", head(["(B)", "(elements)", "", "", ""]), group(units), group(units)));
    for (collective, row) in rows {
        let (operation, root, shards) = signature(collective, row.ranks);
        let cells = head([
            &row.bytes.to_string(),
            &(row.bytes / 4 / u64::from(shards)).to_string(),
            "float",
            operation,
            &root.map_or("-1".to_owned(), |root| root.to_string()),
        ]);
        let digits = match row.time_us {
            10_000.0.. => 0,
            100.0.. => 1,
            _ => 2,
        };
        let [time, algbw, busbw] =
            [(row.time_us, digits), (row.algbw, 2), (row.busbw, 2)].map(|(of, digits)| format!("{of:.digits$}"));
        let figures = group([&time, &algbw, &busbw, "N/A"]);
        line(&format!(" {cells}{figures}{figures}"));
    }
    let mean = rows.iter().map(|(_, row)| row.busbw).sum::<f64>() / rows.len().max(1) as f64;
    line(&format!("# Avg bus bandwidth    : {mean:.6}"));
    text
}

/// nccl-tests' description of a collective: its operation, its root, and into how many parts it divides the elements.
fn signature(collective: &Collective, ranks: u32) -> (&'static str, Option<u32>, u32) {
    match collective {
        Collective::AllReduce | Collective::AllReduceToLeaders => ("sum", None, 1),
        Collective::Reduce { root } => ("sum", Some(*root), 1),
        Collective::ReduceScatter | Collective::ReduceScatterV { .. } => ("sum", None, ranks),
        Collective::Broadcast { root } => ("none", Some(*root), 1),
        Collective::Scatter { root } | Collective::Gather { root } | Collective::GatherV { root, .. } => {
            ("none", Some(*root), ranks)
        }
        Collective::AllGather | Collective::AllGatherV { .. } | Collective::AllToAllV { .. } => ("none", None, ranks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: u64, time_us: f64) -> CollectiveRow {
        let algbw = bytes as f64 / time_us * 1e-3;
        CollectiveRow { ranks: 8, bytes, time_us, algbw, busbw: algbw * 1.75, ..CollectiveRow::default() }
    }

    #[test]
    fn written_tables_parse_back() {
        let sizes: Vec<(u64, f64)> = (3..31).map(|power| (1 << power, 10.0 + f64::from(1 << power) * 1e-5)).collect();
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast { root: 3 }] {
            let rows: Vec<_> = sizes.iter().map(|(bytes, time)| (collective.clone(), row(*bytes, *time))).collect();
            let table = render(&rows);
            let read = parse("t", &table).unwrap();
            assert_eq!(read.len(), sizes.len());
            for ((bytes, time), read) in sizes.iter().zip(read) {
                assert!(read.bytes.0 == *bytes && (read.time_us / time - 1.0).abs() < 1e-3, "{bytes}");
            }
            // Thirteen cells a line: size, count, type, redop, root, and twice time, algbw, busbw, #wrong.
            let cells = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().count());
            assert!(cells.into_iter().all(|cells| cells == 13), "{table}");
        }
    }

    #[test]
    fn tables_of_old_and_new_versions_are_read_and_broken_ones_named() {
        let new = "# nThread 1\n#\n#       size         count      type   redop    root     time   algbw   busbw #wrong\n\
                   #        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n\
                   host:1 NCCL INFO 3 rings\n           0             0     float     sum      -1     0.21    0.00    0.00    0\n\
                   \u{20}         64            16     float     sum      -1    11.50    0.01    0.01    0\n# Avg bus bandwidth : 1\n";
        assert_eq!(parse("t", new).unwrap(), [MeasuredSize { bytes: Bytes(64), time_us: 11.5 }]);
        let old = "#   size   count  type    time  algbw  busbw  error\n  1024  256  float  7.25  0.14  0.25  1e-07\n";
        assert_eq!(parse("t", old).unwrap(), [MeasuredSize { bytes: Bytes(1024), time_us: 7.25 }]);
        for (text, expected) in [
            ("", "t: has no size with a time"),
            ("64 16 float sum -1 11.5\n", "t:1: 64: comes before the header"),
            ("# size count type time\n64 16\n", "t:2: 64: has no time: the line was truncated"),
            ("# size count type time\n64 16 float -3\n", "t:2: -3: is not a time above 0"),
            ("# size count type time\n64 16 float nan\n", "t:2: nan: is not a time above 0"),
        ] {
            let error = parse("t", text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
