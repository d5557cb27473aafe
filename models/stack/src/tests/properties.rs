//! Properties: what grows with what, parts of ranks add up to the whole, answers of the search, bad input.

use lockstep_models::Recompute;

use crate::account::holding;
use crate::tests::model;
use crate::{
    Account, AttentionKernel, Board, Buckets, Decoder, Elements, Gpus, Layout, Lora, Loss, Optimizer, Part, Precision,
    Quantization, RankAccount, STACKS, Setting, Sharding, Stack, Wanted, advice, find, stack,
};

const MODELS: [&str; 4] = ["llama-3-8b", "gpt2:positions=65536", "qwen3-0.6b", "llama-2-7b:layers=6"];

fn board() -> &'static Board {
    Board::named("h100-80").unwrap()
}

fn total(decoder: &Decoder, layout: &Layout, stack: &dyn Stack) -> u64 {
    let account = Account::of(decoder, layout, stack, board()).unwrap();
    account.worst().unwrap().peak.total()
}

/// One rank, in the stack's precision.
fn plain(stack: &dyn Stack) -> Layout {
    Layout { precision: stack.precision(), ..Layout::default() }
}

/// Layouts that a stack has: each way to recompute, sharded or not, with adapters and without.
fn layouts(stack: &dyn Stack) -> Vec<Layout> {
    let again = ["none", "full", "full:every=2", "selective", "selective:layernorm+mlp"];
    let base = again.map(|again| Layout { recompute: again.parse().unwrap(), data: 4, ..plain(stack) });
    let more = |layout: &Layout| {
        [
            layout.clone(),
            Layout { sharding: Sharding::Parameters, ..layout.clone() },
            Layout { sharding: Sharding::Optimizer, ..layout.clone() },
            Layout { tensor: 2, sequence_parallel: true, ..layout.clone() },
            Layout { pipeline: 3, micro_batches: 6, ..layout.clone() },
            Layout { pipeline: 2, virtual_stages: 2, micro_batches: 6, ..layout.clone() },
            Layout { context: 2, ..layout.clone() },
            Layout { lora: Some("r=8,modules=all".parse().unwrap()), ..layout.clone() },
            Layout { precision: Precision::F32, loss: Some(Loss::Chunked), ..layout.clone() },
        ]
    };
    let all: Vec<Layout> = base.iter().flat_map(more).filter(|layout| stack.check(layout).is_ok()).collect();
    assert!(all.len() >= 6, "{}", stack.name());
    all
}

#[test]
fn memory_grows_with_tokens_and_falls_with_recomputation() {
    for name in MODELS {
        let decoder = model(name);
        for stack in STACKS {
            for layout in layouts(stack) {
                let now = total(&decoder, &layout, stack);
                for more in [
                    Layout { micro_batch: 2, ..layout.clone() },
                    Layout { micro_batch: 3, ..layout.clone() },
                    Layout { seq_length: layout.seq_length * 2, ..layout.clone() },
                    Layout { micro_batches: layout.micro_batches + 3, ..layout.clone() },
                ] {
                    assert!(total(&decoder, &more, stack) >= now, "{name} {} {layout:?} {more:?}", stack.name());
                }
                let none = Layout { recompute: Recompute::None, ..layout.clone() };
                let kept = |layout: &Layout| {
                    let account = Account::of(&decoder, layout, stack, board()).unwrap();
                    let of = |moment: &crate::Moment| {
                        [Part::Attention, Part::FeedForward, Part::Norms].map(|part| moment.live[part]).iter().sum()
                    };
                    account.ranks[0].moments.iter().map(of).max().unwrap_or(0u64)
                };
                assert!(kept(&layout) <= kept(&none), "{name} {} {layout:?}", stack.name());
            }
        }
    }
}

