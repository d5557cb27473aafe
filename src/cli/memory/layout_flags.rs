//! The flags of `memory` that state a layout, and the question that they make.

use clap::Args;
use lockstep_experiment::form::parsed;
use lockstep_flags::{Printed, read_megatron};
use lockstep_models::{Model, Node, Recompute};
use lockstep_stack::{
    Account, AttentionKernel, Buckets, ContextExchange, Decoder, Elements, Gpus, Layout, Lora, Loss, Optimizer,
    Precision, Quantization, Setting, Sharding, Stack, Wanted, stack,
};
use lockstep_topology::InputError;

/// A layout as flags.
#[derive(Debug, Clone, Args)]
pub(super) struct LayoutFlags {
    /// A decoder: a name such as llama-3-8b, with settings behind a colon, or a config.json
    #[arg(long)]
    model: Option<String>,
    /// How many GPUs of which kind, such as 8xh100-80 (docs/memory.md lists the boards)
    #[arg(long, value_name = "NxBOARD", value_parser = parsed::<Gpus>)]
    gpus: Option<Gpus>,
    /// Whose account: megatron, torchtitan, deepspeed, trl or litgpt [default: by strategy, axes and adapters]
    #[arg(long)]
    stack: Option<String>,
    /// What data ranks share: ddp, zero-1, zero-2, zero-3, fsdp, or megatron [default: megatron's zero-1, else zero-3]
    #[arg(long)]
    strategy: Option<String>,
    /// Tokens of a sequence
    #[arg(long, value_name = "N", default_value_t = 4096)]
    seq_length: u64,
    /// Sequences that pass through the model at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    micro_batch_size: u64,
    /// Sequences of a step on all GPUs [default: a micro-batch for each stage of the pipeline]
    #[arg(long, value_name = "N")]
    global_batch_size: Option<u64>,
    /// Micro-batches of a step on each copy of the model, instead of the sequences of all
    #[arg(long, value_name = "N", conflicts_with = "global_batch_size")]
    accumulate: Option<u64>,
    /// Ranks that split each product
    #[arg(long, value_name = "N", default_value_t = 1)]
    tp: u64,
    /// Stages of the pipeline
    #[arg(long, value_name = "N", default_value_t = 1)]
    pp: u64,
    /// Ranks that split the positions of a sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    cp: u64,
    /// Copies of the model [default: as many as the GPUs make]
    #[arg(long, value_name = "N")]
    dp: Option<u64>,
    /// Ranks that split experts
    #[arg(long, value_name = "N", default_value_t = 1)]
    ep: u64,
    /// Parts of the model on each stage of the pipeline
    #[arg(long, value_name = "N", default_value_t = 1)]
    interleave: u64,
    /// Let tensor ranks split positions between their products
    #[arg(long)]
    sequence_parallel: bool,
    /// How context ranks exchange: ring, alltoall or allgather [default: the stack's]
    #[arg(long, value_name = "HOW", value_parser = parsed::<ContextExchange>)]
    cp_exchange: Option<ContextExchange>,
    /// Which activations are computed again: none, full, full:every=N or selective with modules
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = parsed::<Recompute>)]
    recompute: Recompute,
    /// Formats: bf16 or fp16 (mixed), bf16-true, fp8, fp32 [default: bf16; bf16-true of litgpt]
    #[arg(long, value_name = "FORMATS", value_parser = parsed::<Precision>)]
    precision: Option<Precision>,
    /// Add gradients up in 2 bytes where Megatron takes 4
    #[arg(long)]
    half_gradients: bool,
    /// fp8: transpose weights in each backward pass instead of keeping them in both orders
    #[arg(long)]
    no_transpose_cache: bool,
    /// Micro-batches whose gradient of the output layer's weight waits for the end of the step (--wgrad-deferral-limit)
    #[arg(long, value_name = "N", default_value_t = 0)]
    defer_head_gradients: u64,
    /// Elements of DeepSpeed's bucket of gradients, or auto [default: 5e8]
    #[arg(long, value_name = "N|auto", value_parser = parsed::<Elements>)]
    reduce_bucket_size: Option<Elements>,
    /// Elements of parameters that ZeRO-3 of DeepSpeed fetches ahead, or auto [default: 5e7]
    #[arg(long, value_name = "N|auto", value_parser = parsed::<Elements>)]
    stage3_prefetch_bucket_size: Option<Elements>,
    /// Elements of parameters that ZeRO-3 of DeepSpeed keeps gathered at most [default: 1e9]
    #[arg(long, value_name = "N", value_parser = parsed::<Elements>)]
    stage3_max_live_parameters: Option<Elements>,
    /// adamw, adamw8bit, adamw-bf16, momentum or sgd
    #[arg(long, value_name = "NAME", default_value = "adamw", value_parser = parsed::<Optimizer>)]
    optimizer: Optimizer,
    /// Keep the optimizer's states in the host's memory
    #[arg(long)]
    offload_optimizer: bool,
    /// Train adapters alone: r=16,modules=q+k+v+o, modules=all, dropout=0
    #[arg(long, value_name = "r=N,…", value_parser = parsed::<Lora>)]
    lora: Option<Lora>,
    /// Format of the frozen weights: nf4, nf4-dq or int8
    #[arg(long, value_name = "FORMAT", value_parser = parsed::<Quantization>)]
    quantize: Option<Quantization>,
    /// How scores become a loss: plain, fused or chunked [default: the stack's]
    #[arg(long, value_name = "HOW", value_parser = parsed::<Loss>)]
    loss: Option<Loss>,
    /// How attention is computed: flash or unfused, which stores all scores
    #[arg(long, value_name = "HOW", default_value = "flash", value_parser = parsed::<AttentionKernel>)]
    attention: AttentionKernel,
    /// Drop features behind attention and feed-forward, and scores that are stored
    #[arg(long)]
    dropout: bool,
    /// Compile the model (torchtitan)
    #[arg(long)]
    compile: bool,
}

