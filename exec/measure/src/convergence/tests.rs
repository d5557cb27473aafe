//! Tests times to a target computed by hand, and files without usable figures.

use lockstep_report::Setting;

use super::*;

const TABLE: &str = "model = \"lenet\"\ntarget = \"97 % of the digits\"\nsource = \"a test\"\nsamples = 1000\n\
                     point = [{ global_batch = 16, epochs = 4 }, { global_batch = 64, epochs = 8 }]\n";

fn row(global_batch: u64, images_per_s: f64) -> PredictedRow {
    let setting =
        Setting { model: "lenet".into(), strategy: "ssgd".into(), learners: 1, global_batch, ..Setting::default() };
    PredictedRow { setting, images_per_s, cluster: "here".into(), ..PredictedRow::default() }
}

fn annotated(table: &str, rows: &[(u64, f64)]) -> (Vec<PredictedRow>, Vec<String>) {
    let mut rows: Vec<PredictedRow> = rows.iter().map(|(batch, rate)| row(*batch, *rate)).collect();
    let notes = table::parse("t.toml", table).unwrap().annotate(&mut rows);
    (rows, notes)
}

#[test]
fn the_time_to_accuracy_is_epochs_times_epoch_time() {
    // 4,000 samples at 100 a second; at a batch of 32, halfway between on a scale of logarithms, √(4 · 8) epochs.
    let (rows, notes) = annotated(TABLE, &[(16, 100.0), (32, 150.0), (64, 180.0), (128, 200.0), (8, 50.0)]);
    let times: Vec<Option<f64>> = rows.iter().map(|row| row.time_to_target_s).collect();
    assert_eq!((times[0], times[2], times[3], times[4]), (Some(40.0), Some(8000.0 / 180.0), None, None));
    assert!((times[1].unwrap() - 1000.0 * 32f64.sqrt() / 150.0).abs() < 1e-9, "{times:?}");
    assert_eq!((rows[0].steps_to_target, rows[2].steps_to_target), (Some(250.0), Some(125.0)));
    assert_eq!(rows[0].time_to_target_low_s, None, "one run says nothing of how runs differ");
    let all = notes.join("\n");
    assert!(
        all.contains(
            "global batch 128: the number of samples to the target is known from 16 to 64, and not extrapolated"
        ),
        "{all}"
    );
    assert!(
        all.contains("a global batch of 32 reaches the target first, after 37.712 s; a larger one does not pay"),
        "{all}"
    );
    assert!(
        all.contains("with 64, throughput is 1.20 times as high and 1.41 times as many samples are needed"),
        "{all}"
    );
}

#[test]
fn runs_that_differ_make_an_interval() {
    // 3, 4, 5 epochs: mean 4, deviation 1; t(0.975, 2) = 4.3027 times 1/√3 is 2.4842 epochs.
    let table = TABLE.replace("epochs = 4", "epochs = [3, 5, 4]");
    let (rows, _) = annotated(&table, &[(16, 100.0)]);
    let interval = (rows[0].time_to_target_low_s.unwrap(), rows[0].time_to_target_high_s.unwrap());
    assert!((interval.0 - 15.158).abs() < 1e-2 && (interval.1 - 64.842).abs() < 1e-2, "{interval:?}");

    // An error bar of the prediction widens it: 62.1 % and 30 % combine to 68.97 %.
    let mut rows = [PredictedRow { error_bar_pct: Some(30.0), ..row(16, 100.0) }];
    table::parse("t.toml", &table).unwrap().annotate(&mut rows);
    assert!((rows[0].time_to_target_high_s.unwrap() - 67.589).abs() < 1e-2, "{rows:?}");
}

