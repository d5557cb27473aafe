//! Tests `lockstep sim sweep` and `exec sweep` as users use them: fronts in all formats, an interrupt, and resuming.

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

use lockstep_experiment::Experiment;
use lockstep_measure::trained::{RunsFile, plan};

use crate::commands::{folder, lockstep, number, rows, stdout};

#[test]
fn fronts_are_printed_in_every_format_and_drawn() {
    let folder = folder("sweep");
    let flags = "sim sweep --model lenet --cluster ethernet-gpu-8:1..4 --ranks all --batch-per-rank 32,64 \
                 --algorithm ring,hierarchical:ring --scale nic=1,10 --out rows.csv --plot front.svg";
    let arguments: Vec<&str> = flags.split_whitespace().collect();
    let front = rows(&folder, "sim-sweep", &arguments);
    let text = std::fs::read_to_string(folder.join("rows.csv")).expect("rows");
    assert_eq!(text.lines().count(), 1 + 3 * 2 * 2 * 2);
    // Each point of a front is in the file; more ranks on the same front are faster.
    for pair in front.windows(2) {
        let same = ["scale", "batch_per_rank"].iter().all(|column| pair[0][column] == pair[1][column]);
        if same {
            assert!(number(&pair[1], "total_ranks") > number(&pair[0], "total_ranks"));
            assert!(number(&pair[1], "images_per_s") > number(&pair[0], "images_per_s"));
        }
        let (sweep, point) = (pair[0]["sweep"].as_str().expect("text"), &pair[0]["point"]);
        let line = text.lines().find(|line| line.starts_with(&format!("{sweep},{point},"))).expect("its line");
        assert!(line.contains(&pair[0]["images_per_s"].to_string()), "{line}");
    }
    let picture = std::fs::read_to_string(folder.join("front.svg")).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.matches("<polyline").count() == 4, "{picture}");
    // Rerunning finds every row there, and prints the same.
    assert_eq!(rows(&folder, "sim-sweep", &arguments), front);
    let table = stdout(&folder, &arguments);
    assert!(table.contains("knee") && table.contains("24 of 24 points"), "{table}");
    let jobs = |jobs: &str| stdout(&folder, &[&arguments[..arguments.len() - 4], &["--jobs", jobs]].concat());
    assert_eq!(jobs("1"), jobs("3"));
}

#[test]
fn lists_in_the_file_equal_those_of_the_flags() {
    let folder = folder("sweep-lists");
    let text = "name = \"e\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\nranks = [1, 2]\nbucket = \"whole\"\n\
                [sweep]\nranks = \"1..16\"\nbucket = [\"layer\", \"whole\"]\n[sweep.scale]\nnic = [1, 4]\n";
    std::fs::write(folder.join("e.toml"), text).expect("a file");
    let by_file = stdout(&folder, &["sim", "sweep", "e.toml"]);
    let flags = "sim sweep --model mlp --cluster ethernet-4 --ranks 1..16 --bucket layer,whole --scale nic=1,4";
    assert_eq!(by_file, stdout(&folder, &flags.split_whitespace().collect::<Vec<_>>()));
    // Other commands use the single values.
    assert_eq!(rows(&folder, "sim-predict", &["sim", "predict", "e.toml"]).len(), 2);
}

#[test]
fn excessive_numbers_are_rows_too() {
    let folder = folder("sweep-huge");
    let flags = "sim sweep --model mlp --cluster workstation --ranks 1,4294967295 --accumulate 1,4294967295 \
                 --batch-per-rank 1,4294967295 --algorithm parameter-server:1:dedicated --jobs 1024 --out rows.csv";
    stdout(&folder, &flags.split_whitespace().collect::<Vec<_>>());
    let text = std::fs::read_to_string(folder.join("rows.csv")).expect("rows");
    assert_eq!(text.lines().count(), 1 + 8);
    assert_eq!(text.matches("places for 64").count(), 4, "{text}");
}

#[test]
fn an_interrupted_sweep_resumes_to_the_same_bytes() {
    let folder = folder("sweep-interrupt");
    let list = |last: u32| (1..=last).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let (ranks, batches) = (list(64), list(40));
    let command = |out: &'static str| {
        ["sim", "sweep", "--model", "lenet", "--cluster", "ethernet-4", "--bucket", "layer", "--no-fold", "--out", out]
            .map(str::to_owned)
            .into_iter()
            .chain(["--ranks".into(), ranks.clone(), "--batch-per-rank".into(), batches.clone()])
            .collect::<Vec<String>>()
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(command("rows.jsonl"))
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = std::io::BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("sweeping: ") && line.contains("left; now point")));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let path = folder.join("rows.jsonl");
    let part = std::fs::read_to_string(&path).expect("rows");
    let done = part.lines().count();
    assert!(part.ends_with('\n') && done > 0 && done < 64 * 40, "{done} rows");
    let answer = String::from_utf8(output.stdout).expect("UTF-8");
    let note = format!("interrupted: {done} of 2560 rows are in rows.jsonl; rerunning the command resumes");
    assert!(answer.contains(&note), "{answer}");
    // All remaining rows would take long here: equally many, into a file of their own, must begin alike.
    let torn = &part[..part.len() - 40];
    std::fs::write(&path, torn).expect("written");
    let small = command("rows.jsonl");
    let fewer: Vec<&str> = small.iter().map(String::as_str).chain(["--max-points", "100"]).collect();
    let refused = lockstep(&folder, &fewer);
    assert_eq!(refused.status.code(), Some(2), "2560 points are more than 100");
    assert_eq!(std::fs::read_to_string(&path).expect("rows"), torn, "a refused command leaves the file alone");
    let mut child = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(&small)
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = std::io::BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("sweeping: ")));
    child.kill().expect("killed");
    child.wait().expect("ended");
    let more = std::fs::read_to_string(&path).expect("rows");
    assert!(more.starts_with(&part), "it went on where it was torn, to the same bytes");
    assert!(more.len() > part.len());
}

