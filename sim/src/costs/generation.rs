//! Lists the share of its data sheet that kernels of a generation of GPUs reach, by precision: one table per
//! generation, from published times of single kernels.
//!
//! A product is cut into tiles; a tile of r rows and c columns reaches share / (1 + cost · (1/r + 1/c)) of the peak,
//! since that many more factors are loaded for each multiply-add, and the library takes the fastest tile (NVIDIA,
//! "Matrix Multiplication Background User's Guide", section 2.3). `error` is the mean |ln(predicted / timed)| over the
//! kernels that a table was fitted to; a table without such kernels says so and has a wider one.
//!
//! DeepBench is baidu-research/DeepBench, commit da81ba7, results/train: matrix products, and forward passes and both
//! gradients of convolutions, in NCHW, with cuDNN 7. Constants belong to a generation and a precision, and none to a
//! measured curve.

use lockstep_models::{Dimension, Node, Pass, Precision};
use lockstep_topology::cluster::{Architecture, GpuSpec};

/// Kernels of one generation in one precision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kernels {
    /// Rows and columns of tiles to choose from.
    pub(super) tiles: &'static [[f64; 2]],
    /// Share of the peak that matrix products reach in an endless tile.
    product: f64,
    /// The same for convolutions forward and with respect to their input, and with respect to their weights.
    convolution: f64,
    gradients: f64,
    /// The factor by which a 3×3 convolution without strides reduces multiplications, as kernels reach it (Winograd's).
    winograd: f64,
    /// The cost of a row or a column less in a tile.
    pub(super) small_tile: f64,
    /// The cost of a block's beginning and end, in steps of the sum.
    pub(super) sum_overhead: f64,
    /// Whether gradients with respect to the input of a convolution with strides are computed over all places, most
    /// of them zeros.
    pub(super) all_places: bool,
    /// Share of the data sheet's memory bandwidth.
    pub(super) memory: f64,
    /// Mean |ln(predicted / timed)| of single kernels, or an assumption.
    pub(super) error: f64,
}

/// Tiles of cuBLAS, the most efficient first (NVIDIA, as above), and smaller ones that cuDNN and CUTLASS have.
const TILES: &[[f64; 2]] = &[
    [256.0, 128.0],
    [128.0, 256.0],
    [128.0, 128.0],
    [256.0, 64.0],
    [64.0, 256.0],
    [128.0, 64.0],
    [64.0, 128.0],
    [64.0, 64.0],
    [64.0, 32.0],
    [32.0, 64.0],
    [32.0, 32.0],
];

/// Volta, fp32: fitted to DeepBench's V100 from 0.5 ms on; convolutions, which that leaves within 0.83 to 1 and 0.55 to
/// 0.8, to four frameworks' ResNet-50 on one V100 (`experiments/training`).
const VOLTA_FP32: Kernels = Kernels {
    tiles: TILES,
    product: 0.93,
    convolution: 0.95,
    gradients: 0.72,
    winograd: 2.1,
    small_tile: 4.0,
    sum_overhead: 6.0,
    all_places: true,
    memory: 0.84,
    error: 0.34,
};

/// Volta, fp16 by tensor cores: fitted to the same in mixed precision.
const VOLTA_FP16: Kernels = Kernels {
    tiles: TILES,
    product: 1.0,
    convolution: 0.72,
    gradients: 0.63,
    winograd: 1.0,
    small_tile: 14.0,
    sum_overhead: 42.0,
    all_places: true,
    memory: 0.84,
    error: 0.35,
};

/// Turing, fp16 by tensor cores: fitted to DeepBench's T4 in mixed precision.
const TURING_FP16: Kernels = Kernels {
    tiles: TILES,
    product: 0.98,
    convolution: 0.93,
    gradients: 0.54,
    winograd: 1.0,
    small_tile: 36.0,
    sum_overhead: 190.0,
    all_places: true,
    memory: 0.84,
    error: 0.28,
};

/// Ampere and Ada, 16 bits: Volta's with convolutions fitted to four frameworks' ResNet-50 on one A100
/// (`experiments/training`), since no times of single ones were found.
const AMPERE_HALF: Kernels = Kernels { convolution: 0.75, gradients: 0.6, error: 0.3, ..VOLTA_FP16 };

