//! Tests what is read of logs, and what is refused.

use super::*;
use proptest::prelude::*;

/// Rows of `sizes` by a closed form: an allreduce's table among `ranks`, behind `prefix`.
fn table(prefix: &str, ranks: u32, sizes: &[u64], hash: &str) -> String {
    let mut text = String::new();
    let mut line = |of: &str| text.push_str(&format!("{prefix}{of}\n"));
    line(&format!("{hash} nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20"));
    line(&format!("{hash} Using devices"));
    for rank in 0..ranks {
        let (host, device) = (rank / 4, rank % 4);
        line(&format!(
            "{hash}  Rank {rank:2} Group  0 Pid {rank} on  node-{host} device  {device} [0x0{device}] \
             NVIDIA A100-SXM4-40GB"
        ));
    }
    line(&format!("{hash}                      out-of-place                       in-place"));
    line(&format!(
        "{hash}       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   \
         busbw #wrong"
    ));
    line(&format!("{hash}        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"));
    for bytes in sizes {
        let (row, _) = row(*bytes, ranks);
        line(&row);
    }
    line(&format!("{hash} Avg bus bandwidth    : 58.98"));
    text
}

fn row(bytes: u64, ranks: u32) -> (String, f64) {
    let time = 10.0 + bytes as f64 * 1e-5;
    let algbw = bytes as f64 / time * 1e-3;
    let busbw = algbw * 2.0 * f64::from(ranks - 1) / f64::from(ranks);
    let group = format!("{time:8.2} {algbw:7.2} {busbw:7.2}      0");
    (format!("{bytes:12} {:12}     float     sum      -1 {group} {group}", bytes / 4), time)
}

