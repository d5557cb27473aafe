//! Runs single layers and whole models on tensors from standard input, so that another program can compare its own with
//! them.
//!
//! `cargo run --release -p lockstep-benches --bin kernel_server -- MODEL SAMPLES [THREADS]` answers commands, each a
//! line followed by tensors: 32-bit numbers, little-endian, without headers, since both sides know their sizes from
//! `describe`. `tests/pytorch/agree.py` is such a program. Dropout is off: it passes everything.
//!
//! | command | reads | writes |
//! |---|---|---|
//! | `describe` | | one line of JSON: the layers with their attributes, shapes and parameters |
//! | `parameters` | | all learnable parameters as drawn with seed 1; every later command computes with them |
//! | `layer I` | the layer's inputs, then the gradient of its output; of a loss: its input, labels (`u32`) | its output, the gradient of each input, of its parameters, running statistics; of a loss: the gradients of its input and parameters |
//! | `step` | images or tokens (`u32`), labels (`u32`) | scores of the last loss, the gradient of all parameters; fused as `exec run` does |
//! | `outputs` | images | the output of each layer but input and losses, not fused; to the bit those that `step` goes through |

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::sync::Arc;

use lockstep_exec::device::cpu::{ChainLayer, CrossEntropy, Kernel, LinearCrossEntropy, Mode, Threads, Workspace};
use lockstep_exec::init;
use lockstep_models::{Dropout, Job, Layer, LayerId, Model, Node, Shape};
use lockstep_topology::Dtype;
use serde_json::{Map, Value, json};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A chain of layers with its tensors.
struct Stage {
    work: Work,
    inputs: Vec<LayerId>,
    output: LayerId,
    parameters: std::ops::Range<usize>,
    statistics: std::ops::Range<usize>,
}

enum Work {
    Kernel(Kernel),
    /// With its weight in the sum of losses.
    Loss(CrossEntropy, f32),
    LinearLoss(LinearCrossEntropy, f32),
}

impl Work {
    /// The forward pass of a loss.
    fn loss(&mut self, input: &[f32], labels: &[u32]) {
        match self {
            Work::Kernel(_) => {}
            Work::Loss(loss, _) => drop(loss.forward(input, labels)),
            Work::LinearLoss(loss, _) => loss.take_labels(labels),
        }
    }

    /// The gradients of a loss, as [`Kernel::backward`] gives others.
    fn loss_gradients(
        &mut self,
        scale: f32,
        (input, parameters): (&[f32], &[f32]),
        (d_input, adds): (&mut [f32], bool),
        d_parameters: &mut [f32],
    ) {
        match self {
            Work::Kernel(_) => {}
            Work::Loss(loss, weight) => loss.backward(*weight * scale, d_input, adds),
            Work::LinearLoss(loss, weight) => {
                let (d_input, d_parameters) = (Some((d_input, adds)), Some((d_parameters, false)));
                loss.backward(*weight * scale, (input, parameters), d_input, d_parameters, &mut Workspace::default());
            }
        }
    }
}

struct Server {
    model: Arc<Model>,
    samples: usize,
    threads: Threads,
    parameters: Vec<f32>,
    /// The fused chains.
    chains: Vec<Vec<LayerId>>,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, samples, rest @ ..] = &arguments[..] else {
        return Err("usage: kernel_server MODEL SAMPLES [THREADS]".into());
    };
    let threads = Threads::new(rest.first().map_or(Ok(1), |count| count.parse())?)?;
    let server = Server::new(lockstep_readers::load_model(name)?, samples.parse()?, threads)?;
    let (mut from, mut to) = (BufReader::new(std::io::stdin().lock()), BufWriter::new(std::io::stdout().lock()));
    let mut line = String::new();
    while from.read_line(&mut line)? > 0 {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["describe"] => writeln!(to, "{}", server.describe())?,
            ["parameters"] => write(&mut to, &server.parameters)?,
            ["layer", index] => server.layer(LayerId(index.parse()?), &mut from, &mut to)?,
            ["step"] => server.step(&mut from, &mut to)?,
            ["outputs"] => server.outputs(&mut from, &mut to)?,
            _ => return Err(format!("no command {line:?}").into()),
        }
        to.flush()?;
        line.clear();
    }
    Ok(())
}

