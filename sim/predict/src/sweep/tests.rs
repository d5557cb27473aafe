//! Tests whole sweeps: the order of rows, resuming, sharing, refusals.

mod pictures;
mod prices;
mod shards;

use super::*;
use crate::predicted::predict;
use crate::setup::Setup;
use crate::site::Site;
use lockstep_experiment::Experiment;
use lockstep_experiment::sweep::Sweep;
use lockstep_report::failure::Failure;
use lockstep_report::progress::Estimate;
use lockstep_report::{CsvForm, SweepRow};

/// Forty points, of which ten are the same as others, two are out of memory and some are impossible.
const SMALL: &str = "name = \"s\"\nmodel = \"mlp\"\n[sweep]\ncluster = [\"ethernet-gpu-8:1..2\"]\nranks = \"1..8\"\n\
                     batch_per_rank = [8, 100000000]\nbucket = [\"layer\", \"1MiB\", \"2MiB\"]\n\
                     algorithm = [\"ring\", \"parameter-server:3\"]\n[sweep.scale]\nnic = [1, 2]\n";

fn sweep(text: &str) -> Sweep {
    Sweep::new(Experiment::parse("s.toml", text).unwrap()).unwrap()
}

/// Runs a sweep into a file; returns its content at the end.
fn run_into(sweep: &Sweep, path: &std::path::Path, jobs: usize) -> Result<String, Failure> {
    let how = How::default();
    let identity = identity(sweep, &how);
    let collector = Collector::new(sweep.clone(), sweep.plan()?);
    let points = Points::new(collector.sweep(), collector.plan(), &how, &identity)?;
    collector.write_to(RowsFile::open(path, &identity, collector.order(), |row| {
        let own = points.has_settings_of(&row);
        collector.known(row);
        own
    })?);
    run(&points, &collector, jobs, &Estimate::silent())?;
    Ok(std::fs::read_to_string(path).unwrap())
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let sweep = sweep(SMALL);
    let of = |name: &str, jobs| run_into(&sweep, &folder.join(name), jobs).unwrap();
    let one = of("1.csv", 1);
    assert_eq!(one, of("2.csv", 2));
    assert_eq!(one, of("7.csv", 7));
    assert_eq!(one.lines().count(), 1 + sweep.plan().unwrap().points.len());
    let (lines, more) = (of("1.jsonl", 1), of("3.jsonl", 3));
    assert_eq!(lines, more);
    // Both forms hold the same rows.
    let from_json = lines.lines().map(|line| serde_json::from_str::<SweepRow>(line).unwrap());
    let form = CsvForm::of(&SweepRow::default());
    let from_csv = one.lines().skip(1).map(|line| form.row(line).unwrap());
    assert!(from_json.eq(from_csv));
}

#[test]
fn a_sweep_resumes_after_truncation_anywhere() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let text = "name = \"s\"\nmodel = \"mlp\"\ncluster = \"workstation\"\nranks = [1, 2, 4]\n";
    let sweep = sweep(text);
    for name in ["rows.csv", "rows.jsonl"] {
        let path = folder.join(name);
        let whole = run_into(&sweep, &path, 1).unwrap();
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        // The last line at every byte, and the first lines where they begin, end and break.
        let first = whole.find('\n').unwrap();
        for cut in (last..whole.len()).chain([0, 1, first / 2, first, first + 1, first + 5]) {
            std::fs::write(&path, &whole.as_bytes()[..cut]).unwrap();
            assert_eq!(run_into(&sweep, &path, 2).unwrap(), whole, "{name} torn at byte {cut}");
        }
        // A complete one is left unchanged.
        assert_eq!(run_into(&sweep, &path, 2).unwrap(), whole);
    }
}

