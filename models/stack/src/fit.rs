//! What would make a layout fit, cheapest first; and the largest micro-batch or sequence, or the fewest GPUs, that fit.

use lockstep_models::Recompute;
use lockstep_topology::InputError;

use crate::account::Account;
use crate::boards::Board;
use crate::decoder::Decoder;
use crate::layout::{Layout, Loss, Sharding};
use crate::numbers::{Optimizer, Quantization, names};
use crate::stack::Stack;

/// What is asked for: a decoder, its stack and the board.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The model.
    pub decoder: &'a Decoder,
    /// The framework.
    pub stack: &'a dyn Stack,
    /// The kind of GPU.
    pub board: &'static Board,
}

impl Setting<'_> {
    /// The account of a layout here.
    ///
    /// # Errors
    /// A layout that the decoder or the stack cannot have.
    pub fn account(&self, layout: &Layout) -> Result<Account, InputError> {
        self.stack.check(layout)?;
        Account::of(self.decoder, layout, self.stack, self.board)
    }

    fn fits(&self, layout: &Layout) -> bool {
        self.account(layout).is_ok_and(|account| account.fits(self.board))
    }
}

/// A setting of a layout that lowers its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The setting and its value, which a switch lacks.
    pub change: Changed,
    /// GiB allocated on the rank that takes most with this change alone, and what stays free there.
    pub alone: (f64, f64),
    /// GiB that stay free with this change and those before it.
    pub together: f64,
    /// What it costs beside memory.
    pub costs: String,
}

