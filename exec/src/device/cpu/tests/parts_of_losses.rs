//! Tests that what parts of the classes find merges to the loss of all of them: its value, the answers that are right, and the
//! gradients.

use lockstep_models::{IGNORED_LABEL, LinearCrossEntropy as Output, PARTIAL_NUMBERS};

use super::sequences::sequence;
use super::*;

const NUMBERS: usize = PARTIAL_NUMBERS as usize;

/// An output layer and what it takes.
struct Whole {
    layer: Output,
    features: usize,
    samples: usize,
    each: usize,
    parts: u32,
    input: Vec<f32>,
    parameters: Vec<f32>,
    labels: Vec<u32>,
}

/// A loss, the answers that are right, and the gradients of the input and of the parameters.
type Found = (f64, usize, Vec<f32>, Vec<f32>);

impl Whole {
    /// `ties`: all scores are equal.
    fn new(sizes: (u32, u32, usize, usize, usize), bias: bool, soft_cap: Option<f32>, ties: bool) -> Whole {
        let (classes, parts, each, samples, features) = sizes;
        let rng = &mut ChaCha8Rng::seed_from_u64(classes.into());
        let (rows, count) = (samples * each, classes as usize * (features + usize::from(bias)));
        let input = spread(rows * features, rng);
        let parameters = spread(count, rng).iter().map(|w| if ties { 0.0 } else { 2.0 * w }).collect();
        let mut labels: Vec<u32> = (0..rows as u32).map(|row| row * 37 % classes).collect();
        labels[rows / 2] = IGNORED_LABEL;
        let layer = Output { out_features: classes, bias, tie: None, soft_cap };
        Whole { layer, features, samples, each, parts, input, parameters, labels }
    }

    fn at_once(&self, threads: &Threads) -> Found {
        let mut workspace = Workspace::default();
        let mut loss = LinearCrossEntropy::new(&self.layer, self.features, self.each, threads);
        let of = (&self.input[..], &self.parameters[..]);
        loss.take_labels(&self.labels);
        let [mut dx, mut dw] = [self.input.len(), self.parameters.len()].map(|size| vec![f32::NAN; size]);
        let found = loss.backward(0.5, of, Some((&mut dx, false)), Some((&mut dw, false)), &mut workspace);
        (found.sum, found.correct, dx, dw)
    }

    /// Where the parameters of a part lie among all, and among those of the part.
    fn held(&self, part: usize) -> Vec<(std::ops::Range<usize>, usize)> {
        let (all, own) = (self.layer.out_features as usize, self.own());
        let (first, end) = ((part * own).min(all), ((part + 1) * own).min(all));
        let mut pieces = vec![(first * self.features..end * self.features, 0)];
        if self.layer.bias {
            pieces.push((all * self.features + first..all * self.features + end, own * self.features));
        }
        pieces
    }

    fn own(&self) -> usize {
        self.layer.out_features.div_ceil(self.parts) as usize
    }

    /// What a part has of numbers for all parameters; zeros where it is padding.
    fn part_of(&self, all: &[f32], part: usize) -> Vec<f32> {
        let mut own = vec![0.0; self.own() * (self.features + usize::from(self.layer.bias))];
        for (range, start) in self.held(part) {
            own[start..start + range.len()].copy_from_slice(&all[range]);
        }
        own
    }

    /// By parts, whose sums of the input's gradient are added up. `fused`: without whole scores in memory.
    fn in_parts(&self, threads: &Threads) -> Found {
        let shape = sequence(self.each as u32, self.features as u32);
        let (part, merged) = Layer::LinearCrossEntropy(self.layer.clone()).rule().in_parts(shape, self.parts).unwrap();
        let (rows, width) = (self.samples * self.each, self.parts as usize * NUMBERS);
        let mut all = vec![f32::NAN; rows * width];
        let mut kernels = Vec::new();
        for at in 0..self.parts as usize {
            let mut kernel = Kernel::new(&[ChainLayer { layer: &part, inputs: &[shape] }], self.samples, threads);
            kernel.draw(Draw { entry: (at * self.own()) as u64, ..Draw::default() }, &[]);
            kernel.take_labels(&self.labels);
            let (weights, mut output) = (self.part_of(&self.parameters, at), vec![f32::NAN; rows * NUMBERS]);
            kernel.forward(Mode::Train, &[&self.input], &weights, &mut [], &mut output);
            for (row, own) in output.chunks(NUMBERS).enumerate() {
                all[row * width + at * NUMBERS..][..NUMBERS].copy_from_slice(own);
            }
            kernels.push((kernel, weights, output));
        }
        let mut loss = CrossEntropy::of_labels(&merged, width, self.samples, self.each);
        let found = loss.forward(&all, &self.labels);
        let mut d_all = vec![f32::NAN; all.len()];
        loss.backward(0.5, &mut d_all, false);
        let (mut dx, mut dw) = (vec![0.0; self.input.len()], vec![f32::NAN; self.parameters.len()]);
        for (at, (mut kernel, weights, output)) in kernels.into_iter().enumerate() {
            let own = d_all.chunks(width).flat_map(|row| &row[at * NUMBERS..][..NUMBERS]);
            let (d_output, mut d_own): (Vec<f32>, _) = (own.copied().collect(), vec![f32::NAN; weights.len()]);
            let d_inputs = &mut [Some((&mut dx[..], true))];
            kernel.backward(&[&self.input], &output, &weights, &d_output, d_inputs, Some((&mut d_own, false)));
            let mut padding = d_own.clone();
            for (range, start) in self.held(at) {
                padding[start..start + range.len()].fill(0.0);
                dw[range.clone()].copy_from_slice(&d_own[start..start + range.len()]);
            }
            assert!(padding.iter().all(|d| *d == 0.0), "classes that are padding have no gradient");
        }
        (found.sum, found.correct, dx, dw)
    }
}

