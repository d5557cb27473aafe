//! Tests moments in bf16: what is rounded and when, what it saves, and where it is refused.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{Slice, evaluate};
use lockstep_exec::{Run, RunOptions, run};
use lockstep_models::memory::Memory;
use lockstep_models::{Buffer, Job, Moments, Op, Optimizer, RunLength, UpdateRule, random_model};
use lockstep_topology::Dtype;
use proptest::prelude::*;

use crate::commands::{folder, lockstep};
use crate::reference::rounded;

fn trained(strategy: &str, rule: UpdateRule, moments: Moments, steps: u32) -> Run {
    let model = Arc::new(random_model(11, true));
    let job = Job { rule, moments, strategy: strategy.parse().unwrap(), ..Job::new(model, 3, 4) };
    let (data, _) = Dataset::load("synthetic:120", &job.model).unwrap();
    let optimizer = Optimizer { moments, ..Optimizer::of_rule(rule) };
    let options = RunOptions { steps, warm_up: 0, seed: 7, optimizer, ..RunOptions::default() };
    run(&job.program().unwrap(), &data, &options).unwrap()
}

/// Moments begin with zeros and the weights step along those that are not rounded yet, so after one step rounding shows in
/// the moments alone: they are the nearest numbers to those in fp32. The second step begins with others, and so moves the
/// weights to others; a rounding changes a moment by at most 2⁻⁹ of it.
#[test]
fn the_first_step_rounds_moments_alone() {
    for (rule, strategy) in UpdateRule::ALL
        .into_iter()
        .flat_map(|rule| ["ssgd", "zero-1", "zero-2", "zero-3", "first-device-table"].map(|of| (rule, of)))
    {
        let place = format!("{rule} {strategy}");
        let [wide, narrow] = Moments::ALL.map(|moments| trained(strategy, rule, moments, 1));
        assert_eq!(narrow.parameters, wide.parameters, "{place}");
        let (wide, narrow) = (wide.state(), narrow.state());
        assert_eq!((narrow.moments, narrow.states.len()), (Moments::Bf16, rule.states().len()), "{place}");
        for (narrow, wide) in narrow.states.iter().zip(wide.states) {
            assert!(wide.iter().any(|value| *value != 0.0), "{place}");
            assert_eq!(*narrow, rounded(Dtype::Bf16, wide), "{place}");
        }
        let [start, wide, narrow] = [(1, Moments::F32), (2, Moments::F32), (2, Moments::Bf16)]
            .map(|(steps, moments)| trained(strategy, rule, moments, steps).parameters);
        let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        let (off, step) = (apart(&wide, &narrow), apart(&wide, &start));
        assert!(off > 0.0 && off < 0.01 * step, "{place}: {off:e} of {step:e}");
    }
}

/// Half the bytes for what the optimizer keeps, in memory and in checkpoints, and as much less to move in a step; gradients,
/// weights and exchanges stay as they are.
#[test]
fn half_the_bytes_are_kept_moved_and_saved() {
    for (rule, strategy) in UpdateRule::ALL
        .into_iter()
        .flat_map(|rule| ["ssgd", "zero-1", "zero-2", "zero-3", "megatron:zero-1"].map(|strategy| (rule, strategy)))
    {
        let states = rule.states().len() as u64;
        let of = |moments| {
            let (model, mesh) = (lockstep_readers::load_model("lenet").unwrap(), "data=2,tensor=2".parse().unwrap());
            let mesh = strategy.starts_with("megatron").then_some(mesh);
            let job =
                Job { rule, moments, mesh, strategy: strategy.parse().unwrap(), ..Job::new(Arc::new(model), 4, 4) };
            let program = job.program().unwrap();
            let checkpoint = program.checkpoint().unwrap();
            let saved = checkpoint.roles[0].tasks.iter().find_map(|task| match task.op {
                Op::Save { bytes } => Some(bytes),
                _ => None,
            });
            let moved =
                program.roles[0].tasks.iter().find_map(|task| Some(program.bytes_moved(&task.op.update()?.formula)));
            let elements = program.whole_model().parameter_elements();
            (Memory::of_role(&program, 0, states).unwrap(), saved.unwrap(), moved.unwrap(), elements)
        };
        let (wide, narrow) = (of(Moments::F32), of(Moments::Bf16));
        assert_eq!(narrow.0, Memory { optimizer: wide.0.optimizer / 2, ..wide.0 }, "{rule} {strategy}");
        assert_eq!(wide.1 - narrow.1, 2 * states * narrow.3, "{rule} {strategy}: saved");
        // g once, w twice, each state twice.
        assert_eq!((wide.2, narrow.2), (12 + 8 * states, 12 + 4 * states), "{rule} {strategy}: moved");
    }
}

