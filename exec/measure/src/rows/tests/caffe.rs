//! Trains from Caffe's own definitions (a net, a solver and a weights file) and compares with Caffe's solver in plain
//! loops.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_data::Sampler;

use super::*;
use crate::checkpoint::{Every, Folder, latest};

const FEATURES: usize = 48;
const HIDDEN: usize = 5;
const CLASSES: usize = 3;
/// Samples of a batch, as in the net.
const BATCH: usize = 8;
const RANKS: usize = 2;
const STEPS: usize = 12;

const NET: &str = "
layer { name: 'd' type: 'Data' top: 'x' top: 'label' transform_param { crop_size: 4 } data_param { source: 'lmdb' batch_size: 8 } }
layer { name: 'f' type: 'InnerProduct' bottom: 'x' top: 'f' inner_product_param { num_output: 5 }
  param { lr_mult: 0 } param { lr_mult: 0 } }
layer { name: 'r' type: 'ReLU' bottom: 'f' top: 'f' }
layer { name: 'y' type: 'InnerProduct' bottom: 'f' top: 'y' inner_product_param { num_output: 3 }
  param { lr_mult: 1 decay_mult: 2 } param { lr_mult: 2 decay_mult: 0 } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'label' }";

/// The state of Caffe's solver: the weights of both layers, row by row, and the histories of the one that learns.
struct Reference {
    f: Vec<f32>,
    c: Vec<f32>,
    y: Vec<f64>,
    b: Vec<f64>,
    histories: [Vec<f64>; 2],
}

/// Pseudo-random numbers of at most `scale`.
fn numbers(count: usize, scale: f32) -> Vec<f32> {
    let at = |at: usize| ((at * 7919 + 13) % 1009) as f32 / 504.5 - 1.0;
    (0..count).map(|index| scale * at(index)).collect()
}

impl Reference {
    fn new() -> Reference {
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
        Reference {
            f: numbers(HIDDEN * FEATURES, 0.5),
            c: numbers(HIDDEN, 0.25),
            y: wide(numbers(CLASSES * HIDDEN, 1.0)),
            b: wide(numbers(CLASSES, 0.5)),
            histories: [vec![0.0; CLASSES * HIDDEN], vec![0.0; CLASSES]],
        }
    }

    /// Loss and gradients of a batch, both means over its samples.
    fn batch(&self, images: &[f32], labels: &[u32]) -> (f64, [Vec<f64>; 2]) {
        let (mut loss, mut gradients) = (0.0, [vec![0.0; CLASSES * HIDDEN], vec![0.0; CLASSES]]);
        for (image, label) in images.chunks(FEATURES).zip(labels) {
            let hidden: Vec<f64> = (0..HIDDEN)
                .map(|row| {
                    let of = self.f[row * FEATURES..(row + 1) * FEATURES].iter().zip(image);
                    (f64::from(self.c[row]) + of.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>()).max(0.0)
                })
                .collect();
            let score = |class: usize| {
                self.b[class] + (0..HIDDEN).map(|at| self.y[class * HIDDEN + at] * hidden[at]).sum::<f64>()
            };
            let powers: Vec<f64> = (0..CLASSES).map(|class| score(class).exp()).collect();
            let sum: f64 = powers.iter().sum();
            loss -= (powers[*label as usize] / sum).ln();
            for (class, power) in powers.iter().enumerate() {
                let gradient = power / sum - f64::from(u8::from(class == *label as usize));
                (0..HIDDEN).for_each(|at| gradients[0][class * HIDDEN + at] += gradient * hidden[at]);
                gradients[1][class] += gradient;
            }
        }
        let samples = labels.len() as f64;
        (loss / samples, gradients.map(|gradients| gradients.into_iter().map(|gradient| gradient / samples).collect()))
    }

