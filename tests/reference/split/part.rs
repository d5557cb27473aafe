//! Computes the whole model on the samples of one worker or of one pass, layer by layer.

use lockstep_data::{Dataset, Sampler};
use lockstep_exec::ExecError;
use lockstep_exec::device::cpu::{ChainLayer, CrossEntropy, Draw, Kernel, Mode, Threads, add_into};
use lockstep_exec::init;
use lockstep_models::{
    AxisLayout, Buffer, Dimension, Exchange, Layer, LayerId, Model, Node, Pass, Piece, Program, Shape, ShardLayer,
    Sharding,
};
use lockstep_topology::{Algorithm, Collective, ExpressionId, Group, InputError, ReductionOrder, Schedule, check};

use super::rows::{Columns, Rows, parameters};
use super::{layer_of, own_id, range};

/// The kernels of a layer.
enum Work {
    Input,
    /// One kernel for all features.
    Whole(Kernel),
    /// A kernel for each rank's features.
    Split(Vec<Kernel>),
    /// A kernel for each rank's columns, and one for the bias.
    Columns(Vec<Kernel>, Option<Kernel>),
    Loss(CrossEntropy),
}

/// The gradient of a layer's output so far: a complete one, and summands of all ranks.
#[derive(Default)]
struct OutputGradient {
    whole: Option<Vec<f32>>,
    parts: Vec<Vec<f32>>,
}

/// The model with its values for some samples.
pub(super) struct Part<'a> {
    program: &'a Program,
    sharding: &'a Sharding,
    model: &'a Model,
    seed: u64,
    samples: usize,
    /// The algorithm that exchanges activations.
    algorithm: Algorithm,
    /// The reduction order of summands of all ranks, and by rank the sum that it gets.
    reduction_order: ReductionOrder,
    sums: Vec<ExpressionId>,
    works: Vec<Work>,
    outputs: Vec<Vec<f32>>,
    d_outputs: Vec<OutputGradient>,
    statistics: Vec<f32>,
    labels: Vec<u32>,
    /// Places of the samples among all since training began.
    places: Vec<u64>,
}

