//! Tests the costs in the rows of a sweep's fronts.

use super::*;

/// Eight and sixteen GPUs at 2, and four cores of one CPU at 0.5: each front row costs devices · price for its time.
#[test]
fn fronts_have_the_cost_at_the_price_of_their_cluster() {
    let kept = tempfile::tempdir().unwrap();
    let text = "name = \"s\"\nmodel = \"lenet\"\ndata = \"synthetic:20000\"\nbatch_per_rank = 16\nprice = [2, 0.5]\n\
                [sweep]\ncluster = [\"dgx1-v100:1..2\", \"ethernet-4:1\"]\nranks = \"all\"\n";
    let sweep = sweep(text);
    let plan = sweep.plan().unwrap();
    let lines = run_into(&sweep, &kept.path().join("rows.csv"), 2).unwrap();
    let form = CsvForm::of(&SweepRow::default());
    let mut answer = SweepAnswer::default();
    lines.lines().skip(1).for_each(|line| answer.add(&sweep, &plan, &form.row(line).unwrap()));
    let (front, _) = answer.report(&sweep, &plan);
    assert_eq!(front.len(), 3);
    for row in front {
        let price = match row.row.cluster.as_str() {
            "dgx1-v100:1" => 8.0 * 2.0,
            "dgx1-v100:2" => 16.0 * 2.0,
            _ => 0.5,
        };
        let million = price * 1e6 / row.row.images_per_s.unwrap() / 3600.0;
        assert!((row.cost_per_million_samples.unwrap() / million - 1.0).abs() < 1e-12, "{row:?}");
        assert!((row.cost_per_epoch.unwrap() / (0.02 * million) - 1.0).abs() < 1e-12, "{row:?}");
    }
    let wrong = text.replace("[2, 0.5]", "[2, 1, 0.5]");
    let error = Sweep::new(Experiment::parse("s.toml", &wrong).unwrap()).unwrap_err().to_string();
    assert!(error.contains("s.toml:5") && error.contains("3 prices of 2 clusters"), "{error}");
}
