//! Tests that the device makes the samples of decoded pictures that the decoding threads make.

use std::cell::RefCell;

use lockstep_cuda::table::TransformPictures;
use lockstep_cuda::{View, picture_word_count, picture_words};
use lockstep_data::{Decoded, Finish, Normalisation, Picture, Transform, Untransformed};
use lockstep_models::ImageShape;
use proptest::prelude::*;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::emulator::Emulator;
use crate::memory::Memory;
use crate::{Theme, few, property, same};

pub(crate) const THEME: Theme = Theme { kernels: &["transform_pictures"], play };

fn play(emulator: &RefCell<Emulator>) {
    let sizes = (1..5usize, prop_oneof![Just(1u32), Just(3)], 1..20u32, 1..20u32);
    property((sizes, 0..3u32), few(100), |((samples, channels, height, width), padding), memory| {
        let shape = ImageShape { channels, height, width };
        transformed(&mut emulator.borrow_mut(), memory, samples, shape, padding);
    });
}

/// A window inside of an image, which begins and ends at whole pixels.
fn window(rng: &mut ChaCha8Rng, height: u32, width: u32) -> (f64, f64, f64, f64) {
    let (rows, columns) = (rng.random_range(1..=height), rng.random_range(1..=width));
    let (top, left) = (rng.random_range(0..=height - rows), rng.random_range(0..=width - columns));
    (top.into(), left.into(), rows.into(), columns.into())
}

/// Pictures of any size, grey ones too, whose windows are resampled, scaled, shifted and mirrored or not.
fn transformed(emulator: &mut Emulator, memory: &mut Memory, samples: usize, shape: ImageShape, padding: u32) {
    let rng = &mut memory.rng;
    let mut decoded = || {
        let (width, height) = (rng.random_range(1..40u16), rng.random_range(1..40u16));
        let channels = if rng.random() { 1 } else { 3 };
        let pixels = (0..usize::from(width) * usize::from(height) * usize::from(channels)).map(|_| rng.random());
        let picture = Picture { width, height, channels, pixels: pixels.collect() };
        let inner = if rng.random() { Some(window(rng, shape.height, shape.width)) } else { None };
        let corner = [rng.random_range(0..=2 * padding), rng.random_range(0..=2 * padding)];
        let finish = Finish { window: inner, padding, corner, mirrored: rng.random() };
        Decoded { picture, transform: Transform { window: window(rng, height.into(), width.into()), finish } }
    };
    let pictures: Vec<Decoded> = (0..samples).map(|_| decoded()).collect();
    let figures = Normalisation { mean: vec![124.0, 116.5, 0.25], deviation: vec![58.0, 57.1, 3.0] };
    let of = Untransformed { samples: pictures.iter().collect(), normalisation: &figures, shape };
    let elements = shape.elements() as usize;
    let mut expected = vec![f32::NAN; samples * elements];
    expected.chunks_exact_mut(elements).enumerate().for_each(|(number, image)| of.make(number, image));
    let mut packed = vec![0; picture_word_count(&of)];
    picture_words(&of, &mut packed);
    let (words, images) = (memory.put(&packed), memory.space::<f32>(expected.len()));
    let ImageShape { channels, height, width } = shape;
    let words: View<u32> = words.read();
    emulator.play(
        memory,
        &TransformPictures { words, images: images.write(), samples: samples as u32, channels, height, width },
    );
    same(&memory.get(images), &expected, "samples of pictures");
}
