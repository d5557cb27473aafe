//! Tests the auto-tuner on simulated and on trained learners.

use lockstep_experiment::{Experiment, Learners};
use lockstep_measure::operation::Operation;
use lockstep_models::{Trial, Tuner};
use lockstep_predict::{Setup, Site, rows};

/// Learners on each of eight GPUs, simulated.
fn experiment(learners: &str, cluster: &str, batch: u32) -> Experiment {
    let learners = if learners == "auto" { "\"auto\"".to_owned() } else { learners.to_owned() };
    let text = format!(
        "name = \"tuned\"\nmodel = \"resnet-32\"\ncluster = \"{cluster}\"\nranks = 8\nbatch_per_rank = {batch}\n\
         strategy = \"sma\"\nlearners = {learners}\n"
    );
    Experiment::parse("tuned.toml", &text).unwrap()
}

fn predicted(experiment: &Experiment) -> (u32, f64, Vec<String>) {
    let site = Site::open(experiment, None).unwrap();
    let setup = Setup::of(experiment, &site, Default::default()).unwrap();
    let (rows, notes) = rows::rows(experiment, &site, &setup, |_, _| {}).unwrap();
    assert_eq!(rows.len(), 1);
    (rows[0].setting.ranks, rows[0].images_per_s, notes)
}

/// The tuner finds the same number of learners as predictions of each number.
#[test]
fn the_simulated_tuner_stops_where_another_learner_gains_nothing() {
    for (cluster, batch) in [("dgx1-v100", 16), ("titanx8-pcie3", 64)] {
        let auto = experiment("auto", cluster, batch);
        let (ranks, images_per_s, notes) = predicted(&auto);
        let chosen = ranks / 8;
        assert!(notes.iter().any(|note| note.contains(&format!("settled at {chosen}"))), "{notes:?}");
        let mut tuner = Tuner::new(&[64], true, auto.tuner_threshold);
        while !tuner.converged() {
            let learners = tuner.learners()[0];
            let (ranks, images_per_s, _) = predicted(&experiment(&learners.to_string(), cluster, batch));
            assert_eq!(ranks, 8 * learners);
            tuner.observe(&[images_per_s / 8.0]);
        }
        assert_eq!(tuner.learners()[0], chosen, "{cluster}: {:?}", tuner.trials());
        assert_eq!(predicted(&experiment(&chosen.to_string(), cluster, batch)).1, images_per_s);
    }
    // Small batches leave a large GPU idle, so more than one learner pays there.
    assert!(predicted(&experiment("auto", "dgx1-v100", 16)).0 > 8);
}

#[test]
fn tuning_of_unsuitable_jobs_is_refused() {
    let with = |change: fn(&mut Experiment)| {
        let mut experiment = experiment("auto", "dgx1-v100", 16);
        change(&mut experiment);
        experiment.configurations().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with(|e| e.strategy = "ssgd".parse().unwrap()).contains("use the strategy sma"));
    assert!(with(|e| e.batch = lockstep_experiment::Batch::Global(vec![128])).contains("give the batch per rank"));
    assert!(experiment("auto", "dgx1-v100", 16).refuse_tuning("a sweep").is_err());
    assert!(Experiment::parse("x.toml", "name = \"x\"\nmodel = \"mlp\"\nlearners = 0\n").is_err());
    assert_eq!("auto".parse(), Ok(Learners::Auto));
    assert!("none".parse::<Learners>().is_err());
}

/// A tuned run equals the run of its segments, and a log reproduces it to the bit, whatever is measured.
#[test]
fn a_tuned_run_is_repeated_from_its_log() {
    use lockstep_exec::data::Dataset;
    use lockstep_experiment::tuner_log::Logged;
    use lockstep_measure::launch::Launch;
    use lockstep_measure::operation::STALL_LIMIT;
    use lockstep_measure::training::Training;

    let text = "name = \"tuned\"\nmodel = \"mlp\"\ndata = \"synthetic:2000\"\nbatch_per_rank = 8\nstrategy = \"sma\"\n\
                learners = \"auto\"\nsteps = 70\n";
    let mut experiment = Experiment::parse("tuned.toml", text).unwrap();
    let configuration = experiment.configurations().unwrap().remove(0);
    let (data, held_out) = Dataset::load("synthetic:2000", &configuration.job.model).unwrap();
    let trial = |learners: u32, images: f64| Trial { learners: vec![learners], throughput: vec![images] };
    let train = |experiment: &Experiment| {
        let mut launch = Launch::new(experiment, STALL_LIMIT).unwrap();
        let (configuration, operation) = (&configuration, &Operation::default());
        let (data, held_out) = (&data, Some(&held_out));
        Training { experiment, configuration, seed: 1, data, held_out, operation }.run(&mut launch).unwrap().unwrap()
    };
    // One learner, then two, which is a gain, then three, which is a loss: two again for the last ten.
    let trials = vec![trial(1, 100.0), trial(2, 150.0), trial(3, 140.0)];
    experiment.tuning = vec![Logged { configuration: configuration.label(), seed: 1, trials: trials.clone() }];
    let (one, other) = (train(&experiment), train(&experiment));
    assert_eq!(one.run.losses.len(), 70);
    assert_eq!((one.trials, one.program.workers()), (trials, 2));
    assert_eq!((one.configuration.learners, one.configuration.setting().ranks), (2, 2), "what a row is about");
    assert_eq!((&one.run.weights_sha256, &one.run.state_sha256), (&other.run.weights_sha256, &other.run.state_sha256));
    assert!(one.run.losses.last() < one.run.losses.first(), "it learns");
    // Whatever is measured here, its own log reproduces it.
    experiment.tuning.clear();
    let free = train(&experiment);
    experiment.tuning = vec![Logged { configuration: configuration.label(), seed: 1, trials: free.trials.clone() }];
    assert_eq!(train(&experiment).run.state_sha256, free.run.state_sha256);
}
