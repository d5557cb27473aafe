//! Tests the order between streams.

use std::sync::Arc;

use lockstep_cuda::driver::{Event, GpuMemory, GpuStream, Priority, WorkspaceLimits};
use lockstep_cuda::{Command, KernelLaunch, LibraryFolders, View, ViewMut, table};

use crate::bench::{Bench, play};
use crate::scene;

/// Counts to `rounds` by two streams in turn, each of which adds one to the other's result; `waiting` for each other.
fn count(places: &LibraryFolders, rounds: usize, waiting: bool) -> f32 {
    let bench = Bench::open(places);
    let other = Arc::new(GpuStream::new(&bench.context, Priority::High).expect("a stream"));
    let [counter, one] = [0.0, 1.0].map(|value: f32| bench.floats(&[value]));
    let view = |memory: &GpuMemory| View::<f32>::new(memory.address(), 1);
    let y = ViewMut::new(counter.address(), 1);
    let step = table::Add { a: view(&counter), b: view(&one), y, elements: 1, rectified: false };
    let step = Command::Launch(step.call());
    let streams = [Arc::clone(&bench.stream), Arc::clone(&other)];
    let mut executors = streams.map(|stream| {
        let bench = Bench { stream, context: Arc::clone(&bench.context), modules: Arc::clone(&bench.modules) };
        bench.executor(WorkspaceLimits::default())
    });
    let done = [(); 2].map(|()| Event::new(&bench.context, false).expect("an event"));
    for round in 0..rounds {
        let (own, others) = (round % 2, (round + 1) % 2);
        if waiting {
            executors[own].stream().wait(&done[others]).expect("a wait");
        }
        play(&mut executors[own], std::slice::from_ref(&step));
        done[own].record(executors[own].stream()).expect("a record");
        // In order, nothing is left after each second round.
        if round % 2 == 1 && !waiting {
            let zero = Command::Zero { address: counter.address(), bytes: 4 };
            play(&mut executors[own], &[zero]);
        }
    }
    other.synchronize().expect("the stream");
    bench.read(&counter)[0]
}

#[test]
fn events_order_streams() {
    scene("order::events_order_streams", &[], |_, places| {
        assert_eq!(count(&places, 100, true), 100.0);
    });
}

/// Without events the pretend device reorders work: the test above can fail.
#[test]
fn streams_are_unordered_without_events() {
    scene("order::streams_are_unordered_without_events", &[], |_, places| {
        let ends: Vec<f32> = (0..20).map(|_| count(&places, 10, false)).collect();
        assert!(ends.iter().any(|end| *end != 0.0), "in order every pair ends with a zero: {ends:?}");
    });
}

#[test]
fn events_and_streams_report_completion() {
    scene("order::events_and_streams_report_completion", &[], |_, places| {
        let bench = Bench::open(&places);
        let [begin, end] = [(); 2].map(|()| Event::new(&bench.context, true).expect("an event"));
        assert_eq!(end.finished(), Ok(true), "never recorded");
        bench.stream.wait(&end).expect("a wait for nothing");
        let memory = bench.poisoned(1 << 20);
        begin.record(&bench.stream).expect("a record");
        // SAFETY: the memory has as many bytes and is dropped last.
        (0..50).for_each(|byte| unsafe { bench.stream.fill(memory.address(), byte, 1 << 20) }.expect("a fill"));
        end.record(&bench.stream).expect("a record");
        end.synchronize().expect("the event");
        assert_eq!((begin.finished(), end.finished()), (Ok(true), Ok(true)));
        assert!(end.seconds_since(&begin).expect("both are timed") >= 0.0);
        let untimed = Event::new(&bench.context, false).expect("an event");
        untimed.record(&bench.stream).expect("a record");
        untimed.synchronize().expect("the event");
        assert!(untimed.seconds_since(&begin).is_err());
    });
}

/// Ranks are threads that share a device, its programs and its memory; each has its own stream.
#[test]
fn ranks_share_a_device() {
    scene("order::ranks_share_a_device", &[], |_, places| {
        let bench = Bench::open(&places);
        let sums: Vec<f32> = std::thread::scope(|threads| {
            let rank = |rank: u16| {
                let bench = &bench;
                threads.spawn(move || {
                    bench.context.bind().expect("a thread");
                    let stream = Arc::new(GpuStream::new(&bench.context, Priority::Usual).expect("a stream"));
                    let (context, modules) = (Arc::clone(&bench.context), Arc::clone(&bench.modules));
                    let own = Bench { context, stream, modules };
                    let (a, b) = (own.floats(&[f32::from(rank); 300]), own.floats(&[1.0; 300]));
                    let y = ViewMut::<f32>::new(a.address(), 300);
                    let step =
                        table::Add { a: y.view(), b: View::new(b.address(), 300), y, elements: 300, rectified: false };
                    let commands = vec![Command::Launch(step.call()); 25];
                    play(&mut own.executor(WorkspaceLimits::default()), &commands);
                    own.read(&a).iter().sum()
                })
            };
            let ranks: Vec<_> = (0..4).map(rank).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        });
        assert_eq!(sums, [0, 1, 2, 3].map(|rank| 300.0 * (rank as f32 + 25.0)));
    });
}
