//! Tests that cuts by work are the best of all cuts, and that what crosses a boundary is what layers after it read.

use proptest::prelude::*;

use crate::pipeline::cut::least_maximum;
use crate::{LayerId, Model, StageCut, Stages, random_model};

/// The least maximum over all ways to cut `work` into `parts`.
fn least(work: &[f64], parts: usize) -> f64 {
    if parts == 1 {
        return work.iter().sum();
    }
    let cut = |end: usize| work[..end].iter().sum::<f64>().max(least(&work[end..], parts - 1));
    (1..=work.len() + 1 - parts).map(cut).fold(f64::INFINITY, f64::min)
}

/// Elements that layers before `end` make and layers from it on read, each producer once.
fn crossing(model: &Model, end: u32) -> u64 {
    let reads = |id: LayerId| model.layers()[end as usize..].iter().any(|node| node.inputs.contains(&id));
    (0..end).map(LayerId).filter(|id| reads(*id)).map(|id| model.node(id).output.elements()).sum()
}

proptest! {
    #[test]
    fn cuts_by_work_are_optimal(
        work in prop::collection::vec(prop_oneof![Just(0.0), (0..20_u32).prop_map(f64::from)], 1..10), parts in 1..10_usize,
    ) {
        let parts = parts.min(work.len());
        let begins = least_maximum(&work, parts);
        prop_assert_eq!(begins.len(), parts);
        prop_assert!(begins[0] == 0 && begins.is_sorted_by(|one, next| one < next));
        let ends = begins[1..].iter().copied().chain([work.len()]);
        let sums = begins.iter().zip(ends).map(|(begin, end)| work[*begin..end].iter().sum::<f64>());
        prop_assert_eq!(sums.fold(0.0, f64::max), least(&work, parts));
    }

    #[test]
    fn stages_divide_a_model_and_count_what_crosses(seed: u64, stages in 1..4_u32, chunks in 1..3_u32, by_work: bool) {
        let model = random_model(seed, true);
        let cut = if by_work { StageCut::Work } else { StageCut::Layers };
        let all = stages * chunks;
        prop_assume!(all as usize <= model.layers().len());
        let cut = Stages::new(&model, stages, chunks, &cut).unwrap();
        let parts = cut.chunks();
        prop_assert_eq!(parts.len(), all as usize);
        prop_assert!(parts.windows(2).all(|pair| pair[0].layers.end == pair[1].layers.start));
        prop_assert_eq!((parts[0].layers.start, parts[parts.len() - 1].layers.end as usize), (0, model.layers().len()));
        prop_assert!(parts.iter().all(|part| !part.layers.is_empty()));
        prop_assert_eq!(parts.iter().map(|part| part.parameters).sum::<u64>(), model.parameter_elements());
        for part in parts {
            prop_assert_eq!(part.crossing_elements, crossing(&model, part.layers.end));
        }
        for stage in 0..stages {
            let own: Vec<u32> = cut.chunks_of(stage).map(|part| part.layers.start).collect();
            let expected: Vec<u32> = (stage..all).step_by(stages as usize).map(|c| parts[c as usize].layers.start).collect();
            prop_assert_eq!(own, expected);
        }
        prop_assert_eq!(cut.chunks_of(stages).count(), 0);
        // The same cut by the names of its layers.
        let names = parts[1..].iter().map(|part| model.layers()[part.layers.start as usize].name.clone()).collect();
        let text = StageCut::At(names).to_string();
        prop_assert_eq!(Stages::new(&model, stages, chunks, &text.parse().unwrap()).unwrap(), cut);
    }
}

#[test]
fn lists_that_do_not_fit_are_refused() {
    let model = random_model(7, false);
    let name = |index: usize| model.layers()[index].name.clone();
    let message = |stages: u32, chunks: u32, cut: &str| {
        Stages::new(&model, stages, chunks, &cut.parse().unwrap()).unwrap_err().to_string()
    };
    let layers = model.layers().len();
    let most = message(layers as u32 + 1, 1, "work");
    assert!(most.starts_with(&format!("--stages: {}: ", layers + 1)), "{most}");
    assert!(most.ends_with(&format!("random-7 has {layers}: use at most {layers}")), "{most}");
    assert!(
        message(2, layers as u32, "work").contains(&format!("2 stages of {layers} chunks each need {}", 2 * layers))
    );
    assert!(message(2, u32::MAX, "work").ends_with("use fewer chunks"));
    assert!(message(0, 1, "work").contains("at least 1"));
    assert!(message(3, 1, &format!("at={}", name(1))).contains("2 in all, and not 1"));
    assert!(message(2, 1, "at=").contains("1 in all, and not 0"));
    let near = message(2, 1, &format!("at={}x", name(2)));
    assert!(near.contains(&format!("has no layer \"{}x\"; did you mean {}", name(2), name(2))), "{near}");
    let descends = message(3, 1, &format!("at={},{}", name(3), name(2)));
    assert!(descends.contains(&format!("layer {:?} does not come after {:?}", name(2), name(3))), "{descends}");
    assert!(message(2, 1, "at=input").contains("does not come after"), "the input begins stage 0");
}
