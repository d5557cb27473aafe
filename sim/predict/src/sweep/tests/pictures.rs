//! Tests pictures of sweeps by the rules of all pictures.

use lockstep_report::svg::rules::faults;

use super::*;

/// The picture of a sweep over these clusters and batches, and its number of fronts.
fn picture(clusters: &str, batches: &str) -> (String, usize) {
    let kept = tempfile::tempdir().unwrap();
    let lists = format!("cluster = [{clusters}]\nranks = \"all\"\nbatch_per_rank = [{batches}]\n");
    let sweep = sweep(&format!("name = \"s\"\nmodel = \"mlp\"\n[sweep]\n{lists}"));
    let plan = sweep.plan().unwrap();
    let text = run_into(&sweep, &kept.path().join("rows.csv"), 2).unwrap();
    let form = CsvForm::of(&SweepRow::default());
    let mut answer = SweepAnswer::default();
    text.lines().skip(1).for_each(|line| answer.add(&sweep, &plan, &form.row(line).unwrap()));
    (svg(&answer, &sweep), answer.fronts.len())
}

/// One point, and 96 questions about 8 and 16 ranks: two figures on each axis, and no two lines alike.
#[test]
fn pictures_of_one_point_and_of_many_questions_are_readable() {
    let (alone, fronts) = picture("\"dgx-a100:1\"", "16");
    assert_eq!((faults(&alone), fronts), (Vec::new(), 1));
    let batches: Vec<String> = (1..=48).map(|batch| batch.to_string()).collect();
    let (many, fronts) = picture("\"dgx-a100:1..2\"", &batches.join(", "));
    assert_eq!((faults(&many), fronts), (Vec::new(), 48));
    assert!(many.contains("and 6 more") && many.contains("throughput, images per second"));
}
