//! Tests that wrong graphs are refused, and compares each rule with the unsplit operator.

mod formulas;
mod signatures;

use proptest::prelude::*;

use super::rules::Rule;
use super::*;
use crate::tensor::transition;
use crate::{AxisLayout, Coefficient, Dense, Dimension, Formula, Layer, Operand, Scale, Shape};

const SAMPLES: AxisLayout = AxisLayout::Split(Dimension::Sample);
const FEATURES: AxisLayout = AxisLayout::Split(Dimension::Feature);
const COLUMNS: AxisLayout = AxisLayout::Split(Dimension::Input);
const LAYOUTS: [AxisLayout; 5] = [AxisLayout::Replicated, SAMPLES, FEATURES, COLUMNS, AxisLayout::Partial];

/// A graph without nodes on four ranks.
fn graph() -> Graph {
    let with_weights = |model: &Model| !model.node(LayerId(1)).parameters.is_empty();
    let model = (0..).map(|seed| crate::random_model(seed, false)).find(with_weights).expect("one begins with weights");
    Graph::new(&model, Mesh::new(&[(Axis::Data, 2), (Axis::Device, 2)]).unwrap())
}

fn step(gradient: AxisLayout, collective: Option<Collective>) -> Graph {
    let data = |placement| Layout::new(AxisSet::of(&[Axis::Data]), placement);
    let mut graph = graph();
    let load = graph.node(NodeWork::Load, Scope::MicroBatch);
    let weight = graph.node(NodeWork::Layer(LayerId(1), Pass::BackwardWeight), Scope::MicroBatch);
    graph.edge(load, weight, Tensor::Activation(LayerId(0)), data(SAMPLES));
    let mut last = weight;
    let mut layout = data(gradient);
    if let Some(collective) = collective {
        let work = NodeWork::Collective { collective, axes: AxisSet::of(&[Axis::Data]), range: 0..8 };
        last = graph.node(work, Scope::Step);
        graph.edge(weight, last, Tensor::WeightGradient, layout);
        layout = Layout::REPLICATED;
    }
    let update = graph.update(0..8, Scope::Step);
    graph.edge(last, update, Tensor::WeightGradient, layout);
    graph
}

#[test]
fn collectives_are_exactly_where_layouts_differ() {
    assert_eq!(step(AxisLayout::Partial, Some(Collective::AllReduce)).check(), Ok(()));
    // Without the allreduce each rank would update with its own part.
    let refused = step(AxisLayout::Partial, None).check().unwrap_err().to_string();
    assert!(
        refused.contains("on axis data update") && refused.contains("allreduce of weight gradient is missing"),
        "{refused}"
    );
    // Claiming that split samples give the whole gradient is refused.
    assert!(step(AxisLayout::Replicated, None).check().is_err());
    // An allreduce of what is replicated already would count it k times.
    assert!(step(AxisLayout::Replicated, Some(Collective::AllReduce)).check().is_err());
    assert!(step(AxisLayout::Partial, Some(Collective::AllGather)).check().is_err());
}

/// A node that takes a tensor of this step from a later node is named as its model and its timeline name it.
#[test]
fn nodes_are_in_the_order_in_which_they_run() {
    let model = crate::random_model(7, false);
    let mut graph = Graph::new(&model, Mesh::new(&[(Axis::Data, 2)]).unwrap());
    let id = LayerId(1);
    let update = graph.update(0..8, Scope::Step);
    let weight = graph.node(NodeWork::Layer(id, Pass::BackwardWeight), Scope::MicroBatch);
    graph.edge(weight, update, Tensor::WeightGradient, Layout::REPLICATED);
    let (name, said) = (&model.node(id).name, graph.check().unwrap_err().to_string());
    let wanted =
        format!("update of elements 0..8 takes the weight gradient of backward-weight {name}, which is added after it");
    assert!(said.contains(&wanted) && said.contains("in the order in which they run"), "{said}");
    assert!(!said.contains("LayerId"), "{said}");
}

#[test]
fn layouts_differ_on_axes_of_the_mesh_alone() {
    let one = Graph {
        mesh: Mesh::new(&[(Axis::Tensor, 4)]).unwrap(),
        ..step(AxisLayout::Partial, Some(Collective::AllReduce))
    };
    let refused = one.check().unwrap_err().to_string();
    assert_eq!(refused, "a layout differs on axis data, which the mesh (tensor=4) does not have");
}

