//! How numbers are stored: the precision of training, the optimizer's states, quantised frozen weights.

/// The formats of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Everything in fp32.
    F32,
    /// Products in bf16, with what the stack keeps in fp32 (mixed precision).
    #[default]
    Bf16,
    /// Weights, gradients and moments in bf16, without a copy in fp32.
    PureBf16,
    /// Products in fp16, with what the stack keeps in fp32.
    F16,
    /// Products in fp8 of weights and activations, the rest as with bf16.
    F8,
}

/// How weights change, by what it keeps of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Optimizer {
    /// Adam with decoupled decay: two moments.
    #[default]
    AdamW,
    /// The same with moments of one byte (Dettmers et al. 2021).
    AdamW8,
    /// The same with moments in bf16.
    AdamWBf16,
    /// Plain gradient descent: nothing.
    Sgd,
    /// With momentum: one moment.
    Momentum,
}

impl Optimizer {
    /// Bytes of the moments of a parameter, where a moment in full takes `whole` bytes.
    pub fn moments(self, whole: u64) -> u64 {
        match self {
            Optimizer::AdamW => 2 * whole,
            Optimizer::AdamW8 => 2,
            Optimizer::AdamWBf16 => 4,
            Optimizer::Sgd => 0,
            Optimizer::Momentum => whole,
        }
    }
}

/// The format of frozen weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantization {
    /// 4 bits each and a factor in fp32 for each 64 (Dettmers et al. 2023).
    Nf4,
    /// The same with factors of one byte, and a factor in fp32 for each 256 of them.
    Nf4Double,
    /// 8 bits each and a factor in fp32 for each row of an output.
    Int8,
}

impl Quantization {
    /// Bytes of a matrix of that many elements.
    ///
    /// ```
    /// use lockstep_stack::Quantization;
    /// assert_eq!(Quantization::Nf4.bytes(4096), 4096 / 2 + 4096 / 64 * 4);
    /// ```
    pub fn bytes(self, elements: u64) -> u64 {
        let blocks = elements.div_ceil(64);
        match self {
            Quantization::Nf4 => elements.div_ceil(2) + 4 * blocks,
            Quantization::Nf4Double => elements.div_ceil(2) + blocks + 4 * blocks.div_ceil(256),
            Quantization::Int8 => elements,
        }
    }
}

/// Names of the values of an enum, read and printed.
macro_rules! names {
    ($of:ty, $($name:literal => $value:path),+) => {
        impl std::str::FromStr for $of {
            type Err = String;

            fn from_str(text: &str) -> Result<$of, String> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err(format!("must be one of {}", [$($name),+].join(", "))),
                }
            }
        }

        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }
    };
}
pub(crate) use names;

names!(Precision, "bf16" => Precision::Bf16, "bf16-true" => Precision::PureBf16, "fp16" => Precision::F16,
    "fp32" => Precision::F32, "fp8" => Precision::F8);
names!(Optimizer, "adamw" => Optimizer::AdamW, "adamw8bit" => Optimizer::AdamW8, "adamw-bf16" => Optimizer::AdamWBf16,
    "sgd" => Optimizer::Sgd, "momentum" => Optimizer::Momentum);
names!(Quantization, "nf4" => Quantization::Nf4, "nf4-dq" => Quantization::Nf4Double, "int8" => Quantization::Int8);