#[test]
fn points_apply_to_the_settings_that_they_name() {
    let of_learners =
        TABLE.replace("epochs = 4 }", "epochs = 4, learners = 2 }, { global_batch = 16, epochs = 2, learners = 1 }");
    assert_eq!(annotated(&of_learners, &[(16, 100.0)]).0[0].time_to_target_s, Some(20.0));
    let of_sma = TABLE.replace("epochs = 4", "epochs = 4, strategy = \"sma\"");
    assert_eq!(annotated(&of_sma, &[(16, 100.0)]).0[0].time_to_target_s, None);
    let (rows, notes) =
        annotated(&TABLE.replace("epochs = 8", "epochs = 8, missed = 2"), &[(16, 100.0), (32, 1.0), (64, 1.0)]);
    let known: Vec<bool> = rows.iter().map(|row| row.time_to_target_s.is_some()).collect();
    assert_eq!(known, [true, false, false], "a mean of those that got there would be too good");
    assert!(notes.iter().any(|note| note.contains("at 64 2 of 3 runs did not get there")), "{notes:?}");
    let (_, notes) = annotated(&TABLE.replace("lenet", "mlp"), &[(16, 1.0)]);
    assert!(notes[1].contains("nothing is known of lenet there"), "{notes:?}");
}

#[test]
fn invalid_tables_are_refused() {
    for (from, to, place, words) in [
        ("model =", "modell =", "t.toml:1", "did you mean model?"),
        ("samples = 1000\n", "", "t.toml:1", "lacks the key samples"),
        ("samples = 1000", "samples = 0", "t.toml:4", "whole number from 1"),
        ("epochs = 8", "epochs = 0", "t.toml:5", "more than 0"),
        ("epochs = 8", "epochs = nan", "t.toml:5", "more than 0"),
        ("epochs = 8", "epochs = []", "t.toml:5", "at least one item"),
        ("global_batch = 64", "global_batch = 16", "t.toml:5", "is given twice"),
        ("global_batch = 64", "global_batches = 64", "t.toml:5", "did you mean global_batch?"),
    ] {
        let error = table::parse("t.toml", &TABLE.replacen(from, to, 1)).unwrap_err();
        assert!(error.place.to_string() == place && error.to_string().contains(words), "{from} -> {to}: {error}");
    }
}

#[test]
fn reports_of_runs_are_read() {
    let run = |batch: u64, seed: u64, steps: &str| {
        format!(
            "{{\"model\": \"lenet\", \"strategy\": \"ssgd\", \"learners\": 1, \"ranks\": 1, \"batch_per_rank\": {batch}, \
             \"accumulate\": 1, \"global_batch\": {batch}, \"algorithm\": \"-\", \"bucket\": \"25MiB\", \"data\": \"mnist\", \
             \"seed\": {seed}, \"target_accuracy\": 0.97, \"steps_to_target\": {steps}}}"
        )
    };
    let report = |runs: &[String]| format!("{{\"version\": 1, \"rows\": [{}], \"notes\": []}}", runs.join(", "));
    let text = report(&[run(16, 1, "200"), run(16, 2, "300"), run(64, 1, "100"), run(64, 2, "null")]);
    let found = logged::parse("runs.json", &text).unwrap();
    let samples: Vec<(&[f64], u32)> = found.points.iter().map(|point| (&point.samples[..], point.missed)).collect();
    assert_eq!(samples, [(&[3200.0, 4800.0][..], 0), (&[6400.0][..], 1)]);
    assert_eq!(found.target, "97 % of the held-out samples of mnist");
    for (text, words) in [
        ("{}".to_owned(), "missing field"),
        ("x".to_owned(), "no report of exec run"),
        (report(&[]), "train first"),
        (report(&[run(16, 1, "null")]), "train longer"),
        (report(&[run(16, 1, "1").replace("0.97", "null")]), "--target-accuracy 0.97"),
        (report(&[run(16, 1, "1"), run(16, 1, "1").replace("0.97", "0.9")]), "one target"),
        (report(&[run(16, 1, "1"), run(16, 1, "1").replace("mnist", "cifar")]), "one data set"),
        (report(&[run(16, 1, "1")]).replace("\"version\": 1", "\"version\": 2"), "version 2: is not 1"),
        (report(&[run(16, 1, "1").replace("steps_to", "step_to")]), "did you mean steps_to_target?"),
        (report(&[run(16, 1, "9").replace("\"seed\": 1", "\"steps\": 8")]), "more than the run's 8 steps"),
        (report(&[run(16, 1, "1")]).replace("\"notes\"", "\"remarks\""), "unknown field"),
    ] {
        let error = logged::parse("runs.json", &text).unwrap_err().to_string();
        assert!(error.contains("runs.json") && error.contains(words), "{error} lacks {words}");
    }
}