fn read_one(text: &str) -> NcclLog {
    read("t", text, &Asked::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const SIZES: [u64; 4] = [8, 4096, 1 << 20, 1 << 28];

#[test]
fn what_launchers_put_before_each_line_changes_nothing() {
    let plain = read_one(&table("", 8, &SIZES, "#"));
    assert_eq!(plain.sizes.len(), SIZES.len());
    for (size, bytes) in plain.sizes.iter().zip(SIZES) {
        assert!(size.bytes.0 == bytes && (size.time_us - row(bytes, 8).1).abs() < 0.006, "{bytes}");
    }
    assert_eq!((plain.ranks, plain.ranks_per_host, plain.is_listed), (Some(8), Some(4), true));
    assert_eq!(plain.gpu.as_deref(), Some("NVIDIA A100-SXM4-40GB"));
    assert_eq!(plain.collectives, ["allreduce"]);
    assert!(plain.notes.is_empty(), "{:?}", plain.notes);
    for prefix in [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "[host-a:1234,1],0]<stdout>:",
        "Sun Nov 29 10:00:00 2026<stdout>:",
        "Sun Nov 29 10:00:00 2026[1,0]<stdout>:",
        "0: ",
        "12: ",
        " 0: ",
        "0:",
        "nid001 0: ",
        "x1000c0s0b0n0.hsn.cm 0: ",
        "2026-11-29T10:00:00.123456789Z ",
        "[pod/test-worker-0/main] ",
        "[pod/test-worker-0/main] 2026-11-29T10:00:00.1Z [1,0]<stdout>:",
        "(head, rank=0, pid=38) [1,0]<stdout>:",
        "2026-11-29 10:00:00,123 INFO: ",
        "    ",
        "> ",
        "| ",
        "\u{1b}[32m0:\u{1b}[0m ",
    ] {
        for hash in ["#", ""] {
            let mut read = read_one(&table(prefix, 8, &SIZES, hash));
            read.line = plain.line;
            assert_eq!(read, plain, "{prefix:?} {hash:?}");
        }
    }
}

/// NCCL's own lines, before, between and within rows, and other programs' lines.
#[test]
fn other_output_between_and_within_rows_is_left_out() {
    let plain = read_one(&table("", 8, &SIZES, "#"));
    let info = "node-0:21:21 [0] NCCL INFO Channel 00/08 :    0   1   2   3   4   5   6   7";
    let text = table("", 8, &SIZES, "#");
    let between = text
        .replace('\n', &format!("\n{info}\n8 processes started\nWarning: Permanently added '10.0.0.1' (ED25519)\n"));
    let within = text.replacen("float     sum      -1", &format!("float     sum      -1{info}\n{info}\n"), 1);
    let spaced = text.replacen("float     sum      -1", &format!("float     sum      -1 \n{info}\n[1,0]<stdout>:"), 1);
    for changed in [between, within, spaced] {
        let mut read = read_one(&changed);
        read.line = plain.line;
        assert_eq!(read, plain, "{changed}");
    }
}

#[test]
fn headers_of_all_versions_are_read() {
    let time = [(64, 11.5), (1 << 20, 100.0)];
    for (header, rows, unit) in [
        (
            "# size count type redop time algbw busbw error time algbw busbw error\n\
             # (B) (elements) (us) (GB/s) (GB/s) (us)",
            "64 16 float sum 11.5 0.01 0.01 1e-07 12 0 0 0\n\
             1048576 262144 float sum 100.0 10.49 18.35 0 100 10.49 18.35 0",
            1.0,
        ),
        (
            "# bytes N type op time algbw busbw res time algbw busbw res",
            "64 16 float sum 0.0115 0.01 0.01 0e+00 0.012 0 0 0e+00\n\
             1048576 262144 float sum 0.1 10.49 18.35 0e+00 0.1 10.49 18.35 0e+00",
            1000.0,
        ),
        (
            "size(B) count(elems) type time(us) algbw(GB/s) busbw(GB/s)",
            "64 16 fp32 11.5 0.01 0.01\n1048576 262144 fp32 100.0 10.49 18.35",
            1.0,
        ),
        ("# OSU MPI-CUDA Allreduce Latency Test v7.2\n# Size       Avg Latency(us)", "64 11.5\n1048576 100.0", 1.0),
        (
            "# Benchmarking Allreduce\n# #processes = 8\n#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]",
            "64 1000 11.0 12.0 11.5\n1048576 40 99 102 100.0",
            1.0,
        ),
        (
            "",
            "64 16 float sum -1 11.5 0.01 0.01 0 N/A N/A N/A N/A\n\
             1048576 262144 float sum -1 100.0 10.49 18.35 0 - - - -",
            1.0,
        ),
    ] {
        let asked = Asked { collective: Some("allreduce".to_owned()), ranks: Some(8) };
        let log = read("t", &format!("{header}\n{rows}\n"), &asked).unwrap_or_else(|error| panic!("{header}: {error}"));
        let found: Vec<(u64, f64)> = log.sizes.iter().map(|size| (size.bytes.0, size.time_us)).collect();
        for ((bytes, us), (read, time)) in time.iter().zip(&found) {
            assert!(bytes == read && (us - time).abs() < 1e-9 * us, "{header} {unit}: {found:?}");
        }
        assert!(log.is_of("allreduce"), "{header}: {:?}", log.collectives);
    }
}

/// The number of ranks and the collective follow from the bandwidths where nothing else says them.
#[test]
fn bandwidths_tell_ranks_and_collective() {
    for ranks in [2u32, 3, 4, 8, 16, 32, 64] {
        let text: String =
            table("", ranks, &SIZES, "#").lines().filter(|l| !l.contains("Rank")).map(|l| format!("{l}\n")).collect();
        let read = read("t", &format!("$ ./build/all_reduce_perf -b 8\n{text}"), &Asked::default()).unwrap();
        assert_eq!((read.ranks, read.is_listed, read.collectives.len()), (Some(ranks), false, 1), "{ranks}");
    }
    let of = |redop: &str, root: i32, share: f64| {
        let text = format!(
            "1048576 262144 float {redop} {root} 10.49 100.00 {:.2} 0 10.49 100.00 {:.2} 0\n",
            100.0 * share,
            100.0 * share
        );
        read("t", &text, &Asked { collective: None, ranks: None }).map(|log| log.collectives)
    };
    assert_eq!(of("none", 2, 1.0).unwrap(), ["broadcast:2"]);
    assert_eq!(of("sum", 0, 1.0).unwrap(), ["reduce:0"]);
    let listed = |share: f64| {
        let text = table("", 4, &[1 << 20], "#");
        let text: String =
            text.lines().filter(|line| !line.contains("float")).map(|line| format!("{line}\n")).collect();
        let row = format!("1048576 262144 float none -1 10.49 100.00 {0:.2} 0 10.49 100.00 {0:.2} 0\n", 100.0 * share);
        read("t", &format!("{text}{row}"), &Asked::default()).map(|log| log.collectives)
    };
    assert_eq!(listed(0.75).unwrap(), ["allgather", "alltoallv"]);
    let error = listed(0.5).unwrap_err().to_string();
    assert!(error.contains("no collective among the log's ranks (4)") && error.contains("keep the lines"), "{error}");
}

#[test]
fn ranks_that_did_not_talk_are_refused_with_the_cure() {
    let alone = |pid: u32| {
        format!(
            "# nThread 1 nGpus 1\n#  Rank  0 Group  0 Pid {pid} on a device  {pid} [0x0{pid}] NVIDIA H100 80GB HBM3\n\
             # size count type redop root time algbw busbw #wrong\n"
        )
    };
    let row = "1048576 262144 float sum -1 10.0 104.86 0.00 0\n";
    let apart: String = (0..8).map(alone).collect::<String>() + &row.repeat(8);
    let split = table("", 8, &SIZES, "#").replace("Rank  4 Group  0", "Rank  4 Group  1");
    for (text, expected) in [
        (apart, "8 ranks 0"),
        (alone(1) + row, "one rank"),
        (format!("# size count type redop root time algbw busbw #wrong\n{row}"), "one rank"),
        (split, "NCCL_TESTS_SPLIT"),
    ] {
        let error = read("t", &text, &Asked::default()).unwrap_err().to_string();
        assert!(error.contains(expected) && (error.contains("MPI=1") || error.contains("without")), "{error}");
    }
}

#[test]
fn of_several_tables_the_one_that_was_asked_for_is_read() {
    let other = table("", 8, &[64], "#").replace("sum ", "none");
    let other = format!("$ ./all_gather_perf\n{}", other.replace("17.5", "8.75"));
    let both = format!("$ ./all_reduce_perf\n{}{other}", table("", 8, &SIZES, "#"));
    let of = |name: &str| read("t", &both, &Asked { collective: Some(name.to_owned()), ranks: None });
    assert_eq!(of("allreduce").unwrap().sizes.len(), SIZES.len());
    assert_eq!(of("allgather").unwrap().sizes.len(), 1);
    let error = read("t", &both, &Asked::default()).unwrap_err().to_string();
    assert!(
        error.contains("2 tables") && error.contains("allgather at line") && error.contains("the setting collective"),
        "{error}"
    );
    assert!(of("broadcast").unwrap_err().to_string().contains("name one of these"));
    let alone = "# Using devices\n# size count type redop root time algbw busbw\n1048576 262144 float sum -1 10.0 104.86 0.00\n";
    let read = read_one(&format!("{alone}{}", table("", 8, &SIZES, "#")));
    assert!(
        read.sizes.len() == SIZES.len() && read.notes[0].contains("left out: t:2: is of one rank"),
        "{:?}",
        read.notes
    );
}

#[test]
fn figures_that_contradict_each_other_are_said() {
    let text = table("", 8, &SIZES, "#");
    let wrong_time = text.replacen("  2694.35", "   269.44", 1);
    assert!(wrong_time != text && read_one(&wrong_time).notes[0].contains("algbw that is not size / time"));
    let half = text.replace(" float ", "  half ").replace("  sum ", " prod ");
    let notes = read_one(&half).notes.join("; ");
    assert!(notes.contains("type is half") && notes.contains("operation is prod"), "{notes}");
    let failed = read_one(&format!("{text}# Out of bounds values : 3 FAILED\n"));
    assert!(failed.notes[0].contains("results were wrong"), "{:?}", failed.notes);
}

/// A list of ranks that somebody shortened, tables in place, the JSON file of `-J`, a column more, times of the CPU.
#[test]
fn other_forms_of_logs_are_read() {
    let text = table("", 64, &SIZES, "#");
    let cut: String = text
        .lines()
        .filter(|line| !line.contains("Rank") || line.contains("Rank  0 "))
        .map(|l| format!("{l}\n"))
        .collect();
    let read_cut = read_one(&cut);
    assert_eq!((read_cut.ranks, read_cut.is_listed, read_cut.ranks_per_host), (Some(64), false, None));
    assert!(read_cut.notes[0].contains("cut short"), "{:?}", read_cut.notes);
    let plain = read_one(&table("", 8, &SIZES, "#"));
    let stamped = table("", 8, &SIZES, "#")
        .replace("busbw #wrong\n", "busbw #wrong timestamp\n")
        .replace("0\n", "0 2026-01-01 10:00:00\n");
    assert_eq!(read_one(&stamped), plain);
    let in_place = "# in-place\n# size count type redop root time algbw busbw #wrong\n\
                    1048576 262144 float sum -1 10.49 100.00 175.00 0\n";
    assert!(read_one(in_place).notes[0].contains("in place alone"));
    let header =
        "# size count type redop root cputime algbw busbw #wrong\n1048576 262144 float sum -1 1.49 700.00 175.00 0\n";
    let error = read("t", header, &Asked::default()).unwrap_err().to_string();
    assert!(error.contains("cputime") && error.contains("without -C"), "{error}");
    let device = |rank: u32| {
        format!(
            "{{\"rank\": {rank}, \"group\": 0, \"pid\": {rank}, \"hostname\": \"node-{}\", \
             \"device\": {}, \"device_hex\": \"0x0\", \
             \"device_info\": \"NVIDIA A100-SXM4-40GB\"}}",
            rank / 4,
            rank % 4
        )
    };
    let result = |bytes: u64| {
        let (_, time) = row(bytes, 8);
        let algbw = bytes as f64 / time * 1e-3;
        let group = format!("{{\"time\": {time}, \"alg_bw\": {algbw}, \"bus_bw\": {}, \"nwrong\": 0}}", algbw * 1.75);
        format!(
            "{{\"size\": {bytes}, \"count\": {}, \"type\": \"float\", \"redop\": \"sum\", \"root\": \"    -1\", \
             \"out_of_place\": {group}, \
             \"in_place\": {group}}}",
            bytes / 4
        )
    };
    let list = |of: Vec<String>| of.join(", ");
    let json = format!(
        "{{\"version\": 1, \"args\": [\"./all_reduce_perf\"], \"nccl_version\": 22807, \
         \"config\": {{\"devices\": [{}]}}, \"results\": [{}]}}",
        list((0..8).map(device).collect()),
        list(SIZES.iter().map(|bytes| result(*bytes)).collect())
    );
    let of_json = read_one(&json);
    assert_eq!((of_json.version, of_json.ranks, of_json.ranks_per_host), (Some((2, 28)), Some(8), Some(4)));
    assert_eq!((of_json.gpu, of_json.collectives), (plain.gpu, plain.collectives));
    assert!(
        of_json
            .sizes
            .iter()
            .zip(&plain.sizes)
            .all(|(a, b)| a.bytes == b.bytes && (a.time_us - b.time_us).abs() < 0.006)
    );
    for broken in ["{", "{}", "{\"results\": [{\"size\": 8}]}"] {
        assert!(read("t", broken, &Asked::default()).is_err(), "{broken}");
    }
}

#[test]
fn broken_tables_are_named() {
    for (text, expected) in [
        ("", "t: has no size with a time"),
        ("64 16 float sum -1 11.5\n", "t:1: 64: comes before the header"),
        ("# size count type time\n64 16 float\n", "t:2: 64: has no time: the line was truncated"),
        ("# size count type time\n64 16 float -3\n", "t:2: -3: is not a time above 0"),
        ("# size count type time\n64 16 float 1.5e-2147483648\n", "t:2: 1.5e-2147483648: is not a time above 0"),
        ("# size count type time\n64 16 float nan\n", "t:2: nan: is not a time above 0"),
        ("# size count type time\n0 0 float 3\n", "t:1: has no size of at least 4 bytes"),
        ("$ ./sendrecv_perf\n# size count type time\n8 2 float 3\n", "t:2: is of sendrecv"),
    ] {
        let error = read("t", text, &Asked::default()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// A replay prints blanks for what it does not run: which of the two groups is there does not follow from the row.
#[test]
fn figures_that_are_there_once_are_noted() {
    let whole = table("", 8, &SIZES, "#");
    let (full, _) = row(SIZES[2], 8);
    let group = full.rsplit("-1").next().unwrap_or_default();
    let once = whole.replace(&full, &full.replace(group, &group[..group.len() / 2]));
    let read = read_one(&once);
    assert_eq!(read.sizes.len(), SIZES.len());
    assert!(
        read.notes.iter().any(|note| note.starts_with("1 of the log's rows have figures once")),
        "{:?}",
        read.notes
    );
}

proptest! {
    /// Whatever is flipped, cut, doubled or interleaved: a table or a refusal, and never more rows than lines.
    #[test]
    fn damaged_logs_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..6, any::<char>()), 1..8),
        prefixed in any::<bool>(),
    ) {
        let mut text = table(if prefixed { "[1,0]<stdout>:" } else { "" }, 8, &SIZES, "#");
        for (at, how, with) in changes {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let line = at.index(lines.len());
            let letter = at.index(lines[line].chars().count().max(1));
            let place = lines[line].char_indices().map(|(at, _)| at).nth(letter).unwrap_or(0);
            match how {
                0 => lines[line].insert(place, with),
                1 => lines[line].truncate(place),
                2 => drop(lines.remove(line)),
                3 => lines.insert(line, lines[line].clone()),
                4 => lines.swap(line, 0),
                _ => lines[line] = lines[line].replace("0", &with.to_string()),
            }
            text = lines.join("\n") + "\n";
        }
        for asked in [Asked::default(), Asked { collective: Some("allreduce".to_owned()), ranks: Some(8) }] {
            if let Ok(log) = read("t", &text, &asked) {
                prop_assert!(!log.sizes.is_empty() && log.sizes.len() <= text.lines().count());
                prop_assert!(log.sizes.iter().all(|size| size.time_us > 0.0 && size.time_us.is_finite()));
            }
        }
    }
}
