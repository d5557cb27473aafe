//! Tests a solver in an experiment: what it sets, and what replaces it.

use std::path::{Path, PathBuf};

use lockstep_models::{Decay, MomentumForm};

use super::*;

const NET: &str = "
layer { name: 'd' type: 'Data' top: 'x' top: 'label' data_param { source: 'lmdb' batch_size: 24 } transform_param { crop_size: 4 } }
layer { name: 'y' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { num_output: 3 } param { lr_mult: 2 } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'label' }";

const SOLVER: &str =
    "net: 'net.prototxt' base_lr: 0.01 lr_policy: 'multistep' gamma: 0.1 stepvalue: [100, 200] momentum: 0.9
weight_decay: 0.0005 iter_size: 2 max_iter: 300 random_seed: 5 display: 20 weights: 'w.caffemodel'";

/// A folder with the net and the solver, which is removed with its guard.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("lockstep-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("net.prototxt"), NET).unwrap();
        std::fs::write(folder.join("solver.prototxt"), SOLVER).unwrap();
        Folder(folder)
    }

    fn solver(&self) -> String {
        self.0.join("solver.prototxt").to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_solver_is_an_experiment() {
    let folder = Folder::new("solver-alone");
    let text = format!("name = \"e\"\nsolver = {:?}\nranks = [2]\n", folder.solver());
    let experiment = Experiment::parse("e.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((experiment.batch.per_rank(), experiment.accumulate), (&[24][..], 2));
    assert_eq!((experiment.length, experiment.seed), (Length::Steps(300), 5));
    assert_eq!(experiment.weights.as_deref(), Some("w.caffemodel"));
    let optimizer = &experiment.optimizer;
    assert_eq!((optimizer.form, optimizer.decay_batch_norm), (MomentumForm::Absorbed, true));
    assert_eq!(optimizer.decay, Decay::AtSteps { factor: 0.1, steps: vec![100, 200] });
    // Each rank takes the net's batch, as does each of a step's passes; three classes of 3×4×4.
    let job = experiment.configurations().unwrap().remove(0).job;
    assert_eq!((job.global_batch(), job.model.parameter_elements()), (2 * 2 * 24, 3 * 48 + 3));
    assert_eq!(job.model.multipliers().as_deref(), Some("rate ×2 of 1 tensors"));
    let account = experiment.account_of_solver();
    assert!(account.len() == 2 && account[0].ends_with("keeps the loss of each step"), "{account:?}");
}

#[test]
fn explicit_keys_replace_those_of_the_solver() {
    let folder = Folder::new("solver-replaced");
    let text = format!(
        "name = \"e\"\nmodel = \"lenet\"\nbatch_per_rank = 8\nsteps = 7\nsolver = {:?}\n[optimizer]\nlearning_rate = 0.5\n",
        folder.solver()
    );
    let experiment = Experiment::parse("e.toml", &text);
    let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((experiment.model.as_str(), experiment.batch.per_rank()), ("lenet", &[8][..]));
    assert_eq!((experiment.length, experiment.accumulate), (Length::Steps(7), 2));
    assert_eq!((experiment.optimizer.learning_rate, experiment.optimizer.momentum), (0.5, 0.9));
    let both = format!("name = \"e\"\nrecipe = \"goyal2017\"\nsolver = {:?}\n", folder.solver());
    let error = Experiment::parse("e.toml", &both).unwrap_err().to_string();
    assert!(error.contains("give one of the two"), "{error}");
    let gone = "name = \"e\"\nsolver = \"nowhere/solver.prototxt\"\n";
    let error = Experiment::parse("e.toml", gone).unwrap_err().to_string();
    assert!(error.starts_with("e.toml:2: ") && error.contains("name a solver.prototxt"), "{error}");
    assert!(Path::new(&folder.solver()).is_file());
}
