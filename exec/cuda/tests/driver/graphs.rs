//! Tests that repeating lists are captured and launched as graphs with the same results.

use lockstep_cuda::driver::{Counts, GpuMemory, Graphs, WorkspaceLimits};
use lockstep_cuda::{Command, ConvolutionPass, Convolve, KernelLaunch, Multiply, Scalar, View, ViewMut, table};
use lockstep_models::{Buffer, Coefficient, Formula, Operand, Precision, SgdStep};

use crate::bench::{Bench, pointwise};
use crate::scene;

/// Executes a list whose tensors stay alive until the caller has read them.
fn play(graphs: &mut Graphs, commands: &[Command]) {
    // SAFETY: the tensors are on the device, with the sizes in the commands, and are read after this.
    unsafe { graphs.play(commands) }.expect("the commands are right");
}

/// A 1×1 convolution of `size` samples, whose filters' gradient needs a workspace.
fn convolve(left: &GpuMemory, right: &GpuMemory, result: &GpuMemory, size: u32, channels: u32) -> Command {
    let of = pointwise(size, channels, Precision::F32);
    let (left, right, result) = (left.address(), right.address(), result.address());
    let pass = ConvolutionPass::BackwardWeight;
    Command::Convolve(Convolve { of, pass, left, right, result, bias: None, rectified: false, accumulate: true })
}

/// A list of all kinds of commands that accumulates, so that each execution counts.
#[test]
fn a_graph_gives_the_results_of_its_list() {
    scene("graphs::a_graph_gives_the_results_of_its_list", &[], |_, places| {
        let bench = Bench::open(&places);
        let (x, ones, sum) = (bench.floats(&[3.0; 4]), bench.floats(&[1.0; 4]), bench.floats(&[0.0; 4]));
        let (product, gradient) = (bench.floats(&[0.0; 16]), bench.floats(&[0.0; 16]));
        let y = ViewMut::<f32>::new(sum.address(), 4);
        let add = table::Add { a: y.view(), b: View::new(ones.address(), 4), y, elements: 4, rectified: false };
        let multiply = Multiply {
            rows: 4,
            columns: 4,
            depth: 1,
            a: x.address(),
            transposed_a: false,
            b: ones.address(),
            transposed_b: false,
            c: product.address(),
            result: Scalar::F32,
            bias: None,
            rectified: false,
            accumulate: true,
            precision: Precision::F32,
        };
        let list = [
            Command::Zero { address: x.address(), bytes: 4 },
            Command::Launch(add.call()),
            Command::Multiply(multiply),
            convolve(&x, &ones, &gradient, 1, 4),
        ];
        for on in [true, false] {
            for memory in [&sum, &product, &gradient] {
                bench.stream.write(memory, 0, &vec![0; memory.bytes() as usize]).expect("a copy");
            }
            let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), on, 1);
            (0..5).for_each(|_| play(&mut graphs, &list));
            let counts = Counts { eager: 1, caught: 1, launched: 4, refused: 0 };
            assert_eq!(graphs.counts(), if on { counts } else { Counts { eager: 5, ..Counts::default() } });
            assert_eq!(bench.read(&sum), [5.0; 4], "graphs {on}");
            // x is 0, 3, 3, 3 and the other factor 1: 5 times a row of zeros and three of threes.
            let row = |row| if row == 0 { 0.0 } else { 15.0 };
            let rows: Vec<f32> = (0..16).map(|at| row(at / 4)).collect();
            assert_eq!(bench.read(&product), rows, "graphs {on}");
            // The gradient of filter k towards channel c is what went in at c times what came out at k.
            let columns: Vec<f32> = (0..16).map(|at| row(at % 4)).collect();
            assert_eq!(bench.read(&gradient), columns, "graphs {on}");
        }
    });
}

/// A graph contains the workspace's address, so it is captured again when a larger workspace is allocated.
#[test]
fn graphs_are_recaptured_for_a_larger_workspace() {
    scene("graphs::graphs_are_recaptured_for_a_larger_workspace", &[], |_, places| {
        let bench = Bench::open(&places);
        let tensor = |elements| (bench.floats(&vec![1.0; elements]), bench.floats(&vec![0.0; elements * elements]));
        let ((few, small), (many, large)) = (tensor(4), tensor(60));
        let list = |of: &GpuMemory, result: &GpuMemory, channels| vec![convolve(of, of, result, 1, channels); 2];
        let (first, second) = (list(&few, &small, 4), list(&many, &large, 60));
        let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), true, 1);
        (0..3).for_each(|_| play(&mut graphs, &first));
        let before = graphs.executor().workspace_bytes();
        (0..2).for_each(|_| play(&mut graphs, &second));
        assert!(graphs.executor().workspace_bytes() > before);
        (0..2).for_each(|_| play(&mut graphs, &first));
        assert_eq!(graphs.counts(), Counts { eager: 2, caught: 3, launched: 5, refused: 0 });
        assert_eq!(bench.read(&small), [10.0; 16]);
        assert_eq!(bench.read(&large), [4.0; 3600]);
    });
}

