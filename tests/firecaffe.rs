//! Tests the requirements of Iandola et al. 2016, §6, on aggregation: sums, one exchange after the backward pass, a
//! server that only serves or a tree, and the results of one rank.

use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::device::cpu::{ChainLayer, Kernel, Mode, Threads};
use lockstep_exec::{RunOptions, run};
use lockstep_models::{Bucket, Conv2d, Dense, Job, Layer, Model, Op, Optimizer, Pass, Phase, Program, Shape};

use crate::reference;

/// A convolution and AlexNet's other kinds of layers, small.
fn model(dropout: bool) -> Arc<Model> {
    let drop = if dropout { "{ kind = \"dropout\" }," } else { "" };
    let text = format!(
        "name = \"small\"\ninput = [3, 8, 8]\nlayer = [\n\
         {{ kind = \"conv2d\", out_channels = 8, kernel = 3 }},\n{{ kind = \"relu\" }},\n\
         {{ kind = \"local_response_norm\", alpha = 0.1 }},\n{{ kind = \"max_pool\", kernel = 2 }},\n\
         {{ kind = \"dense\", out_features = 16 }},\n{{ kind = \"relu\" }},\n{drop}\n\
         {{ kind = \"dense\", out_features = 5 }},\n{{ kind = \"logistic_cross_entropy\" }},\n]\n"
    );
    Arc::new(lockstep_readers::parse_model("small.toml", &text).unwrap())
}

fn program(algorithm: &str, workers: u32, dropout: bool) -> Program {
    let algorithm = algorithm.parse().unwrap();
    Job { bucket: Bucket::Whole, algorithm, ..Job::new(model(dropout), workers, 4) }.program().unwrap()
}

const METHODS: [&str; 4] = ["parameter-server:1:dedicated", "parameter-server:1", "binomial-tree", "tree:2"];

/// §6 and FAQ 6: the sum over the batch gives the numbers of one rank, and a seed gives the same bits again; here with
/// dropout too, which the paper's one-GPU equality leaves out.
#[test]
fn aggregation_gives_the_results_of_one_rank() {
    for method in METHODS {
        for (workers, dropout) in [(2, false), (5, false), (4, true)] {
            let program = program(method, workers, dropout);
            let (data, _) = Dataset::load("synthetic:200", &program.model).unwrap();
            let optimizer = Optimizer { weight_decay: 5e-4, ..Optimizer::default() };
            let options = || RunOptions { steps: 4, seed: 3, optimizer: optimizer.clone(), ..RunOptions::default() };
            let (one, again) = (run(&program, &data, &options()).unwrap(), run(&program, &data, &options()).unwrap());
            assert_eq!(one.state_sha256, again.state_sha256, "{method}");
            let alone = reference::train(&program, &data, 4, 3, &optimizer).unwrap();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            assert_eq!(bits(&one.parameters), bits(&alone), "{method} with {workers}");
        }
    }
}

/// §6: one exchange, which waits for the last backward task, without overlap.
#[test]
fn the_exchange_follows_the_whole_backward_pass() {
    for method in METHODS {
        let program = program(method, 4, false);
        let worker = &program.roles[0];
        let backward = |op: &Op| matches!(op, Op::Compute { phase, .. } if *phase != Phase::Forward);
        let last = worker.tasks.iter().rposition(|task| backward(&task.op)).unwrap();
        let exchanges: Vec<usize> = worker.exchanges().map(|(id, _)| id).collect();
        assert_eq!(exchanges.len(), 1);
        assert!(worker.tasks[exchanges[0]].after.iter().any(|after| after.task == last && after.lag == 0), "{method}");
    }
}