    /// `SGDSolver::ApplyUpdate` and `NesterovSolver::ComputeUpdateValue`, with the multipliers of the net.
    fn update(&mut self, diffs: [Vec<f64>; 2], rate: f64, nesterov: bool) {
        let (momentum, decay) = (0.9, 0.05);
        let tensors = [&mut self.y, &mut self.b].into_iter().zip(&mut self.histories).zip(diffs);
        for (((data, histories), diffs), (lr_mult, decay_mult)) in tensors.zip([(1.0, 2.0), (2.0, 0.0)]) {
            for ((w, history), diff) in data.iter_mut().zip(histories).zip(diffs) {
                let before = *history;
                *history = momentum * before + rate * lr_mult * (diff + decay * decay_mult * *w);
                *w -= if nesterov { (1.0 + momentum) * *history - momentum * before } else { *history };
            }
        }
    }
}

fn varint(mut number: usize, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// A field of bytes.
fn field(number: usize, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    varint(number << 3 | 2, &mut field);
    varint(content.len(), &mut field);
    [field, content.to_vec()].concat()
}

/// A layer of two blobs in a `.caffemodel`.
fn layer(name: &str, blobs: [(&[usize], Vec<f32>); 2]) -> Vec<u8> {
    let blob = |(shape, values): (&[usize], Vec<f32>)| {
        let mut dims = Vec::new();
        shape.iter().for_each(|size| varint(*size, &mut dims));
        let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        field(7, &[field(7, &field(1, &dims)), field(5, &values)].concat())
    };
    field(100, &[vec![field(1, name.as_bytes())], blobs.map(blob).to_vec()].concat().concat())
}

/// A folder with net, weights and solver.
fn definitions(kind: &str) -> tempfile::TempDir {
    let kept = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(kept.path().join(name), content).unwrap();
    write("net.prototxt", NET.as_bytes());
    let narrow = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<f32>>();
    let begun = Reference::new();
    let f = layer("f", [(&[HIDDEN, FEATURES], begun.f.clone()), (&[HIDDEN], begun.c.clone())]);
    let y = layer("y", [(&[CLASSES, HIDDEN], narrow(&begun.y)), (&[CLASSES], narrow(&begun.b))]);
    write("net.caffemodel", &[f, y].concat());
    let solver = format!(
        "net: 'net.prototxt' type: '{kind}' base_lr: 0.1 lr_policy: 'step' gamma: 0.5 stepsize: 5 momentum: 0.9\n\
         weight_decay: 0.05 iter_size: 2 max_iter: {STEPS} random_seed: 3 display: 1"
    );
    write("solver.prototxt", solver.as_bytes());
    kept
}

/// The rows of a run of the definitions in `folder`, with `each` called for its runs.
fn run(folder: &Path, more: &str, operation: &Operation, mut each: impl FnMut(&MeasuredTraining)) -> MeasuredRow {
    let path = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "name = \"e\"\nsolver = {:?}\nweights = {:?}\ndata = \"synthetic:200\"\n{more}\n",
        path("solver.prototxt"),
        path("net.caffemodel")
    );
    let experiment = Experiment::parse("e.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let rows = rows(&experiment, operation, &mut Launch::Threads, |_, measured| {
        each(measured);
        Ok(())
    });
    rows.unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// Losses and weights are those of Caffe's solver on as many GPUs: gradients are means over ranks and over `iter_size`, then weight