proptest! {
    /// A second moment falls by the share 1 − β₂ of a step without gradient. If that is less than half of what separates two
    /// numbers of bf16, 2⁻⁹ of the number at least, it is rounded back and never falls; a twentieth never is.
    #[test]
    fn second_moments_fall_by_more_than_half_a_digit_or_not_at_all(upper in 0x0080u32..0x7f00, beta2 in 0.9981f64..0.99999) {
        let value = f32::from_bits(upper << 16);
        let after = |beta2| {
            let of = Optimizer { beta2, ..Optimizer::of_rule(UpdateRule::AdamW) };
            let numbers = of.numbers(3, &RunLength { global_batch: 1, steps_per_epoch: 9, steps: 9 });
            let bound = of.rule.update(&[], false).bind(&numbers);
            let mut held = bound.buffers.iter().map(|of| vec![if of.buffer == Buffer::State(1) { value } else { 0.0 }]).collect::<Vec<_>>();
            evaluate(&bound, false, &mut held.iter_mut().map(|values| Slice::Written(values)).collect::<Vec<_>>());
            let at = bound.buffers.iter().position(|of| of.buffer == Buffer::State(1)).unwrap();
            rounded(Dtype::Bf16, held.swap_remove(at)).remove(0)
        };
        prop_assert_eq!(after(beta2), value);
        prop_assert!(after(0.95) < value);
    }
}

/// Where there are no moments, formats that none have, a run of another program, and checkpoints of the other format: refused
/// at the setting, with the cure.
#[test]
fn other_formats_are_refused() {
    let model = Arc::new(random_model(11, false));
    for strategy in ["sma", "ea-sgd", "local-sgd:tau=2"] {
        let job = Job { moments: Moments::Bf16, strategy: strategy.parse().unwrap(), ..Job::new(model.clone(), 2, 4) };
        let error = job.program().unwrap_err().to_string();
        assert!(error.starts_with("--moments: bf16: ") && error.ends_with("leave it out"), "{error}");
    }
    let program = Job::new(model.clone(), 1, 4).program().unwrap();
    let (data, _) = Dataset::load("synthetic:64", &model).unwrap();
    let optimizer = Optimizer { moments: Moments::Bf16, ..Optimizer::default() };
    let error = run(&program, &data, &RunOptions { steps: 1, optimizer, ..RunOptions::default() }).err().unwrap();
    assert!(
        error.to_string().contains("--moments: bf16: is not the format of the program's moments, which are fp32"),
        "{error}"
    );

    let folder = folder("narrow-moments");
    let call = |more: &str| {
        let train = "exec run --model mlp --data synthetic:300 --optimizer adamw --format json";
        let output = lockstep(&folder, &train.split(' ').chain(more.split(' ')).collect::<Vec<_>>());
        let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), out, said)
    };
    let state = |(code, out, said): (Option<i32>, String, String)| {
        assert_eq!(code, Some(0), "{said}");
        let row: serde_json::Value = serde_json::from_str(&out).unwrap();
        row["rows"][0]["state_sha256"].as_str().unwrap().to_owned()
    };
    let (code, _, said) = call("--moments fp16 --steps 4");
    assert!(code == Some(2) && said.contains("--moments: fp16") && said.contains("fp32 or bf16"), "{said}");
    for (own, other, kept) in [("fp32", "bf16", "wide"), ("bf16", "fp32", "narrow")] {
        state(call(&format!("--moments {own} --steps 4 --checkpoint {kept} --checkpoint-every 4")));
        let (code, _, said) = call(&format!("--moments {other} --steps 8 --resume {kept}"));
        let [place, cure] = [
            format!("--moments: {other}: the checkpoint {kept}/step-0000000004"),
            format!("holds moments in {own}: give the same, or start over without --resume"),
        ];
        assert!(code == Some(2) && said.contains(&place) && said.contains(&cure), "{said}");
        // With its own format it ends as a run that was not interrupted.
        let whole = state(call(&format!("--moments {own} --steps 8")));
        assert_eq!(state(call(&format!("--moments {own} --steps 8 --resume {kept}"))), whole, "{own}");
    }
}