/// A collective along one axis does not change a partial sum along another.
#[test]
fn a_collective_works_on_its_own_axes() {
    let both = AxisSet::of(&[Axis::Data, Axis::Device]);
    let on_data = Layout::new(AxisSet::of(&[Axis::Data]), AxisLayout::Partial);
    for (axes, reduced, fault) in [
        (both, Layout::REPLICATED, ""),
        (AxisSet::of(&[Axis::Device]), Layout::REPLICATED, "on axis data allreduce"),
        (AxisSet::of(&[Axis::Device]), on_data, "on axis data update"),
        (both, on_data, "on axis data allreduce"),
    ] {
        let mut graph = graph();
        let load = graph.node(NodeWork::Load, Scope::MicroBatch);
        let weight = graph.node(NodeWork::Layer(LayerId(1), Pass::BackwardWeight), Scope::MicroBatch);
        let reduce = NodeWork::Collective { collective: Collective::AllReduce, axes, range: 0..8 };
        let reduce = graph.node(reduce, Scope::Step);
        let update = graph.update(0..8, Scope::Step);
        graph.edge(load, weight, Tensor::Activation(LayerId(0)), Layout::new(both, SAMPLES));
        graph.edge(weight, reduce, Tensor::WeightGradient, Layout::new(both, AxisLayout::Partial));
        graph.edge(reduce, update, Tensor::WeightGradient, reduced);
        let said = graph.check().err().map_or(String::new(), |error| error.to_string());
        assert!(said.starts_with(fault) && fault.is_empty() == said.is_empty(), "{axes}: {reduced}: {said}");
    }
}