/// What a stack does not have is refused, never counted as something else.
#[test]
fn settings_that_a_stack_lacks_are_refused() {
    for (name, layout, says) in [
        ("megatron", Layout { sharding: Sharding::Parameters, ..Layout::default() }, "--strategy: zero-3"),
        ("megatron", Layout { sharding: Sharding::Gradients, ..Layout::default() }, "--strategy: zero-2"),
        ("trl", Layout { sharding: Sharding::Optimizer, ..Layout::default() }, "--strategy: zero-1"),
        ("torchtitan", Layout { sharding: Sharding::Gradients, ..Layout::default() }, "--strategy: zero-2"),
        ("litgpt", Layout::default(), "--precision: bf16"),
        ("deepspeed", Layout { precision: Precision::PureBf16, ..Layout::default() }, "--precision: bf16-true"),
        ("trl", Layout { precision: Precision::F8, ..Layout::default() }, "--precision: fp8"),
        (
            "litgpt",
            Layout { precision: Precision::PureBf16, loss: Some(Loss::Plain), ..Layout::default() },
            "--loss: plain",
        ),
    ] {
        let error = stack(name).unwrap().check(&layout).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("or stack "), "{name}: {error}");
    }
}

/// The parameters of all ranks together are the model's, once for each copy.
#[test]
fn parts_of_ranks_add_up_to_the_model() {
    for name in ["llama-3-8b", "llama-2-13b", "gpt2", "qwen3-0.6b"] {
        let decoder = model(name);
        for stack in STACKS {
            for (tensor, pipeline) in [(1, 1), (1, 4), (2, 3), (4, 2)] {
                let layout = Layout { tensor, pipeline, seq_length: 64, ..plain(stack) };
                if stack.check(&layout).is_err() {
                    continue;
                }
                let stages = (0..pipeline).map(|stage| holding::holding(&decoder, &layout, stack, stage));
                let split: u64 =
                    stages.map(|of| of.all() - of.layers * of.vectors - of.last_vectors).sum::<u64>() * tensor;
                // Norms and biases are whole on each tensor rank, a padded table is larger, a tied one is on both ends.
                let table = stack.table(&decoder, &layout) * tensor;
                let tables = if decoder.tied && pipeline == 1 { 1 } else { 2 };
                let positions = decoder.learned_positions.unwrap_or(0) * decoder.hidden * tensor;
                let matrices = decoder.layers * decoder.matrices;
                assert_eq!(split, matrices + tables * table + positions, "{name} {} {tensor} {pipeline}", stack.name());
                assert!(table >= decoder.table());
            }
        }
    }
}

#[test]
fn what_is_found_fits_and_the_next_does_not() {
    let decoder = model("llama-3-8b");
    for (name, sharding) in [("torchtitan", Sharding::Parameters), ("deepspeed", Sharding::Gradients)] {
        let setting = Setting { decoder: &decoder, stack: stack(name).unwrap(), board: board() };
        let layout = Layout { sharding, data: 8, recompute: "full".parse().unwrap(), ..Layout::default() };
        let fits = |layout: &Layout| setting.account(layout).unwrap().fits(board());
        let batch = find(&setting, &layout, Wanted::MicroBatch).unwrap();
        assert!(fits(&batch));
        assert!(!fits(&Wanted::MicroBatch.with(&layout, batch.micro_batch + 1)));
        let long = find(&setting, &layout, Wanted::SeqLength).unwrap();
        assert!(fits(&long));
        assert!(!fits(&Wanted::SeqLength.with(&layout, long.seq_length / 256 + 1)));
        let few = find(&setting, &layout, Wanted::Gpus).unwrap();
        assert!(fits(&few));
        assert!(few.data > 1 && !fits(&Wanted::Gpus.with(&layout, few.data - 1)));
    }
    let alone = Layout { sharding: Sharding::None, ..Layout::default() };
    let setting = Setting { decoder: &model("llama-3-70b"), stack: stack("trl").unwrap(), board: board() };
    assert_eq!(find(&setting, &alone, Wanted::Gpus), None, "copies without sharding never fit");
    assert_eq!(find(&setting, &alone, Wanted::MicroBatch), None);
}

