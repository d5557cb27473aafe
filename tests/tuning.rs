//! Tests the auto-tuner on simulated and on trained learners.

use std::path::PathBuf;

use lockstep_experiment::{Experiment, Learners};
use lockstep_measure::operation::Operation;
use lockstep_models::{Trial, Tuner};
use lockstep_predict::{Setup, Site, rows};

use crate::commands::{folder, lockstep, rows as rows_of, skipped, stdout};

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
        let mut tuner = Tuner::new(&[64], auto.tuner_threshold);
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

/// As many learners fit as the memory plan of that many says, and no more: two average models are once a device, so more
/// fit than copies of a single learner would.
#[test]
fn the_learners_that_fit_are_those_of_the_memory_plan() {
    let predicted = |learners: &str| {
        let text = format!(
            "name = \"fit\"\nmodel = \"vgg-16\"\ncluster = \"titanx8-pcie3\"\nranks = 2\nbatch_per_rank = 1\n\
             strategy = \"sma\"\nlearners = {learners}\n"
        );
        let experiment = Experiment::parse("fit.toml", &text).unwrap();
        let site = Site::open(&experiment, None).unwrap();
        let setup = Setup::of(&experiment, &site, Default::default()).unwrap();
        rows::rows(&experiment, &site, &setup, |_, _| {}).unwrap()
    };
    let (rows, notes) = predicted("\"auto\"");
    let most: u64 =
        notes.iter().find_map(|note| note.split("at most ").nth(1)?.split(' ').next()?.parse().ok()).unwrap();
    let capacity = 12 << 30;
    assert!(most > capacity / rows[0].memory_bytes, "{most}");
    for (learners, fits) in [(most, true), (most + 1, false)] {
        let (rows, _) = predicted(&learners.to_string());
        assert_eq!((rows[0].fits_memory, rows[0].memory_bytes <= capacity), (Some(fits), fits), "{learners}");
    }
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
    use lockstep_data::Dataset;
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
    experiment.tuning =
        vec![Logged { configuration: configuration.label(), seed: 1, most: Vec::new(), trials: trials.clone() }];
    let (one, other) = (train(&experiment), train(&experiment));
    assert_eq!(one.run.losses.len(), 70);
    assert_eq!((one.trials, one.program.workers()), (trials, 2));
    assert_eq!((one.configuration.learners, one.configuration.setting().ranks), (2, 2), "what a row is about");
    assert_eq!((&one.run.weights_sha256, &one.run.state_sha256), (&other.run.weights_sha256, &other.run.state_sha256));
    assert!(one.run.losses.last() < one.run.losses.first(), "it learns");
    // Whatever is measured here, its own log reproduces it.
    experiment.tuning.clear();
    let free = train(&experiment);
    experiment.tuning =
        vec![Logged { configuration: configuration.label(), seed: 1, most: Vec::new(), trials: free.trials.clone() }];
    assert_eq!(train(&experiment).run.state_sha256, free.run.state_sha256);
}

/// A host of that many multiprocessors' GPU each, joined by a switch.
fn cluster(multiprocessors: [u32; 2]) -> String {
    let host = |number: usize| {
        let count = multiprocessors[number];
        format!(
            "[[host]]\nname = \"n{number}\"\n[host.cpu]\ncores = 8\nflops_per_core = \"80GFLOP/s\"\n\
             memory_bandwidth = \"120GB/s\"\nmemory = \"64GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"8GB/s\"\n\
             [[host.gpu]]\nname = \"gpu\"\nmodel = \"of {count}\"\nmultiprocessors = {count}\n\
             peak_flops = \"{}GFLOP/s\"\nmemory_bandwidth = \"{}GB/s\"\nmemory = \"16GiB\"\n\
             [[host.nic]]\nname = \"eth\"\n\
             [[host.link]]\nkind = \"pcie\"\nbetween = [\"cpu\", \"gpu\"]\nlatency = \"1us\"\nbandwidth = \"15GB/s\"\n\
             [[host.link]]\nkind = \"pcie\"\nbetween = [\"cpu\", \"eth\"]\nlatency = \"1us\"\nbandwidth = \"15GB/s\"\n",
            175 * count,
            11 * count
        )
    };
    let link = |number: usize| {
        format!(
            "[[link]]\nkind = \"ethernet\"\nbetween = [\"n{number}.eth\", \"s\"]\nlatency = \"1us\"\nbandwidth = \"100Gbit/s\"\n"
        )
    };
    format!(
        "name = \"two\"\ndescription = \"two\"\nprovenance = \"assumed\"\n{}{}[[switch]]\nname = \"s\"\n{}{}",
        host(0),
        host(1),
        link(0),
        link(1)
    )
}