/// A setting and its value.
type Changed = (&'static str, String);

/// Makes a change, and says its setting: key and value, which a switch lacks; nothing where it is made already or means nothing here.
type Make = fn(&mut Layout, &Setting<'_>) -> Option<Changed>;

/// The changes, cheapest first, with what each costs.
const CHANGES: [(Make, &str); 10] = [
    (sequence_parallel, "no time: the same bytes are exchanged"),
    (loss, "no time"),
    (micro_batch, "shorter kernels; the batch stays, by more micro-batches"),
    (optimizer_shards, "no more bytes exchanged"),
    (parameter_shards, "half as many bytes again are exchanged, in each micro-batch"),
    (selective, "the feed-forward part runs forward twice"),
    (moments, "moments are rounded to a byte"),
    (base, "each product first makes its weights from 4 bits"),
    (full, "all layers run forward twice: a third more work"),
    (offload, "the host steps the optimizer"),
];

fn sequence_parallel(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    let changes = layout.tensor > 1 && !layout.sequence_parallel;
    layout.sequence_parallel |= changes;
    changes.then(|| ("sequence_parallel", String::new()))
}

fn loss(layout: &mut Layout, setting: &Setting<'_>) -> Option<Changed> {
    let now = layout.loss.unwrap_or(setting.stack.loss(layout));
    let to = if setting.stack.name() == "megatron" { Loss::Fused } else { Loss::Chunked };
    (now == Loss::Plain || now == Loss::Fused && to == Loss::Chunked).then(|| {
        layout.loss = Some(to);
        ("loss", to.to_string())
    })
}

fn micro_batch(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (layout.micro_batch > 1).then(|| {
        layout.micro_batches = layout.micro_batches.saturating_mul(layout.micro_batch);
        layout.micro_batch = 1;
        ("micro_batch_size", "1".to_owned())
    })
}

fn optimizer_shards(layout: &mut Layout, setting: &Setting<'_>) -> Option<Changed> {
    let has = setting.stack.choices().shardings.contains(&Sharding::Optimizer);
    (has && layout.copies() > 1 && layout.sharding < Sharding::Optimizer).then(|| {
        layout.sharding = Sharding::Optimizer;
        ("strategy", "zero-1".to_owned())
    })
}

fn parameter_shards(layout: &mut Layout, setting: &Setting<'_>) -> Option<Changed> {
    let has = setting.stack.choices().shardings.contains(&Sharding::Parameters);
    (has && layout.copies() > 1 && layout.sharding < Sharding::Parameters).then(|| {
        layout.sharding = Sharding::Parameters;
        ("strategy", "zero-3".to_owned())
    })
}

fn selective(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (layout.recompute == Recompute::None).then(|| {
        layout.recompute = Recompute::Selective(vec![lockstep_models::Module::LayerNorm, lockstep_models::Module::Mlp]);
        ("recompute", layout.recompute.to_string())
    })
}

fn moments(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (layout.optimizer == Optimizer::AdamW && !layout.offload).then(|| {
        layout.optimizer = Optimizer::AdamW8;
        ("optimizer", "adamw8bit".to_owned())
    })
}

fn base(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (layout.lora.is_some() && layout.quantize.is_none()).then(|| {
        layout.quantize = Some(Quantization::Nf4);
        ("quantize", "nf4".to_owned())
    })
}

fn full(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (!matches!(layout.recompute, Recompute::Full { .. })).then(|| {
        layout.recompute = Recompute::Full { every: 1 };
        ("recompute", "full".to_owned())
    })
}

fn offload(layout: &mut Layout, _: &Setting<'_>) -> Option<Changed> {
    (!layout.offload).then(|| {
        layout.offload = true;
        ("offload_optimizer", String::new())
    })
}

/// The changes that lower the memory of `layout`, cheapest first; more GPUs come last.
///
/// # Errors
/// A layout that cannot be.
pub fn advice(setting: &Setting<'_>, layout: &Layout) -> Result<Vec<Advice>, InputError> {
    let before = setting.account(layout)?.margin_gib(setting.board);
    let (mut all, mut together) = (Vec::new(), layout.clone());
    let mut margin = before;
    for (make, costs) in CHANGES {
        let mut alone = layout.clone();
        let Some(change) = make(&mut alone, setting) else { continue };
        let Ok(account) = setting.account(&alone) else { continue };
        if account.margin_gib(setting.board) <= before {
            continue;
        }
        let mut both = together.clone();
        if make(&mut both, setting).is_some()
            && let Ok(of_both) = setting.account(&both)
        {
            margin = of_both.margin_gib(setting.board);
            together = both;
        }
        let allocated = account.worst().map_or(0.0, |rank| rank.allocated_gib());
        let alone = (allocated, account.margin_gib(setting.board));
        all.push(Advice { change, alone, together: margin, costs: costs.to_owned() });
    }
    if let Some(more) = find(setting, layout, Wanted::Gpus).filter(|more| more.data > layout.data) {
        let account = setting.account(&more)?;
        let allocated = account.worst().map_or(0.0, |rank| rank.allocated_gib());
        let change = ("gpus", format!("{}x{}", more.ranks(), setting.board.name));
        let margin_gib = account.margin_gib(setting.board);
        let costs = format!("more GPUs: {}", more.ranks() - layout.ranks());
        all.push(Advice { change, alone: (allocated, margin_gib), together: margin.max(margin_gib), costs });
    }
    Ok(all)
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The largest micro-batch.
    MicroBatch,
    /// The fewest GPUs.
    Gpus,
    /// The longest sequence, in steps of 256 tokens.
    SeqLength,
}

names!(Wanted, "micro-batch-size" => Wanted::MicroBatch, "gpus" => Wanted::Gpus, "seq-length" => Wanted::SeqLength);

/// Tokens by which sequences grow.
const STEP: u64 = 256;
/// The most steps of what is looked for.
const MOST: u64 = 1 << 20;

impl Wanted {
    /// The layout with so many steps of it.
    pub fn with(self, layout: &Layout, steps: u64) -> Layout {
        match self {
            Wanted::MicroBatch => Layout { micro_batch: steps, ..layout.clone() },
            Wanted::Gpus => Layout { data: steps, ..layout.clone() },
            Wanted::SeqLength => Layout { seq_length: steps * STEP, ..layout.clone() },
        }
    }
}

/// The layout with the largest micro-batch or sequence that fits, or the fewest copies of the model that do; none where nothing does.
pub fn find(setting: &Setting<'_>, layout: &Layout, wanted: Wanted) -> Option<Layout> {
    let fits = |steps: u64| setting.fits(&wanted.with(layout, steps));
    // More copies take less each; more tokens take more.
    let holds = |steps: u64| if wanted == Wanted::Gpus { !fits(steps) } else { fits(steps) };
    let (mut below, mut above) = (0, 1);
    while holds(above) {
        below = above;
        above *= 2;
        if above > MOST {
            return (wanted != Wanted::Gpus).then(|| wanted.with(layout, below));
        }
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if holds(middle) { below = middle } else { above = middle }
    }
    match wanted {
        Wanted::Gpus => Some(wanted.with(layout, above)),
        _ => (below > 0).then(|| wanted.with(layout, below)),
    }
}