/// A matrix by rows.
#[derive(Debug, Clone, PartialEq)]
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<i64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, seed: u64) -> Matrix {
        let value = |index: u64| (seed.wrapping_add(index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as i64 - 8;
        Matrix { rows, columns, values: (0..(rows * columns) as u64).map(value).collect() }
    }

    fn at(&self, row: usize, column: usize) -> i64 {
        self.values[row * self.columns + column]
    }

    fn of(rows: usize, columns: usize, value: impl Fn(usize, usize) -> i64) -> Matrix {
        let values = (0..rows * columns).map(|index| value(index / columns, index % columns)).collect();
        Matrix { rows, columns, values }
    }

    fn transposed(&self) -> Matrix {
        Matrix::of(self.columns, self.rows, |row, column| self.at(column, row))
    }

    /// self · otherᵀ.
    fn times(&self, other: &Matrix) -> Matrix {
        assert_eq!(self.columns, other.columns);
        let product = |row, column| (0..self.columns).map(|k| self.at(row, k) * other.at(column, k)).sum();
        Matrix::of(self.rows, other.rows, product)
    }

    /// What each of `ranks` ranks holds; samples are rows of an activation, features its columns, and rows of a weight.
    fn placed(&self, placement: AxisLayout, weight: bool, ranks: usize) -> Option<Vec<Matrix>> {
        let rows = |rank: usize| {
            Matrix::of(self.rows / ranks, self.columns, |r, c| self.at(rank * (self.rows / ranks) + r, c))
        };
        let part = |rank: usize| match placement {
            AxisLayout::Replicated => self.clone(),
            AxisLayout::Split(dimension) if weight == (dimension == Dimension::Feature) => rows(rank),
            AxisLayout::Split(_) => {
                let width = self.columns / ranks;
                Matrix::of(self.rows, width, |r, c| self.at(r, rank * width + c))
            }
            // The first ranks hold noise, the last what is missing to the sum.
            AxisLayout::Partial if rank + 1 < ranks => Matrix::new(self.rows, self.columns, rank as u64 + 77),
            _ => {
                let noise: Vec<Matrix> =
                    (0..ranks - 1).map(|rank| Matrix::new(self.rows, self.columns, rank as u64 + 77)).collect();
                Matrix::of(self.rows, self.columns, |r, c| {
                    self.at(r, c) - noise.iter().map(|part| part.at(r, c)).sum::<i64>()
                })
            }
        };
        (!weight || placement != SAMPLES).then(|| (0..ranks).map(part).collect())
    }

    /// The tensor that ranks hold in parts; `None` where they do not fit together.
    fn joined(parts: &[Matrix], placement: AxisLayout, weight: bool) -> Option<Matrix> {
        let first = &parts[0];
        let (rows, columns, ranks) = (first.rows, first.columns, parts.len());
        match placement {
            AxisLayout::Replicated => parts.iter().all(|part| part == first).then(|| first.clone()),
            AxisLayout::Partial => Some(Matrix::of(rows, columns, |r, c| parts.iter().map(|part| part.at(r, c)).sum())),
            AxisLayout::Split(dimension) if weight == (dimension == Dimension::Feature) => {
                Some(Matrix::of(rows * ranks, columns, |r, c| parts[r / rows].at(r % rows, c)))
            }
            _ => Some(Matrix::of(rows, columns * ranks, |r, c| parts[c / columns].at(r, c % columns))),
        }
    }
}

/// A layer's pass as a rank computes it, if its parts fit each other: a dense layer's, or channel by channel a scale's.
fn computed(pass: Pass, by_channel: bool, weight: &Matrix, x: &Matrix, d_y: &Matrix) -> Option<Matrix> {
    let scaled =
        |data: &Matrix| Matrix::of(data.rows, data.columns, |row, column| data.at(row, column) * weight.at(column, 0));
    let fits = |data: &Matrix| data.columns == weight.rows;
    let columns = |row, _| (0..x.rows).map(|sample| d_y.at(sample, row) * x.at(sample, row)).sum();
    match (pass, by_channel) {
        (Pass::Forward, false) => (x.columns == weight.columns).then(|| x.times(weight)),
        (Pass::BackwardData, false) => fits(d_y).then(|| d_y.times(&weight.transposed())),
        (Pass::BackwardWeight, false) => (d_y.rows == x.rows).then(|| d_y.transposed().times(&x.transposed())),
        (Pass::Forward, true) => fits(x).then(|| scaled(x)),
        (Pass::BackwardData, true) => fits(d_y).then(|| scaled(d_y)),
        (Pass::BackwardWeight, true) => {
            ((d_y.rows, d_y.columns) == (x.rows, x.columns)).then(|| Matrix::of(x.columns, 1, columns))
        }
    }
}

/// A sum towards leaders ends at the first learner of a device, and on every device.
#[test]
fn learners_of_a_device_are_a_node() {
    let axes = AxisSet::of(&[Axis::Device, Axis::Learner]);
    let work = NodeWork::Collective { collective: Collective::AllReduceToLeaders, axes, range: 0..1 };
    for (axis, gives, allowed) in [
        (Axis::Learner, AxisLayout::First, true),
        (Axis::Learner, AxisLayout::Replicated, false),
        (Axis::Device, AxisLayout::Replicated, true),
        (Axis::Device, AxisLayout::First, false),
    ] {
        let rule = Rule { work: &work, axis, operands: None };
        let (takes, gives) = ((Tensor::Difference, AxisLayout::Partial), (Tensor::Difference, gives));
        assert_eq!(rule.allows(&[takes], &[gives]), allowed, "{axis}: {}", gives.1);
    }
}

proptest! {
    /// With layouts that a rule allows, ranks compute on their parts, and the results joined by the output's layout are
    /// the whole.
    #[test]
    fn allowed_layouts_compute_the_unsplit_operator(
        ranks in 2usize..4, by_channel in any::<bool>(),
        (samples, features, outputs) in (1usize..4, 1usize..4, 1usize..4), seed in any::<u64>(),
    ) {
        let (n, k) = (samples * ranks, features * ranks);
        let (m, width) = if by_channel { (k, 1) } else { (outputs * ranks, k) };
        let (weight, x, d_y) = (Matrix::new(m, width, seed), Matrix::new(n, k, seed ^ 1), Matrix::new(n, m, seed ^ 2));
        let (activation, gradient) = (Tensor::Activation(LayerId(0)), Tensor::ActivationGradient(LayerId(1)));
        let layer = if by_channel {
            Layer::Scale(Scale { bias: false })
        } else {
            Layer::Dense(Dense { out_features: m as u32, bias: false })
        };
        let signature = layer.signature(&[Shape::flat(k as u32)]).unwrap();
        let operands = Operands { inputs: vec![LayerId(0)], signature, shares: false };
        let mut rules = 0;
        for pass in [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight] {
            let whole = computed(pass, by_channel, &weight, &x, &d_y).expect("whole matrices fit");
            for [of_weight, of_data, of_output] in (0..125).map(|index| [1, 5, 25].map(|by| LAYOUTS[index / by % 5])) {
                for of_x in LAYOUTS {
                    // A pass of the data reads weights, one of the weights reads both.
                    let (inputs, output, is_weight) = match pass {
                        Pass::Forward => (vec![(Tensor::Weight, of_weight), (activation, of_data)], activation, false),
                        Pass::BackwardData => {
                            (vec![(Tensor::Weight, of_weight), (gradient, of_data)], Tensor::ActivationGradient(LayerId(0)), false)
                        }
                        Pass::BackwardWeight => (vec![(gradient, of_data), (activation, of_x)], Tensor::WeightGradient, true),
                    };
                    let rule = Rule { work: &NodeWork::Layer(LayerId(1), pass), axis: Axis::Data, operands: Some(&operands) };
                    if !rule.allows(&inputs, &[(output, of_output)]) {
                        continue;
                    }
                    let of_x = if pass == Pass::Forward { of_data } else { of_x };
                    let parts =
                        (weight.placed(of_weight, true, ranks), x.placed(of_x, false, ranks), d_y.placed(of_data, false, ranks));
                    let (Some(weights), Some(xs), Some(d_ys)) = parts else { continue };
                    let part = |rank: usize| computed(pass, by_channel, &weights[rank], &xs[rank], &d_ys[rank]);
                    let joined = (0..ranks).map(part).collect::<Option<Vec<_>>>();
                    let joined = joined.and_then(|parts| Matrix::joined(&parts, of_output, is_weight));
                    prop_assert_eq!(joined.as_ref(), Some(&whole), "{:?} {:?} gives {}", pass, &inputs, of_output);
                    rules += 1;
                }
            }
        }
        prop_assert!(rules >= 30, "{rules}");
    }

    /// Evaluates on ranks what a formula's layouts allow: replicated results are the same on all, and the parts of a
    /// partial sum add up to the formula of the sums.
    #[test]
    fn allowed_formulas_keep_layouts(
        terms in proptest::collection::vec((0..4usize, proptest::option::of(0..4usize), -3..4i64, 0..4usize), 1..6),
        layouts in proptest::collection::vec(0..3usize, 8),
        values in proptest::collection::vec(-9..9i64, 12),
    ) {
        const OPERANDS: [Operand; 4] = [
            Operand::Buffer(Buffer::Parameters),
            Operand::Buffer(Buffer::Gradients),
            Operand::Buffer(Averaging::DIFFERENCES),
            Operand::Local(0),
        ];
        const TENSORS: [Tensor; 3] = [Tensor::Weight, Tensor::WeightGradient, Tensor::Difference];
        let layout = |at: usize| [AxisLayout::Replicated, AxisLayout::Own, AxisLayout::Partial][layouts[at]];
        // The intermediate result has a value before it is read.
        let formula = Formula::new("any").scale(OPERANDS[3], Coefficient::ONE, OPERANDS[0]);
        let formula = terms.iter().fold(formula, |formula, (to, plus, factor, times)| {
            let (to, times, factor) = (OPERANDS[*to], OPERANDS[*times], Coefficient::Constant(*factor as f64));
            match plus {
                Some(plus) => formula.add(to, OPERANDS[*plus], factor, times),
                None => formula.scale(to, factor, times),
            }
        });
        let computed = |mut operands: [i64; 4]| {
            operands[3] = operands[0];
            for (to, plus, factor, times) in &terms {
                operands[*to] = plus.map_or(0, |plus| operands[plus]) + factor * operands[*times];
            }
            operands
        };
        let read = |at: &usize| matches!(OPERANDS[*at], Operand::Buffer(buffer) if formula.reads(buffer));
        let inputs: Vec<_> = (0..3).filter(read).map(|at| (TENSORS[at], layout(at))).collect();
        let of = Elementwise::new(formula.clone(), 0..1);
        let work = NodeWork::Elementwise { of, stream: Stream::Compute };
        let rule = Rule { work: &work, axis: Axis::Data, operands: None };
        let on_rank = |rank: usize| -> [i64; 4] {
            std::array::from_fn(|at| values[if at < 3 && layout(at) == AxisLayout::Replicated { at } else { 4 * rank + at }])
        };
        let ranks = [0, 1, 2].map(|rank| computed(on_rank(rank)));
        let sums = computed(std::array::from_fn(|at| (0..3).map(|rank| on_rank(rank)[at]).sum()));
        for at in (0..3).filter(|at| matches!(OPERANDS[*at], Operand::Buffer(buffer) if formula.writes(buffer))) {
            let partial = |placed: &(Tensor, AxisLayout)| placed.1 == AxisLayout::Partial;
            if rule.allows(&inputs, &[(TENSORS[at], AxisLayout::Replicated)]) {
                prop_assert!(ranks.iter().all(|rank| rank[at] == ranks[0][at]), "{formula:?} of {inputs:?}");
            }
            if inputs.iter().all(partial) && rule.allows(&inputs, &[(TENSORS[at], AxisLayout::Partial)]) {
                prop_assert_eq!(ranks.iter().map(|rank| rank[at]).sum::<i64>(), sums[at]);
            }
        }
    }

    /// Only a difference of models may be summed, and only a sum may change what all ranks share.
    #[test]
    fn only_differences_of_models_are_summed(alpha in 0.0..1.0f64) {
        let [w, c, z] = [Buffer::Parameters, Averaging::DIFFERENCES, Averaging::AVERAGE].map(Operand::Buffer);
        let differ = Formula::new("differ").subtract(c, w, Coefficient::Constant(alpha), z);
        let moves = Formula::new("move").add(z, z, Coefficient::ONE, c);
        let allows = |formula: &Formula, inputs: &[(Tensor, AxisLayout)], output| {
            let of = Elementwise::new(formula.clone(), 0..1);
            let work = NodeWork::Elementwise { of, stream: Stream::Compute };
            Rule { work: &work, axis: Axis::Learner, operands: None }.allows(inputs, &[output])
        };
        let (own, partial, same) = (AxisLayout::Own, AxisLayout::Partial, AxisLayout::Replicated);
        let from = |w, z| [(Tensor::Weight, w), (Tensor::Average, z)];
        prop_assert!(allows(&differ, &from(own, same), (Tensor::Difference, partial)));
        prop_assert!(!allows(&differ, &from(own, same), (Tensor::Difference, same)));
        prop_assert!(!allows(&differ, &from(same, same), (Tensor::Difference, partial)), "each rank would count it");
        prop_assert!(!allows(&differ, &from(partial, same), (Tensor::Difference, partial)), "each would count z");
        prop_assert!(allows(&moves, &[(Tensor::Difference, same)], (Tensor::Average, same)));
        prop_assert!(!allows(&moves, &[(Tensor::Difference, partial)], (Tensor::Average, same)), "it must be summed");
        // The first learner may move it alone, from a sum that it has, and then no other has the result.
        let first = AxisLayout::First;
        for (takes, gives, allowed) in
            [(first, first, true), (same, first, true), (first, same, false), (partial, first, false), (own, first, false)]
        {
            prop_assert_eq!(allows(&moves, &[(Tensor::Difference, takes)], (Tensor::Average, gives)), allowed);
        }
    }

    /// A transition's collective changes the parts, but not the tensor that they form.
    #[test]
    fn transitions_keep_the_tensor(ranks in 2usize..5, seed in any::<u64>()) {
        let whole = Matrix::new(2 * ranks, 3 * ranks, seed);
        for (from, to) in LAYOUTS.into_iter().flat_map(|from| LAYOUTS.map(|to| (from, to))) {
            let Some(collective) = transition(from, to) else { continue };
            let parts = whole.placed(from, false, ranks).expect("an activation");
            let sum = || Matrix::joined(&parts, AxisLayout::Partial, false).expect("alike");
            let after = match collective {
                Some(Collective::AllReduce) => vec![sum(); ranks],
                Some(Collective::ReduceScatter) => sum().placed(to, false, ranks).expect("an activation"),
                Some(Collective::AllGather) => vec![Matrix::joined(&parts, from, false).expect("parts"); ranks],
                // Blocks move, and nothing is added.
                Some(Collective::AllToAll) => {
                    Matrix::joined(&parts, from, false).expect("parts").placed(to, false, ranks).expect("an activation")
                }
                None => parts[0].placed(to, false, ranks).expect("an activation"),
                other => panic!("{other:?} is none of these"),
            };
            prop_assert_eq!(Matrix::joined(&after, to, false), Some(whole.clone()), "{} to {}", from, to);
        }
    }
}
