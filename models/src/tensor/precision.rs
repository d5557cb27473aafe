//! `Precision`: defines the number formats in which layers are trained, `Gradients`: those in which their gradients are
//! kept and exchanged, and `Moments`: those in which the optimizer keeps its state.
//!
//! Whatever the precision, parameters are fp32 (master weights; Micikevicius et al. 2018, "Mixed Precision Training",
//! section 3.1), and so are batch norm's statistics and losses. Below 32 bits activations and their gradients take 16
//! each, and convolutions and products read a copy of the weights in the precision's own format.

use lockstep_topology::Dtype;
use lockstep_topology::cluster::PeakPrecision as Format;

/// The format of factors in convolutions and products, and of activations; sums are fp32 throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Precision {
    /// fp32.
    #[default]
    F32,
    /// fp32 tensors whose factors are rounded to 10 bits of mantissa.
    Tf32,
    /// Activations and factors in bf16.
    Bf16,
    /// Activations and factors in fp16; the loss is scaled.
    F16,
    /// Activations in bf16, factors in 8 bits.
    F8,
}

lockstep_topology::named!(Precision, "precision": F32 = "fp32", Tf32 = "tf32", Bf16 = "bf16", F16 = "fp16", F8 = "fp8");

impl Precision {
    /// The format of the factors, for which a GPU states a peak.
    pub fn factors(self) -> Format {
        match self {
            Precision::F32 => Format::Fp32,
            Precision::Tf32 => Format::Tf32,
            Precision::Bf16 => Format::Bf16,
            Precision::F16 => Format::Fp16,
            Precision::F8 => Format::Fp8,
        }
    }

    /// The format of activations, and of their gradients.
    pub fn activation_dtype(self) -> Dtype {
        match self {
            Precision::F32 | Precision::Tf32 => Dtype::F32,
            Precision::F16 => Dtype::F16,
            Precision::Bf16 | Precision::F8 => Dtype::Bf16,
        }
    }

    /// The format of the factors of convolutions and products in memory.
    pub fn factor_dtype(self) -> Dtype {
        if self == Precision::F8 { Dtype::F8E4M3 } else { self.activation_dtype() }
    }

    /// `resnet-50 in bf16`: the name of what is trained so; `name` alone in fp32.
    pub fn beside(self, name: &str) -> String {
        if self == Precision::F32 { name.to_owned() } else { format!("{name} in {self}") }
    }

    /// Whether products read weights in another format than the one that the optimizer keeps.
    pub fn copies_weights(self) -> bool {
        !matches!(self, Precision::F32 | Precision::Tf32)
    }
}

/// The format in which gradients of parameters are kept, added up and exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Gradients {
    /// fp32: the result of automatic casting for gradients of fp32 parameters.
    #[default]
    F32,
    /// 16 bits, those of the precision's activations.
    Half,
}

lockstep_topology::named!(Gradients, "format of gradients": F32 = "fp32", Half = "half");

impl Gradients {
    /// Their format where layers are trained in `precision`.
    pub fn dtype(self, precision: Precision) -> Dtype {
        if self == Gradients::Half { precision.activation_dtype() } else { Dtype::F32 }
    }
}

/// The format in which the optimizer keeps what it has for each parameter: the moments of Adam, SGD's momentum.
///
/// A step widens them, computes in fp32, moves the weights along moments that are not rounded yet, and then rounds the
/// moments to the nearest numbers of the format, of equally near ones to that with an even last bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Moments {
    /// fp32.
    #[default]
    F32,
    /// bf16, as DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.3, keeps both moments of AdamW.
    Bf16,
}

lockstep_topology::named!(Moments, "format of moments": F32 = "fp32", Bf16 = "bf16");

impl Moments {
    /// Their format in memory.
    pub fn dtype(self) -> Dtype {
        match self {
            Moments::F32 => Dtype::F32,
            Moments::Bf16 => Dtype::Bf16,
        }
    }
}