/// The same in TF32, fitted to the same: activations are twice as long, and so is what a tile loads for each
/// multiply-add.
const AMPERE_TF32: Kernels = Kernels { convolution: 0.39, gradients: 0.31, error: 0.3, ..VOLTA_FP16 };

/// Hopper and Blackwell, 16 bits: assumed as Ampere, with products that reach 0.76 of the peak in cuBLAS's
/// largest tile.
const HOPPER_HALF: Kernels = Kernels { product: 0.9, error: 0.4, ..AMPERE_HALF };

/// The same in TF32: assumed as Ampere.
const HOPPER_TF32: Kernels = Kernels { product: 0.9, error: 0.4, ..AMPERE_TF32 };

/// The same in 8 bits: assumed, products that reach 0.67 of the peak, and convolutions half of it as in 16 bits.
const HOPPER_FP8: Kernels = Kernels { product: 0.8, convolution: 0.33, gradients: 0.26, error: 0.5, ..HOPPER_HALF };

/// The error of data sheets alone for a single kernel of a GPU in a precision: the mean |ln(predicted / timed)| over
/// kernels that others timed, or an assumption.
///
/// ```
/// # use lockstep_sim::costs::kernel_error;
/// # use lockstep_topology::{Cluster, cluster::DeviceKind};
/// let cluster = Cluster::load("dgx-h100").unwrap();
/// let gpus = cluster.devices().iter().filter_map(|device| if let DeviceKind::Gpu(gpu) = &device.kind { Some(gpu) } else { None });
/// assert!(gpus.map(|gpu| kernel_error(gpu, lockstep_models::Precision::F32)).all(|error| error == 0.34));
/// ```
pub fn kernel_error(gpu: &GpuSpec, precision: Precision) -> f64 {
    Kernels::of(gpu, precision).error
}

impl Kernels {
    /// Kepler, Maxwell, Pascal and CDNA 3, and GPUs of unknown generation: assumed, one tile and no difference between passes.
    pub(super) const ASSUMED: Kernels = Kernels {
        tiles: &[[64.0, 32.0]],
        product: 0.6,
        convolution: 0.5,
        gradients: 0.5,
        winograd: 1.0,
        small_tile: 0.0,
        sum_overhead: 32.0,
        all_places: false,
        memory: 0.8,
        error: 0.5,
    };

