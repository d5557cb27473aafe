//! Tests that declared buffers have formats of their own: memory and messages in their bytes, and no arithmetic on integers.

use super::*;

fn program() -> Program {
    Job::new(Arc::new(load_model("lenet").unwrap()), 2, 4).program().unwrap()
}

/// Bytes on the wire and in memory are those of the format: a shuffle of as many numbers of two bytes sends half of what fp32 does.
#[test]
fn shuffles_are_as_long_as_their_numbers() {
    let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    let model = Arc::new(load_model("lenet").unwrap());
    let program = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) }.program().unwrap();
    // 100 samples of 10 numbers on each rank: 25 for each of four, and one of them is the rank itself.
    for (dtype, each) in [(Dtype::F32, 4), (Dtype::U16, 2), (Dtype::U8, 1)] {
        let work = program.shuffle(400, (10, dtype)).unwrap().unwrap();
        let (_, exchange) = work.roles[0].exchanges().next().unwrap();
        assert_eq!(work.dtype(exchange.buffer), dtype);
        let schedule = work.schedule(exchange, 0).unwrap();
        assert_eq!(schedule.bytes_sent(0), 3 * 25 * 10 * each);
        let moved = work.roles[0].tasks.iter().filter_map(|task| match task.op {
            Op::Samples { bytes, .. } => Some(bytes),
            _ => None,
        });
        assert!(moved.eq([3 * 25 * 10 * each; 2]));
        assert_eq!(Memory::of_role(&work, 0, 0).unwrap().buffers, 3 * 25 * 10 * each);
    }
}

/// The same bytes, as numbers of two sizes, take as many chunks, and are packed or not alike.
#[test]
fn chunks_of_shuffles_are_bytes() {
    let sampling = "partitioned:groups=1:shuffle-every=10".parse().unwrap();
    let model = Arc::new(load_model("lenet").unwrap());
    let mut program = Job { sampling, node_sizes: Some(vec![1; 4]), ..Job::new(model, 4, 8) }.program().unwrap();
    for (chunk, below) in [(700, 40), (2_000, 41), (u64::MAX, 1)] {
        let partition = program.partition.as_mut().unwrap();
        (partition.chunk, partition.packed_below) = (chunk, below);
        let [bytes, values] = [(40, Dtype::U8), (10, Dtype::F32)].map(|each| {
            let work = program.shuffle(400, each).unwrap().unwrap();
            (work.roles[0].tasks.len(), work.roles[0].runs().count())
        });
        assert_eq!(bytes, values, "chunks of {chunk}, packed below {below}");
    }
}

#[test]
fn integers_are_not_added() {
    let refused = |change: &dyn Fn(&mut Program)| {
        let mut program = program();
        program.buffers.push(Declared::scratch("tokens", 10).of_dtype(Dtype::U32));
        program.buffers.push(Declared::scratch("others", 10).of_dtype(Dtype::U32));
        program.buffers.push(Declared::scratch("values", 10));
        change(&mut program);
        program.check().err().map(|error| error.to_string())
    };
    let copied = |to: usize, add: bool| {
        move |program: &mut Program| {
            let [from, to] = [0, to].map(|index| Area::Buffer(Buffer::Declared(index)));
            let copy = Copy { from, to, rows: vec![Rows::one(10, 0, 0)], add, clear: false, turns: Turns::ONE };
            let load = program.roles[0].tasks[0].clone();
            let op = Op::Copy(ByCoordinate::same(copy));
            program.roles[0].tasks.push(Task { name: "copy".into(), op, ..load });
        }
    };
    assert_eq!(refused(&copied(1, false)), None);
    assert!(refused(&copied(1, true)).unwrap().contains("copies or adds u32 to u32"));
    assert!(refused(&copied(2, false)).unwrap().contains("copies or adds u32 to fp32"));
    let summed = |collective: Collective| {
        refused(&move |program| {
            let axes = AxisSet::of(&[Axis::Data]);
            let exchange = Exchange::new(collective.clone(), Algorithm::direct(), axes, Buffer::Declared(0), 0..10);
            let task = Task { name: "sum".into(), op: Op::Exchange(exchange), stream: Stream::Exchange, after: vec![] };
            program.roles[0].tasks.push(task);
        })
    };
    assert_eq!(summed(Collective::AllGather), None);
    let message = summed(Collective::AllReduce).unwrap();
    assert!(message.contains("computes with u32"), "{message}");
}