/// Also where the last parts have fewer classes, or none, where rows are ignored, and where scores tie.
#[test]
fn parts_of_the_classes_merge_to_the_loss() {
    let threads = Threads::new(2).expect("a few threads");
    for sizes in [(7, 2, 3, 2, 5), (8, 4, 1, 3, 2), (5, 4, 2, 2, 3), (600, 2, 70, 1, 4), (2, 1, 4, 1, 6)] {
        for (bias, soft_cap, ties) in [(true, None, false), (false, Some(1.5), false), (false, None, true)] {
            let of = Whole::new(sizes, bias, soft_cap, ties);
            let case = format!("{sizes:?}, bias {bias}, {soft_cap:?}");
            let (sum, correct, dx, dw) = of.at_once(&threads);
            let (merged, right, merged_dx, merged_dw) = of.in_parts(&threads);
            assert!((merged - sum).abs() < 1e-6 * sum, "{case}: {merged} is not {sum}");
            assert_eq!(right, correct, "{case}");
            near(&floats(&bits(&merged_dx)), &floats(&bits(&dx)), &format!("{case}: towards the input"));
            near(&floats(&bits(&merged_dw)), &floats(&bits(&dw)), &format!("{case}: towards the parameters"));
        }
    }
}

/// Scores that another layer has made: their gradient is that of the loss of all of them.
#[test]
fn parts_of_scores_merge_to_the_loss() {
    let threads = Threads::new(2).expect("a few threads");
    let (classes, parts, each, samples) = (7usize, 3, 5, 2);
    let (own, rows, width) = (classes.div_ceil(parts), each * samples, parts * NUMBERS);
    let scores: Vec<f32> =
        spread(rows * classes, &mut ChaCha8Rng::seed_from_u64(9)).iter().map(|score| 9.0 * score).collect();
    let mut labels: Vec<u32> = (0..rows as u32).map(|row| row * 5 % 7).collect();
    labels[3] = IGNORED_LABEL;
    let mut whole = CrossEntropy::of_labels(&Layer::SoftmaxCrossEntropy, classes, samples, each);
    let wanted = whole.forward(&scores, &labels);
    let mut d_scores = vec![f32::NAN; scores.len()];
    whole.backward(0.25, &mut d_scores, false);
    let shape = sequence(each as u32, classes as u32);
    let (part, merged) = Layer::SoftmaxCrossEntropy.rule().in_parts(shape, parts as u32).unwrap();
    let inputs = [sequence(each as u32, own as u32)];
    // What a part has of a row; padding is NaN, which nothing may read.
    let part_of = |at: usize| -> Vec<f32> {
        let class = |place: usize| (place / own * classes, at * own + place % own);
        (0..rows * own)
            .map(class)
            .map(|(row, class)| if class < classes { scores[row + class] } else { f32::NAN })
            .collect()
    };
    let mut all = vec![f32::NAN; rows * width];
    let mut found = Vec::new();
    for at in 0..parts {
        let mut kernel = Kernel::new(&[ChainLayer { layer: &part, inputs: &inputs }], samples, &threads);
        kernel.draw(Draw { entry: (at * own) as u64, ..Draw::default() }, &[]);
        kernel.take_labels(&labels);
        let (input, mut output) = (part_of(at), vec![f32::NAN; rows * NUMBERS]);
        kernel.forward(Mode::Train, &[&input], &[], &mut [], &mut output);
        let copy = |(row, own): (usize, &[f32])| all[row * width + at * NUMBERS..][..NUMBERS].copy_from_slice(own);
        output.chunks(NUMBERS).enumerate().for_each(copy);
        found.push((kernel, input, output));
    }
    let mut loss = CrossEntropy::of_labels(&merged, width, samples, each);
    let merged = loss.forward(&all, &labels);
    assert!((merged.sum - wanted.sum).abs() < 1e-6 * wanted.sum, "{} is not {}", merged.sum, wanted.sum);
    assert_eq!(merged.correct, wanted.correct);
    let mut d_all = vec![f32::NAN; all.len()];
    loss.backward(0.25, &mut d_all, false);
    for (at, (mut kernel, input, output)) in found.into_iter().enumerate() {
        let own_d = d_all.chunks(width).flat_map(|row| &row[at * NUMBERS..][..NUMBERS]);
        let (d_output, mut dx): (Vec<f32>, _) = (own_d.copied().collect(), vec![f32::NAN; input.len()]);
        kernel.backward(&[&input], &output, &[], &d_output, &mut [Some((&mut dx, false))], None);
        for (row, own_dx) in dx.chunks(own).enumerate() {
            let held = (at * own).min(classes)..((at + 1) * own).min(classes);
            near(
                &floats(&bits(&own_dx[..held.len()])),
                &floats(&bits(&d_scores[row * classes..][held.clone()])),
                "scores",
            );
            assert!(own_dx[held.len()..].iter().all(|d| *d == 0.0), "padding has no gradient");
        }
    }
}
