//! Tests the tuner of learners against curves of throughput whose peak is known.

use super::*;
use proptest::prelude::*;

/// Runs until it converges; `curve[m − 1]` is observed with m learners.
fn run_until_converged(tuner: &mut Tuner, curve: &[f64]) -> u32 {
    for _ in 0..=curve.len() {
        if tuner.converged() {
            break;
        }
        let learners = tuner.learners()[0];
        tuner.observe(&[curve[learners as usize - 1]]);
    }
    assert!(tuner.converged(), "it has seen every number once and does not converge: {:?}", tuner.trials());
    tuner.learners()[0]
}

/// Rises by these factors up to the peak, falls by those after it.
fn unimodal() -> impl Strategy<Value = (Vec<f64>, usize)> {
    let side = || prop::collection::vec(1.001f64..2.0, 0..12);
    (1.0f64..1e6, side(), side()).prop_map(|(start, up, down)| {
        let mut curve = vec![start];
        for factor in &up {
            curve.push(curve[curve.len() - 1] * factor);
        }
        for factor in &down {
            curve.push(curve[curve.len() - 1] / factor);
        }
        (curve, up.len() + 1)
    })
}

proptest! {
    #[test]
    fn the_tuner_ends_at_the_peak((curve, peak) in unimodal()) {
        let mut tuner = Tuner::new(&[curve.len() as u32], 0.0);
        prop_assert_eq!(run_until_converged(&mut tuner, &curve) as usize, peak);
    }

    #[test]
    fn every_learner_has_gained_more_than_the_threshold((curve, peak) in unimodal(), threshold in 0.0f64..0.5) {
        let mut tuner = Tuner::new(&[curve.len() as u32], threshold);
        let found = run_until_converged(&mut tuner, &curve) as usize;
        prop_assert!(found <= peak);
        let at = |learners: usize| curve[learners - 1];
        let worth = |from: usize| at(from + 1) - at(from) > threshold * at(from);
        prop_assert!((1..found).all(worth), "{curve:?}: {found}");
        prop_assert!(found == curve.len() || !worth(found), "{curve:?}: {found}");
    }

    #[test]
    fn memory_limits_are_never_exceeded(
        curves in prop::collection::vec(prop::collection::vec(0.0f64..1e3, 40), 1..5),
        most in prop::collection::vec(0u32..9, 5),
        alike: bool,
    ) {
        let most = &most[..curves.len()];
        let mut tuner = Tuner::new(most, 0.05);
        let allowed = |device: usize| if alike { most.iter().copied().min().unwrap() } else { most[device] }.max(1);
        for _ in 0..50 {
            let learners = tuner.learners();
            for (device, learners) in learners.iter().enumerate() {
                prop_assert!((1..=allowed(device)).contains(learners));
            }
            let seen = |device: usize| curves[device][learners[device] as usize];
            let measured = if alike { 1 } else { curves.len() };
            tuner.observe(&(0..measured).map(seen).collect::<Vec<f64>>());
        }
        // Each barrier asks for one more or ends a device's search, so it converges after as many as memory allows.
        prop_assert!(tuner.converged() && tuner.trials().len() <= 9);
        let mut again = Tuner::new(most, 0.05);
        prop_assert_eq!(again.replay(tuner.trials()), Ok(()));
        prop_assert_eq!(again, tuner);
    }
}

/// The trail tells a search that memory ended from one that a learner without gain ended.
#[test]
fn the_trail_says_whether_memory_ended_the_search() {
    for (most, cause) in
        [(2, "at most 2 fit, so more were not tried)"), (3, "at most 3 fit, so more"), (8, "at most 8 fit)")]
    {
        let mut tuner = Tuner::new(&[most], 0.05);
        run_until_converged(&mut tuner, &[100.0, 150.0, 170.0, 160.0]);
        assert!(tuner.trail().contains(cause), "{}", tuner.trail());
    }
}

#[test]
fn unequal_devices_are_tuned_separately() {
    let mut tuner = Tuner::new(&[4, 4], 0.05);
    // The first gains up to three learners, the second loses with two.
    let first = [10.0, 20.0, 30.0, 31.0];
    let second = [10.0, 9.0];
    let mut trail = vec![tuner.learners()];
    while !tuner.converged() {
        let now = tuner.learners();
        trail.push(tuner.observe(&[first[now[0] as usize - 1], second[now[1] as usize - 1]]));
    }
    // 31 is no gain of 5 % on 30, and no loss either: as printed, the fourth would stay.
    assert_eq!(trail, [[1, 1], [2, 2], [3, 1], [4, 1], [3, 1]]);
}

#[test]
fn one_figure_of_several_devices_tunes_them_together() {
    let mut tuner = Tuner::new(&[4, 2], 0.05);
    assert_eq!((tuner.together(), tuner.observe(&[10.0])), (None, vec![2, 2]));
    // The device with less memory limits both.
    assert_eq!((tuner.together(), tuner.observe(&[20.0])), (Some(true), vec![2, 2]));
    assert!(tuner.converged());
    let two = Trial { learners: vec![1, 1], throughput: vec![10.0, 5.0] };
    let mut apart = Tuner::new(&[4, 2], 0.05);
    assert_eq!(apart.replay(&[two.clone(), Trial { learners: vec![2, 2], throughput: vec![20.0] }]), Err(1));
    assert_eq!(apart.trail().split("settled at ").nth(1), Some("2+2 (threshold 5 %, at most 4+2 fit)"));
    let three = Trial { throughput: vec![1.0; 3], ..two };
    assert_eq!(Tuner::new(&[4, 2], 0.05).replay(&[three]), Err(0), "three figures of two devices");
    assert_eq!(joined(&[2, 1, 1, 1], |one: &i32| one.to_string()), "2+1 x 3");
}

#[test]
fn the_published_algorithm_falls_below_one_and_this_one_does_not() {
    // A device that slows down by itself: as printed, l falls with every observation, to 0.
    let (mut printed, mut earlier) = (1u32, 0.0);
    let mut tuner = Tuner::new(&[9], 0.0);
    for t in [9.0, 8.0, 7.0, 6.0] {
        if t > earlier {
            printed += 1;
        } else if t < earlier && printed > 0 {
            printed -= 1;
        }
        earlier = t;
        tuner.observe(&[t]);
    }
    assert_eq!((printed, tuner.learners()[0]), (0, 1));
}

#[test]
fn invalid_figures_count_as_zero() {
    for figure in [f64::NAN, f64::INFINITY, -1.0] {
        let mut tuner = Tuner::new(&[9], 0.05);
        tuner.observe(&[1.0]);
        assert_eq!(tuner.observe(&[figure]), [1], "{figure}");
    }
}

#[test]
fn a_log_of_other_conditions_is_refused() {
    let log = [Trial { learners: vec![1], throughput: vec![1.0] }, Trial { learners: vec![2], throughput: vec![2.0] }];
    assert_eq!(Tuner::new(&[9], 0.05).replay(&log), Ok(()));
    assert_eq!(Tuner::new(&[1], 0.05).replay(&log), Err(1));
}
