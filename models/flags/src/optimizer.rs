//! Optimizers by the names of transformers, PyTorch and DeepSpeed.

use crate::read::Read;
use crate::source::shown;

/// The optimizer by the name of `optim`.
pub(crate) fn optimizer(name: &str, read: &mut Read) {
    match name {
        "adamw_torch" | "adamw_torch_fused" | "adamw_apex_fused" | "adamw_hf" | "adamw" | "AdamW" | "Adam" | "adam"
        | "FusedAdam" | "paged_adamw_32bit" | "paged_adamw" => read.set("optimizer", "adamw"),
        "adamw_8bit" | "adamw_bnb_8bit" | "adamw_torch_8bit" | "paged_adamw_8bit" => read.set("optimizer", "adamw8bit"),
        "sgd" | "SGD" => read.set("optimizer", "sgd"),
        other => read.not_read.push(shown("optim", other)),
    }
    // Paged states may leave the GPU.
    if name.starts_with("paged") {
        read.not_counted.push(format!("paging of {name}"));
    }
}
