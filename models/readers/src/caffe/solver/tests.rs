//! Tests solvers: the meaning of each field, rates against Caffe's own rule, and what is refused.

use lockstep_models::RunLength;

use super::*;

/// The solver of Caffe's LeNet (`examples/mnist/lenet_solver.prototxt`), comments aside.
const LENET: &str = "net: \"examples/mnist/lenet_train_test.prototxt\"
test_iter: 100
test_interval: 500
base_lr: 0.01
momentum: 0.9
weight_decay: 0.0005
lr_policy: \"inv\"
gamma: 0.0001
power: 0.75
display: 100
max_iter: 10000
snapshot: 5000
snapshot_prefix: \"examples/mnist/lenet\"
solver_mode: GPU
";

#[test]
fn lenets_solver() {
    let solver = Solver::parse("solver.prototxt", LENET).unwrap();
    let optimizer = Optimizer {
        learning_rate: 0.01,
        decay: Decay::Inverse { slope: 0.0001, power: 0.75 },
        momentum: 0.9,
        form: MomentumForm::Absorbed,
        weight_decay: 0.0005,
        decay_batch_norm: true,
        ..Optimizer::default()
    };
    assert_eq!(solver.optimizer, optimizer);
    assert_eq!((solver.net.as_str(), solver.steps), ("examples/mnist/lenet_train_test.prototxt", Some(10_000)));
    assert_eq!((solver.accumulate, solver.seed, solver.weights, solver.batch), (1, None, None, None));
    let firsts: Vec<&str> = solver.notes.iter().filter_map(|note| note.split(':').next()).collect();
    assert_eq!(firsts, ["display", "test_iter, test_interval", "snapshot, snapshot_prefix", "solver_mode"]);
}

#[test]
fn other_fields_of_a_solver() {
    let text = "train_net: 'n.prototxt' base_lr: .1f lr_policy: 'fixed' type: 'Nesterov' iter_size: 4 random_seed: 7 \
                regularization_type: 'L2' clip_gradients: -1 weights: 'w.caffemodel' momentum2: 0.999";
    let solver = Solver::parse("s", text).unwrap();
    assert_eq!((solver.accumulate, solver.seed, solver.steps), (4, Some(7), None));
    assert_eq!(solver.weights.as_deref(), Some("w.caffemodel"));
    assert_eq!(
        (solver.optimizer.learning_rate, solver.optimizer.momentum, solver.optimizer.nesterov),
        (0.1, 0.0, true)
    );
    let any = Solver::parse("s", &text.replace("random_seed: 7", "random_seed: -1")).unwrap();
    assert_eq!(any.seed, None);
    let old = Solver::parse("s", "net: 'n.prototxt' base_lr: 1 lr_policy: 'fixed' solver_type: NESTEROV").unwrap();
    assert!(old.optimizer.nesterov);
}

/// `SGDSolver::GetLearningRate`, step by step as in Caffe.
fn caffes_rates(policy: &str, gamma: f64, power: f64, steps: &[u64], all: u64) -> Vec<f64> {
    let base = 0.05;
    let mut current = 0;
    let rate = |iter: u64| match policy {
        "fixed" => base,
        "step" => base * gamma.powf((iter / steps[0]) as f64),
        "exp" => base * gamma.powf(iter as f64),
        "inv" => base * (1.0 + gamma * iter as f64).powf(-power),
        "multistep" => {
            if current < steps.len() && iter >= steps[current] {
                current += 1;
            }
            base * gamma.powf(current as f64)
        }
        "poly" => base * (1.0 - iter as f64 / all as f64).powf(power),
        "sigmoid" => base * (1.0 / (1.0 + (-gamma * (iter as f64 - steps[0] as f64)).exp())),
        _ => unreachable!("no such policy"),
    };
    (0..all).map(rate).collect()
}

