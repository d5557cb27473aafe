//! `models plan`: the rows of a pipeline's stages, and the picture of their schedule.

use crate::commands::{folder, number, rows, stdout};

#[test]
fn a_plan_divides_a_model_and_shows_its_schedule() {
    let folder = folder("plan");
    let plan = ["models", "plan", "lenet", "--stages", "3", "--cut", "at=conv2,dense1", "--micro-batches", "6"];
    let planned = rows(&folder, "models-plan", &plan);
    let column = |name: &str| planned.iter().map(|row| number(row, name)).collect::<Vec<f64>>();
    assert_eq!(column("parameters").iter().sum::<f64>(), 1_111_946.0);
    assert_eq!(column("in_flight"), [3.0, 2.0, 1.0]);
    // Four bytes of 32×12×12 and of 64×4×4 activations.
    assert_eq!(column("sent_bytes_per_sample"), [18432.0, 4096.0, 0.0]);
    assert!(column("idle_share").iter().all(|share| (0.0..1.0).contains(share)));

    let shown = stdout(&folder, &plan);
    assert!(
        shown.contains("stage 2  ") && shown.contains("schedule 1f1b") && shown.contains("forward pass"),
        "{shown}"
    );
}

#[test]
fn a_single_stage_sends_nothing_and_never_waits() {
    let plan = ["models", "plan", "lenet", "--stages", "1", "--schedule", "interleaved:2"];
    let planned = rows(&folder("plan-alone"), "models-plan", &plan);
    assert_eq!(planned[0]["layers"].as_array().map(Vec::len), Some(2));
    assert_eq!((number(&planned[0], "sent_bytes_per_sample"), number(&planned[0], "idle_share")), (0.0, 0.0));
}
