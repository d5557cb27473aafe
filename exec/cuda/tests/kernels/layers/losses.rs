//! Tests cross-entropies.

use lockstep_cuda::layers::CrossEntropyKernels;
use lockstep_exec::device::cpu;
use lockstep_models::{Layer, Precision};
use rand::RngExt;

use super::{Own, libraries};
use crate::emulator::Emulator;
use crate::memory::{Held, Memory};
use crate::{merged, near};

/// A batch of `samples`, on a loss made for `spare` more.
pub(crate) fn agree(
    emulator: &mut Emulator,
    memory: &mut Memory,
    samples: u32,
    classes: u32,
    spare: u32,
    [logistic, accumulate]: [bool; 2],
) {
    let layer = if logistic { Layer::LogisticCrossEntropy } else { Layer::SoftmaxCrossEntropy };
    let elements = (samples * classes) as usize;
    let logits: Vec<f32> = memory.values(elements).iter().map(|x| 4.0 * x).collect();
    let labels: Vec<u32> = (0..samples).map(|_| memory.rng.random_range(0..classes)).collect();
    let mut on_cpu = cpu::CrossEntropy::new(&layer, classes as usize, samples as usize);
    let found = on_cpu.forward(&logits, &labels);

    let mut loss = CrossEntropyKernels::new(&layer, classes, samples + spare, &mut Own(memory));
    let (x, y) = (memory.put(&logits), memory.put(&labels));
    let mut commands = Vec::new();
    loss.forward(x.read(), y.read(), &mut commands);
    let before = memory.values(elements);
    let d_logits = memory.put(&before);
    loss.backward(0.25, d_logits.write(), accumulate, &mut commands);
    libraries::play(&commands, Precision::F32, emulator, memory);

    let narrow = |values: Vec<f64>| values.into_iter().map(|value| value as f32).collect::<Vec<f32>>();
    let losses = narrow(memory.get(Held::of(loss.losses())));
    near(&losses, &narrow(on_cpu.losses()), "losses by sample");
    near(&narrow(memory.get(Held::of(loss.totals()))), &[found.sum as f32], "sum of losses");
    let rank = |(row, label): (&[f32], &u32)| {
        let own = row[*label as usize];
        (0..classes).zip(row).filter(|(class, x)| **x > own || (**x == own && class < label)).count()
    };
    let ranks: Vec<usize> = logits.chunks_exact(classes as usize).zip(&labels).map(rank).collect();
    let below = |limit: usize| ranks.iter().filter(|rank| **rank < limit).count() as u32;
    assert_eq!(memory.get(Held::of(loss.counts())), [found.correct as u32, below(5)]);
    let mut gradient = vec![f32::NAN; elements];
    on_cpu.backward(0.25, &mut gradient, false);
    near(&memory.get(d_logits), &merged(&before, &gradient, accumulate), "gradient towards the logits");
}