/// decay, then the history that has the rate in it; a layer with `lr_mult: 0` keeps the file's bits.
#[test]
fn a_solver_trains_as_caffes_does() {
    for (kind, strategy) in [
        ("SGD", "ssgd"),
        ("Nesterov", "ssgd"),
        ("SGD", "zero-1"),
        ("SGD", "zero-2"),
        ("SGD", "zero-3"),
        ("SGD", "model-parallel"),
    ] {
        let kept = definitions(kind);
        let more = format!("ranks = [{RANKS}]\nstrategy = \"{strategy}\"");
        run(kept.path(), &more, &Operation::default(), |measured| {
            let model = &measured.configuration.job.model;
            let (data, _) = Dataset::load("synthetic:200", model).unwrap();
            let pools = &measured.program.pools;
            let sampler = Sampler::new(data.len(), BATCH as u32, 2, pools, 3).unwrap();
            let mut reference = Reference::new();
            assert_eq!(measured.run.losses.len(), STEPS);
            for (step, got) in measured.run.losses.iter().enumerate() {
                let (mut loss, mut diffs) = (0.0, [vec![0.0; CLASSES * HIDDEN], vec![0.0; CLASSES]]);
                for rank in 0..RANKS {
                    for repetition in 0..2 {
                        let (mut indices, mut images, mut labels) =
                            (Vec::new(), vec![0.0; BATCH * FEATURES], vec![0; BATCH]);
                        sampler.micro_batch(step as u64, rank as u32, repetition, &mut indices);
                        data.gather(&indices, &mut images, &mut labels).unwrap();
                        let (own, gradients) = reference.batch(&images, &labels);
                        loss += own / (2 * RANKS) as f64;
                        for (diff, gradients) in diffs.iter_mut().zip(gradients) {
                            diff.iter_mut()
                                .zip(gradients)
                                .for_each(|(diff, gradient)| *diff += gradient / (2 * RANKS) as f64);
                        }
                    }
                }
                assert!((got - loss).abs() < 1e-4 * loss, "{kind}, {strategy}: loss {got} of step {step}, not {loss}");
                reference.update(diffs, 0.1 * 0.5f64.powi((step / 5) as i32), kind == "Nesterov");
            }
            let parameters = &measured.run.parameters;
            let (frozen, learned) = parameters.split_at(HIDDEN * FEATURES + HIDDEN);
            assert_eq!(frozen, [reference.f, reference.c].concat(), "{kind}, {strategy}");
            for (got, wanted) in learned.iter().zip([reference.y, reference.b].concat()) {
                assert!((f64::from(*got) - wanted).abs() < 1e-4, "{kind}, {strategy}: {got}, not {wanted}");
            }
        });
    }
}

/// A training that began with given weights resumes to the bit; its checkpoint has the weights.
#[test]
fn a_training_from_given_weights_resumes_to_the_bit() {
    let kept = definitions("SGD");
    let folder = kept.path().join("kept");
    let whole = run(kept.path(), "", &Operation::default(), |_| ());
    let (opened, _) = Folder::open(&folder, Every::Time(Duration::from_secs(300))).unwrap();
    let operation = Operation { saves: true, folder: Some(opened), ..Operation::default() };
    run(kept.path(), "steps = 5", &operation, |_| ());
    drop(operation);
    let resumed: Option<(_, PathBuf)> = Some(latest(&folder, |_| ()).unwrap());
    let rest = run(kept.path(), "", &Operation { resumed, ..Operation::default() }, |measured| {
        assert_eq!((measured.run.first, measured.run.losses.len()), (5, STEPS - 5));
    });
    assert_eq!((&rest.state_sha256, &rest.weights_sha256), (&whole.state_sha256, &whole.weights_sha256));
    // Without its weights it would be another training.
    std::fs::write(
        kept.path().join("net.caffemodel"),
        layer("y", [(&[CLASSES, HIDDEN], vec![0.0; 15]), (&[CLASSES], vec![0.0; 3])]),
    )
    .unwrap();
    assert_ne!(run(kept.path(), "", &Operation::default(), |_| ()).weights_sha256, whole.weights_sha256);
}

/// Learners and their average model start with the file's weights; without a learning rate they keep them.
#[test]
fn learners_begin_with_the_weights_of_the_file() {
    let kept = definitions("SGD");
    let more = "ranks = [2]\nstrategy = \"sma\"\nsteps = 2\naccumulate = 1\n[optimizer]\nlearning_rate = 0.0";
    run(kept.path(), more, &Operation::default(), |measured| {
        let reference = Reference::new();
        let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect::<Vec<f32>>();
        assert_eq!(
            measured.run.parameters,
            [reference.f, reference.c, narrow(reference.y), narrow(reference.b)].concat()
        );
    });
}