impl Server {
    fn new(model: Model, samples: usize, threads: Threads) -> Outcome<Server> {
        let model = Arc::new(model);
        let chains = Job::new(model.clone(), 1, samples as u32).program()?.chains;
        let parameters = init::parameters(&model, 1);
        Ok(Server { model, samples, threads, parameters, chains })
    }

    fn describe(&self) -> Value {
        let layers: Vec<Value> = self.model.layers().iter().map(describe).collect();
        json!({ "name": self.model.name(), "samples": self.samples, "parameters": self.parameters.len(), "layers": layers })
    }

    fn size(&self, id: LayerId) -> usize {
        self.samples * self.model.node(id).output.elements() as usize
    }

    fn labels(&self, from: &mut impl Read) -> Outcome<Vec<u32>> {
        let each = self.model.labels().map_or(1, |labels| labels.elements() as usize);
        Ok(read(from, self.samples * each)?.into_iter().map(f32::to_bits).collect())
    }

    /// Gives a kernel the tokens among its inputs, which are then none of its tensors.
    fn tensors<'a>(&self, kernel: &mut Kernel, inputs: &[LayerId], values: &[&'a [f32]]) -> Vec<&'a [f32]> {
        let is_tokens = |id: &LayerId| *id == LayerId(0) && self.model.sample().dtype.is_integer();
        let all = inputs.iter().zip(values);
        all.map(|(id, values)| {
            if is_tokens(id) {
                let bytes: Vec<u8> = values.iter().flat_map(|token| token.to_le_bytes()).collect();
                kernel.take_integers(&bytes, Dtype::U32);
            }
            if is_tokens(id) { &[][..] } else { *values }
        })
        .collect()
    }

    /// A kernel for `layers`, or their loss.
    fn stage(&self, layers: &[LayerId]) -> Stage {
        let nodes: Vec<&Node> = layers.iter().map(|id| self.model.node(*id)).collect();
        let kinds: Vec<Layer> = nodes.iter().map(|node| without_dropout(&node.layer)).collect();
        let members: Vec<ChainLayer<'_>> =
            kinds.iter().zip(&nodes).map(|(layer, node)| ChainLayer { layer, inputs: &node.input_shapes }).collect();
        let (shape, weight) = (nodes[0].input_shapes[0], nodes[0].loss_weight);
        let (features, each) =
            (shape.features() as usize, nodes[0].labels().map_or(1, |labels| labels.elements() as usize));
        let work = match &nodes[0].layer {
            Layer::LinearCrossEntropy(layer) => {
                Work::LinearLoss(LinearCrossEntropy::new(layer, features, each, &self.threads), weight)
            }
            layer if layer.is_loss() => {
                Work::Loss(CrossEntropy::of_labels(layer, self.model.classes() as usize, self.samples, each), weight)
            }
            _ => Work::Kernel(Kernel::new(&members, self.samples, &self.threads)),
        };
        let span = |ranges: Vec<&std::ops::Range<u64>>| match (ranges.first(), ranges.last()) {
            (Some(first), Some(last)) => first.start as usize..last.end as usize,
            _ => 0..0,
        };
        Stage {
            work,
            inputs: nodes[0].inputs.clone(),
            output: layers[layers.len() - 1],
            parameters: span(
                layers.iter().flat_map(|id| self.model.parameters_read_by(*id)).map(|of| &of.range).collect(),
            ),
            statistics: span(nodes.iter().filter_map(|node| node.statistics.as_ref()).collect()),
        }
    }

    fn layer(&self, id: LayerId, from: &mut impl Read, to: &mut impl Write) -> Outcome<()> {
        let mut stage = self.stage(&[id]);
        let inputs: Vec<Vec<f32>> =
            stage.inputs.iter().map(|input| read(from, self.size(*input))).collect::<Outcome<_>>()?;
        let inputs: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
        let mut d_inputs: Vec<Vec<f32>> = inputs.iter().map(|input| vec![f32::NAN; input.len()]).collect();
        let parameters = &self.parameters[stage.parameters.clone()];
        let mut d_parameters = vec![f32::NAN; parameters.len()];
        match &mut stage.work {
            work @ (Work::Loss(..) | Work::LinearLoss(..)) => {
                work.loss(inputs[0], &self.labels(from)?);
                let (scale, of) = (1.0 / self.samples as f32, (inputs[0], parameters));
                work.loss_gradients(scale, of, (&mut d_inputs[0], false), &mut d_parameters);
                write(to, &d_inputs[0])?;
                write(to, &d_parameters)
            }
            Work::Kernel(kernel) => {
                let inputs = self.tensors(kernel, &stage.inputs, &inputs);
                for (d_input, input) in d_inputs.iter_mut().zip(&inputs) {
                    d_input.truncate(input.len());
                }
                let d_output = read(from, self.size(id))?;
                let mut output = vec![f32::NAN; self.size(id)];
                let mut statistics = init::statistics(&self.model)[stage.statistics].to_vec();
                kernel.forward(Mode::Train, &inputs, parameters, &mut statistics, &mut output);
                let mut wanted: Vec<_> = d_inputs.iter_mut().map(|d| Some((d.as_mut_slice(), false))).collect();
                let gradients = Some((&mut d_parameters[..], false));
                kernel.backward(&inputs, &output, parameters, &d_output, &mut wanted, gradients);
                write(to, &output)?;
                d_inputs.iter().try_for_each(|d_input| write(to, d_input))?;
                write(to, &d_parameters)?;
                write(to, &statistics)
            }
        }
    }

    fn outputs(&self, from: &mut impl Read, to: &mut impl Write) -> Outcome<()> {
        let mut outputs = vec![read(from, self.size(LayerId(0)))?];
        for (id, node) in self.model.iter().skip(1) {
            let mut output = vec![f32::NAN; if node.layer.is_loss() { 0 } else { self.size(id) }];
            let mut stage = self.stage(&[id]);
            if let Work::Kernel(kernel) = &mut stage.work {
                let inputs: Vec<&[f32]> = node.inputs.iter().map(|input| outputs[input.index()].as_slice()).collect();
                let inputs = self.tensors(kernel, &node.inputs, &inputs);
                let mut statistics = init::statistics(&self.model)[stage.statistics].to_vec();
                kernel.forward(Mode::Train, &inputs, &self.parameters[stage.parameters], &mut statistics, &mut output);
                write(to, &output)?;
            }
            outputs.push(output);
        }
        Ok(())
    }

    fn step(&self, from: &mut impl Read, to: &mut impl Write) -> Outcome<()> {
        let mut stages: Vec<Stage> = self.chains.iter().map(|chain| self.stage(chain)).collect();
        let mut outputs = vec![Vec::new(); self.model.layers().len()];
        outputs[0] = read(from, self.size(LayerId(0)))?;
        let labels = self.labels(from)?;
        let mut statistics = init::statistics(&self.model);
        for stage in &mut stages {
            let inputs: Vec<&[f32]> = stage.inputs.iter().map(|input| outputs[input.index()].as_slice()).collect();
            match &mut stage.work {
                work @ (Work::Loss(..) | Work::LinearLoss(..)) => {
                    work.loss(inputs[0], &labels);
                }
                Work::Kernel(kernel) => {
                    let inputs = self.tensors(kernel, &stage.inputs, &inputs);
                    let mut output = vec![f32::NAN; self.size(stage.output)];
                    let statistics = &mut statistics[stage.statistics.clone()];
                    kernel.forward(
                        Mode::Train,
                        &inputs,
                        &self.parameters[stage.parameters.clone()],
                        statistics,
                        &mut output,
                    );
                    outputs[stage.output.index()] = output;
                }
            }
        }
        let scores = stages.last().map_or(&[][..], |stage| &outputs[stage.inputs[0].index()]);
        write(to, scores)?;
        let mut d_outputs: Vec<Vec<f32>> = vec![Vec::new(); outputs.len()];
        let mut gradient = vec![f32::NAN; self.parameters.len()];
        for stage in stages.iter_mut().rev() {
            let d_output = std::mem::take(&mut d_outputs[stage.output.index()]);
            let mut d_inputs: Vec<Vec<f32>> = Vec::new();
            let mut written = Vec::new();
            for input in &stage.inputs {
                let d_input = std::mem::take(&mut d_outputs[input.index()]);
                written.push(!d_input.is_empty());
                d_inputs.push(if d_input.is_empty() { vec![f32::NAN; self.size(*input)] } else { d_input });
            }
            let inputs: Vec<&[f32]> = stage.inputs.iter().map(|input| outputs[input.index()].as_slice()).collect();
            let (parameters, d_parameters) =
                (&self.parameters[stage.parameters.clone()], &mut gradient[stage.parameters.clone()]);
            match &mut stage.work {
                work @ (Work::Loss(..) | Work::LinearLoss(..)) => {
                    let (scale, of) = (1.0 / self.samples as f32, (inputs[0], parameters));
                    work.loss_gradients(scale, of, (&mut d_inputs[0], written[0]), d_parameters);
                }
                Work::Kernel(kernel) => {
                    let inputs = self.tensors(kernel, &stage.inputs, &inputs);
                    let with_flag = d_inputs.iter_mut().zip(&written);
                    let mut wanted: Vec<_> = with_flag.map(|(d, adds)| Some((d.as_mut_slice(), *adds))).collect();
                    let output = &outputs[stage.output.index()];
                    // The reader of a parameter of two layers has written its summand.
                    let adds = self.model.tie().is_some_and(|tie| tie.owner == stage.output);
                    kernel.backward(&inputs, output, parameters, &d_output, &mut wanted, Some((d_parameters, adds)));
                }
            }
            for (input, d_input) in stage.inputs.iter().zip(d_inputs) {
                d_outputs[input.index()] = d_input;
            }
        }
        write(to, &gradient)
    }
}

