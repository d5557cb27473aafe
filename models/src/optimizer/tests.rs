//! Tests rates at listed steps, worked by hand, and the two forms of momentum against each other.

use proptest::prelude::*;

use super::*;

fn goyal(warm_up: WarmUp) -> Optimizer {
    Optimizer {
        learning_rate: 0.1,
        scaling: Scaling::Linear { batch: 256 },
        warm_up,
        decay: Decay::Steps { factor: 0.1, epochs: vec![30.0, 60.0, 80.0] },
        ..Optimizer::default()
    }
}

fn run_length(global_batch: u64) -> RunLength {
    let steps_per_epoch = 1_281_167 / global_batch;
    RunLength { global_batch, steps_per_epoch, steps: 90 * steps_per_epoch }
}

fn close(got: f64, wanted: f64) {
    assert!((got - wanted).abs() <= 1e-12 * wanted.abs(), "{got} is not {wanted}");
}

/// Goyal et al. 2017, §5.3: from 0.1 whatever the batch, by a constant amount per iteration, the reference rate after
/// five epochs; no warm-up up to 256.
#[test]
fn gradual_warm_up() {
    let optimizer = goyal(WarmUp::Gradual { epochs: 5.0, from: None });
    for (batch, target) in [(512, 0.2), (1024, 0.4), (8192, 3.2), (65536, 25.6)] {
        let run_length = run_length(batch);
        let warm = 5 * run_length.steps_per_epoch;
        let rates: Vec<f64> = (0..=warm).map(|step| optimizer.rate(step, &run_length)).collect();
        assert_eq!(rates[0], 0.1);
        close(rates[warm as usize], target);
        let increment = (target - 0.1) / warm as f64;
        assert!(rates.windows(2).all(|two| (two[1] - two[0] - increment).abs() < 1e-12 * target), "{batch}");
    }
    for batch in [64u64, 128, 256] {
        assert_eq!(optimizer.rate(0, &run_length(batch)), 0.1 * (batch as f64 / 256.0));
    }
    // An explicit first rate.
    let from = Optimizer { warm_up: WarmUp::Gradual { epochs: 2.0, from: Some(0.0) }, ..optimizer };
    assert_eq!(from.rate(0, &run_length(256)), 0.0);
    close(from.rate(run_length(256).steps_per_epoch, &run_length(256)), 0.05);
}

/// §2.2: η for five epochs, then k·η at once; without warm-up k·η from the first step on.
#[test]
fn constant_and_no_warm_up() {
    let (large, constant) = (run_length(8192), goyal(WarmUp::Constant { epochs: 5.0, rate: None }));
    let warm = 5 * large.steps_per_epoch;
    assert!((0..warm).all(|step| constant.rate(step, &large) == 0.1));
    assert_eq!(constant.rate(warm, &large), 3.2);
    assert_eq!(goyal(WarmUp::None).rate(0, &large), 3.2);
    assert_eq!(constant.rate(0, &run_length(256)), 0.1);
}

#[test]
fn decays() {
    let run_length = RunLength { global_batch: 256, steps_per_epoch: 10, steps: 900 };
    let rate = |decay: &str, step| {
        let decay = decay.parse().unwrap();
        Optimizer { learning_rate: 1.0, decay, ..Optimizer::default() }.rate(step, &run_length)
    };
    for (decay, rates) in [
        ("constant", vec![(0, 1.0), (899, 1.0)]),
        ("steps:0.1@30,60,80", vec![(299, 1.0), (300, 0.1), (599, 0.1), (600, 0.01), (799, 0.01), (800, 0.001)]),
        ("steps:0.5@22.5", vec![(224, 1.0), (225, 0.5)]),
        ("every:0.1@30", vec![(299, 1.0), (300, 0.1), (600, 0.01), (899, 0.01)]),
        ("every:0.5@20", vec![(199, 1.0), (200, 0.5), (400, 0.25), (800, 0.0625)]),
        // √(1 − 675/900) = ½; cos(π/2) = 0, cos(π/3) = ½.
        ("polynomial:0.5", vec![(0, 1.0), (675, 0.5), (900, 0.0), (1000, 0.0)]),
        ("polynomial:1", vec![(450, 0.5)]),
        ("linear", vec![(0, 1.0), (225, 0.75), (450, 0.5), (900, 0.0)]),
        ("cosine", vec![(0, 1.0), (300, 0.75), (450, 0.5)]),
        ("steps:0.1@25,60steps", vec![(24, 1.0), (25, 0.1), (59, 0.1), (60, 0.01)]),
        ("every:0.5@20steps", vec![(19, 1.0), (20, 0.5), (60, 0.125)]),
        // ½^step; 1 / (1 + ¼·12)^½ = ½; 1 / (1 + e⁰) = ½, and far below the middle all is left.
        ("exponential:0.5", vec![(0, 1.0), (3, 0.125)]),
        ("inverse:0.25@0.5", vec![(0, 1.0), (12, 0.5)]),
        ("sigmoid:-1@450", vec![(0, 1.0), (450, 0.5), (899, 0.0)]),
    ] {
        for (step, wanted) in rates {
            assert!((rate(decay, step) - wanted).abs() < 1e-12, "{decay} at {step}: {}", rate(decay, step));
        }
    }
    assert!(rate("cosine", 900).abs() < 1e-12);
}