impl<'a> Part<'a> {
    /// For `samples` samples at once.
    ///
    /// # Errors
    /// An exchange that is not a correct sum.
    pub(super) fn new(
        program: &'a Program,
        sharding: &'a Sharding,
        samples: u32,
        seed: u64,
    ) -> Result<Part<'a>, ExecError> {
        let (model, ranks) = (&*sharding.whole, sharding.ranks);
        // One element per rank: the reduction order of a sum depends on the rank that gets it.
        let each = u64::from(ranks);
        let algorithm = of_activations(program);
        // An allreduce alone needs no reduce-scatter.
        let scatters =
            if algorithm.serves(&Collective::ReduceScatter) { algorithm.clone() } else { Algorithm::direct() };
        let schedule = Schedule::new(&Collective::ReduceScatter, &scatters, &Group::flat(ranks), each, 0)?;
        let reduction_order =
            check(&schedule).map_err(|fault| InputError::new("exchange", scatters.to_string(), fault.to_string()))?;
        let sums = reduction_order.ranges().flat_map(|(range, sum)| range.map(move |_| sum)).collect();
        let samples = samples as usize;
        let kernel =
            |layer: &Layer, inputs: &[Shape]| Kernel::new(&[ChainLayer { layer, inputs }], samples, &Threads::one());
        let work = |(id, node): (LayerId, &Node)| match &node.layer {
            layer if layer.is_input() => Work::Input,
            layer if layer.is_loss() => Work::Loss(CrossEntropy::new(layer, model.classes() as usize, samples)),
            layer if splits(sharding, id, node) => {
                let own = program.model.node(own_id(sharding, id));
                debug_assert!(own.layer.kind() == layer.kind() && own.input_shapes == node.input_shapes);
                Work::Split((0..ranks).map(|_| kernel(&own.layer, &own.input_shapes)).collect())
            }
            _ if sharding.weights(own_id(sharding, id)) == AxisLayout::Split(Dimension::Input) => {
                let own = program.model.node(own_id(sharding, id));
                let bias = node.parameters.get(1).map(|_| kernel(&Layer::Bias, &[node.output]));
                Work::Columns((0..ranks).map(|_| kernel(&own.layer, &own.input_shapes)).collect(), bias)
            }
            layer => Work::Whole(kernel(layer, &node.input_shapes)),
        };
        let works: Vec<Work> = model.iter().map(work).collect();
        let outputs = model.layers().iter().map(|node| vec![0.0; samples * node.output.elements() as usize]);
        Ok(Part {
            program,
            sharding,
            model,
            seed,
            samples,
            algorithm,
            reduction_order,
            sums,
            outputs: outputs.collect(),
            d_outputs: works.iter().map(|_| OutputGradient::default()).collect(),
            works,
            statistics: init::statistics(model),
            labels: vec![0; samples],
            places: Vec::new(),
        })
    }

    /// Loads a worker's samples of a micro-batch of a step.
    pub(super) fn load(&mut self, data: &Dataset, sampler: &Sampler, (step, repetition): (u64, u32), worker: u32) {
        let mut indices = Vec::new();
        let place = sampler.micro_batch(step, worker, repetition, &mut indices);
        data.draw(&indices, self.seed, place, &mut self.outputs[0], &mut self.labels).expect("samples are whole");
        self.places = (place..).take(indices.len()).collect();
    }

    /// Takes the workers' values in layer `id` for the samples of a pass.
    pub(super) fn take_samples(&mut self, id: LayerId, pass: &[Piece], workers: &[Part<'_>]) {
        let (mut output, size) = (Vec::new(), self.size(id));
        self.labels.clear();
        self.places.clear();
        for piece in pass {
            let (from, first) = (&workers[piece.worker as usize], piece.first as usize);
            let samples = first..first + piece.count as usize;
            output.extend_from_slice(&from.outputs[id.index()][samples.start * size..samples.end * size]);
            self.labels.extend_from_slice(&from.labels[samples.clone()]);
            self.places.extend_from_slice(&from.places[samples]);
        }
        self.outputs[id.index()] = output;
    }

    /// Returns the gradient of layer `id`, if there is one, to the workers that own the samples.
    pub(super) fn return_gradients(&mut self, id: LayerId, pass: &[Piece], workers: &mut [Part<'_>]) {
        let (d_output, size) = (std::mem::take(&mut self.d_outputs[id.index()]), self.size(id));
        let of_piece = |piece: &Piece| std::iter::repeat_n(piece.worker as usize, piece.count as usize);
        let owners: Vec<usize> = pass.iter().flat_map(of_piece).collect();
        let Some(gradient) = self.added_up(d_output, |element| owners[element / size]) else { return };
        let mut gradient = gradient.as_slice();
        for piece in pass {
            let (own, others) = gradient.split_at(piece.count as usize * size);
            let worker = &mut workers[piece.worker as usize];
            let all = worker.samples * size;
            let whole = worker.d_outputs[id.index()].whole.get_or_insert_with(|| vec![0.0; all]);
            whole[piece.first as usize * size..][..own.len()].copy_from_slice(own);
            gradient = others;
        }
    }

    /// Elements of a sample in a layer's output.
    fn size(&self, id: LayerId) -> usize {
        self.model.node(id).output.elements() as usize
    }

    /// A layer's output from those of its inputs.
    pub(super) fn forward(&mut self, id: LayerId, weights: &[f32]) {
        let node = self.model.node(id);
        let mut output = std::mem::take(&mut self.outputs[id.index()]);
        let inputs: Vec<&[f32]> = node.inputs.iter().map(|input| self.outputs[input.index()].as_slice()).collect();
        match &mut self.works[id.index()] {
            Work::Input => {}
            Work::Loss(loss) => {
                loss.forward(inputs[0], &self.labels);
            }
            Work::Whole(kernel) => {
                let statistics = node.statistics.clone().unwrap_or(0..0);
                let statistics = &mut self.statistics[statistics.start as usize..statistics.end as usize];
                kernel.draw(
                    Draw { seed: self.seed, layer: id.0, first: 0, offset: 0, entry: 0, row: 0, skipped: 0 },
                    &self.places,
                );
                kernel.forward(Mode::Train, &inputs, &weights[parameters(node)], statistics, &mut output);
            }
            Work::Split(kernels) => {
                let rows = Rows::of(node, self.program.model.node(own_id(self.sharding, id)));
                for (rank, kernel) in kernels.iter_mut().enumerate() {
                    let mut of_rank = vec![0.0; self.samples * rows.each * rows.plane];
                    kernel.forward(Mode::Train, &inputs, &rows.weights(weights, rank), &mut [], &mut of_rank);
                    rows.join(&of_rank, rank, &mut output);
                }
            }
            Work::Columns(kernels, bias) => {
                let columns = Columns::of(node, self.program.model.node(own_id(self.sharding, id)));
                let part = |(rank, kernel): (usize, &mut Kernel)| {
                    let (input, own) = (columns.cut(inputs[0], rank), columns.weights(weights, rank));
                    let mut of_rank = vec![0.0; output.len()];
                    kernel.forward(Mode::Train, &[&input], &own, &mut [], &mut of_rank);
                    of_rank
                };
                let parts: Vec<Vec<f32>> = kernels.iter_mut().enumerate().map(part).collect();
                output = all_reduced(&self.algorithm, &parts);
                if let Some(bias) = bias {
                    let (sum, bias_of) = (output.clone(), range(&node.parameters[1]));
                    bias.forward(Mode::Train, &[&sum], &weights[bias_of], &mut [], &mut output);
                }
            }
        }
        self.outputs[id.index()] = output;
    }

    /// Adds the gradients of a layer's inputs to those so far, and that of its parameters to `gradient`.
    pub(super) fn backward(&mut self, id: LayerId, weights: &[f32], scale: f32, gradient: &mut [f32]) {
        let (node, d_output) = (self.model.node(id), std::mem::take(&mut self.d_outputs[id.index()]));
        let mut work = std::mem::replace(&mut self.works[id.index()], Work::Input);
        let inputs: Vec<&[f32]> = node.inputs.iter().map(|input| self.outputs[input.index()].as_slice()).collect();
        let output = self.outputs[id.index()].as_slice();
        let wanted = self.model.needs_input_gradient(id);
        let mut found: Vec<OutputGradient> = Vec::new();
        match &mut work {
            Work::Input => {}
            Work::Loss(loss) => {
                let mut whole = vec![0.0; inputs[0].len()];
                loss.backward(scale * node.loss_weight, &mut whole, false);
                found.push(OutputGradient { whole: Some(whole), parts: Vec::new() });
            }
            Work::Whole(kernel) => {
                let values = Values { inputs: &inputs, output, weights: &weights[parameters(node)], wanted };
                if layer_of(self.sharding, id).gradient.on(self.sharding.axis) == AxisLayout::Partial {
                    // Inputs that every rank has in full, each with a summand of the gradient.
                    found.resize_with(inputs.len(), OutputGradient::default);
                    for part in &d_output.parts {
                        let of_rank = values.back(kernel, part, &mut []);
                        found.iter_mut().zip(of_rank).for_each(|(d_output, part)| d_output.parts.push(part));
                    }
                } else if let Some(sum) = self.sum(id, d_output) {
                    let of_inputs = values.back(kernel, &sum, &mut gradient[parameters(node)]);
                    found.extend(
                        of_inputs.into_iter().map(|whole| OutputGradient { whole: Some(whole), parts: Vec::new() }),
                    );
                }
            }
            Work::Split(kernels) => {
                let rows = Rows::of(node, self.program.model.node(own_id(self.sharding, id)));
                found.push(OutputGradient::default());
                let sum = self.sum(id, d_output).unwrap_or_default();
                for (rank, kernel) in kernels.iter_mut().enumerate() {
                    let (own, output) = (rows.weights(weights, rank), rows.cut(output, rank));
                    let values = Values { inputs: &inputs, output: &output, weights: &own, wanted };
                    let mut of_rank = vec![0.0; own.len()];
                    found[0].parts.extend(values.back(kernel, &rows.cut(&sum, rank), &mut of_rank));
                    rows.put_weights(&of_rank, rank, gradient);
                }
            }
            Work::Columns(kernels, bias) => {
                let columns = Columns::of(node, self.program.model.node(own_id(self.sharding, id)));
                let d_output = self.sum(id, d_output).expect("its output is used");
                if let Some(bias) = bias {
                    let of_bias = Some((&mut gradient[range(&node.parameters[1])], false));
                    bias.backward(&[output], output, &weights[range(&node.parameters[1])], &d_output, &mut [], of_bias);
                }
                let mut d_input = vec![0.0; inputs[0].len()];
                for (rank, kernel) in kernels.iter_mut().enumerate() {
                    let (input, own) = (columns.cut(inputs[0], rank), columns.weights(weights, rank));
                    let values = Values { inputs: &[&input], output, weights: &own, wanted };
                    let mut of_rank = vec![0.0; own.len()];
                    for of_input in values.back(kernel, &d_output, &mut of_rank) {
                        columns.join(&of_input, rank, &mut d_input);
                    }
                    columns.put_weights(&of_rank, rank, gradient);
                }
                found.push(OutputGradient { whole: wanted.then_some(d_input), parts: Vec::new() });
            }
        }
        self.works[id.index()] = work;
        for (input, found) in node.inputs.iter().zip(found) {
            self.d_outputs[input.index()].add(found);
        }
    }

    /// The gradient of a layer's output where each rank needs that of its own features.
    fn sum(&self, id: LayerId, d_output: OutputGradient) -> Option<Vec<f32>> {
        let summed = (AxisLayout::Partial, AxisLayout::Replicated);
        let returns = |(at, layer): (u32, &ShardLayer)| {
            let change = self.sharding.change(&self.program.model, LayerId(at), Pass::BackwardData);
            layer.origin == id && change == Some(summed)
        };
        if (0..).zip(&self.sharding.layers).any(returns) && !d_output.parts.is_empty() {
            let mut sum = all_reduced(&self.algorithm, &d_output.parts);
            d_output.whole.iter().for_each(|whole| add_into(&mut sum, whole));
            return Some(sum);
        }
        let plane = self.model.node(id).output.places();
        let own = self.program.model.node(own_id(self.sharding, id)).output.features();
        let (size, features) = (self.size(id), own as usize * plane as usize);
        self.added_up(d_output, |element| element % size / features)
    }

    /// A gradient whose summands are added as by the rank that gets the element.
    fn added_up(&self, d_output: OutputGradient, owner: impl Fn(usize) -> usize) -> Option<Vec<f32>> {
        let OutputGradient { whole, parts } = d_output;
        let Some(first) = parts.first() else { return whole };
        let element = |at: usize| {
            let sum = self.reduction_order.fold(self.sums[owner(at)], |rank| parts[rank as usize][at], |a, b| a + b);
            whole.as_ref().map_or(sum, |whole| sum + whole[at])
        };
        Some((0..first.len()).map(element).collect())
    }
}

impl OutputGradient {
    fn add(&mut self, other: OutputGradient) {
        match (&mut self.whole, other.whole) {
            (Some(sum), Some(more)) => add_into(sum, &more),
            (whole, more) => *whole = whole.take().or(more),
        }
        if self.parts.is_empty() {
            self.parts = other.parts;
        } else {
            self.parts.iter_mut().zip(&other.parts).for_each(|(sum, more)| add_into(sum, more));
        }
    }
}

/// The values that a kernel reads in its backward pass.
struct Values<'a> {
    inputs: &'a [&'a [f32]],
    output: &'a [f32],
    weights: &'a [f32],
    /// Whether its inputs need gradients.
    wanted: bool,
}