#[test]
fn foreign_files_are_refused_and_not_changed() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let text = "name = \"s\"\nmodel = \"mlp\"\ncluster = \"workstation\"\nranks = [1, 2]\n";
    let own = sweep(text);
    let other = sweep(&text.replace("[1, 2]", "[1, 4]"));
    let path = folder.join("rows.csv");
    let whole = run_into(&own, &path, 1).unwrap();
    let changed = whole.replacen(",mlp,", ",mlq,", 1).replacen("1.0", "1.00", 1);
    let longer = format!("{whole}{}\n", whole.lines().last().unwrap().replacen(",1,", ",2,", 1));
    for (content, sweep, words) in [
        (whole.as_str(), &other, "line 2 is not of this sweep"),
        ("hello", &own, "line 1 is not of this sweep"),
        ("ranks,time\n1,2\n", &own, "line 1 is not of this sweep"),
        (&changed, &own, "line 2 was changed"),
        (&whole.replacen('\n', "\n\n", 1), &own, "line 2 is not"),
        (&longer, &own, "line 4"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = run_into(sweep, &path, 1).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("rows.csv"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    let busy = std::fs::File::open(&path).unwrap();
    busy.lock().unwrap();
    assert!(run_into(&own, &path, 1).unwrap_err().to_string().contains("another run"));
    assert!(run_into(&own, &folder.join("rows.txt"), 1).unwrap_err().to_string().contains(".csv or .jsonl"));
}

/// Where input is stated as tasks, rows have the time that a step waits for samples; refused points leave
/// the cell empty.
#[test]
fn rows_of_stated_input_say_how_long_a_step_waits_for_it() {
    let kept = tempfile::tempdir().unwrap();
    let input = "[input]\nsamples = 10000\nimage = \"1KiB\"\nthreads = 1\ndecode = \"1ms\"\n[input.provenance]\n\
                 samples = \"assumed: a\"\nimage = \"assumed: a\"\nthreads = \"assumed: a\"\ndecode = \"assumed: a\"\n";
    let sweep = sweep(&format!("{}{input}", SMALL.replace("[sweep.scale]\nnic = [1, 2]\n", "")));
    let csv = run_into(&sweep, &kept.path().join("rows.csv"), 2).unwrap();
    let form = CsvForm::of(&SweepRow::default());
    assert_eq!(csv.lines().next(), form.header().lines().next());
    let rows: Vec<SweepRow> = csv.lines().skip(1).map(|line| form.row(line).unwrap()).collect();
    let (refused, predicted): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.refused.is_some());
    assert!(!refused.is_empty() && refused.iter().all(|row| row.exposed_input_s.is_none()));
    // A thread takes 1 ms for a sample, the perceptron microseconds.
    assert!(
        !predicted.is_empty() && predicted.iter().all(|row| row.exposed_input_s > Some(0.5 * row.step_time_s.unwrap()))
    );
    let lines = run_into(&sweep, &kept.path().join("rows.jsonl"), 1).unwrap();
    assert!(lines.lines().map(|line| serde_json::from_str::<SweepRow>(line).unwrap()).eq(rows.iter().cloned()));
    // A sweep resumes a torn file.
    let torn = kept.path().join("torn.csv");
    std::fs::write(&torn, &csv[..csv.len() / 2]).unwrap();
    assert_eq!(run_into(&sweep, &torn, 1).unwrap(), csv);
}

#[test]
fn rows_equal_single_predictions() {
    let sweep = sweep(SMALL);
    let plan = sweep.plan().unwrap();
    assert!(plan.same_as.len() > plan.points.len() / 4, "1 MiB and 2 MiB cut alike");
    let how = How::default();
    let points = Points::new(&sweep, &plan, &how, "id").unwrap();
    let (mut predicted, mut refused) = (0, 0);
    for index in 0..points.count() {
        let row = points.row(index, index).unwrap();
        if let Some(earlier) = plan.same_as.get(&index) {
            // The same point predicted alone has the figures that it is given.
            assert_eq!(points.label(index, row.setting.ranks).with_figures_of(&points.row(*earlier, 0).unwrap()), row);
        }
        let bucket = row.setting.bucket.parse().unwrap();
        let experiment = Experiment {
            model: "mlp".to_owned(),
            cluster: row.cluster.clone(),
            bucket,
            batch: lockstep_experiment::Batch::PerRank(vec![row.setting.batch_per_rank]),
            ..Experiment::default()
        };
        let site = Site::open(&experiment, None).unwrap();
        let factor = if row.scale == "nic=2" { 2.0 } else { 1.0 };
        let nic = |figure| if sweep.scales[0].figures.contains(&figure) { factor } else { 1.0 };
        let setup = Setup::of(&experiment, &site, how.network).unwrap();
        let named = &row.setting.algorithm;
        let algorithm = if named == "-" { "ring" } else { named }.parse().unwrap();
        let mut configuration = experiment.configuration(&sweep.models[0], 0, row.setting.ranks, &algorithm).unwrap();
        let cluster = site.cluster.scaled(&nic);
        match predict(&mut configuration, &experiment, &cluster, site.costs.as_ref(), &setup) {
            Ok(alone) => {
                assert_eq!(row.step_time_s, Some(alone.step_time_s), "{row:?}");
                assert_eq!(row.exposed_comm_s, Some(alone.exposed_comm_s));
                assert_eq!(row.memory_bytes, Some(alone.memory.memory.total()));
                assert_eq!((row.bound, row.fits_memory), (Some(alone.bound.by), alone.memory.fits()));
                predicted += 1;
            }
            Err(error) => {
                assert_eq!((row.refused, row.step_time_s), (Some(error.to_string()), None));
                refused += 1;
            }
        }
    }
    assert!(predicted > 20 && refused > 5, "{predicted} and {refused}");
}

#[test]
fn points_without_enough_memory_are_rows_and_on_no_front() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let sweep = sweep(SMALL);
    let plan = sweep.plan().unwrap();
    let text = run_into(&sweep, &folder.join("rows.csv"), 2).unwrap();
    let form = CsvForm::of(&SweepRow::default());
    let rows: Vec<SweepRow> = text.lines().skip(1).map(|line| form.row(line).unwrap()).collect();
    let mut answer = SweepAnswer::default();
    rows.iter().for_each(|row| answer.add(&sweep, &plan, row));
    let full = rows.iter().filter(|row| row.fits_memory == Some(false)).count();
    let (front, notes) = answer.report(&sweep, &plan);
    assert!(full > 0 && front.iter().all(|row| row.row.fits_memory == Some(true)));
    let counts = notes.last().unwrap();
    assert!(counts.contains(&format!("{full} out of memory")) && counts.contains("impossible (the first"), "{counts}");
    // Efficiency is relative to one rank of the same batch and bucket.
    for row in rows.iter().filter(|row| row.images_per_s.is_some()) {
        let alone = rows.iter().find(|other| {
            let key = |row: &SweepRow| (row.scale.clone(), row.setting.batch_per_rank, row.setting.bucket.clone());
            other.setting.ranks == 1 && key(other) == key(row)
        });
        let each = |row: &SweepRow| row.images_per_s.unwrap() / f64::from(row.setting.ranks);
        assert_eq!(row.scaling_efficiency, Some(each(row) / each(alone.unwrap())));
    }
    // No price is given.
    assert!(front.iter().all(|row| row.cost_per_million_samples.is_none()));
    let picture = svg(&answer, &sweep);
    assert_eq!(picture.matches("<polyline").count(), answer.fronts.len());
    let knees = answer.fronts.values().filter(|front| front.knee().is_some()).count();
    assert_eq!(picture.matches("r=\"7\"").count(), knees);
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
    assert_eq!(lockstep_report::svg::rules::faults(&picture), [""; 0]);
}