/// A continuous decay begins where the warm-up ends, so the rate does not jump there.
#[test]
fn warm_up_then_polynomial() {
    let run_length = RunLength { global_batch: 1024, steps_per_epoch: 10, steps: 150 };
    let decay = Decay::Polynomial { power: 1.0 };
    let optimizer = Optimizer { decay, ..goyal(WarmUp::Gradual { epochs: 5.0, from: None }) };
    close(optimizer.rate(50, &run_length), 0.4);
    close(optimizer.rate(100, &run_length), 0.2);
    assert_eq!(optimizer.rate(150, &run_length), 0.0);
}

#[test]
fn texts_round_trip() {
    for text in ["none", "linear:256", "square-root:128"] {
        assert_eq!(text.parse::<Scaling>().unwrap().to_string(), text);
    }
    for text in ["none", "constant:5", "gradual:5", "gradual:5@0.1", "constant:0.5@0.01"] {
        assert_eq!(text.parse::<WarmUp>().unwrap().to_string(), text);
    }
    for text in [
        "constant",
        "steps:0.1@30,60,80",
        "every:0.5@20",
        "polynomial:0.5",
        "cosine",
        "steps:0.1@100,2000steps",
        "every:0.5@20steps",
        "exponential:0.999",
        "inverse:0.0001@0.75",
        "sigmoid:-0.001@5000",
    ] {
        assert_eq!(text.parse::<Decay>().unwrap().to_string(), text);
    }
    for text in ["separate", "absorbed", "corrected"] {
        assert_eq!(text.parse::<MomentumForm>().unwrap().to_string(), text);
    }
    for wrong in ["", "linear", "linear:0", "linear:x", "linear:-1"] {
        assert!(wrong.parse::<Scaling>().unwrap_err().contains("linear:256"));
    }
    for wrong in ["gradual", "gradual:-1", "gradual:5@", "gradual:inf", "none:5"] {
        assert!(wrong.parse::<WarmUp>().unwrap_err().contains("gradual:5@0.1"));
    }
    for wrong in [
        "steps:0.1",
        "steps:0.1@60,30",
        "steps:@3",
        "every:0.1@0",
        "polynomial:",
        "polynomial:NaN",
        "cosine:1",
        "every:1@0steps",
        "steps:1@1.5steps",
        "exponential:-1",
        "inverse:1",
        "sigmoid:inf@3",
        "sigmoid:1@-3",
    ] {
        assert!(wrong.parse::<Decay>().unwrap_err().contains("steps:0.1@30,60,80"));
    }
}

/// Plain SGD with momentum in f64, straight from Eq. 9: weights after each gradient.
fn eq_9(optimizer: &Optimizer, gradients: &[f64], run_length: &RunLength) -> Vec<f64> {
    let (mut w, mut u) = (1.0, 0.0);
    let step = |(step, g): (usize, &f64)| {
        u = optimizer.momentum * u + g + optimizer.weight_decay * w;
        w -= optimizer.rate(step as u64, run_length) * u;
        w
    };
    gradients.iter().enumerate().map(step).collect()
}

/// The same with the numbers of the optimizer's steps.
fn by_steps(optimizer: &Optimizer, gradients: &[f64], run_length: &RunLength) -> Vec<f64> {
    let (mut w, mut v) = (1.0, 0.0);
    let step = |(at, g): (usize, &f64)| {
        let rule = optimizer.step(at as u64, run_length);
        let gradient = g + f64::from(rule.weight_decay) * w;
        let rate = f64::from(rule.rate);
        v = f64::from(rule.keep) * v + if rule.absorbed { rate * gradient } else { gradient };
        w -= if rule.absorbed { v } else { rate * v };
        w
    };
    gradients.iter().enumerate().map(step).collect()
}

proptest! {
    /// Remark 2: with the correction Eq. 10 equals Eq. 9 under any schedule; without it only until the rate changes.
    #[test]
    fn momentum_correction(gradients in prop::collection::vec(-1.0f64..1.0, 30), warm in 0u32..6, factor in 0.1f64..0.9) {
        let run_length = RunLength { global_batch: 1024, steps_per_epoch: 5, steps: 30 };
        let optimizer = Optimizer {
            decay: Decay::Steps { factor, epochs: vec![3.0] },
            weight_decay: 1e-3,
            ..goyal(WarmUp::Gradual { epochs: f64::from(warm), from: None })
        };
        let wanted = eq_9(&optimizer, &gradients, &run_length);
        for form in [MomentumForm::Separate, MomentumForm::Corrected] {
            let got = by_steps(&Optimizer { form, ..optimizer.clone() }, &gradients, &run_length);
            // The steps' numbers are rounded to f32.
            prop_assert!(got.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-5 * (1.0 + b.abs())), "{form}");
        }
    }
}

/// The pitfall of Remark 2 by hand: g = 1 always, m = 0.5, the rate jumps from 1 to 10 at the third step. Eq. 9:
/// u = 1, 1.5, 1.75, so the third step is 17.5. Eq. 10 without correction: v = 1, 1.5, 0.5·1.5 + 10 = 10.75, too
/// little history.
#[test]
fn without_correction_the_momentum_is_too_small() {
    let run_length = RunLength { global_batch: 1, steps_per_epoch: 1, steps: 3 };
    let optimizer = Optimizer {
        learning_rate: 1.0,
        decay: Decay::Steps { factor: 10.0, epochs: vec![2.0] },
        momentum: 0.5,
        ..Optimizer::default()
    };
    for (form, wanted) in
        [(MomentumForm::Separate, 17.5), (MomentumForm::Corrected, 17.5), (MomentumForm::Absorbed, 10.75)]
    {
        let weights = by_steps(&Optimizer { form, ..optimizer.clone() }, &[1.0; 3], &run_length);
        assert_eq!(weights[1] - weights[2], wanted, "{form}");
    }
}