/// A model on GPUs under a stack, with a layout.
pub(super) struct Question {
    pub(super) model: Model,
    pub(super) decoder: Decoder,
    pub(super) gpus: Gpus,
    pub(super) stack: &'static dyn Stack,
    pub(super) layout: Layout,
}

impl Question {
    /// Its account.
    pub(super) fn account(&self) -> Result<Account, InputError> {
        Account::of(&self.decoder, &self.layout, self.stack, self.gpus.board)
    }

    /// What it asks about.
    pub(super) fn setting(&self) -> Setting<'_> {
        Setting { decoder: &self.decoder, stack: self.stack, board: self.gpus.board }
    }

    /// The same with what is looked for.
    ///
    /// # Errors
    /// Nothing fits.
    pub(super) fn found(&self, wanted: Wanted) -> Result<Question, InputError> {
        let Some(layout) = lockstep_stack::find(&self.setting(), &self.layout, wanted) else {
            let (key, value) = ("find", wanted.to_string());
            let message = "nothing of it fits: --advise lists other changes";
            return Err(InputError::flag(key, value, message));
        };
        let gpus = Gpus { count: layout.ranks(), ..self.gpus };
        let (model, decoder) = (self.model.clone(), self.decoder.clone());
        Ok(Question { model, decoder, gpus, stack: self.stack, layout })
    }

    /// What was found, in a sentence.
    pub(super) fn found_line(&self, wanted: Wanted) -> String {
        match wanted {
            Wanted::MicroBatch => format!("the largest micro-batch that fits: {}", self.layout.micro_batch),
            Wanted::Gpus => {
                let (ranks, per_host) = (self.layout.ranks(), self.gpus.board.per_host);
                format!("the fewest GPUs that fit: {ranks}; hosts of {per_host}: {}", ranks.div_ceil(per_host))
            }
            Wanted::SeqLength => format!("the longest sequence that fits: {} tokens", self.layout.seq_length),
        }
    }

    /// Refuses arguments of Megatron-LM that describe other layers than those of the model: there are flags for its sizes, and none
    /// for all that a decoder may have.
    ///
    /// # Errors
    /// The first layer that differs.
    pub(super) fn check_described(&self, framework: Printed, text: &str) -> Result<(), InputError> {
        if framework != Printed::Megatron {
            return Ok(());
        }
        let read = read_megatron(text, false)?;
        let described = lockstep_readers::load_model(read.get("model").unwrap_or_default())?;
        let pairs = self.model.layers().iter().zip(described.layers());
        // What the input's length is, the layout says.
        let differs = |(own, other): &(&Node, &Node)| {
            !own.inputs.is_empty() && (&own.name, &own.layer) != (&other.name, &other.layer)
        };
        let first = pairs.clone().find(differs).map(|(own, _)| own.name.as_str());
        let counts = self.model.layers().len() == described.layers().len();
        match first.or((!counts).then_some("a layer")) {
            None => Ok(()),
            Some(name) => {
                let message =
                    format!("has {name} as no arguments of megatron describe it: take another, or leave it out");
                Err(InputError::flag("print_flags", self.decoder.name.clone(), message))
            }
        }
    }

    /// The layout in a line.
    pub(super) fn layout_line(&self) -> String {
        let Layout { tensor, pipeline, context, data, micro_batches, sharding, .. } = self.layout;
        let axes = format!("tp {tensor}, pp {pipeline}, cp {context}, dp {data}");
        let loss = self.layout.loss.unwrap_or(self.stack.loss(&self.layout));
        format!(
            "{axes}, micro-batches a step {micro_batches}, sharding {sharding}, recompute {}, precision {}, loss {loss}",
            self.layout.recompute, self.layout.precision
        )
    }
}