/// Lists on other tensors are different lists; beyond the limit the oldest are dropped, without harm.
#[test]
fn lists_are_distinguished_and_the_oldest_evicted() {
    scene("graphs::lists_are_distinguished_and_the_oldest_evicted", &[], |_, places| {
        let bench = Bench::open(&places);
        let (sum, ones) = (bench.floats(&[0.0; 400]), bench.floats(&[1.0; 400]));
        // The first n + 1 numbers are one larger.
        let list = |n: u32| {
            let elements = u64::from(n) + 1;
            let (b, y) = (View::new(ones.address(), elements), ViewMut::<f32>::new(sum.address(), elements));
            let add = table::Add { a: y.view(), b, y, elements: n + 1, rectified: false };
            [Command::Zero { address: ones.address(), bytes: 0 }, Command::Launch(add.call())]
        };
        let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), true, 1);
        for _ in 0..3 {
            (0..3).for_each(|n| play(&mut graphs, &list(n)));
        }
        assert_eq!(graphs.counts(), Counts { eager: 3, caught: 3, launched: 6, refused: 0 });
        assert_eq!(bench.read(&sum)[..4], [9.0, 6.0, 3.0, 0.0]);
        (3..400).for_each(|n| play(&mut graphs, &list(n)));
        assert_eq!(graphs.counts().eager, 400);
        // The last ones are kept, the first ones are not any more.
        play(&mut graphs, &list(399));
        play(&mut graphs, &list(0));
        assert_eq!(graphs.counts(), Counts { eager: 401, caught: 4, launched: 7, refused: 0 });
        assert_eq!(bench.read(&sum)[..2], [9.0 + 397.0 + 2.0, 6.0 + 397.0 + 1.0]);
        // With two micro-batches in flight twice as many are kept.
        let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), true, 2);
        (0..400).for_each(|n| play(&mut graphs, &list(n)));
        play(&mut graphs, &list(0));
        assert_eq!(graphs.counts(), Counts { eager: 400, caught: 1, launched: 1, refused: 0 });
    });
}

/// A command whose number changes each time, as in dropout, is executed by itself; the commands around it are captured.
#[test]
fn changing_commands_are_not_captured() {
    scene("graphs::changing_commands_are_not_captured", &[], |_, places| {
        let bench = Bench::open(&places);
        let (sum, moved, ones) = (bench.floats(&[0.0; 8]), bench.floats(&[0.0; 8]), bench.floats(&[1.0; 8]));
        let add = |to: &GpuMemory| {
            let y = ViewMut::<f32>::new(to.address(), 8);
            let b = View::new(ones.address(), 8);
            Command::Launch(table::Add { a: y.view(), b, y, elements: 8, rectified: false }.call())
        };
        let step = |rate: f32| {
            let [w, g] = [Buffer::Parameters, Buffer::Gradients].map(Operand::Buffer);
            let formula = Formula::new("step").subtract(w, w, Coefficient::Constant(rate.into()), g);
            let numbers = SgdStep::plain(0.0, 0.0).into();
            let (weights, ones) = (ViewMut::<f32>::new(moved.address(), 8), ViewMut::new(ones.address(), 8));
            let step = table::EvaluateFormula {
                a: table::FormulaBuffer { values: weights, written: true },
                b: Some(table::FormulaBuffer { values: ones, written: false }),
                c: None,
                d: None,
                e: None,
                f: None,
                mask: None,
                first: 0,
                elements: 8,
                terms: table::FormulaTerms::of(&formula.bind(&numbers)),
            };
            Command::Launch(step.call())
        };
        let list = |rate| [add(&sum), add(&sum), step(rate), add(&moved), add(&moved)];
        let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), true, 1);
        let rates = [0.5, 0.5, 0.25, 0.125, 0.125, 1.0];
        rates.iter().for_each(|rate| play(&mut graphs, &list(*rate)));
        // Whole, captured as a whole, then in three pieces: two seen, two captured, two launched twice more; one eager
        // each time.
        assert_eq!(graphs.counts(), Counts { eager: 1 + 2 + 4, caught: 1 + 2, launched: 1 + 6, refused: 0 });
        assert_eq!(bench.read(&sum), [12.0; 8]);
        assert_eq!(bench.read(&moved), [12.0 - rates.iter().sum::<f32>(); 8]);
    });
}
