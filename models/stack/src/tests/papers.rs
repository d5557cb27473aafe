//! Closed forms: activations of Korthikanti et al. 2022 (arXiv 2205.05198), states of ZeRO (arXiv 1910.02054), interleaving.

use lockstep_models::Recompute;

use crate::tests::gpt3;
use crate::{Account, AttentionKernel, BOARDS, Layout, Part, Sharding, stack};

/// The layout of the paper: fp16 products, dropout, attention that stores its scores.
fn paper(layout: Layout) -> Layout {
    Layout { attention: AttentionKernel::Unfused, dropout: true, ..layout }
}

/// Bytes that a layer saves.
fn of_layer(layout: &Layout) -> u64 {
    stack("megatron").unwrap().saved(&gpt3(), layout).iter().map(|one| one.bytes).sum()
}

/// Bytes that a layer keeps.
fn kept(layout: &Layout) -> u64 {
    let account = Account::of(&gpt3(), layout, stack("megatron").unwrap(), &BOARDS[0]).unwrap();
    let moments = &account.ranks[0].moments;
    let forward: Vec<u64> = moments.iter().filter(|of| of.name == "forward").map(|of| of.live.total()).collect();
    (forward[forward.len() - 1] - forward[0]) / gpt3().layers
}

/// Equations 1 to 4 and 6: sbh(34 + 5as/h), split by t ranks with and without sequence parallelism, selective, full.
#[test]
fn activations_are_those_of_the_paper() {
    let model = gpt3();
    let (h, a) = (model.hidden, model.heads);
    for (s, b, t) in [(2048, 1, 1), (2048, 4, 8), (1024, 3, 2)] {
        let layout = paper(Layout { seq_length: s, micro_batch: b, tensor: t, ..Layout::default() });
        let sbh = s * b * h;
        assert_eq!(of_layer(&layout), sbh * 10 + sbh * 24 / t + 5 * a * s * s * b / t);
        let parallel = Layout { sequence_parallel: true, ..layout };
        assert_eq!(of_layer(&parallel), (34 * sbh + 5 * a * s * s * b) / t);
        let selective = Layout { recompute: "selective".parse().unwrap(), ..parallel.clone() };
        assert_eq!(kept(&selective), 34 * sbh / t);
        assert_eq!(kept(&parallel), of_layer(&parallel));
        let full = Layout { recompute: Recompute::Full { every: 1 }, sequence_parallel: false, ..parallel };
        assert_eq!(kept(&full), 2 * sbh);
    }
}

/// ZeRO, figure 1: 16 bytes a parameter, of which the stages leave 4 + 12/N, 2 + 14/N and 16/N.
#[test]
fn states_are_those_of_zero() {
    let model = gpt3();
    let parameters = model.parameters();
    let n = 64;
    let of = |sharding| {
        let layout = Layout { sharding, data: n, micro_batches: 2, seq_length: 64, ..Layout::default() };
        let account = Account::of(&model, &layout, stack("deepspeed").unwrap(), &BOARDS[0]).unwrap();
        let live = account.ranks[0].moments[0].live;
        live[Part::Weights] + live[Part::Gradients] + live[Part::Optimizer]
    };
    assert_eq!(of(Sharding::None), 16 * parameters);
    assert_eq!(of(Sharding::Optimizer), 4 * parameters + (12 * parameters).div_ceil(n));
    assert_eq!(of(Sharding::Gradients), 2 * parameters + (2 * parameters).div_ceil(n) + (12 * parameters).div_ceil(n));
    assert_eq!(of(Sharding::Parameters), 2 * (2 * parameters).div_ceil(n) + (12 * parameters).div_ceil(n));
}

/// Stage i of p holds min(m, p − i) micro-batches; the first one p(1 + (p−1)/pv) with v parts a stage (arXiv 2205.05198, §4.2.3).
#[test]
fn micro_batches_in_flight() {
    for (p, v, m) in [(4, 1, 16), (4, 1, 2), (8, 3, 64), (2, 5, 8)] {
        let layout = Layout { pipeline: p, virtual_stages: v, micro_batches: m, seq_length: 64, ..Layout::default() };
        let account = Account::of(&gpt3(), &layout, stack("megatron").unwrap(), &BOARDS[0]).unwrap();
        let first = account.ranks[0].in_flight;
        match v {
            1 => assert_eq!(first, m.min(p) as f64),
            _ => assert!((first - p as f64 * (1.0 + (p as f64 - 1.0) / (p * v) as f64)).abs() < 1e-9, "{first}"),
        }
    }
}