/// Koliousis et al. 2019, §4.4: one device may represent all where they are equal. Devices of different kinds have each
/// the number of learners that the throughput of the device asks for.
#[test]
fn devices_of_unequal_speed_are_tuned_separately() {
    let folder = folder("tuning-unequal");
    for (name, multiprocessors) in [("large", [80, 80]), ("small", [1, 1]), ("both", [80, 1])] {
        std::fs::write(folder.join(format!("{name}.toml")), cluster(multiprocessors)).unwrap();
    }
    let predicted = |cluster: &str, more: &[&str]| -> (Vec<String>, u64) {
        let line = format!(
            "sim predict --model resnet-32 --cluster {cluster}.toml --ranks 2 --batch-per-rank 16 --learners auto --tuner-threshold 0.1"
        );
        let arguments: Vec<&str> = line.split_whitespace().chain(more.iter().copied()).collect();
        let text = stdout(&folder, &[&arguments[..], &["--format", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let notes = json["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect();
        (notes, json["rows"][0]["ranks"].as_u64().unwrap())
    };
    let settled = |notes: &[String]| -> String {
        let words =
            notes.iter().find_map(|note| note.split("settled at ").nth(1)).unwrap_or_else(|| panic!("{notes:?}"));
        words.split(' ').next().unwrap().to_owned()
    };
    let sma = ["--strategy", "sma"];
    let alone: Vec<u64> = ["large", "small"]
        .iter()
        .map(|cluster| {
            let (notes, ranks) = predicted(cluster, &sma);
            assert!(!notes.iter().any(|note| note.contains("separately")), "{notes:?}");
            assert_eq!(settled(&notes), (ranks / 2).to_string());
            ranks / 2
        })
        .collect();
    assert!(alone[0] > alone[1], "a large GPU takes more learners: {alone:?}");
    let (notes, ranks) = predicted("both", &sma);
    assert!(notes.iter().any(|note| note.contains("devices differ and are tuned separately")), "{notes:?}");
    assert_eq!((settled(&notes), ranks), (format!("{}+{}", alone[0], alone[1]), alone.iter().sum()));
    // One α serves the reference models of all devices, so these have one number of learners.
    let (notes, ranks) = predicted("both", &["--strategy", "sma:reference-models"]);
    assert!(ranks.is_multiple_of(2) && settled(&notes) == (ranks / 2).to_string(), "{notes:?}");
    // A device that is slow under the conditions of a scenario differs from its equals.
    let scenario = "[[scenario]]\nname = \"slow\"\nslow = { hosts = \"n1\", factor = 20.0 }\n";
    let text = format!(
        "name = \"e\"\nmodel = \"resnet-32\"\ncluster = \"large.toml\"\nranks = 2\nbatch_per_rank = 16\nstrategy = \"sma\"\n\
         learners = \"auto\"\ntuner_threshold = 0.1\n{scenario}"
    );
    std::fs::write(folder.join("slow.toml"), text).unwrap();
    let text = stdout(&folder, &["sim", "predict", "slow.toml", "--format", "json"]);
    assert!(text.contains(&format!("settled at {} (", alone[0])), "{text}");
    assert!(text.contains(", slow: devices differ and are tuned separately"), "{text}");
}

/// The decisions of a log with a figure for each device are repeated with unequal numbers of learners, on threads and
/// in processes that mpirun started, and train the same bits.
#[test]
fn a_log_of_unequal_devices_trains_the_same_bits_on_threads_and_processes() {
    let folder = folder("tuning-log");
    let log = |trials: &str| {
        format!(
            "[{{\"configuration\": \"mlp, 2 ranks x 8, ring\", \"seed\": 1, \"most\": [4, 4], \"trials\": [{trials}]}}]"
        )
    };
    let trial = |learners: &str, rates: &str| format!("{{\"learners\": [{learners}], \"throughput\": [{rates}]}}");
    // The first device gains by its second learner and not by its third, the second by none.
    let apart = [trial("1,1", "100.0,50.0"), trial("2,2", "150.0,40.0"), trial("3,1", "151.0,50.0")].join(",");
    std::fs::write(folder.join("log.json"), log(&apart)).unwrap();
    let line = "exec run --model mlp --data synthetic:2000 --batch-per-rank 8 --ranks 2 --strategy sma --learners auto --steps 70 \
                --replay-tuner log.json --tuner-log again.json";
    let words: Vec<&str> = line.split_whitespace().collect();
    let row = rows_of(&folder, "exec-run", &words).remove(0);
    assert_eq!((row["ranks"].as_u64(), row["learners"].as_u64()), (Some(3), Some(2)), "2 learners and 1: {row}");
    let again = std::fs::read_to_string(folder.join("again.json")).unwrap();
    let trials = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()[0]["trials"].clone();
    assert_eq!(trials(&again), trials(&log(&apart)));
    // A log that is cut short or has other numbers of figures is refused.
    for broken in [trial("1,1", "100.0,50.0,1.0"), [trial("1,1", "100.0,50.0"), trial("2,2", "150.0")].join(",")] {
        std::fs::write(folder.join("broken.json"), log(&broken)).unwrap();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "log.json" { "broken.json" } else { word }).collect();
        let output = lockstep(&folder, &words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && errors.contains("does not follow the log"), "{errors}");
    }
    if !lockstep_measure::launch::HAS_MPI
        || !mpirun(&folder, 1, &["exec", "devices"]).is_some_and(|done| done.status.success())
    {
        return skipped("tuning by processes: there is no MPI");
    }
    for processes in [1, 2] {
        let all = [&words[..], &["--transport", "mpi", "--format", "json"]].concat();
        let output = mpirun(&folder, processes, &all).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        for column in ["weights_sha256", "state_sha256", "ranks", "train_loss"] {
            assert_eq!(json["rows"][0][column], row[column], "{column} in {processes} processes");
        }
    }
    // Learners that join by epochs begin in all processes alike.
    let grown = "name = \"g\"\nmodel = \"mlp\"\ndata = \"synthetic:800\"\nranks = 2\nbatch_per_rank = 8\n\
                 strategy = \"sma\"\nepochs = 3\ngrowth = [\"2@1\", \"3@2\"]\n";
    std::fs::write(folder.join("grown.toml"), grown).unwrap();
    let row = rows_of(&folder, "exec-run", &["exec", "run", "grown.toml"]).remove(0);
    let output = mpirun(&folder, 2, &["exec", "run", "grown.toml", "--transport", "mpi", "--format", "json"]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][0]["state_sha256"], row["state_sha256"]);
    // Whatever processes measure, they agree on it, and its log repeats it.
    let free: Vec<&str> =
        "exec run --model mlp --data synthetic:2000 --batch-per-rank 8 --ranks 2 --strategy sma --learners auto \
                           --epochs 1 --tuner-log free.json --transport mpi --format json"
            .split_whitespace()
            .collect();
    let output = mpirun(&folder, 2, &free).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let state = |output: &std::process::Output| {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["rows"][0]["state_sha256"].clone()
    };
    let threads: Vec<&str> = free
        .iter()
        .map(|word| match *word {
            "mpi" => "threads",
            "--tuner-log" => "--replay-tuner",
            word => word,
        })
        .collect();
    assert_eq!(state(&lockstep(&folder, &threads)), state(&output));
}

/// The output of the command in that many processes; nothing where there is no mpirun.
fn mpirun(folder: &PathBuf, processes: u32, arguments: &[&str]) -> Option<std::process::Output> {
    std::process::Command::new("mpirun")
        .args(["--oversubscribe", "-n", &processes.to_string(), env!("CARGO_BIN_EXE_lockstep")])
        .args(arguments)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .current_dir(folder)
        .output()
        .ok()
}