/// Each advice frees memory, and all together at least as much as any alone.
#[test]
fn advice_frees_memory() {
    let decoder = model("llama-3-8b");
    for stack in STACKS {
        let setting = Setting { decoder: &decoder, stack, board: board() };
        let layout = Layout { data: 2, micro_batch: 4, seq_length: 8192, ..plain(stack) };
        let before = setting.account(&layout).unwrap().margin_gib(board());
        let all = advice(&setting, &layout).unwrap();
        assert!(all.len() >= 3, "{}: {all:?}", stack.name());
        let best = all.iter().map(|one| one.alone.1).fold(before, f64::max);
        assert!(all.iter().all(|one| one.alone.1 > before), "{all:?}");
        assert!(all.last().unwrap().together >= best - 1e-9, "{all:?}");
    }
}

#[test]
fn adapters_and_formats_have_their_sizes() {
    let decoder = model("llama-2-7b");
    let all: Lora = "r=16,modules=all".parse().unwrap();
    // 7 products: 4 of 4,096 x 4,096 and 3 of 4,096 x 11,008.
    assert_eq!(all.parameters(&decoder), 16 * (4 * 8192 + 3 * (4096 + 11008)));
    assert_eq!("r=16,modules=q_proj,v_proj".parse::<Lora>().unwrap(), "r=16,modules=q+v".parse().unwrap());
    assert_eq!(all.to_string().parse(), Ok(all));
    assert_eq!(Quantization::Nf4Double.bytes(64 * 256), 64 * 128 + 256 + 4);
    assert_eq!([Optimizer::AdamW, Optimizer::AdamW8, Optimizer::Sgd].map(|of| of.moments(4)), [8, 2, 0]);
}