#[test]
fn shards_merge_to_the_file_of_one_command() {
    let folder = folder("shards");
    let flags = "sim sweep --model mlp --cluster ethernet-4 --ranks 1..16 --bucket layer,whole";
    let sweep = |more: &[&str]| {
        let all: Vec<&str> = flags.split_whitespace().chain(more.iter().copied()).collect();
        lockstep(&folder, &all)
    };
    let text = "name = \"e\"\nmodel = \"mlp\"\nepochs = 1\nseeds = 2\n[[arm]]\nname = \"small\"\n[[arm]]\nname = \"two\"\n\
                ranks = 2\n";
    std::fs::write(folder.join("e.toml"), text).expect("a file");
    let arms =
        |more: &[&str]| lockstep(&folder, &[&["exec", "sweep", "e.toml", "--data", "mnist:64+32"], more].concat());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
    for (run, whole) in [(&sweep as &dyn Fn(&[&str]) -> std::process::Output, "points.csv"), (&arms, "arms.csv")] {
        let ok = |more: &[&str]| {
            let output = run(more);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        let refused = |more: &[&str], words: &str| {
            let output = run(more);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
        };
        let name = |what: &str| whole.replace(".csv", what);
        let answer = ok(&["--out", whole]);
        let out = name("-merged.csv");
        let part = ok(&["--out", &out, "--shard", "1/2"]);
        assert!(part.contains("shard 1/2: ") && part.contains("--merge 2 puts all shards together"), "{part}");
        refused(&["--out", &out, "--merge", "2"], "2-of-2.csv: is missing: run the same command with --shard 2/2");
        assert!(!folder.join(&out).exists());
        ok(&["--out", &out, "--shard", "2/2"]);
        let merged = ok(&["--out", &out, "--merge", "2"]);
        // The arms' seconds differ between runs.
        if whole == "points.csv" {
            assert_eq!(read(&out), read(whole));
            let front = |answer: &str| answer.lines().filter(|line| !line.starts_with("note: all")).count();
            assert_eq!(front(&merged), front(&answer));
        } else {
            let rows = |name: &str| {
                read(name).lines().map(|line| line.split(',').take(6).collect::<String>()).collect::<Vec<_>>()
            };
            assert_eq!(rows(&out), rows(whole));
            assert!(read(&out).contains("--shard 2/2") && merged.contains("all 4 runs of 2 shards"), "{merged}");
        }
        refused(&["--out", whole, "--shard", "3/2"], "shards count from 1 to 2, as do the tasks of an array 1-2");
        refused(&["--out", whole, "--shard", "1/2", "--merge", "2"], "merge");
    }
    let plotted = sweep(&["--out", "p.csv", "--shard", "1/2", "--plot", "front.svg"]);
    assert!(String::from_utf8_lossy(&plotted.stderr).contains("is of the whole sweep: give it with --merge"));
    assert!(!sweep(&["--shard", "1/2"]).status.success(), "a shard needs --out");
}

#[test]
fn arms_are_trained_and_finished_runs_are_skipped() {
    let folder = folder("trained-sweep");
    let text = "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\nepochs = 2\nseeds = 2\n[[arm]]\nname = \"small\"\n\
                [[arm]]\nname = \"two\"\nranks = 2\n";
    std::fs::write(folder.join("e.toml"), text).expect("a file");
    let command = ["exec", "sweep", "e.toml", "--data", "mnist:64+32", "--out", "rows.csv"];
    let part = stdout(&folder, &[&command[..], &["--most", "1"]].concat());
    assert!(part.contains("1 of 4 runs are in rows.csv"), "{part}");
    let first = std::fs::read_to_string(folder.join("rows.csv")).expect("rows");
    let arms = rows(&folder, "exec-sweep", &command);
    let found: Vec<(&str, f64)> =
        arms.iter().map(|row| (row["arm"].as_str().expect("a name"), number(row, "runs"))).collect();
    assert_eq!(found, [("small", 2.0), ("two", 2.0)]);
    let whole = std::fs::read_to_string(folder.join("rows.csv")).expect("rows");
    assert!(whole.starts_with(&first) && whole.lines().count() == 1 + 4 * 2, "{whole}");
    assert!(
        whole
            .lines()
            .skip(1)
            .all(|line| line.ends_with("lockstep exec sweep e.toml --data mnist:64+32 --out rows.csv"))
    );
    assert_eq!(rows(&folder, "exec-sweep", &command), arms);
    assert_eq!(std::fs::read_to_string(folder.join("rows.csv")).expect("rows"), whole);
}

/// The committed rows are those of all runs of the committed experiments, so that nothing is left to train.
#[test]
fn committed_rows_match_the_committed_experiments() {
    let kept = tempfile::tempdir().unwrap();
    let (claims, folder) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/claims"), kept.path().to_path_buf());
    let mut runs = 0;
    for file in std::fs::read_dir(claims.join("results")).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let experiment = Experiment::load(&claims.join(format!("{name}.toml"))).unwrap();
        let (plan, copy) = (plan(&experiment).unwrap(), folder.join(format!("{name}.csv")));
        std::fs::copy(&file, &copy).unwrap();
        let rows = RunsFile::open(&copy, &plan, None).unwrap();
        for planned in &plan {
            assert!(rows.has(planned), "{name}: {}, seed {}, run {}", planned.arm, planned.seed, planned.run);
        }
        assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&file).unwrap(), "{name}: nothing is torn");
        runs += plan.len();
    }
    assert!(runs > 200, "{runs} runs");
}