impl LayoutFlags {
    /// The question that they ask.
    pub(super) fn question(&self) -> Result<Question, InputError> {
        let missing = |key, such: &str| InputError::flag(key, "", format!("is missing: write {such}"));
        let name = self.model.as_ref().ok_or_else(|| missing("model", "--model llama-3-8b"))?;
        let gpus = self.gpus.ok_or_else(|| missing("gpus", "--gpus 8xh100-80"))?;
        let model = lockstep_readers::load_model(name).map_err(|error| error.or_at("--model"))?;
        let decoder = Decoder::of(&model)?;
        let stack = self.stack()?;
        let layout = self.layout(stack, gpus)?;
        stack.check(&layout)?;
        layout.check(&decoder)?;
        Ok(Question { model, decoder, gpus, stack, layout })
    }

    /// The stack that was named, or that such layouts have.
    fn stack(&self) -> Result<&'static dyn Stack, InputError> {
        let axes = self.tp > 1 || self.pp > 1 || self.cp > 1;
        stack(match (self.stack.as_deref(), self.strategy.as_deref()) {
            (Some(name), _) => name,
            (None, Some("megatron")) => "megatron",
            (None, _) if axes => "megatron",
            (None, _) if self.lora.is_some() => "trl",
            (None, Some("zero-1" | "zero-2" | "zero-3")) => "deepspeed",
            (None, Some("ddp")) => "trl",
            (None, _) => "torchtitan",
        })
    }

    fn sharding(&self, stack: &dyn Stack) -> Result<Sharding, InputError> {
        match self.strategy.as_deref() {
            None if stack.name() == "megatron" => Ok(Sharding::Optimizer),
            Some("megatron") => Ok(Sharding::Optimizer),
            None | Some("fsdp") => Ok(Sharding::Parameters),
            Some("ddp") => Ok(Sharding::None),
            Some(other) => other.parse().map_err(|_| {
                let message = "must be ddp, zero-1, zero-2, zero-3, fsdp or megatron";
                InputError::flag("strategy", other, message)
            }),
        }
    }

    fn layout(&self, stack: &dyn Stack, gpus: Gpus) -> Result<Layout, InputError> {
        let split = [self.tp, self.pp, self.cp].iter().try_fold(1u64, |all, axis| all.checked_mul(*axis));
        let split = split.filter(|split| *split > 0 && gpus.count.is_multiple_of(*split)).ok_or_else(|| {
            let value = gpus.to_string();
            let message = format!("must be a multiple of tp {} x pp {} x cp {}", self.tp, self.pp, self.cp);
            InputError::flag("gpus", value, message)
        })?;
        let data = self.dp.unwrap_or(gpus.count / split);
        if data.checked_mul(split) != Some(gpus.count) {
            let message =
                format!("makes other than {} GPUs: leave it out, or write {}", gpus.count, gpus.count / split);
            return Err(InputError::flag("dp", data.to_string(), message));
        }
        let micro_batches = match (self.global_batch_size, self.accumulate) {
            (None, None) => self.pp,
            (None, Some(count)) => count,
            (Some(batch), _) => {
                let of = self.micro_batch_size.saturating_mul(data);
                if of == 0 || batch == 0 || !batch.is_multiple_of(of) {
                    let message = format!("must be a multiple of micro-batch {} x dp {data}", self.micro_batch_size);
                    return Err(InputError::flag("global_batch_size", batch.to_string(), message));
                }
                batch / of
            }
        };
        Ok(Layout {
            tensor: self.tp,
            pipeline: self.pp,
            context: self.cp,
            data,
            expert: self.ep,
            virtual_stages: self.interleave,
            micro_batch: self.micro_batch_size,
            micro_batches,
            seq_length: self.seq_length,
            sharding: self.sharding(stack)?,
            sequence_parallel: self.sequence_parallel,
            recompute: self.recompute.clone(),
            precision: self.precision.unwrap_or(stack.precision()),
            half_gradients: self.half_gradients,
            transpose_cache: !self.no_transpose_cache,
            deferred_heads: self.defer_head_gradients,
            buckets: Buckets {
                reduce: self.reduce_bucket_size,
                ahead: self.stage3_prefetch_bucket_size,
                live: self.stage3_max_live_parameters,
            },
            optimizer: self.optimizer,
            offload: self.offload_optimizer,
            lora: self.lora.clone(),
            quantize: self.quantize,
            loss: self.loss,
            attention: self.attention,
            context_exchange: self.cp_exchange,
            dropout: self.dropout,
            compile: self.compile,
        })
    }
}