#[test]
fn what_cannot_be_is_refused() {
    let decoder = model("llama-3-8b");
    let refused = |layout: Layout, says: &str| {
        let error = layout.check(&decoder).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(Layout { tensor: 3, ..Layout::default() }, "--tp: 3: does not divide 32 heads");
    refused(Layout { pipeline: 64, ..Layout::default() }, "--pp: 64: makes 64 parts of 32 layers");
    refused(Layout { expert: 2, ..Layout::default() }, "--ep: 2");
    refused(Layout { micro_batch: 0, ..Layout::default() }, "--micro-batch-size: 0: must be a whole number");
    refused(Layout { micro_batch: 1 << 31, ..Layout::default() }, "more tokens");
    refused(Layout { virtual_stages: 2, ..Layout::default() }, "--interleave: 2: needs a pipeline");
    refused(Layout { quantize: Some(Quantization::Nf4), ..Layout::default() }, "--quantize: nf4: quantised weights");
    let error = Layout { seq_length: 2048, ..Layout::default() }.check(&model("gpt2")).unwrap_err().to_string();
    assert!(error.contains("learned vectors of 1024 positions"), "{error}");
    for (text, says) in [("8xh101", "did you mean"), ("0xh200", "from 1"), ("8x", "no board")] {
        let error = text.parse::<Gpus>().unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    for (text, says) in
        [("16", "r=16"), ("r=0", "from 1"), ("r=4,modules=x", "no module"), ("r=4,dropout=2", "dropout")]
    {
        let error = text.parse::<Lora>().unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    let error = stack("trl").unwrap().check(&Layout { tensor: 2, ..Layout::default() }).unwrap_err().to_string();
    assert!(error.contains("--tp: 2") && error.contains("megatron or torchtitan"), "{error}");
    assert!(stack("megatrn").err().unwrap().to_string().contains("did you mean megatron"));
    assert!(
        Decoder::of(&lockstep_readers::load_model("lenet").unwrap())
            .unwrap_err()
            .to_string()
            .contains("--model: lenet")
    );
}

/// Deferred gradients of the output layer cost the last stage alone a gradient of the scores and an input each; weights in one order a
/// byte of each matrix less; a norm of heads its input.
#[test]
fn parts_of_megatrons_account_have_closed_forms() {
    let decoder = model("llama-3-8b");
    let base = Layout {
        tensor: 2,
        pipeline: 4,
        data: 2,
        micro_batches: 16,
        sequence_parallel: true,
        precision: Precision::F8,
        ..Layout::default()
    };
    let peaks = |layout: &Layout, decoder: &Decoder| -> Vec<RankAccount> {
        Account::of(decoder, layout, stack("megatron").unwrap(), board()).unwrap().ranks
    };
    let at = |ranks: &[RankAccount], name: &str, part: Part| -> u64 {
        let last = ranks.last().unwrap();
        last.moments.iter().filter(|moment| moment.name == name).map(|moment| moment.live[part]).max().unwrap()
    };
    let (before, deferred) = (peaks(&base, &decoder), peaks(&Layout { deferred_heads: 5, ..base.clone() }, &decoder));
    let table = decoder.vocabulary.next_multiple_of(256) / 2;
    let each = 2 * (base.seq_length * table + base.seq_length / 2 * decoder.hidden);
    assert_eq!(at(&deferred, "backward", Part::Logits) - at(&before, "backward", Part::Logits), 5 * each);
    assert_eq!(at(&deferred, "head", Part::Logits) - at(&before, "head", Part::Logits), 4 * each);
    assert_eq!(before[0].peak, deferred[0].peak);
    let more = peaks(&Layout { deferred_heads: 99, ..base.clone() }, &decoder);
    assert_eq!(at(&more, "backward", Part::Logits) - at(&before, "backward", Part::Logits), 16 * each);
    let once = peaks(&Layout { transpose_cache: false, ..base.clone() }, &decoder);
    let weights = |ranks: &[RankAccount]| ranks[0].peak[Part::Weights];
    assert_eq!(weights(&before) - weights(&once), decoder.layers / 4 * decoder.matrices / 2);
    // Frozen ones too; whose output layer has no gradient to defer.
    let lora = Layout { lora: Some("r=8".parse().unwrap()), ..base.clone() };
    let once = peaks(&Layout { transpose_cache: false, ..lora.clone() }, &decoder);
    assert_eq!(weights(&peaks(&lora, &decoder)) - weights(&once), decoder.layers / 4 * decoder.matrices / 2);
    let refused = stack("megatron").unwrap().check(&Layout { deferred_heads: 1, ..lora }).unwrap_err();
    assert!(refused.to_string().contains("--defer-head-gradients: 1: has no effect beside adapters"), "{refused}");
    let normed = Decoder { query_norm: true, ..decoder.clone() };
    let attention = |decoder: &Decoder| peaks(&base, decoder)[0].peak[Part::Attention];
    let input = base.seq_length * (decoder.query_features() + decoder.key_features());
    // Two bytes over two ranks, of eight layers and four micro-batches in flight.
    assert_eq!(attention(&normed) - attention(&decoder), 8 * 4 * input);
}

/// DeepSpeed's buffers are as large as stated, as transformers has them for `auto`, or its defaults.
#[test]
fn buckets_are_as_large_as_stated() {
    let decoder = model("llama-3-8b");
    let at = |sharding, buckets: Buckets, part: Part| {
        let layout = Layout { data: 8, sharding, buckets, ..Layout::default() };
        let account = Account::of(&decoder, &layout, stack("deepspeed").unwrap(), board()).unwrap();
        account.ranks[0].moments.iter().map(|moment| moment.live[part]).max().unwrap()
    };
    let reduce = |text: &str| Buckets { reduce: Some(text.parse().unwrap()), ..Buckets::default() };
    let buffers = |buckets| at(Sharding::Gradients, buckets, Part::Buffers);
    assert_eq!(buffers(Buckets::default()), 1_000_000_000);
    assert_eq!(buffers(reduce("2e8")), 400_000_000);
    assert_eq!(buffers(reduce("auto")), 2 * decoder.hidden * decoder.hidden);
    // Without sharding a bucket holds no more than all gradients.
    assert_eq!(at(Sharding::None, reduce("1e12"), Part::Buffers), 2 * decoder.parameters());
    let gathered = |ahead: &str, live: &str| {
        let [ahead, live] = [ahead, live].map(|text| Some(text.parse().unwrap()));
        at(Sharding::Parameters, Buckets { ahead, live, ..Buckets::default() }, Part::Gathered)
    };
    let head = decoder.table();
    assert_eq!(gathered("0", "2e9"), 2 * (2_000_000_000 + head));
    assert_eq!(gathered("1e8", "0"), 2 * (head + 100_000_000 + head));
    assert_eq!(gathered("auto", "0"), 2 * (head + decoder.hidden * decoder.hidden * 9 / 10 + head));
    for wrong in ["-1", "1.5", "", "many", "1e99", "NaN"] {
        assert!(wrong.parse::<Elements>().unwrap_err().contains("auto or a whole number"), "{wrong}");
    }
}

/// Of a frozen product its adapter keeps the input, after tensor ranks have gathered it; dropout keeps a mask too.
#[test]
fn adapters_keep_gathered_inputs() {
    let decoder = model("llama-3-8b");
    let kept = |lora: &str, name: &str| {
        let lora = Some(lora.parse().unwrap());
        let layout = Layout { tensor: 2, sequence_parallel: true, lora, ..Layout::default() };
        let saved = stack("megatron").unwrap().saved(&decoder, &layout);
        saved.iter().find(|one| one.name == name).map_or(0, |one| one.bytes)
    };
    let whole = 4096 * decoder.hidden;
    assert_eq!(kept("r=8,modules=o", "norm before attention"), whole);
    assert_eq!(kept("r=8,modules=q,dropout=0", "input of adapters before attention"), 2 * whole);
    assert_eq!(kept("r=8,modules=q", "input of adapters before attention"), 3 * whole);
    assert_eq!(kept("r=8,modules=o", "input of adapters before attention"), 0);
    assert_eq!(kept("r=8,modules=up,dropout=0", "input of adapters before feed-forward"), 2 * whole);
    assert_eq!(kept("r=8,modules=down,dropout=0", "output of the activation"), 4096 * decoder.feed_forward);
    assert_eq!(kept("r=8,modules=q", "output of the activation"), 0);
    assert_eq!(kept("r=8,modules=q+down", "features inside adapters"), 4096 * 8 * 2 * 2);
}

#[test]
fn boards_have_figures_and_provenance() {
    assert_eq!(crate::BOARDS.len(), 18);
    let catalogue = lockstep_topology::cluster::catalogue().unwrap();
    for board in crate::BOARDS.iter() {
        let gpu = catalogue.iter().find(|gpu| gpu.name == board.gpu).unwrap();
        let part = board.usable_gib() / (gpu.spec.memory.0 as f64 / crate::GIB);
        assert!((0.8..1.0).contains(&part), "{board:?}: {part}");
        assert!(board.provenance.len() > 10 && [2, 4, 8].contains(&board.per_host), "{board:?}");
        if let Some(name) = &board.cluster {
            let cluster = lockstep_topology::Cluster::load(name).unwrap();
            let models = cluster.devices().iter().filter_map(|device| match &device.kind {
                lockstep_topology::cluster::DeviceKind::Gpu(spec) => Some(spec.model.as_str()),
                _ => None,
            });
            assert!(models.clone().count() > 1 && models.clone().all(|model| model == board.gpu), "{board:?}");
        }
        assert_eq!(format!("8x{}", board.name).parse::<Gpus>().unwrap().board, board);
    }
}

/// Whatever is asked for is counted or refused: sums do not overflow.
#[test]
fn long_sequences_are_counted_or_refused() {
    for name in MODELS {
        let decoder = Decoder { learned_positions: None, ..model(name) };
        for stack in STACKS {
            for attention in [AttentionKernel::Flash, AttentionKernel::Unfused] {
                for power in 10..=33 {
                    let layout = Layout { seq_length: 1 << power, attention, ..Layout::default() };
                    if let Ok(account) = Account::of(&decoder, &layout, stack, board()) {
                        assert!(account.worst().unwrap().peak.total() > 1 << power, "{name} {}", stack.name());
                    }
                }
            }
        }
    }
}