/// The layer, with dropout turned off.
fn without_dropout(layer: &Layer) -> Layer {
    if let Layer::Dropout(_) = layer { Layer::Dropout(Dropout { rate: 0.0 }) } else { layer.clone() }
}

/// The description from which another program builds the same layer.
fn describe(node: &Node) -> Value {
    let shape = |shape: &Shape| match shape.as_image() {
        Some(image) => json!([image.channels, image.height, image.width]),
        None => json!(shape.sizes().collect::<Vec<_>>()),
    };
    let mut all = Map::new();
    let mut say = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    say("name", json!(node.name));
    say("kind", json!(node.layer.kind()));
    say("inputs", json!(node.inputs.iter().map(|input| input.0).collect::<Vec<_>>()));
    say("output", shape(&node.output));
    say("settings", json!(node.layer.to_string()));
    say("tied_to", json!(node.tied_to.map(|owner| owner.0)));
    let parameters = node
        .parameters
        .iter()
        .map(|parameter| json!({ "name": parameter.name, "dims": parameter.shape.sizes().collect::<Vec<_>>() }));
    say("parameters", parameters.collect());
    match &node.layer {
        Layer::Conv2d(conv) => {
            say("stride", json!(conv.stride));
            say("padding", json!(conv.padding));
            say("dilation", json!(conv.dilation));
            say("groups", json!(conv.groups));
        }
        Layer::BatchNorm(norm) => {
            say("epsilon", json!(norm.epsilon));
            say("momentum", json!(norm.momentum));
        }
        Layer::LocalResponseNorm(norm) => {
            say("size", json!(norm.size));
            say("alpha", json!(norm.alpha));
            say("beta", json!(norm.beta));
            say("k", json!(norm.k));
        }
        Layer::Pool2d(pool) => {
            say("kernel", json!(pool.kernel));
            say("stride", json!(pool.stride));
            say("padding", json!(pool.padding));
            say("ceil", json!(pool.ceil));
        }
        layer if layer.is_loss() => say("weight", json!(node.loss_weight)),
        _ => {}
    }
    Value::Object(all)
}

fn read(from: &mut impl Read, count: usize) -> Outcome<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    from.read_exact(&mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect())
}

fn write(to: &mut impl Write, values: &[f32]) -> Outcome<()> {
    Ok(values.iter().try_for_each(|value| to.write_all(&value.to_le_bytes()))?)
}
