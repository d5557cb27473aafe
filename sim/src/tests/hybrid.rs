//! Tests hybrid parallelism on GPUs connected by a switch: what overlaps, and the traffic.

use lockstep_models::{Axis, Op, overlap};

use super::world::tree;
use super::*;

/// A large boundary of 64×8×8 and small dense layers.
fn job(strategy: &str, ranks: u32, batch: u32) -> Job {
    let text = "name = \"m\"\ninput = [1, 10, 10]\nlayer = [\n{ name = \"conv\", kind = \"conv2d\", out_channels = 64, kernel = 3 },\n\
                { name = \"one\", kind = \"dense\", out_features = 8 },\n{ name = \"loss\", kind = \"softmax_cross_entropy\" },\n]\n";
    let model = Arc::new(lockstep_readers::parse_model("m.toml", text).expect("a model"));
    Job { strategy: strategy.parse().expect("a strategy"), ..Job::new(model, ranks, batch) }
}

fn predicted(program: &Program, costs: &Flat) -> Prediction {
    let ranks = program.ranks();
    let world = World::new(tree(1, ranks, 1, 1), ranks, &HostingRule::PerRank);
    world.predict(program, costs, &SimOptions::default()).expect("a prediction")
}

/// Krizhevsky 2014 §4: "much (i.e. (K − 1)/K) of the communication can be hidden" in scheme (b), where the dense layers
/// take longer than a broadcast; in (a) none is.
#[test]
fn scheme_b_hides_all_broadcasts_but_one() {
    // A second of computation, milliseconds of messages.
    let costs = Flat { forward: 1.0, backward: 1.0, ..Flat::default() };
    for ranks in [2u32, 4] {
        for strategy in ["hybrid:a", "hybrid:b", "hybrid:c"] {
            let program = program(&job(strategy, ranks, 32));
            let prediction = predicted(&program, &costs);
            let all = overlap::exchanges(&program, &prediction.timeline);
            let gathers: Vec<_> = all.iter().filter(|exchange| exchange.name.starts_with("gather conv")).collect();
            assert_eq!(gathers.len() as u32, if strategy == "hybrid:a" { 1 } else { ranks });
            // All ranks wait for the first one, and for no other.
            let first = gathers[0];
            assert!(first.exposed_s > 0.99 * first.seconds && first.seconds > 1e-5, "{strategy}, {ranks}: {first:?}");
            for later in &gathers[1..] {
                assert!(later.exposed_s < 0.01 * first.seconds, "{strategy}, {ranks}: {later:?}");
                assert!(later.seconds > 0.99 * first.seconds, "{strategy}, {ranks}: {later:?}");
            }
        }
    }
}

/// Scheme (b) hides (K − 1)/K of all traffic to the dense layers and back where the dense layers take longer, and
/// nothing where computation takes no time; scheme (a) never hides any.
#[test]
fn hidden_traffic_follows_from_the_timeline() {
    let share = |strategy: &str, ranks: u32, seconds: f64| {
        let program = program(&job(strategy, ranks, 32));
        let prediction = predicted(&program, &Flat { forward: seconds, backward: seconds, ..Flat::default() });
        let of_samples = |exchange: &lockstep_models::Exchange| {
            matches!(exchange.collective, Collective::AllGatherV { .. } | Collective::ReduceScatterV { .. })
        };
        overlap::hidden_share(&program, &prediction.timeline, of_samples).expect("samples are exchanged")
    };
    for ranks in [2u32, 4] {
        let all_but_one = f64::from(ranks - 1) / f64::from(ranks);
        for strategy in ["hybrid:b", "hybrid:c"] {
            let (long, none) = (share(strategy, ranks, 1.0), share(strategy, ranks, 0.0));
            // Some more: a rank that is done computing late keeps messages of others in flight, which compute as well.
            assert!((-0.01..0.1).contains(&(long - all_but_one)), "{strategy}, {ranks}: {long}");
            assert!(none < 1e-6, "{strategy}, {ranks}: {none}");
        }
        assert!(share("hybrid:a", ranks, 1.0) < 1e-6);
    }
    let ssgd = program(&job("ssgd", 2, 32));
    let prediction = predicted(&ssgd, &Flat::default());
    assert_eq!(
        overlap::hidden_share(&ssgd, &prediction.timeline, |exchange| exchange.axes.contains(Axis::Tensor)),
        None
    );
}

/// The simulated bytes are those of the exchanges' closed forms.
#[test]
fn traffic_is_what_the_exchanges_send() {
    for strategy in
        ["hybrid:a", "hybrid:b", "hybrid:c", "hybrid:g=2", "hybrid:b:variable-batch", "model-parallel", "megatron"]
    {
        let program = program(&job(strategy, 4, 6));
        let prediction = predicted(&program, &Flat::default());
        let bytes = |exchange| {
            let schedule = program.schedule(exchange, 0).expect("serves");
            (0..4).map(|member| schedule.bytes_sent(member)).sum::<u64>()
        };
        let step: u64 = program.roles[0].exchanges().map(|(_, exchange)| bytes(exchange)).sum();
        let options = SimOptions::default();
        let steps = u64::from(options.warm_up + options.counted);
        assert_eq!(prediction.traffic.total().bytes, steps * step, "{strategy}");
    }
}

/// Copied bytes take time; an empty copy takes none.
#[test]
fn copies_take_as_long_as_updates_of_equal_bytes() {
    let costs = Flat { update: 0.5, ..Flat::default() };
    let program = program(&job("hybrid:b", 2, 4));
    let prediction = predicted(&program, &costs);
    let mut seen = [0, 0];
    for span in &prediction.timeline.spans {
        let Op::Copy(copies) = &program.roles[program.role_of(span.rank)].tasks[span.task as usize].op else {
            continue;
        };
        let copy = copies.at(&program.mesh, span.rank);
        seen[usize::from(copy.elements() > 0)] += 1;
        let expected = if copy.elements() > 0 { 0.5 } else { 0.0 };
        assert_close((span.end - span.start).as_secs_f64(), expected, "a copy");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
