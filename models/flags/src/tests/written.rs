//! Tests that what is written reads back, and that no text breaks the reader.

use lockstep_stack::{ContextExchange, Decoder, Layout, Optimizer, Precision, Sharding};
use proptest::prelude::*;

use super::{read, written};
use crate::values::Values;
use crate::{Printed, print, read_file, read_megatron};

fn layouts() -> impl Strategy<Value = Layout> {
    let axes = (1u64..=4, 1u64..=4, 1u64..=2, 1u64..=4, any::<bool>());
    let batch = (1u64..=4, 1u64..=8, 1u64..=4);
    let again = prop::sample::select(vec!["none", "full", "full:every=2", "selective", "selective:layernorm+mlp"]);
    let numbers =
        prop::sample::select(vec![Precision::F32, Precision::Bf16, Precision::F16, Precision::F8, Precision::PureBf16]);
    let rule = prop::sample::select(vec![Optimizer::AdamW, Optimizer::AdamWBf16, Optimizer::Momentum]);
    let sharding = prop::sample::select(vec![Sharding::None, Sharding::Optimizer, Sharding::Parameters]);
    let exchange = prop::sample::select(vec![None, Some(ContextExchange::Ring), Some(ContextExchange::AllToAll)]);
    let rest = (any::<[bool; 5]>(), sharding, 0u64..3, exchange);
    (axes, batch, again, numbers, rule, rest).prop_map(
        |(axes, batch, again, precision, optimizer, (switches, sharding, deferred_heads, exchange))| {
            let (tensor, pipeline, context, data, sequence_parallel) = axes;
            let (micro_batch, micro_batches, length) = batch;
            let [compile, dropout, half_gradients, offload, transpose_cache] = switches;
            let recompute = again.parse().unwrap();
            Layout {
                tensor,
                pipeline,
                context,
                data,
                sequence_parallel,
                micro_batch,
                micro_batches,
                seq_length: 1024 * length,
                recompute,
                precision,
                optimizer,
                compile,
                dropout,
                half_gradients,
                transpose_cache: transpose_cache || precision != Precision::F8,
                deferred_heads: if pipeline > 1 { deferred_heads } else { 0 },
                context_exchange: exchange.filter(|_| context > 1),
                offload,
                sharding,
                ..Layout::default()
            }
        },
    )
}

proptest! {
    /// Flags that are written say all of a layout, in the words of those that are read.
    #[test]
    fn what_is_written_reads_back(layout in layouts(), of in prop::sample::select(vec![Printed::Megatron, Printed::Torchtitan])) {
        let decoder = Decoder::of(&lockstep_readers::load_model("llama-3-8b").unwrap()).unwrap();
        let Ok(text) = print(of, &decoder, &layout) else { return Ok(()) };
        let back = match of {
            Printed::Megatron => read_megatron(&text, false).unwrap(),
            Printed::Torchtitan => read("t.toml", &text),
        };
        prop_assert_eq!(&back.not_read, &Vec::<String>::new());
        let number = |flag: &str| back.get(flag).map_or(1, |value| value.parse::<u64>().unwrap());
        let axes = ["tp", "pp", "cp", "micro-batch-size", "seq-length", "global-batch-size"].map(number);
        let batch = layout.micro_batch * layout.micro_batches * layout.data;
        prop_assert_eq!(axes, [layout.tensor, layout.pipeline, layout.context, layout.micro_batch, layout.seq_length, batch]);
        prop_assert_eq!(back.get("precision").map(str::to_owned), Some(layout.precision.to_string()));
        prop_assert_eq!(back.get("recompute").unwrap_or("none").parse(), Ok(layout.recompute.clone()));
        prop_assert_eq!(back.get("optimizer").map(str::to_owned), Some(layout.optimizer.to_string()));
        prop_assert_eq!(back.get("sequence-parallel").is_some(), layout.sequence_parallel);
        let shares = match back.get("strategy") {
            Some("ddp") => Sharding::None,
            Some("zero-1") => Sharding::Optimizer,
            _ => Sharding::Parameters,
        };
        prop_assert!(shares == layout.sharding || layout.data == 1);
        let model = lockstep_readers::load_model(back.get("model").unwrap()).unwrap();
        prop_assert_eq!(model.parameter_elements(), decoder.parameters());
        if of == Printed::Megatron {
            prop_assert_eq!(back.get("dropout").is_some(), layout.dropout);
            prop_assert_eq!(back.get("half-gradients").is_some(), layout.half_gradients);
            prop_assert_eq!(back.get("no-transpose-cache").is_none(), layout.transpose_cache);
            prop_assert_eq!(back.get("offload-optimizer").is_some(), layout.offload);
            prop_assert_eq!(back.get("defer-head-gradients").unwrap_or("0"), layout.deferred_heads.to_string());
            prop_assert_eq!(back.get("cp-exchange").map(str::to_owned), layout.context_exchange.map(|of| of.to_string()));
        } else {
            prop_assert_eq!(back.get("compile").is_some(), layout.compile);
        }
    }

    /// No text breaks the reader.
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,200}", name in prop::sample::select(vec!["a.yaml", "a.json", "a.toml"])) {
        let (_folder, path) = written(name, &text);
        let _ = read_file(&path, false);
        let _ = read_megatron(&text, true);
        let _ = Values::of_file(&path);
    }
}
