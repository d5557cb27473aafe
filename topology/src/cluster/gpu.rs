//! `GpuSpec`: describes one GPU: its peak of each precision, its memory and its possible links.
//!
//! Peaks are those of dense matrices; where tensor cores exist, theirs.

use crate::{Bandwidth, Bytes, Time};
use std::fmt;
use std::str::FromStr;

/// One GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSpec {
    /// As the cluster's file names it, e.g. `h100-sxm`.
    pub model: String,
    /// As NVIDIA's driver names it, e.g. `NVIDIA H100 80GB HBM3`; profiles of GPUs have this name.
    pub driver_name: Option<String>,
    /// Its generation, from which kernel figures follow; `None` where it is not stated.
    pub architecture: Option<Architecture>,
    /// Multiprocessors, the unit in which kernels share the GPU.
    pub multiprocessors: u32,
    /// Peak single-precision FLOP/s of the whole GPU.
    pub peak_flops_s: f64,
    /// Peak FLOP/s of the other precisions, in the order of [`PeakPrecision::ALL`]; single precision is `peak_flops_s`.
    pub(super) peaks: [Option<f64>; 6],
    /// Bytes read or written per second in its own memory.
    pub memory_bandwidth: Bandwidth,
    /// Size of its own memory.
    pub memory: Bytes,
    /// From one kernel to the next, however small they are: driver and framework.
    pub launch: Time,
    /// Its NVLinks, where it has any.
    pub nvlink: Option<Lanes>,
    /// Its PCI Express lanes, where stated.
    pub pcie: Option<Lanes>,
}

impl GpuSpec {
    /// A GPU without a known data sheet, with measured figures.
    pub fn measured(
        model: &str,
        multiprocessors: u32,
        peak_flops_s: f64,
        memory_bandwidth: Bandwidth,
        memory: Bytes,
        launch: Time,
    ) -> GpuSpec {
        GpuSpec {
            model: model.to_string(),
            driver_name: None,
            architecture: None,
            multiprocessors,
            peak_flops_s,
            peaks: [None; 6],
            memory_bandwidth,
            memory,
            launch,
            nvlink: None,
            pcie: None,
        }
    }

    /// Whether a profile's `model` is of such a GPU. Older drivers leave out the maker.
    pub fn is_model(&self, model: &str) -> bool {
        fn short(name: &str) -> &str {
            name.strip_prefix("NVIDIA ").unwrap_or(name)
        }
        self.model == model || self.driver_name.as_deref().is_some_and(|name| short(name) == short(model))
    }

    /// Peak FLOP/s of a precision; `None` where the GPU has no units for it or none is stated.
    pub fn peak(&self, precision: PeakPrecision) -> Option<f64> {
        match precision {
            PeakPrecision::Fp32 => Some(self.peak_flops_s),
            _ => self.peaks[precision as usize],
        }
    }
}

/// A generation of NVIDIA's GPUs, with similar multiprocessors and library kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// K20 to K80.
    Kepler,
    /// M40, GTX Titan X.
    Maxwell,
    /// P100, Titan X.
    Pascal,
    /// V100.
    Volta,
    /// T4.
    Turing,
    /// A100, A10.
    Ampere,
    /// L4.
    Ada,
    /// H100, H200.
    Hopper,
    /// B200, GB200, GB300.
    Blackwell,
    /// AMD's MI50 and MI60.
    Vega,
    /// AMD's MI100.
    Cdna,
    /// AMD's MI210, MI250 and MI250X.
    Cdna2,
    /// AMD's MI300A, MI300X and MI325X.
    Cdna3,
    /// AMD's MI350X and MI355X.
    Cdna4,
}

impl Architecture {
    /// Whether it is AMD's.
    pub fn is_amd(self) -> bool {
        use Architecture::{Cdna, Cdna2, Cdna3, Cdna4, Vega};
        matches!(self, Vega | Cdna | Cdna2 | Cdna3 | Cdna4)
    }
}

crate::named!(Architecture, "architecture":
    Kepler = "kepler", Maxwell = "maxwell", Pascal = "pascal", Volta = "volta", Turing = "turing", Ampere = "ampere", Ada = "ada",
    Hopper = "hopper", Blackwell = "blackwell", Vega = "vega", Cdna = "cdna", Cdna2 = "cdna2", Cdna3 = "cdna3", Cdna4 = "cdna4");