#[test]
fn learning_rates_equal_those_of_caffe() {
    for (policy, gamma, power, steps) in [
        ("fixed", 0.0, 0.0, vec![]),
        ("step", 0.1, 0.0, vec![7]),
        ("exp", 0.97, 0.0, vec![]),
        ("inv", 0.01, 0.75, vec![]),
        ("multistep", 0.5, 0.0, vec![5, 6, 31]),
        ("poly", 0.0, 0.5, vec![]),
        ("sigmoid", -0.3, 0.0, vec![20]),
    ] {
        let field = if policy == "multistep" { "stepvalue" } else { "stepsize" };
        let steps_text: String = steps.iter().map(|step| format!("{field}: {step}\n")).collect();
        let text = format!(
            "net: 'n.prototxt' base_lr: 0.05 lr_policy: '{policy}' gamma: {gamma} power: {power} max_iter: 60\n{steps_text}"
        );
        let text = if steps.is_empty() || policy == "sigmoid" { text } else { text.replace("power: 0 ", "") };
        let solver = Solver::parse("s", &text).unwrap();
        let run_length = RunLength { global_batch: 64, steps_per_epoch: 9, steps: 60 };
        for (step, wanted) in (0..).zip(caffes_rates(policy, gamma, power, &steps, 60)) {
            let got = solver.optimizer.rate(step, &run_length);
            assert!((got - wanted).abs() < 1e-12, "{policy} at {step}: {got}, not {wanted}");
        }
        // The displayed decay reads back as itself.
        assert_eq!(solver.optimizer.decay.to_string().parse(), Ok(solver.optimizer.decay));
    }
}

#[test]
fn errors_name_their_line() {
    let base = "net: 'n.prototxt'\nbase_lr: 0.1\nlr_policy: 'fixed'\n";
    let refused = |text: &str| Solver::parse("s.prototxt", text).unwrap_err().to_string();
    for (text, words) in [
        ("", "net: has no net"),
        ("net: 'n.pt'", "s.prototxt:1: net: \"n.pt\": a net's file ends in .prototxt"),
        ("net: 'n.prototxt'", "has no learning rate"),
        ("net: 'n.prototxt' base_lr: 1", "lr_policy: does not say how"),
        (&base.replace("fixed", "cosine"), "s.prototxt:3: lr_policy: \"cosine\": there is no such policy"),
        (&base.replace("fixed", "step"), "needs stepsize"),
        (&(base.replace("fixed", "step") + "stepsize: 0"), "of at least 1"),
        (&(base.replace("fixed", "multistep") + "gamma: 0.1 stepvalue: 9 stepvalue: 9"), "that ascend"),
        (&base.replace("fixed", "poly"), "needs max_iter"),
        (&base.replace("0.1", "-0.1"), "s.prototxt:2: base_lr: -0.1: must be at least 0"),
        (&(base.to_owned() + "momentum: 1"), "must be below 1"),
        (&(base.to_owned() + "type: \"Adam\""), "s.prototxt:4: type: \"Adam\": steps in another way than momentum SGD"),
        (
            &(base.to_owned() + "regularization_type: \"L1\""),
            "s.prototxt:4: regularization_type: \"L1\": weights decay by L2",
        ),
        (&(base.to_owned() + "clip_gradients: 35"), "s.prototxt:4: clip_gradients: 35: gradients are not clipped"),
        (&(base.to_owned() + "net_param { }"), "s.prototxt:4: net_param: a net is read from a file of its own"),
        (&(base.to_owned() + "train_state { level: 1 }"), "train_state: layers of stages"),
        (&(base.to_owned() + "iter_size: 0"), "must be at least 1"),
        (&(base.to_owned() + "max_iters: 5"), "did you mean max_iter?"),
        (&(base.to_owned() + "weights: 'a' weights: 'b'"), "second file of weights"),
    ] {
        let error = refused(text);
        assert!(error.starts_with("s.prototxt") && error.contains(words), "{text}\n{error} lacks {words}");
    }
}

/// The batch is that of the training data layer; a net is searched in the working directory and beside the solver.
#[test]
fn the_batch_is_that_of_the_net() {
    let folder = std::env::temp_dir().join(format!("lockstep-solver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let net = include_str!("../tests/lenet.prototxt");
    std::fs::write(folder.join("lenet_train_test.prototxt"), net).unwrap();
    let path = folder.join("solver.prototxt");
    std::fs::write(&path, LENET).unwrap();
    let solver = Solver::load(path.to_str().unwrap()).unwrap();
    assert_eq!(solver.batch, Some(64));
    assert_eq!(Path::new(&solver.net), folder.join("lenet_train_test.prototxt"));
    std::fs::write(&path, LENET.replace("lenet_train_test", "other")).unwrap();
    let error = Solver::load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("solver.prototxt:1: examples/mnist/other.prototxt: there is no such file"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
