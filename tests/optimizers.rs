//! Tests optimizers: their formulas against what they are defined to be, what they keep, and where they are refused.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{Slice, evaluate};
use lockstep_exec::{RunOptions, run};
use lockstep_models::memory::Memory;
use lockstep_models::{
    Axis, AxisSet, Buffer, Coefficient, Decay, Exchange, Job, Mesh, Model, NoDecay, Op, Optimizer, Program, RunLength,
    SquareSum, Squares, StepNumbers, UpdateRule, random_model,
};
use proptest::prelude::*;

use crate::commands::{folder, lockstep};
use crate::equivalence::{assert_equal_bits, plain};
use crate::reference;

const RUN: RunLength = RunLength { global_batch: 32, steps_per_epoch: 5, steps: 10 };

/// One parameter with its moments in f64, as `torch.optim.Adam` and `torch.optim.AdamW` step (single tensor).
struct Adam {
    weight: f64,
    first: f64,
    second: f64,
}

impl Adam {
    fn step(&mut self, of: &Optimizer, number: u64, mut gradient: f64) {
        let rate = of.rate(number, &RUN);
        let t = number as i32 + 1;
        match of.rule {
            UpdateRule::AdamW => self.weight *= 1.0 - rate * of.weight_decay,
            _ => gradient += of.weight_decay * self.weight,
        }
        self.first = of.beta1 * self.first + (1.0 - of.beta1) * gradient;
        self.second = of.beta2 * self.second + (1.0 - of.beta2) * gradient * gradient;
        let first = self.first / (1.0 - of.beta1.powi(t));
        let second = self.second / (1.0 - of.beta2.powi(t));
        self.weight -= rate * first / (second.sqrt() + of.epsilon);
    }
}