    /// The kernels of a GPU in a precision. In fp32 generations since Volta are assumed to be like it, since their
    /// cores and libraries are.
    pub(super) fn of(gpu: &GpuSpec, precision: Precision) -> &'static Kernels {
        use Architecture::{
            Ada, Ampere, Blackwell, Cdna, Cdna2, Cdna3, Cdna4, Hopper, Kepler, Maxwell, Pascal, Turing, Vega, Volta,
        };
        match (gpu.architecture, precision) {
            (None | Some(Kepler | Maxwell | Pascal | Vega | Cdna | Cdna2 | Cdna3 | Cdna4), _) => &Kernels::ASSUMED,
            (Some(_), Precision::F32) => &VOLTA_FP32,
            (Some(Volta), _) => &VOLTA_FP16,
            (Some(Turing), _) => &TURING_FP16,
            (Some(Ampere | Ada), Precision::Tf32) => &AMPERE_TF32,
            (Some(Ampere), _) => &AMPERE_HALF,
            (Some(Ada), Precision::F8) => &HOPPER_FP8,
            (Some(Ada), _) => &AMPERE_HALF,
            (Some(Hopper | Blackwell), Precision::Tf32) => &HOPPER_TF32,
            (Some(Hopper | Blackwell), Precision::F8) => &HOPPER_FP8,
            (Some(Hopper | Blackwell), _) => &HOPPER_HALF,
        }
    }

    /// Share of the peak that the arithmetic of a layer's pass reaches in an endless tile; above 1 where it needs fewer
    /// multiplications.
    pub(super) fn share(&self, node: &Node, pass: Pass) -> f64 {
        let Some(product) = node.product() else { return 0.1 };
        // Only convolutions gather their input from an image.
        if product.places <= 1.0 || !node.output.has(Dimension::Row) {
            return self.product;
        }
        let strideless = node
            .input_shapes
            .first()
            .is_some_and(|input| input.size(Dimension::Row) == node.output.size(Dimension::Row));
        let few = if product.kernel == 9.0 && product.groups == 1.0 && strideless { self.winograd } else { 1.0 };
        few * if pass == Pass::BackwardWeight { self.gradients } else { self.convolution }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lockstep_models::Phase;
    use lockstep_topology::Cluster;
    use lockstep_topology::cluster::{Device, DeviceKind, catalogue};

    use super::*;
    use crate::costs::roofline::{Numbers, chain_on};

    /// A GPU of the catalogue in a host.
    fn device(gpu: &str) -> Device {
        let text = format!(
            "name = \"c\"\n[[host]]\nname = \"h\"\n[host.cpu]\ncores = 1\nflops_per_core = \"1GFLOP/s\"\nmemory_bandwidth = \
             \"1GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\nmessage_bandwidth = \"1GB/s\"\n[[host.gpu]]\nname = \
             \"gpu\"\nmodel = \"{gpu}\"\n[[host.link]]\nbetween = [\"cpu\", \"gpu\"]\nlatency = \"1us\"\npcie = \"3.0 x16\"\n"
        );
        let cluster = Cluster::parse("c.toml", &text).expect("a cluster");
        let is_gpu = |device: &&Device| matches!(device.kind, DeviceKind::Gpu(_));
        cluster.devices().iter().find(is_gpu).expect("it has one").clone()
    }

    /// A layer of these sizes, and the time of a pass of it.
    fn seconds(device: &Device, of: &BTreeMap<&str, &str>) -> f64 {
        let layer = match of["kind"] {
            "product" => format!("kind = \"dense\"\nout_features = {}", of["outputs"]),
            _ => format!(
                "kind = \"conv2d\"\nout_channels = {}\nkernel = {}\nstride = {}\npadding = {}",
                of["outputs"], of["kernel"], of["stride"], of["padding"]
            ),
        };
        let (inputs, side) = (of["inputs"], of["side"]);
        let text = format!(
            "name = \"m\"\nsource = \"a test\"\ninput = [{inputs}, {side}, {side}]\n[[layer]]\n{layer}\nbias = false\n[[layer]]\nkind \
             = \"flatten\"\n[[layer]]\nkind = \"softmax_cross_entropy\""
        );
        let model = lockstep_readers::parse_model("m.toml", &text).expect("a model");
        let samples = of["samples"].parse().expect("a number");
        let precision = of["precision"].parse().expect("a precision");
        let numbers = Numbers { precision, ..Numbers::default() };
        let phase = match of["pass"] {
            "forward" => Phase::Forward,
            "backward-data" => Phase::BackwardData,
            _ => Phase::BackwardWeight,
        };
        chain_on(device, &[&model.layers()[1]], numbers, phase, samples).seconds
    }

    #[test]
    fn single_kernels_match_published_times_within_the_error() {
        let mut lines = include_str!("kernels.csv").lines().filter(|line| !line.starts_with('#'));
        let keys: Vec<&str> = lines.next().expect("a header").split(',').collect();
        let mut errors: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for line in lines {
            let of: BTreeMap<&str, &str> = keys.iter().copied().zip(line.split(',')).collect();
            let timed = of["ms"].parse::<f64>().expect("a time") * 1e-3;
            let error = libm::log(seconds(&device(of["gpu"]), &of) / timed);
            errors.entry((of["gpu"], of["precision"])).or_default().push(error.abs());
        }
        assert_eq!(errors.len(), 3);
        let gpus = catalogue().expect("the catalogue");
        for ((gpu, precision), errors) in errors {
            let spec = &gpus.iter().find(|of| of.name == gpu).expect("it is there").spec;
            let kernels = Kernels::of(spec, precision.parse().expect("a precision"));
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            assert!(errors.len() > 100 && mean <= kernels.error, "{gpu} {precision}: {mean:.3} of {}", kernels.error);
            assert!(
                mean > 0.8 * kernels.error,
                "{gpu} {precision}: {mean:.3}, a narrower error than {}",
                kernels.error
            );
        }
    }
}