/// Tensor by tensor: every exchange waits for the last backward task, and training still equals that of one rank.
#[test]
fn tensors_are_exchanged_one_by_one_after_the_backward_pass() {
    for method in METHODS {
        let algorithm = method.parse().unwrap();
        let bucket = Bucket::Tensor;
        let job = Job { bucket, algorithm, concurrent_exchanges: 3, ..Job::new(model(false), 3, 4) };
        let program = job.program().unwrap();
        let worker = &program.roles[0];
        let last = worker.tasks.iter().rposition(|task| matches!(task.op, Op::Compute { .. })).unwrap();
        let tensors: usize = program.model.layers().iter().map(|node| node.parameters.len()).sum();
        assert_eq!(worker.exchanges().count(), tensors);
        for (id, _) in worker.exchanges() {
            assert!(worker.tasks[id].after.iter().any(|after| after.task == last && after.lag == 0), "{method}");
        }
        let (data, _) = Dataset::load("synthetic:200", &program.model).unwrap();
        let optimizer = Optimizer { weight_decay: 5e-4, ..Optimizer::default() };
        let options = RunOptions { steps: 4, seed: 3, optimizer: optimizer.clone(), ..RunOptions::default() };
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let alone = reference::train(&program, &data, 4, 3, &optimizer).unwrap();
        assert_eq!(bits(&run(&program, &data, &options).unwrap().parameters), bits(&alone), "{method}");
    }
}

/// §6.1: a dedicated server sums and sends back; workers apply the update themselves.
#[test]
fn a_dedicated_server_only_serves() {
    let program = program("parameter-server:1:dedicated", 3, false);
    assert_eq!((program.ranks(), program.workers(), program.roles.len()), (4, 3, 2));
    assert!(program.roles[1].tasks.iter().all(|task| matches!(task.op, Op::Exchange(_))));
    let updates = program.roles[0].tasks.iter().filter(|task| task.op.update().is_some());
    assert_eq!(updates.count(), 1);
    // Eq. 3: p times the weights are sent to the server, and as many are sent back.
    let (data, _) = Dataset::load("synthetic:200", &program.model).unwrap();
    let traffic = run(&program, &data, &RunOptions { steps: 2, ..RunOptions::default() }).unwrap().traffic;
    let weights = program.model.parameter_elements() * 4;
    for (worker, sent) in traffic[..3].iter().enumerate() {
        assert_eq!((sent[3].bytes, traffic[3][worker].bytes), (2 * weights, 2 * weights));
        assert!(sent[..3].iter().all(|to_workers| to_workers.bytes == 0));
    }
}

/// §3: a dense layer is a convolution whose filter is as large as its input: the same weights, work and outputs.
#[test]
fn a_dense_layer_is_a_convolution_as_large_as_its_input() {
    let input = Shape::of_image(3, 4, 5);
    let (kernel, once, none) = ((4, 5), (1, 1), (0, 0));
    let convolution =
        Conv2d { out_channels: 7, kernel, stride: once, padding: none, dilation: once, groups: 1, bias: true };
    let layers = [Layer::Dense(Dense { out_features: 7, bias: true }), Layer::Conv2d(convolution)];
    let (samples, shapes) = (2, [input]);
    let values = |count: usize| -> Vec<f32> { (0..count).map(|i| ((i * 29) % 31) as f32 / 31.0 - 0.5).collect() };
    let (x, w) = (values(samples * 60), values(7 * 60 + 7));
    let outputs = layers.each_ref().map(|layer| {
        let mut kernel = Kernel::new(&[ChainLayer { layer, inputs: &shapes }], samples, &Threads::one());
        let mut output = vec![0.0; samples * 7];
        kernel.forward(Mode::Evaluate, &[&x], &w, &mut [], &mut output);
        output
    });
    assert!(outputs[0].iter().zip(&outputs[1]).all(|(a, b)| (a - b).abs() < 1e-5), "{outputs:?}");
    let of = |layer: &str| {
        let text =
            format!("name = \"m\"\ninput = [3, 4, 5]\nlayer = [{{ {layer} }}, {{ kind = \"softmax_cross_entropy\" }}]");
        let model = lockstep_readers::parse_model("m.toml", &text).unwrap();
        let work =
            [Pass::Forward, Pass::BackwardData, Pass::BackwardWeight].map(|pass| model.layers()[1].work(pass, 8));
        (model.parameter_elements(), work)
    };
    let dense = of("kind = \"dense\", out_features = 7");
    assert_eq!(dense, of("kind = \"conv2d\", out_channels = 7, kernel = [4, 5]"));
    assert_eq!(dense.0, 427);
}