#[test]
fn points_follow_the_order_of_their_lists_and_are_unique() {
    let sweep = sweep(
        "name = \"s\"\nmodel = \"mlp\"\n[sweep]\ncluster = [\"workstation\"]\nranks = [4, \"1..2\"]\nglobal_batch = 64\n\
         chunk = [\"auto\", \"1KiB\"]\nconcurrent_exchanges = [1, 8, 9]\nalgorithm = [\"ring\", \"binomial-tree\"]\n",
    );
    let plan = sweep.plan().unwrap();
    // For each chunk and window two algorithms on 2 and 4 ranks; one rank appears once.
    assert_eq!(plan.points.len(), 1 + 2 * 3 * 2 * 2);
    let ranks: Vec<u32> = plan.points.iter().map(|point| sweep.variant(point).ranks[0]).collect();
    assert_eq!(ranks[..5], [1, 2, 2, 4, 4]);
    // The model is one bucket of 25 MiB, so 8 and 9 exchanges in flight are the same as one.
    assert_eq!(plan.same_as.len(), 2 * 2 * 2 * 2);
    assert!(plan.same_as.iter().all(|(later, earlier)| earlier < later && !plan.same_as.contains_key(earlier)));
    assert!(plan.points.is_sorted());
}

/// Strategies and numbers of learners are lists like others: each row is the prediction of its own setting, learners of
/// a device use the default exchange, and each strategy is a separate question.
#[test]
fn strategies_and_learners_may_be_lists() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    let sweep = sweep(
        "name = \"s\"\nmodel = \"mlp\"\nbatch_per_rank = 8\n[sweep]\ncluster = \"ethernet-gpu-8\"\nranks = [1, 2]\n\
         strategy = [\"ssgd\", \"sma\", \"ea-sgd:tau=2\"]\nlearners = [1, 2]\n",
    );
    let text = run_into(&sweep, &folder.join("rows.jsonl"), 2).unwrap();
    let rows: Vec<SweepRow> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let setting =
        |row: &SweepRow| (row.setting.strategy.clone(), row.setting.learners, row.setting.ranks, row.total_ranks);
    let expected = ["ssgd", "sma", "ea-sgd:tau=2"]
        .into_iter()
        .flat_map(|strategy| [1, 2].map(|learners| (strategy, learners)))
        .flat_map(|(strategy, learners)| [1, 2].map(|ranks| (strategy.to_owned(), learners, ranks * learners, ranks)));
    assert!(rows.iter().map(setting).eq(expected));
    for row in &rows {
        let (learners, devices) = (row.setting.learners, row.total_ranks);
        if row.setting.strategy == "ssgd" && learners == 2 {
            assert!(row.refused.as_ref().is_some_and(|reason| reason.contains("ssgd has no learners")), "{row:?}");
            continue;
        }
        let text = format!(
            "name = \"s\"\nmodel = \"mlp\"\ncluster = \"ethernet-gpu-8\"\nbatch_per_rank = 8\nranks = {devices}\n\
             strategy = \"{}\"\nlearners = {learners}\n",
            row.setting.strategy
        );
        let experiment = Experiment::parse("one.toml", &text).unwrap();
        let site = Site::open(&experiment, None).unwrap();
        let setup = Setup::of(&experiment, &site, Default::default()).unwrap();
        let mut one = experiment.configurations().unwrap().remove(0);
        let alone = predict(&mut one, &experiment, &site.cluster, site.costs.as_ref(), &setup).unwrap();
        assert_eq!(row.step_time_s, Some(alone.step_time_s), "{row:?}");
        assert_eq!((&row.setting.algorithm, row.setting.global_batch), (&one.algorithm(), one.job.global_batch()));
    }
    let plan = sweep.plan().unwrap();
    let questions: std::collections::BTreeSet<_> = plan.points.iter().map(|point| sweep.question(point, 8)).collect();
    assert_eq!(questions.len(), 3);
}