/// Steps of an optimizer on `weights`, with the gradient of each; returns the weights after each step.
fn stepped(of: &Optimizer, mut weights: Vec<f32>, gradients: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut states = vec![vec![0.0f32; weights.len()]; of.rule.states().len()];
    let step = |(number, gradient): (usize, &Vec<f32>)| {
        let numbers = of.numbers(number as u64, &RUN);
        let clip = of.clip_norm.map_or(1.0, |most| SquareSum::of(gradient).clip_coefficient(most));
        let factors: &[Coefficient] = if of.clip_norm.is_some() { &[Coefficient::CLIP] } else { &[] };
        let formula = of.rule.update(factors, false);
        let bound = formula.bind(&StepNumbers { clip, ..numbers });
        let mut held: Vec<(Buffer, Slice<'_>)> =
            vec![(Buffer::Gradients, Slice::Read(gradient)), (Buffer::Parameters, Slice::Written(&mut weights))];
        for (index, state) in states.iter_mut().enumerate() {
            held.push((Buffer::State(index), Slice::Written(state)));
        }
        let mut slices: Vec<Slice<'_>> = Vec::new();
        for buffer in &bound.buffers {
            let at = held.iter().position(|(of, _)| *of == buffer.buffer).expect("a buffer of optimizers");
            slices.push(held.swap_remove(at).1);
        }
        evaluate(&bound, true, &mut slices);
        drop(slices);
        weights.clone()
    };
    gradients.iter().enumerate().map(step).collect()
}

proptest! {
    /// Ten steps at rates that change are those of PyTorch's Adam and AdamW up to fp32's rounding: a step is at most a few
    /// rates long, and each of its roundings is within 2⁻²⁴ of the weight or the step.
    #[test]
    fn ten_steps_are_those_of_adam(
        weights in prop::collection::vec(-2.0f32..2.0, 1..40),
        seed in any::<u64>(),
        rule in prop::sample::select(vec![UpdateRule::Adam, UpdateRule::AdamW]),
        (beta1, beta2) in (0.0f64..0.95, 0.5f64..0.9995),
        weight_decay in prop_oneof![Just(0.0), 0.0f64..0.3],
    ) {
        let decay = Decay::Every { factor: 0.5, epochs: 1.0 };
        let of = Optimizer { beta1, beta2, weight_decay, decay, ..Optimizer::of_rule(rule) };
        // Of magnitudes from 10⁻³ to 10, so that ε does not hide rounding.
        let gradient = |step: u64, at: usize| {
            let mixed = (seed ^ (step * 977 + at as u64 * 131)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let sign = if mixed & 1 == 0 { 1.0 } else { -1.0 };
            sign * 10f32.powf((mixed >> 1) as f32 % 4096.0 / 1024.0 - 3.0)
        };
        let gradients: Vec<Vec<f32>> =
            (0..10).map(|step| (0..weights.len()).map(|at| gradient(step, at)).collect()).collect();
        let trained = stepped(&of, weights.clone(), &gradients);
        for (at, weight) in weights.iter().enumerate() {
            let mut exact = Adam { weight: f64::from(*weight), first: 0.0, second: 0.0 };
            for (number, (gradient, trained)) in gradients.iter().zip(&trained).enumerate() {
                exact.step(&of, number as u64, f64::from(gradient[at]));
                let bound = 1e-6 * (number + 1) as f64 * exact.weight.abs().max(0.01);
                prop_assert!((f64::from(trained[at]) - exact.weight).abs() < bound, "{} {}", trained[at], exact.weight);
            }
        }
    }

    /// A clipped step of SGD without momentum moves weights by at most the rate times the norm, along the gradient; a
    /// gradient of a smaller norm is not changed at all.
    #[test]
    fn clipped_steps_have_the_norm(
        gradient in prop::collection::vec(-3.0f32..3.0, 2..50), most in 0.1f64..20.0,
    ) {
        let of = Optimizer { learning_rate: 1.0, momentum: 0.0, clip_norm: Some(most), ..Optimizer::default() };
        let norm = gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>().sqrt();
        let moved = stepped(&of, vec![0.0; gradient.len()], std::slice::from_ref(&gradient)).remove(0);
        let length = moved.iter().map(|w| f64::from(*w) * f64::from(*w)).sum::<f64>().sqrt();
        if norm + 1e-6 < most {
            prop_assert!(moved.iter().zip(&gradient).all(|(moved, g)| *moved == -*g));
        } else {
            let expected = norm * (most / (norm + 1e-6)).min(1.0);
            prop_assert!((length - expected).abs() < 1e-5 * expected, "{length} {expected}");
            let factor = most / (norm + 1e-6);
            let along = |(moved, g): (&f32, &f32)| (f64::from(*moved) + factor * f64::from(*g)).abs() < 1e-6 * (1.0 + norm);
            prop_assert!(moved.iter().zip(&gradient).all(along));
        }
    }
}

fn model() -> Arc<Model> {
    Arc::new(random_model(11, false))
}

fn job(rule: UpdateRule, strategy: &str, workers: u32) -> Job {
    Job { rule, strategy: strategy.parse().unwrap(), ..Job::new(model(), workers, 4) }
}

/// Adam keeps two moments where SGD keeps one: twice the memory, checkpoints of three times the parameters, and seven
/// elements moved for each instead of five. With ZeRO each rank has a part.
#[test]
fn what_adam_keeps_follows_from_its_states() {
    let elements = model().parameter_elements();
    let saved = |program: &Program| {
        let checkpoint = program.checkpoint().unwrap();
        let saves = checkpoint.roles[0].tasks.iter().find_map(|task| match task.op {
            Op::Save { bytes } => Some(bytes),
            _ => None,
        });
        saves.unwrap() / 4
    };
    let moved = |program: &Program| {
        let updates = program.roles[0].tasks.iter().filter_map(|task| task.op.update());
        updates.map(|of| program.bytes_moved(&of.formula) * (of.range.end - of.range.start)).sum::<u64>()
    };
    let of = |rule, strategy| {
        let program = job(rule, strategy, 2).program().unwrap();
        let kept = Memory::of_role(&program, 0, program.rule.states().len() as u64).unwrap().optimizer / 4;
        (kept, saved(&program) - elements, moved(&program))
    };
    for strategy in ["ssgd", "zero-1", "zero-2", "zero-3"] {
        let (sgd, adam) = (of(UpdateRule::Sgd, strategy), of(UpdateRule::AdamW, strategy));
        assert_eq!((adam.0, adam.1), (2 * sgd.0, 2 * sgd.1), "{strategy}");
        assert_eq!(sgd.1, elements, "{strategy}");
        assert_eq!(5 * adam.2, 7 * sgd.2, "{strategy}");
        let parts = if strategy == "ssgd" { 1 } else { 2 };
        assert!(sgd.0 * parts >= elements && sgd.0 * parts <= elements + 64, "{strategy}");
    }
}

/// What a strategy does not define is refused at its setting, with the cure; so is a run by another optimizer than the
/// program's.
#[test]
fn undefined_optimizers_are_refused() {
    for (strategy, rule, clips, wanted) in [
        ("sma", UpdateRule::Adam, false, "--optimizer: adam: "),
        ("ea-sgd", UpdateRule::AdamW, false, "step by SGD"),
        ("local-sgd:tau=2", UpdateRule::AdamW, false, "use sgd"),
        ("sma", UpdateRule::Sgd, true, "each learner has its own"),
        ("local-sgd", UpdateRule::Sgd, true, "--clip-norm"),
    ] {
        let error = Job { clips, ..job(rule, strategy, 2) }.program().unwrap_err().to_string();
        assert!(error.contains(wanted), "{strategy}: {error}");
    }
    let lenet = Arc::new(lockstep_readers::load_model("lenet").unwrap());
    let varies = Job { strategy: "hybrid:b:variable-batch".parse().unwrap(), ..Job::new(lenet, 2, 4) };
    let adam = Job { rule: UpdateRule::Adam, ..varies.clone() }.program().unwrap_err().to_string();
    assert!(adam.contains("--optimizer: adam: ") && adam.contains("without variable-batch"), "{adam}");
    let clips = Job { clips: true, ..varies }.program().unwrap_err().to_string();
    assert!(clips.contains("before the norm is known"), "{clips}");
    let model = model();
    let (data, _) = Dataset::load("synthetic:64", &model).unwrap();
    let refused = |program: &Program, optimizer: Optimizer| {
        let options = RunOptions { steps: 1, optimizer, ..RunOptions::default() };
        run(program, &data, &options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let program = job(UpdateRule::AdamW, "ssgd", 1).program().unwrap();
    let error = refused(&program, plain());
    assert!(error.contains("steps by adamw"), "{error}");
    let error = refused(&program, Optimizer { clip_norm: Some(1.0), ..Optimizer::of_rule(UpdateRule::AdamW) });
    assert!(error.contains("clipping"), "{error}");
}

/// Settings of another optimizer, and values that none can have, are refused at their place, with the cure.
#[test]
fn settings_of_another_optimizer_are_refused() {
    let folder = folder("optimizers");
    std::fs::write(folder.join("lion.toml"), "name = \"e\"\nmodel = \"mlp\"\noptimizer = \"lion\"\n").unwrap();
    for (call, wanted) in [
        ("exec run --model mlp --optimizer adamw --momentum 0.5", ["--momentum: 0.5:", "of the optimizer sgd"]),
        ("exec run --model mlp --optimizer adam --nesterov", ["--nesterov: true:", "leave it out, or use sgd"]),
        ("exec run --model mlp --adam-beta1 0.5", ["--beta1: 0.5:", "adam and adamw"]),
        ("exec run --model mlp --optimizer adam --beta2 1", ["--beta2", "from 0 to below 1"]),
        ("exec run --model mlp --optimizer lion", ["--optimizer", "sgd, adam or adamw"]),
        ("exec run --model mlp --clip-norm 0", ["--clip-norm", "above 0"]),
        ("sim predict lion.toml", ["lion.toml:3: optimizer", "sgd, adam or adamw"]),
        (
            "sim predict --model mlp --cluster ethernet-4 --ranks 2 --strategy sma --optimizer adam",
            ["--optimizer: adam:", "use sgd"],
        ),
        (
            "sim predict --model lenet --cluster ethernet-4 --ranks 2 --strategy sma --clip-grad 1",
            ["--clip-norm:", "leave clip_norm out"],
        ),
    ] {
        let output = lockstep(&folder, &call.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && wanted.iter().all(|wanted| said.contains(wanted)), "{call}: {said}");
    }
}

/// Norms are tasks of the program: a sum for each update, and where ranks hold parts of gradients one exchange of a fixed
/// number of elements before the first update.
#[test]
fn norms_are_in_the_program() {
    for (strategy, exchanges) in [("ssgd", 0), ("zero-1", 1), ("zero-2", 1), ("zero-3", 1)] {
        let job = Job { clips: true, ..job(UpdateRule::AdamW, strategy, 4) };
        let program = job.program().unwrap();
        let tasks = &program.roles[0].tasks;
        let squares = tasks.iter().filter(|task| matches!(task.op, Op::Squares(_))).count();
        let updates = tasks.iter().filter(|task| task.op.update().is_some()).count();
        assert_eq!(squares, updates, "{strategy}");
        let of_norms = tasks.iter().position(|task| task.name == "allreduce squares");
        assert_eq!(of_norms.is_some(), exchanges == 1, "{strategy}");
        let first = tasks.iter().position(|task| task.op.update().is_some()).unwrap();
        let last = tasks.iter().rposition(|task| matches!(task.op, Op::Squares(_))).unwrap();
        assert!(last < first && of_norms.is_none_or(|at| last < at && at < first), "{strategy}");
        if let Some(Op::Exchange(of)) = of_norms.map(|at| &tasks[at].op) {
            assert_eq!(of.range, 0..SquareSum::ELEMENTS, "{strategy}");
        }
        assert_eq!(Job { clips: false, ..job }.program().unwrap().elements(Buffer::Norm), 0);
    }
}

/// Each stage begins its sum anew in each step, one without parameters with nothing, and all add their sums once, before the
/// first update. A first stage without parameters runs ahead, and its sum waits all the same.
#[test]
fn stages_add_up_their_norms() {
    let text = "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{ kind = \"relu\" },\n\
                { name = \"conv\", kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
                { name = \"relu\", kind = \"relu\" },\n{ name = \"pool\", kind = \"max_pool\", kernel = 2, stride = 2 },\n\
                { name = \"scores\", kind = \"dense\", out_features = 4 },\n{ kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).unwrap());
    let (data, _) = Dataset::load("synthetic:64", &model).unwrap();
    for (strategy, mesh, axes) in [
        ("ssgd", "pipeline=4", &[Axis::Pipeline][..]),
        ("ssgd", "data=2,pipeline=4", &[Axis::Pipeline]),
        ("zero-1", "data=2,pipeline=4", &[Axis::Pipeline, Axis::Data]),
        ("zero-3", "data=2,pipeline=4", &[Axis::Pipeline, Axis::Data]),
        ("megatron", "pipeline=4,tensor=2", &[Axis::Pipeline, Axis::Tensor]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        let job = Job {
            clips: true,
            cut: "at=conv,relu,scores".parse().unwrap(),
            accumulate: 2,
            strategy: strategy.parse().unwrap(),
            mesh: Some(mesh.clone()),
            ..Job::new(model.clone(), mesh.ranks(), 2)
        };
        let program = job.program().unwrap_or_else(|error| panic!("{strategy} {mesh}: {error}"));
        assert_eq!(program.roles.len(), 4);
        for role in &program.roles {
            let place = format!("{strategy} {mesh} {}", role.name);
            let squares: Vec<&Squares> = role
                .tasks
                .iter()
                .filter_map(|task| if let Op::Squares(of) = &task.op { Some(of) } else { None })
                .collect();
            assert!(squares.iter().enumerate().all(|(at, of)| of.begins == (at == 0)), "{place}");
            assert_eq!(
                squares.iter().all(|of| of.range.is_empty()),
                ["stage 0", "stage 2"].contains(&role.name.as_str()),
                "{place}"
            );
            let norms: Vec<(usize, &Exchange)> =
                role.exchanges().filter(|(_, exchange)| exchange.buffer == Buffer::Norm).collect();
            let [(task, exchange)] = norms[..] else { panic!("{place}: {} sums", norms.len()) };
            assert_eq!(exchange.axes, AxisSet::of(axes), "{place}");
            let last = role.tasks.iter().rposition(|task| matches!(task.op, Op::Squares(_))).unwrap();
            let first = role.tasks.iter().position(|task| task.op.update().is_some());
            assert!(last < task && first.is_none_or(|first| task < first), "{place}");
        }
        // Several steps: a sum that was not begun anew would grow.
        let optimizer = Optimizer { clip_norm: Some(0.01), ..plain() };
        let options = RunOptions { steps: 4, warm_up: 0, seed: 3, optimizer, ..RunOptions::default() };
        let trained = run(&program, &data, &options).unwrap().parameters;
        let expected = reference::train(&program, &data, 4, 3, &options.optimizer).unwrap();
        assert_equal_bits(&trained, &expected, &format!("{strategy} {mesh}"));
    }
}

/// One step changes a parameter that patterns select as without weight decay, and others as with it, to the bit; what is not
/// selected does decay. So it is where layers are split or ranks update parts of buckets.
#[test]
fn parameters_without_decay_step_as_if_it_were_0() {
    let text = "name = \"m\"\ninput = [1, 6, 6]\nlayer = [\n{ name = \"conv\", kind = \"conv2d\", out_channels = 4, kernel = 3 },\n\
                { name = \"norm\", kind = \"batch_norm\" },\n{ name = \"one\", kind = \"dense\", out_features = 16 },\n\
                { name = \"scores\", kind = \"dense\", out_features = 4 },\n{ kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).unwrap());
    let (data, _) = Dataset::load("synthetic:64", &model).unwrap();
    for (rule, strategy) in
        UpdateRule::ALL.into_iter().flat_map(|rule| ["ssgd", "zero-2", "hybrid:b"].map(|of| (rule, of)))
    {
        let job = Job { rule, strategy: strategy.parse().unwrap(), ..Job::new(model.clone(), 2, 4) };
        let program = job.program().unwrap();
        let train = |weight_decay, no_decay: &str| {
            let no_decay = if no_decay.is_empty() { NoDecay::default() } else { no_decay.parse().unwrap() };
            let optimizer = Optimizer { weight_decay, no_decay, decay_batch_norm: true, ..Optimizer::of_rule(rule) };
            let options = RunOptions { steps: 1, warm_up: 0, seed: 5, optimizer, ..RunOptions::default() };
            run(&program, &data, &options).unwrap().parameters
        };
        let (with, without) = (train(0.3, ""), train(0.0, ""));
        for (patterns, spared) in [
            ("*", &["conv", "norm", "one", "scores"][..]),
            ("one-dimensional", &["conv.bias", "norm", "one.bias", "scores.bias"]),
            ("conv.weight,sc*w*ht", &["conv.weight", "scores.weight"]),
        ] {
            let trained = train(0.3, patterns);
            for parameter in model.layers().iter().flat_map(|node| &node.parameters) {
                let range = parameter.range.start as usize..parameter.range.end as usize;
                let is_spared = spared.iter().any(|name| parameter.name.starts_with(name));
                let expected = if is_spared { &without } else { &with };
                let place = format!("{rule} {strategy} {patterns}: {}", parameter.name);
                assert_eq!(trained[range.clone()], expected[range.clone()], "{place}");
                // Zeros have nothing to decay, and the first step of Adam has the length of its rate whatever the gradient.
                let is_still =
                    ["bias", "beta"].iter().any(|end| parameter.name.ends_with(end)) || rule == UpdateRule::Adam;
                assert!(is_still || with[range.clone()] != without[range], "{place}: decays");
            }
        }
    }
}
