//! Tests reading experiments and expanding them.

use std::collections::BTreeMap;

use lockstep_models::{Augmentation, Bucket, Decay, Init, InitRules, MomentumForm, Optimizer, Scaling, Target, WarmUp};
use lockstep_topology::cluster::HostId;
use lockstep_topology::{Algorithm, Bytes, Cluster, InputError, Rank};

use proptest::prelude::*;

use super::*;

/// An experiment on LeNet with these further lines, the first of which is line 3.
fn with(lines: &str) -> Result<Experiment, InputError> {
    Experiment::parse("e.toml", &format!("name = \"e\"\nmodel = \"lenet\"\n{lines}\n"))
}

/// Ranks, batch per rank and algorithm of each configuration.
fn expand(lines: &str) -> Vec<(u32, u32, String)> {
    let all = with(lines).unwrap().configurations().unwrap();
    all.iter().map(|c| (c.job.workers, c.job.batch_per_rank, c.algorithm())).collect()
}

#[test]
fn the_quickstart_has_ten_rows() {
    let text = include_str!("../../../experiments/quickstart.toml");
    let all = Experiment::parse("quickstart.toml", text).unwrap().configurations().unwrap();
    let rows: Vec<String> = all.iter().map(Configuration::label).collect();
    let expected = [
        "lenet, 1 rank x 16",
        "lenet, 2 ranks x 16, ring",
        "lenet, 2 ranks x 16, parameter-server:1",
        "lenet, 4 ranks x 16, ring",
        "lenet, 4 ranks x 16, parameter-server:1",
        "lenet, 1 rank x 64",
        "lenet, 2 ranks x 64, ring",
        "lenet, 2 ranks x 64, parameter-server:1",
        "lenet, 4 ranks x 64, ring",
        "lenet, 4 ranks x 64, parameter-server:1",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn lists_and_single_values_expand() {
    assert_eq!(expand(""), [(1, 32, "-".to_owned())]);
    assert_eq!(expand("ranks = 2\nalgorithm = \"ring\""), [(2, 32, "ring".to_owned())]);
    // Both: of 4 samples on each of 2 ranks, 16 take two micro-batches and 32 four.
    let both = with("ranks = 2\nbatch_per_rank = 4\nglobal_batch = [16, 32]").unwrap().configurations().unwrap();
    let counts: Vec<(u32, u32)> = both.iter().map(|of| (of.job.batch_per_rank, of.job.accumulate)).collect();
    assert_eq!(counts, [(4, 2), (4, 4)]);
    // Either is replaced alone, and the other stays.
    let of = || with("ranks = 2\nbatch_per_rank = 4\nglobal_batch = 16").unwrap().batch;
    let accumulated = |per_rank, global| Batch::Accumulated { per_rank, global: vec![global] };
    assert_eq!(of().with_per_rank(vec![2]), accumulated(2, 16));
    assert_eq!(of().with_global(vec![32]), accumulated(4, 32));
    assert_eq!(Batch::PerRank(vec![4]).with_global(vec![16]), Batch::Global(vec![16]));
    // Strong scaling: 128 samples over 1 and 4 ranks, two micro-batches each.
    let strong = expand("ranks = [1, 4]\nglobal_batch = 128\naccumulate = 2");
    assert_eq!(strong, [(1, 64, "-".to_owned()), (4, 16, "ring".to_owned())]);
}

#[test]
fn every_key_is_parsed() {
    let text = "data = \"mnist\"\ncluster = \"ethernet-4\"\nstrategy = \"ssgd\"\nbucket = \"layer\"\nchunk = \"4KiB\"\n\
                concurrent_exchanges = 2\ntransport = \"mpi\"\nthreads_per_rank = 3\nepochs = 4\nseed = 5\n\
                seeds = 5\nrecompute_bn = true\naugment = \"crop=4,flip\"\ntarget_accuracy = 0.9\ntarget_epochs = 5\n\
                [optimizer]\nlearning_rate = 0.5\nmomentum = 0.5\nweight_decay = 1e-4\nnesterov = true\n\
                scaling = \"linear:256\"\nwarm_up = \"gradual:5@0.1\"\ndecay = \"steps:0.1@30,60\"\n\
                momentum_form = \"corrected\"\ndecay_batch_norm = true\n\
                [init]\ndense = \"gaussian:0.01\"\nresidual_gamma = 0\n\
                [anchor]\nranks = 1\nimages_per_s = 219.0\n\
                [published]\nsource = \"somebody\"\npoints = [{ ranks = 1, images_per_s = 7 }]";
    let e = with(text).unwrap();
    assert_eq!((e.data.as_str(), e.cluster.as_str(), e.bucket), ("mnist", "ethernet-4", Bucket::Layer));
    assert_eq!((e.chunk, e.concurrent_exchanges, e.transport), (Some(Bytes(4096)), 2, TransportKind::Mpi));
    assert_eq!((e.threads_per_rank, e.length, e.seed), (3, Length::Epochs(4), 5));
    let wanted = Optimizer {
        learning_rate: 0.5,
        scaling: Scaling::Linear { batch: 256 },
        warm_up: WarmUp::Gradual { epochs: 5.0, from: Some(0.1) },
        decay: Decay::Steps { factor: 0.1, epochs: vec![30.0, 60.0] },
        momentum: 0.5,
        form: MomentumForm::Corrected,
        nesterov: true,
        weight_decay: 1e-4,
        decay_batch_norm: true,
        ..Optimizer::default()
    };
    assert_eq!(e.optimizer, wanted);
    let dense = Some(Init::Gaussian(0.01));
    assert_eq!(e.inits, InitRules { dense, residual_gamma: Some(0.0), ..InitRules::default() });
    assert_eq!((e.seeds, e.recompute_bn), (5, true));
    assert_eq!(e.target, Target { accuracy: Some(0.9), epochs: 5 });
    assert_eq!(with("tuner_threshold = 0.1").unwrap().tuner_threshold, 0.1);
    assert_eq!(e.augmentation, Augmentation { crop: 4, flip: true, ..Augmentation::default() });
    assert_eq!(e.anchor, Some(Anchor { ranks: 1, batch_per_rank: None, images_per_s: 219.0 }));
    // The model has no batch norm, so what is stated of it is refused.
    let configuration =
        &Experiment { recompute_bn: false, places: BTreeMap::new(), ..e.clone() }.configurations().unwrap()[0];
    assert_eq!(e.published_for(configuration), Some(7.0));
    let job = &configuration.job;
    assert_eq!((job.bucket, job.chunk, job.concurrent_exchanges), (e.bucket, e.chunk, 2));
}

/// With a cluster, a node is a host of it; on this machine a node is a group of consecutive ranks, by default those
/// of a process.
#[test]
fn nodes_are_hosts_or_consecutive_ranks() {
    let nodes = |text: &str, processes| {
        let e = Experiment { processes, ..with(text).unwrap() };
        e.configurations().map(|all| all[0].job.clone()).map_err(|error| error.to_string())
    };
    let text = "ranks = 6\nsampling = \"per-node\"\n";
    assert_eq!(nodes(text, None).unwrap().node_sizes, Some(vec![6]));
    assert_eq!(nodes(text, Some(3)).unwrap().node_sizes, Some(vec![2, 2, 2]));
    let job = nodes(&format!("{text}ranks_per_node = 3"), Some(3)).unwrap();
    assert_eq!((&job.node_sizes, &job.program().unwrap().pools), (&Some(vec![3, 3]), &vec![3, 3]));
    let uneven = nodes(&format!("{text}ranks_per_node = 4"), None).unwrap_err();
    assert!(uneven.contains("4: do not divide 6 ranks"), "{uneven}");
    let e = with("ranks = 6\ncluster = \"ethernet-4\"\nranks_per_node = 3").unwrap();
    let mut configuration = e.configurations().unwrap().remove(0);
    let (placement, _) = configuration.place(&Cluster::load("ethernet-4").unwrap(), &e).unwrap();
    assert_eq!((placement.host(Rank(2)), placement.host(Rank(3))), (HostId(0), HostId(1)));
    assert_eq!(configuration.job.node_sizes, Some(vec![3, 3]));
}

/// The file's keys replace the recipe's, wherever they are.
#[test]
fn keys_of_the_file_replace_those_of_the_recipe() {
    let e = with("recipe = \"goyal2017\"\n[optimizer]\nlearning_rate = 0.05\n[init]\nbias = 1").unwrap();
    assert_eq!((e.length, e.optimizer.learning_rate, e.optimizer.weight_decay), (Length::Epochs(90), 0.05, 1e-4));
    assert_eq!((e.inits.bias, e.inits.convolution), (Some(1.0), Some(Init::He)));
    assert_eq!(with("steps = 7\nrecipe = \"goyal2017\"").unwrap().length, Length::Steps(7));
    let message = e.account_of_training(&e.configurations().unwrap());
    for words in ["recipe goyal2017:resnet-50 (Goyal", "rate 0.05 (scaling linear:256)", "target rate 0.00625 at"] {
        assert!(message.contains(words), "{message}");
    }
    assert!(message.contains("initial values: weight "), "{message}");
}

#[test]
fn noise_is_parsed() {
    let e = with(
        "[noise]\nseed = 9\ntrials = 50\nkernel = \"fitted\"\nstep = { family = \"lognormal\", p50 = 1.0, p99 = 1.4 }\n\
         latency = { family = \"constant\", mean = \"3us\" }",
    );
    let noise = e.unwrap().noise.unwrap();
    assert_eq!((noise.jitter.seed, noise.trials, noise.fitted_kernel, noise.fitted_step), (9, 50, true, false));
    let step = noise.jitter.step.unwrap();
    assert!((step.quantile(0.5) - 1.0).abs() < 1e-9 && (step.quantile(0.99) - 1.4).abs() < 1e-6);
    assert_eq!(noise.jitter.latency.unwrap().mean(), 3e-6);
    assert!(noise.jitter.kernel.is_none() && noise.jitter.bandwidth.is_none());
}

#[test]
fn scenarios_are_parsed() {
    let e = with(
        "[[scenario]]\nname = \"bad day\"\nslow = [{ hosts = [\"node1\", \"node2\"], factor = 1.5 }, \
         { ranks = [3], factor = 2, from = \"1s\" }]\nfailed = { between = \"spine1\", count = 2 }\n\
         [[scenario]]\nname = \"checkpoints\"\ntraffic = { from = \"a\", to = \"b\", bytes = \"1MiB\" }",
    );
    let scenarios = e.unwrap().scenarios;
    let whats = |index: usize| scenarios[index].entries.iter().map(|entry| entry.what.clone()).collect::<Vec<_>>();
    let (zero, always) = (lockstep_topology::Time::ZERO, lockstep_topology::Time::MAX);
    let hosts = vec!["node1".to_owned(), "node2".to_owned()];
    let second = lockstep_topology::Time::from_secs_f64(1.0);
    let expected = [
        Trouble::Slow { hosts, ranks: Vec::new(), factor: 1.5, from: zero, until: always },
        Trouble::Slow { hosts: Vec::new(), ranks: vec![3], factor: 2.0, from: second, until: always },
        Trouble::Failed { between: ("spine1".into(), "*".into()), count: Some(2) },
    ];
    assert_eq!(whats(0), expected);
    let (from, to, load) = ("a".into(), "b".into(), TrafficLoad::PerIteration(Bytes(1 << 20)));
    assert_eq!(whats(1), [Trouble::Traffic { from, to, load }]);
    assert!(
        scenarios[0].entries[0].place.to_string().starts_with("e.toml:") && !scenarios[0].entries[0].shown.is_empty()
    );
}

#[test]
fn published_points_apply_to_the_settings_that_they_name() {
    let e = with(
        "ranks = [1, 2]\nbatch_per_rank = [16, 32]\nalgorithm = [\"ring\", \"binomial-tree\"]\n[published]\nsource = \"s\"\n\
         points = [{ ranks = 2, batch_per_rank = 32, algorithm = \"binomial-tree\", images_per_s = 9.5 }]",
    )
    .unwrap();
    let figures: Vec<Option<f64>> = e.configurations().unwrap().iter().map(|c| e.published_for(c)).collect();
    assert_eq!(figures, [None, None, None, None, None, Some(9.5)]);
}

#[test]
fn errors_name_their_place() {
    for (lines, place, words) in [
        ("rank = [1]", "e.toml:3", "did you mean ranks?"),
        ("ranks = [1, 0]", "e.toml:3", "0: ranks must be a whole number from 1"),
        ("ranks = []", "e.toml:3", "at least one item"),
        ("ranks = [2, 2]", "e.toml:3", "is given twice"),
        ("ranks = \"2\"", "e.toml:3", "whole number"),
        ("batch_per_rank = -1", "e.toml:3", "whole number from 1"),
        ("batch_per_rank = [1, 2]\nglobal_batch = 2", "e.toml:3", "give one"),
        ("steps = 1\nepochs = 2", "e.toml:4", "one of the two"),
        ("algorithm = \"rinng\"", "e.toml:3", "did you mean ring"),
        ("algorithm = \"parameter-server:0\"", "e.toml:3", "at least 1"),
        ("bucket = \"25Mb\"", "e.toml:3", "layer, whole, tensor or a size"),
        ("chunk = \"1B\"", "e.toml:3", "at least one element"),
        ("transport = \"tcp\"", "e.toml:3", "threads or mpi"),
        ("strategy = \"sgd\"", "e.toml:3", "ssgd"),
        ("[optimizer]\nrate = 1", "e.toml:4", "[optimizer] has no key rate"),
        ("[optimizer]\nlearning_rate = -1", "e.toml:4", "at least 0"),
        ("[optimizer]\nlearning_rate = inf", "e.toml:4", "at least 0"),
        ("[optimizer]\nscaling = \"linear\"", "e.toml:4", "linear:256"),
        ("[optimizer]\nwarm_up = \"slow:5\"", "e.toml:4", "gradual:5@0.1"),
        ("[optimizer]\ndecay = \"steps:0.1@60,30\"", "e.toml:4", "steps:0.1@30,60,80"),
        ("[optimizer]\nmomentum_form = \"eq10\"", "e.toml:4", "separate, absorbed or corrected"),
        ("[init]\ndense = \"small\"", "e.toml:4", "he, xavier"),
        ("recipe = \"goyal\"", "e.toml:3", "did you mean goyal2017"),
        ("seeds = 0", "e.toml:3", "whole number from 1"),
        ("target_accuracy = 1.5", "e.toml:3", "above 0 and at most 1"),
        ("target_accuracy = \"high\"", "e.toml:3", "must be a number"),
        ("tuner_threshold = 10", "e.toml:3", "from 0 to below 10"),
        ("[anchor]\nranks = 1", "e.toml:3", "lacks the key images_per_s"),
        ("[anchor]\nimages_per_s = 0", "e.toml:4", "more than 0"),
        ("[published]\npoints = []", "e.toml:3", "lacks the key source"),
        ("optimizer = 3", "e.toml:3", "must be a table"),
        ("[[scenario]]\nslow = { hosts = \"a\", factor = 2 }", "e.toml:3", "lacks the key name"),
        ("[[scenario]]\nname = \"none\"", "e.toml:4", "is taken"),
        ("[[scenario]]\nname = \"s\"", "e.toml:4", "has no effect"),
        ("[[scenario]]\nname = \"s\"\nslow = { factor = 2 }", "e.toml:5", "needs either hosts"),
        ("[[scenario]]\nname = \"s\"\nslow = { hosts = \"a\", factor = -2 }", "e.toml:5", "at least 0"),
        ("[[scenario]]\nname = \"s\"\nslow = { hosts = \"a\", factor = nan }", "e.toml:5", "at least 0"),
        ("[[scenario]]\nname = \"s\"\nslow = { hosts = \"a\", factor = 0 }", "e.toml:5", "more than 0"),
        (
            "[[scenario]]\nname = \"s\"\nslow = { ranks = 1, factor = 2, from = \"2s\", until = \"1s\" }",
            "e.toml:5",
            "before it begins",
        ),
        ("[[scenario]]\nname = \"s\"\nslow = { host = \"a\", factor = 2 }", "e.toml:5", "did you mean hosts?"),
        ("[[scenario]]\nname = \"s\"\ndegraded = { between = \"a\" }", "e.toml:5", "bandwidth = 0.5"),
        ("[[scenario]]\nname = \"s\"\nfailed = { between = [\"a\", \"b\", \"c\"] }", "e.toml:5", "or two"),
        ("[[scenario]]\nname = \"s\"\ntraffic = { from = \"a\", to = \"b\" }", "e.toml:5", "one of the two"),
        (
            "[[scenario]]\nname = \"s\"\ntraffic = { from = \"a\", to = \"b\", bandwidth = \"-1GB/s\" }",
            "e.toml:5",
            "-1GB/s",
        ),
        ("[noise]\nkernels = 1", "e.toml:4", "did you mean kernel?"),
        ("[noise]\ntrials = 0", "e.toml:4", "from 1 to 1000000"),
        ("[noise]\nkernel = 0.1", "e.toml:4", "must be a table (a distribution) like { family"),
        ("[noise]\nkernel = { cv = 0.1 }", "e.toml:4", "lacks the key family"),
        ("[noise]\nkernel = { family = \"gama\", cv = 0.1 }", "e.toml:4", "is not a family: write constant"),
        ("[noise]\nkernel = { family = \"gamma\" }", "e.toml:4", "lacks the key cv"),
        ("[noise]\nkernel = { family = \"gamma\", cv = -0.1 }", "e.toml:4", "at least 0"),
        ("[noise]\nkernel = { family = \"gamma\", cv = nan }", "e.toml:4", "at least 0"),
        ("[noise]\nkernel = { family = \"uniform\", cv = 0.9 }", "e.toml:4", "at most 0.577"),
        ("[noise]\nstep = { family = \"gamma\", p50 = 1, p99 = 1 }", "e.toml:4", "larger value"),
        ("[noise]\nstep = { family = \"gamma\", p50 = 1, cv = 1 }", "e.toml:4", "mean and cv, or two quantiles"),
        ("[noise]\nlatency = { family = \"gamma\", cv = 1 }", "e.toml:4", "add mean = \"2us\""),
        ("[noise]\nlatency = { family = \"gamma\", mean = 2, cv = 1 }", "e.toml:4", "text in quotes"),
        ("x = [", "e.toml:3", "not TOML"),
    ] {
        let error = with(lines).unwrap_err();
        assert_eq!(error.place.to_string(), place, "{lines}: {error}");
        assert!(error.to_string().contains(words), "{lines}: {error}");
    }
}

#[test]
fn errors_of_the_expansion_name_their_line() {
    for (lines, place, words) in [
        ("global_batch = 10\nranks = 4", "e.toml:3", "multiple of 4"),
        ("accumulate = 2\nbatch_per_rank = 1\nglobal_batch = 2", "e.toml:3", "leave one of the three out"),
        ("ranks = 2\nalgorithm = \"parameter-server:3\"", "e.toml:4", "at most 2"),
        ("ranks = 2\nalgorithm = \"pairwise\"", "e.toml:4", "does not serve allreduce"),
        ("ranks = 3\nchunk = \"4B\"\nalgorithm = \"ring\"", "e.toml:4", "at least 8B"),
        ("ranks = 3\nchunk = \"8B\"\nalgorithm = \"ring\"", "", ""),
    ] {
        match with(lines).unwrap().configurations() {
            Ok(_) => assert!(place.is_empty(), "{lines} was taken"),
            Err(error) => {
                assert_eq!(error.place.to_string(), place, "{lines}: {error}");
                assert!(error.to_string().contains(words), "{lines}: {error}");
            }
        }
    }
    let unknown = Experiment::parse("e.toml", "name = \"e\"\nmodel = \"lennet\"").unwrap();
    let error = unknown.configurations().unwrap_err();
    assert!(error.place.to_string() == "e.toml:2" && error.to_string().contains("lenet"), "{error}");
}

#[test]
fn errors_of_replaced_keys_name_the_flag() {
    let mut e = with("ranks = 2\nalgorithm = \"ring\"").unwrap();
    e.algorithms = vec![Algorithm::pairwise()];
    e.overridden("algorithm");
    assert_eq!(e.configurations().unwrap_err().place.to_string(), "--algorithm");
}

#[test]
fn anchors_on_the_command_line() {
    let anchor: Anchor = "ranks=8,batch_per_rank=32,images_per_s=1500".parse().unwrap();
    assert_eq!(anchor, Anchor { ranks: 8, batch_per_rank: Some(32), images_per_s: 1500.0 });
    for text in ["", "ranks=1", "images_per_s=-1", "images_per_s=nan", "ranks=0,images_per_s=1", "speed=1", "219"] {
        assert!(text.parse::<Anchor>().is_err(), "{text}");
    }
}

/// Every experiment that is committed for `exec sweep` is valid: its arms, models and settings fit together.
#[test]
fn the_experiments_of_the_claims_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("experiments/claims");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    let mut arms = 0;
    for path in &files {
        for arm in Experiment::load(path).unwrap().arms() {
            let model = root.join(&arm.experiment.model);
            let model = if model.exists() { model.display().to_string() } else { arm.experiment.model.clone() };
            let runs = Experiment { model, ..arm.experiment }.configurations();
            assert_eq!(runs.map(|runs| runs.len()), Ok(1), "{}: {}", path.display(), arm.name);
            arms += 1;
        }
    }
    assert!(arms > 40, "{arms} arms");
}

#[test]
fn a_name_is_one_component_of_a_path() {
    let of = |name: &str| Experiment::parse("e.toml", &format!("model = \"mlp\"\nname = {name}\n"));
    for (name, wanted) in [
        ("\"../../evil\"", "'/'"),
        ("\"a/b\"", "'/'"),
        ("\"a\\\\b\"", "'\\\\'"),
        ("\"\"", "is empty"),
        ("\".\"", "not a name that a file can have"),
        ("\"..\"", "not a name that a file can have"),
        ("\"a\\u0007b\"", "'\\u{7}'"),
        ("\"a\\u0000b\"", "'\\0'"),
        ("\"a b\"", "' '"),
        ("\"größe\"", "'ö'"),
        ("7", "text in quotes"),
        (&format!("\"{}\"", "n".repeat(101)), "has 101 characters"),
    ] {
        let error = of(name).unwrap_err();
        assert_eq!(error.place.to_string(), "e.toml:2", "{name}");
        assert!(error.message.contains(wanted), "{name}: {error}");
        assert!(name == "7" || error.message.contains("1 to 100 letters"), "{error}");
    }
}

proptest! {
    /// Every accepted name is one component of a path, and all valid names are accepted.
    #[test]
    fn names_are_one_component_of_a_path(any in ".{0,110}", good in "[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}") {
        let of = |name: &str| Experiment::parse("e.toml", &format!("model = \"mlp\"\nname = {name:?}\n"));
        if let Ok(experiment) = of(&any) {
            let path = Path::new("out").join(format!("{}-predicted.json", experiment.name));
            prop_assert_eq!(path.parent(), Some(Path::new("out")));
            prop_assert!(path.file_name().is_some_and(|name| name.len() < 255));
        }
        prop_assert_eq!(of(&good).map(|experiment| experiment.name), Ok(good));
    }
}
