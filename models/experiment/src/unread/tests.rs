//! Tests that settings which nothing reads are refused, and taken beside what reads them.

use super::*;

/// Input of which only one strategy reads everything.
const INPUT: &str = "input.callback = \"1ms\"\ninput.samples = 100\ninput.image = \"1KiB\"\ninput.threads = 1\n\
                     input.decode = \"1ms\"\ninput.provenance.callback = \"assumed\"\ninput.provenance.samples = \"assumed\"\n\
                     input.provenance.image = \"assumed\"\ninput.provenance.threads = \"assumed\"\n\
                     input.provenance.decode = \"assumed\"";

/// Each row of the table refuses its setting alone, at its line, and takes it beside what reads it.
#[test]
fn settings_that_nothing_reads_are_refused() {
    for (key, stated, beside) in [
        ("target_epochs", "target_epochs = 3", "target_accuracy = 0.9"),
        ("tuner_threshold", "tuner_threshold = 0.2", "learners = \"auto\"\nstrategy = \"sma\""),
        ("schedule", "schedule = \"gpipe\"", "mesh = \"pipeline=2\""),
        ("cut", "cut = \"layers\"", "mesh = \"pipeline=2\""),
        ("ranks_per_node", "ranks_per_node = 4", "ranks = 4"),
        ("seconds_per_run", "seconds_per_run = 0.5\nepochs = 2", ""),
        ("nesterov", "optimizer.nesterov = true\noptimizer.momentum = 0", ""),
        ("momentum_form", "optimizer.momentum_form = \"absorbed\"\noptimizer.momentum = 0", ""),
        ("momentum", "optimizer.momentum = 0.5\noptimizer.name = \"adam\"", ""),
        ("nesterov", "optimizer.nesterov = true\noptimizer.name = \"adam\"", ""),
        ("momentum_form", "optimizer.momentum_form = \"absorbed\"\noptimizer.name = \"adamw\"", ""),
        ("beta1", "optimizer.beta1 = 0.8", "optimizer.name = \"adamw\""),
        ("beta2", "optimizer.beta2 = 0.99", "optimizer.name = \"adam\""),
        ("epsilon", "optimizer.epsilon = 1e-6", "optimizer.name = \"adamw\""),
        ("decay_batch_norm", "optimizer.decay_batch_norm = true", "optimizer.weight_decay = 0.1"),
        ("no_decay", "optimizer.no_decay = \"one-dimensional\"", "optimizer.weight_decay = 0.1"),
        ("warm_up", "optimizer.warm_up = \"gradual:5\"", "optimizer.scaling = \"linear:8\""),
        ("input.callback", INPUT, "strategy = \"first-device-table\""),
        ("chunk", "chunk = \"64KiB\"\nalgorithm = \"library:mpi\"", "axis_algorithms = \"data=ring\""),
    ] {
        assert!(ALL.iter().any(|of| of.key == key), "{key}");
        let text = format!("name = \"a\"\nmodel = \"mlp\"\n{stated}\n");
        let error = Experiment::parse("e.toml", &text).unwrap().configurations().unwrap_err();
        assert!(error.to_string().starts_with("e.toml:3: "), "{error}");
        let text = if beside.is_empty() {
            text.replace("momentum = 0\n", "momentum = 0.5\n")
                .replace("epochs", "steps")
                .replace("adam\"", "sgd\"")
                .replace("adamw\"", "sgd\"")
        } else {
            text
        };
        let read = Experiment::parse("e.toml", &format!("{text}{beside}\n")).unwrap();
        assert_eq!(read.check_read(), Ok(()), "{key}");
    }
    assert_eq!(ALL.len(), 19);
}

/// What a file states for all arms is taken if one arm reads it, and refused if none does; what an arm states, if it reads
/// it itself.
#[test]
fn one_arm_that_reads_a_setting_is_enough() {
    let file = |shared: &str, first: &str, second: &str| {
        let arm = |name: &str, keys: &str| format!("[[arm]]\nname = \"{name}\"\n{keys}\n");
        let head = format!("name = \"a\"\nmodel = \"mlp\"\nranks = 4\n{shared}\n");
        let experiment = Experiment::parse("e.toml", &(head + &arm("one", first) + &arm("two", second))).unwrap();
        let arms = experiment.arms.iter().map(|arm| arm.experiment.check_read());
        (experiment.check_read(), arms.collect::<Result<(), _>>())
    };
    let (shared, reads, reads_not) = ("schedule = \"gpipe\"", "mesh = \"pipeline=4\"", "accumulate = 2");
    assert_eq!(file(shared, reads_not, reads), (Ok(()), Ok(())));
    let (whole, arms) = file(shared, reads_not, "pad = false");
    assert!(whole.is_err() && arms.is_err());
    let (whole, arms) = file("", shared, reads);
    assert!(whole.is_ok() && arms.unwrap_err().to_string().starts_with("e.toml:7: "));
}

/// Statistics of batch norm are recomputed in models that have it.
#[test]
fn recomputed_statistics_are_those_of_batch_norm() {
    let with = |model: &str| {
        let text = format!("name = \"a\"\nmodel = \"{model}\"\nrecompute_bn = true\n");
        Experiment::parse("e.toml", &text).unwrap().configurations().map(drop)
    };
    assert_eq!(with("resnet-32"), Ok(()));
    assert!(with("lenet").unwrap_err().to_string().starts_with("e.toml:3: "));
}

/// Initial values are those of layers that the model has.
#[test]
fn initial_values_are_those_of_layers_that_are_there() {
    let with = |model: &str, key: &str| {
        let text = format!("name = \"a\"\nmodel = \"{model}\"\n[init]\n{key}\n");
        Experiment::parse("e.toml", &text).unwrap().configurations().map(drop)
    };
    for (key, read_by) in [
        ("convolution = \"he\"", "lenet"),
        ("convolution_1x1 = \"he\"", "resnet-32"),
        ("residual_gamma = 1", "resnet-32"),
        ("bias = 0", "mlp"),
        ("dense = \"he\"", "mlp"),
        ("last_dense = \"he\"", "mlp"),
    ] {
        assert_eq!(with(read_by, key), Ok(()), "{key}");
        let refused = with("mlp", key);
        assert_eq!(refused.is_ok(), read_by == "mlp", "{key}");
        assert!(refused.is_ok() || refused.unwrap_err().to_string().starts_with("e.toml:4: "), "{key}");
    }
}

#[test]
fn threads_are_those_of_cpus() {
    let four = Experiment { threads_per_rank: 4, ..Experiment::default() };
    assert_eq!(four.check_threads_of(DeviceChoice::Cpu), Ok(()));
    let error = four.check_threads_of(DeviceChoice::Null).unwrap_err();
    assert!(error.to_string().starts_with("--threads-per-rank: 4: is of ranks that compute on a CPU"), "{error}");
}

/// Of several strategies one is enough, too; where none reads it, it is refused.
#[test]
fn one_strategy_that_reads_a_setting_is_enough() {
    let file = |strategies: &str| {
        let text = format!("name = \"a\"\nmodel = \"mlp\"\nstrategy = [{strategies}]\n{INPUT}\n");
        let each = Experiment::parse("e.toml", &text).unwrap().of_strategies();
        each.iter().map(Experiment::check_read).collect::<Vec<_>>()
    };
    assert_eq!(file("\"ssgd\", \"first-device-table\""), [Ok(()), Ok(())]);
    assert!(file("\"ssgd\", \"zero-1\"").iter().all(Result::is_err));
}
