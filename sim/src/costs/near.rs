//! Estimates the time of a layer that was not measured: its roofline, scaled as the most similar measured layers are.
//!
//! Seconds = S · exp(Σ wᵢ ln(tᵢ / Sᵢ) / Σ wᵢ) over the three nearest of its kind and phase, with w = 1 / (d + 0.1);
//! tᵢ were measured, and S is a roofline with details of a CPU's kernels that data sheets do not state. The distance
//! d is Σ ln² of the ratios of samples, of FLOPs of a sample and, half as much, of channels and planes on either
//! side, and 3 more where other layers are fused to it. A test leaves each measured layer of the zoo out and
//! estimates it from the others.

use lockstep_models::profile::read_key;
use lockstep_models::{KernelClass, Node, Pass, Phase, samples_per_group};
use lockstep_topology::Dtype;
use lockstep_topology::cluster::{Device, DeviceKind};

use super::roofline::{Numbers, Roof, chain_on, efficiency, elements_moved_by, passes};

/// The number of measured layers that an estimate uses.
const NEAREST: usize = 3;
/// Limits the weight of the nearest.
const SOFT: f64 = 0.1;
/// Distance between chains of other layers.
const OTHER_LAYERS: f64 = 3.0;

/// Seconds per plane for kernels that work plane by plane, besides its elements (assumed).
const PLANE_S: f64 = 16e-9;
/// Share of the peak that maxima over overlapping windows reach (assumed): those are searched one by one.
const OVERLAPPING: f64 = 0.003;
/// Seconds for the exponential of a score, and for its gradient (assumed); of a loss as such.
const SCORE_S: [f64; 2] = [3e-9, 0.3e-9];
const LOSS_S: f64 = 1e-6;

/// One measured phase of a chain.
#[derive(Debug, Clone)]
struct Known {
    nodes: Vec<Node>,
    phase: Phase,
    samples: u32,
    seconds: f64,
    slowdown: f64,
}

/// Measured layers on devices of one model.
#[derive(Debug, Clone)]
pub(super) struct Nearest {
    known: Vec<Known>,
    /// Images, places or samples that a register of a CPU's products holds: fewer take as long.
    side_by_side: u32,
}

impl Nearest {
    /// Without measured layers, of kernels that process this number of images side by side.
    pub(super) fn new(side_by_side: u32) -> Nearest {
        Nearest { known: Vec::new(), side_by_side }
    }

    /// Adds a measured phase; ignores a chain whose key has another form.
    pub(super) fn add(&mut self, chain: &str, phase: Phase, samples: u32, seconds: f64, slowdown: f64) {
        let Some(nodes) = read_key(chain).filter(|_| seconds > 0.0) else { return };
        self.known.push(Known { nodes, phase, samples, seconds, slowdown });
    }

    /// Seconds alone and slowdown of a phase of a chain on `device`; `None` where nothing was measured.
    pub(super) fn estimate(
        &self,
        device: &Device,
        (nodes, numbers): (&[&Node], Numbers),
        phase: Phase,
        samples: u32,
    ) -> Option<(f64, f64)> {
        let kin = |known: &&Known| family(known.nodes.iter()) == family(nodes.iter().copied());
        let alike: [&dyn Fn(&&Known) -> bool; 4] =
            [&|known| kin(known) && known.phase == phase, &|known| kin(known), &|known| known.phase == phase, &|_| {
                true
            }];
        let mut near: Vec<(f64, &Known)> = alike.iter().find_map(|alike| {
            let found: Vec<_> =
                self.known.iter().filter(alike).map(|known| (distance(known, nodes, samples), known)).collect();
            (!found.is_empty()).then_some(found)
        })?;
        near.sort_by(|a, b| a.0.total_cmp(&b.0));
        near.truncate(NEAREST);
        let (mut weights, mut logs, mut slowdown) = (0.0, 0.0, 0.0);
        for (distance, known) in near {
            let own: Vec<&Node> = known.nodes.iter().collect();
            let roof = likely(device, self.side_by_side, (&own, numbers), known.phase, known.samples);
            if roof > 0.0 {
                let weight = 1.0 / (distance + SOFT);
                weights += weight;
                logs += weight * libm::log(known.seconds / roof);
                slowdown += weight * known.slowdown;
            }
        }
        let factor = if weights > 0.0 { libm::exp(logs / weights) } else { 1.0 };
        let slowdown = if weights > 0.0 { slowdown / weights } else { 1.0 };
        Some((likely(device, self.side_by_side, (nodes, numbers), phase, samples) * factor, slowdown))
    }
}

/// Layers with similar kernels, named by the first that computes.
fn family<'a>(mut nodes: impl Iterator<Item = &'a Node>) -> &'static str {
    let computing = nodes.find(|node| !node.layer.rule().kind().is_view);
    computing.map_or("flatten", |node| node.layer.rule().kind().family)
}

fn distance(known: &Known, nodes: &[&Node], samples: u32) -> f64 {
    let own: Vec<&Node> = known.nodes.iter().collect();
    let both = sizes(&own, known.samples).into_iter().zip(sizes(nodes, samples));
    let squares = both.zip(WEIGHTS).map(|((known, wanted), weight)| {
        let log = libm::log(known / wanted);
        weight * log * log
    });
    let kinds = |nodes: &[&Node]| nodes.iter().map(|node| node.layer.kind()).collect::<Vec<_>>();
    squares.sum::<f64>() + if kinds(&own) == kinds(nodes) { 0.0 } else { OTHER_LAYERS }
}