#[test]
fn all_ranks_means_one_for_each_gpu_or_core() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().to_path_buf();
    for (cluster, algorithm, expected) in [
        ("ethernet-gpu-8:1..2", "ring", vec![(4, 4), (8, 8)]),
        ("workstation", "parameter-server:2:dedicated", vec![(14, 16)]),
    ] {
        let text = format!(
            "name = \"s\"\nmodel = \"mlp\"\nalgorithm = \"{algorithm}\"\n[sweep]\ncluster = \"{cluster}\"\nranks = \"all\"\n"
        );
        let path = folder.join("rows.jsonl");
        let text = run_into(&sweep(&text), &path, 1).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<SweepRow>(line).unwrap());
        assert_eq!(rows.map(|row| (row.setting.ranks, row.total_ranks)).collect::<Vec<_>>(), expected);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn errors_of_sweeps_name_their_place() {
    let read = |lines: &str| {
        let text = format!("name = \"s\"\nmodel = \"mlp\"\ncluster = \"ethernet-4\"\n[sweep]\n{lines}\n");
        let sweep = Experiment::parse("s.toml", &text).and_then(Sweep::new)?;
        check(&sweep)
    };
    assert_eq!(read("ranks = [1]"), Ok(()));
    for (lines, place, words) in [
        ("rank = 2", "s.toml:5", "[sweep] has no key rank: did you mean ranks?"),
        ("ranks = []", "s.toml:5", "at least one"),
        ("ranks = [2, \"1..4\"]", "s.toml:5", "2 ranks appear twice"),
        ("ranks = \"4..1\"", "s.toml:5", "is not a range"),
        ("ranks = [0]", "s.toml:5", "from 1"),
        ("bucket = [\"1Mb\"]", "s.toml:5", "layer, whole, tensor or a size"),
        ("chunk = [\"auto\", \"1B\"]", "s.toml:5", "at least one element"),
        ("batch_per_rank = 1\nglobal_batch = 2", "s.toml:6", "one of the two"),
        ("model = [\"mlp\", \"lennet\"]", "s.toml:5", "lenet"),
        ("cluster = [\"ethernet-4\", \"ethernet-5\"]", "s.toml:5", "did you mean"),
        ("cluster = [\"dgx-a100:8..2\"]", "s.toml:5", "8..2 is not a range"),
        ("[sweep.scale]\nnik = 2", "s.toml:6", "did you mean nic?"),
        ("[sweep.scale]\nnic = []", "s.toml:6", "at least one"),
        ("[sweep.scale]\nnic = -1", "s.toml:6", "at least 0"),
        ("[sweep.scale]\nnic = [1]\nethernet = [1, 2]", "s.toml:7", "nic and ethernet scale the same"),
        ("[sweep.scale]\ninfiniband = [1, 2]", "s.toml:5", "no cluster of the sweep has any of it"),
    ] {
        let error = read(lines).unwrap_err();
        assert!(error.to_string().contains(words), "{lines}: {error}");
        assert_eq!(error.place.to_string(), place, "{lines}: {error}");
    }
    // Lists of a thousand values each are a mistake: 10¹² points.
    let list = (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let error = read(
        &["ranks", "batch_per_rank", "accumulate", "concurrent_exchanges"]
            .map(|key| format!("{key} = [{list}]"))
            .join("\n"),
    )
    .unwrap_err();
    assert!(error.to_string().contains("1000000000000 points: a sweep has at most 2000000"), "{error}");
}

#[test]
fn the_identity_depends_on_everything_that_determines_rows() {
    let of = |text: &str| identity(&sweep(text), &How::default());
    let own = of(SMALL);
    assert_eq!(own, of(&SMALL.replace("\"s\"", "\"another-name\"")));
    for (old, new) in [("mlp", "lenet"), ("1..8", "1..4"), ("1MiB", "3MiB"), ("nic = [1, 2]", "nic = [2, 1]")] {
        assert_ne!(own, of(&SMALL.replace(old, new)), "{new}");
    }
    let unfolded = How { fold: lockstep_sim::FoldRule::Never, ..How::default() };
    assert_ne!(own, identity(&sweep(SMALL), &unfolded));
    assert_ne!(own, of(&format!("pad = false\n{SMALL}")));
}

#[test]
fn scenarios_are_refused() {
    let text = format!("{SMALL}[[scenario]]\nname = \"slow\"\n[[scenario.slow]]\nranks = [0]\nfactor = 2.0\n");
    let error = Sweep::new(Experiment::parse("s.toml", &text).unwrap()).unwrap_err();
    assert!(error.place.to_string().starts_with("s.toml:") && error.to_string().contains("sim predict"), "{error}");
}
