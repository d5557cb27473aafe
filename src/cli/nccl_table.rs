//! Writes predictions as tables of nccl-tests.

use std::fmt::Write;

use lockstep_report::CollectiveRow;
use lockstep_topology::{Collective, Dtype};

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
            &(Dtype::F32.elements_within(row.bytes) / u64::from(shards)).to_string(),
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
        Collective::AllToAll | Collective::AllGather | Collective::AllGatherV { .. } | Collective::AllToAllV { .. } => {
            ("none", None, ranks)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_machines::nccl_log::{self, Asked};

    fn row(collective: &Collective, bytes: u64, time_us: f64) -> CollectiveRow {
        let algbw = bytes as f64 / time_us * 1e-3;
        CollectiveRow {
            ranks: 8,
            bytes,
            time_us,
            algbw,
            busbw: algbw * collective.bus_factor(8),
            ..CollectiveRow::default()
        }
    }

    #[test]
    fn written_tables_parse_back() {
        let sizes: Vec<(u64, f64)> = (3..31).map(|power| (1 << power, 10.0 + f64::from(1 << power) * 1e-5)).collect();
        for collective in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast { root: 3 }] {
            let rows: Vec<_> =
                sizes.iter().map(|(bytes, time)| (collective.clone(), row(&collective, *bytes, *time))).collect();
            let table = render(&rows);
            let asked = Asked { collective: Some(collective.to_string()), ranks: Some(8) };
            let read = nccl_log::read("t", &table, &asked).unwrap().sizes;
            assert_eq!(read.len(), sizes.len());
            for ((bytes, time), read) in sizes.iter().zip(read) {
                assert!(read.bytes.0 == *bytes && (read.time_us / time - 1.0).abs() < 1e-3, "{bytes}");
            }
            // Thirteen cells a line: size, count, type, redop, root, and twice time, algbw, busbw, #wrong.
            let cells = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().count());
            assert!(cells.into_iter().all(|cells| cells == 13), "{table}");
        }
    }
}