/// The weight of each of the sizes below in a distance.
const WEIGHTS: [f64; 6] = [1.0, 0.5, 0.5, 0.5, 0.5, 1.0];

/// Samples; channels and elements of a plane of the first layer's input and output; FLOPs of a sample. All at least 1.
fn sizes(nodes: &[&Node], samples: u32) -> [f64; 6] {
    let Some(first) = nodes.first() else { return [1.0; 6] };
    let input = first.input_shapes.first().unwrap_or(&first.output);
    let plane = |shape: &lockstep_models::Shape| shape.places() as f64;
    let flops: f64 = nodes.iter().map(|node| node.work(Pass::Forward, 1).flops).sum();
    [
        f64::from(samples),
        f64::from(input.features()),
        f64::from(first.output.features()),
        plane(input),
        plane(&first.output),
        flops.max(1.0),
    ]
}

/// The roofline's seconds, on a CPU with known details of its kernels: products fill registers, planes and scores
/// take time each.
fn likely(
    device: &Device,
    side_by_side: u32,
    (nodes, numbers): (&[&Node], Numbers),
    phase: Phase,
    samples: u32,
) -> f64 {
    if matches!(device.kind, DeviceKind::Gpu(_)) {
        return chain_on(device, nodes, numbers, phase, samples).seconds;
    }
    let roof = Roof::of(device);
    let mut seconds = 0.0;
    for (position, node) in nodes.iter().enumerate() {
        for pass in passes(node, phase, position) {
            let work = node.work(*pass, samples);
            let arithmetic = work.flops * filling(node, *pass, samples, side_by_side);
            let overlapping = *pass == Pass::Forward && node.layer.rule().finds_overlapping_maxima();
            let share = if overlapping { OVERLAPPING } else { efficiency(node) };
            let elements = elements_moved_by(nodes, position, *pass, samples);
            let bytes = elements * Dtype::F32.bytes(1) as f64 + work.kept_bytes;
            seconds += (arithmetic / (roof.flops_s * share)).max(bytes / roof.bytes_s);
            seconds += numbers.casts(node, *pass, elements, true) / roof.bytes_s;
            seconds += f64::from(samples) * by_piece(node, *pass, position);
            seconds += if node.layer.is_loss() { LOSS_S } else { 0.0 };
        }
    }
    seconds
}

/// How much more work a product does than its FLOPs, because its registers, of `side_by_side` elements, are not full.
fn filling(node: &Node, pass: Pass, samples: u32, side_by_side: u32) -> f64 {
    // Smaller groups leave registers to several places, as a single image does.
    let filled = samples_per_group(samples.into(), side_by_side.into()) == Some(side_by_side.into());
    let (samples, register) = (f64::from(samples), f64::from(side_by_side));
    match node.product() {
        Some(product) if product.places > 1.0 => {
            if filled {
                (samples / register).ceil() * register / samples
            } else {
                (register / product.places).max(1.0)
            }
        }
        // A single sample is a product of a matrix and a vector, which needs no such filling.
        Some(_) if pass == Pass::Forward && samples > 1.0 => (register / samples).max(1.0),
        _ => 1.0,
    }
}

/// Seconds that planes, or scores, of a sample take besides their elements.
fn by_piece(node: &Node, pass: Pass, position: usize) -> f64 {
    let Some(input) = node.input_shapes.first() else { return 0.0 };
    match node.layer.rule().kind().class {
        _ if node.product().is_some() => 0.0,
        KernelClass::Planes if position == 0 => PLANE_S * f64::from(input.features()),
        KernelClass::Scores => SCORE_S[usize::from(pass != Pass::Forward)] * f64::from(input.features()),
        _ => 0.0,
    }
}

/// Seconds estimated for `entry` from the measured layers of a CPU, which may include it or not.
#[cfg(test)]
pub(crate) fn estimated(
    profile: &lockstep_models::profile::Profile,
    device: &Device,
    entry: &lockstep_models::profile::ComputeEntry,
) -> Option<f64> {
    let phase = |name: &str| Phase::MEASURED.into_iter().find(|phase| phase.name() == name);
    let mut nearest = Nearest::new(profile.side_by_side);
    for known in &profile.compute {
        nearest.add(&known.chain, phase(&known.phase)?, known.samples, known.seconds.value, known.slowdown);
    }
    let nodes = read_key(&entry.chain)?;
    let nodes: Vec<&Node> = nodes.iter().collect();
    let numbers = Numbers::default();
    nearest.estimate(device, (&nodes, numbers), phase(&entry.phase)?, entry.samples).map(|(seconds, _)| seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of images that is at least two thirds full takes as long as a full one; with fewer images, a register holds
    /// several places of one image.
    #[test]
    fn partly_filled_registers_take_as_long_as_full_ones() {
        let nodes = read_key("conv2d 32x6x6>64x2x2 k5x5 s1x1 p0x0 d1x1 g1 bias").expect("a chain");
        for (samples, register, expected) in
            [(8, 8, 1.0), (8, 16, 4.0), (12, 8, 16.0 / 12.0), (12, 16, 16.0 / 12.0), (2, 8, 2.0)]
        {
            let found = filling(&nodes[0], Pass::Forward, samples, register);
            assert!((found - expected).abs() < 1e-12, "{samples} images in registers of {register}: {found}");
        }
    }
}
