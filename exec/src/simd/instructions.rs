//! Chooses the vector instructions of the CPU's kernels: the widest of the processor, or those that the environment
//! variable `LOCKSTEP_INSTRUCTIONS` names.

use std::sync::OnceLock;

use lockstep_topology::{ErrorPlace, InputError};

/// The environment variable that names the instructions.
const VARIABLE: &str = "LOCKSTEP_INSTRUCTIONS";

/// Vector instructions; each set includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// What every processor of the build's target has: four elements on x86-64 and AArch64.
    Portable,
    /// Eight elements, with fused multiply-add.
    Avx2,
    /// Sixteen elements, with masks.
    Avx512,
}

impl Instructions {
    /// From narrow to wide.
    pub const ALL: [Instructions; 3] = [Instructions::Portable, Instructions::Avx2, Instructions::Avx512];

    /// The value of `LOCKSTEP_INSTRUCTIONS` that selects it.
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Portable => "portable",
            Instructions::Avx2 => "avx2",
            Instructions::Avx512 => "avx512",
        }
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Instructions::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && Instructions::Avx2.is_available()
            }
            #[cfg(not(target_arch = "x86_64"))]
            Instructions::Avx2 | Instructions::Avx512 => false,
        }
    }

    /// The widest that this processor has.
    pub fn widest() -> Instructions {
        let mut from_wide = Instructions::ALL.into_iter().rev();
        from_wide.find(|one| one.is_available()).unwrap_or(Instructions::Portable)
    }

    /// Those that the environment names, or else the widest.
    ///
    /// # Errors
    /// Another word in the variable, or instructions that the processor lacks.
    pub fn requested() -> Result<Instructions, InputError> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Instructions::widest());
        };
        let known = Instructions::ALL.into_iter().find(|one| value == one.name());
        known.filter(|one| one.is_available()).ok_or_else(|| {
            let available = Instructions::ALL.into_iter().filter(|one| one.is_available());
            let names: Vec<&str> = available.map(Instructions::name).collect();
            let cure = format!("this processor has {}", names.join(", "));
            InputError::new("instructions", value.display().to_string(), cure)
                .at(ErrorPlace::Named(VARIABLE.to_owned()))
        })
    }

    /// Those that kernels of this process use: [`Instructions::requested`] at the first call, the widest where that
    /// fails.
    #[inline]
    pub fn current() -> Instructions {
        static CURRENT: OnceLock<Instructions> = OnceLock::new();
        *CURRENT.get_or_init(|| Instructions::requested().unwrap_or_else(|_| Instructions::widest()))
    }
}