/// A number format that GPUs multiply in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeakPrecision {
    /// Double.
    Fp64,
    /// Single.
    Fp32,
    /// Single in memory, 19 bits in tensor cores.
    Tf32,
    /// Half.
    Fp16,
    /// Half with the range of single.
    Bf16,
    /// Quarter.
    Fp8,
}

// By the keys of their peaks in a cluster file.
crate::named!(PeakPrecision, "peak":
    Fp64 = "peak_fp64", Fp32 = "peak_flops", Tf32 = "peak_tf32", Fp16 = "peak_fp16", Bf16 = "peak_bf16", Fp8 = "peak_fp8");

/// Generation and number of lanes or links: `3.0 x16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lanes {
    /// 3 for `3.0`.
    pub generation: u32,
    /// Lanes of PCI Express, links of NVLink.
    pub count: u32,
}

impl Lanes {
    /// Bytes per second in each direction as PCI Express (PCI Express base specifications: 2.5, 5, 8, 16, 32, 64 GT/s a
    /// lane, 8b/10b up to 2.0, 128b/130b from 3.0, of 6.0's flits of 256 bytes 14 are checks); `None` for an unknown
    /// generation.
    ///
    /// ```
    /// # use lockstep_topology::cluster::Lanes;
    /// let slot: Lanes = "3.0 x16".parse().unwrap();
    /// assert!((slot.pcie().unwrap().bytes_per_s() - 15.754e9).abs() < 1e6);
    /// ```
    pub fn pcie(self) -> Option<Bandwidth> {
        let lane = match self.generation {
            1 | 2 => 2.5e9 * f64::from(self.generation) * 0.8 / 8.0,
            3..=5 => 1e9 * f64::from(1 << self.generation) * (128.0 / 130.0) / 8.0,
            6 => 64e9 * (242.0 / 256.0) / 8.0,
            _ => return None,
        };
        Bandwidth::new(lane * f64::from(self.count))
    }

    /// Bytes per second in each direction as NVLink (NVIDIA's whitepapers on P100, V100, A100, H100, Blackwell: 20, 25,
    /// 25, 25, 50 GB/s a link); `None` for an unknown generation.
    pub fn nvlink(self) -> Option<Bandwidth> {
        let link = match self.generation {
            1 => 20e9,
            2..=4 => 25e9,
            5 => 50e9,
            _ => return None,
        };
        Bandwidth::new(link * f64::from(self.count))
    }
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.0 x{}", self.generation, self.count)
    }
}

impl FromStr for Lanes {
    type Err = String;

    fn from_str(text: &str) -> Result<Lanes, String> {
        let parts = text.split_once(' ').and_then(|(generation, count)| {
            let generation = generation.strip_suffix(".0").unwrap_or(generation).parse().ok()?;
            Some(Lanes { generation, count: count.trim().strip_prefix('x')?.parse().ok()? })
        });
        match parts {
            Some(lanes) if (1..=1024).contains(&lanes.count) => Ok(lanes),
            _ => Err("must be a generation and a number of lanes, like 3.0 x16".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_and_lanes_give_the_rates_of_the_specifications() {
        for (text, rate) in
            [("1.0 x1", 0.25e9), ("2.0 x16", 8e9), ("3.0 x16", 15.7538e9), ("4.0 x8", 15.7538e9), ("6.0 x16", 121e9)]
        {
            let lanes: Lanes = text.parse().unwrap();
            assert!((lanes.pcie().unwrap().bytes_per_s() / rate - 1.0).abs() < 1e-5, "{text}");
            assert_eq!(lanes.to_string(), text);
        }
        // NVIDIA counts both directions: 160, 300, 600, 900 and 1,800 GB/s.
        for (text, both) in
            [("1.0 x4", 160e9), ("2.0 x6", 300e9), ("3.0 x12", 600e9), ("4.0 x18", 900e9), ("5.0 x18", 1800e9)]
        {
            assert_eq!(text.parse::<Lanes>().unwrap().nvlink().unwrap().bytes_per_s() * 2.0, both);
        }
        for text in ["", "x16", "3.0", "3.0x16", "3.0 x0", "3.0 x-1", "3.0 x9999999", "3.5 x16", "-1 x2"] {
            assert!(text.parse::<Lanes>().is_err(), "{text}");
        }
        assert_eq!("9.0 x16".parse::<Lanes>().unwrap().pcie(), None);
        assert_eq!("0.0 x16".parse::<Lanes>().unwrap().nvlink(), None);
    }
}