impl Values<'_> {
    /// The gradients of a kernel's inputs, empty if not needed; that of its parameters replaces `of_weights`.
    fn back(&self, kernel: &mut Kernel, d_output: &[f32], of_weights: &mut [f32]) -> Vec<Vec<f32>> {
        if !of_weights.is_empty() {
            let gradient = Some((of_weights, false));
            kernel.backward(self.inputs, self.output, self.weights, d_output, &mut [], gradient);
        }
        if !self.wanted {
            return Vec::new();
        }
        let mut found: Vec<Vec<f32>> = self.inputs.iter().map(|input| vec![0.0; input.len()]).collect();
        let mut d_inputs: Vec<_> = found.iter_mut().map(|input| Some((input.as_mut_slice(), false))).collect();
        kernel.backward(self.inputs, self.output, self.weights, d_output, &mut d_inputs, None);
        found
    }
}

/// The algorithm of exchanges of activations; direct where there are none.
fn of_activations(program: &Program) -> Algorithm {
    let mut exchanges = program.roles.iter().flat_map(|role| role.exchanges().map(|(_, exchange)| exchange));
    let is_one = |exchange: &&Exchange| matches!(exchange.buffer, Buffer::Declared(_)) && exchange.between.is_none();
    exchanges.find(is_one).map_or_else(Algorithm::direct, |exchange| exchange.algorithm.clone())
}

/// The sum over all ranks, as every rank gets it.
fn all_reduced(algorithm: &Algorithm, parts: &[Vec<f32>]) -> Vec<f32> {
    let (group, elements) = (Group::flat(parts.len() as u32), parts[0].len() as u64);
    let schedule = Schedule::new(&Collective::AllReduce, algorithm, &group, elements, 0).expect("it serves");
    let reduction_order = check(&schedule).expect("it is proven");
    let mut sum = vec![0.0; parts[0].len()];
    for (range, expression) in reduction_order.ranges() {
        for at in range.start as usize..range.end as usize {
            sum[at] = reduction_order.fold(expression, |rank| parts[rank as usize][at], |a, b| a + b);
        }
    }
    sum
}

/// Whether each rank has rows of a layer's parameters.
fn splits(sharding: &Sharding, id: LayerId, node: &Node) -> bool {
    node.is_product() && sharding.splits(own_id(sharding, id))
}
