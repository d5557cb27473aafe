//! Generates seeded sets in the shapes of ImageNet, CIFAR-10 and MNIST, for benches and experiments: sample n is the
//! same whatever the number of samples or threads.
//!
//! An image is smooth noise in octaves, the slowest of which depend on the class, plus grain. For ImageNet the
//! amplitudes are chosen so that JPEG files are near ImageNet's mean of about 110 kB at about 400 × 350 pixels, and
//! decode at realistic rates.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_topology::InputError;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::idx;
use crate::picture;
use crate::pixels::Picture;

/// The set that a generated one resembles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Like {
    /// 1,000 class folders of JPEG files, most of 500 × 375 pixels (Russakovsky et al., "ImageNet large scale visual recognition
    /// challenge", 2015).
    Imagenet,
    /// CIFAR-10's binaries: 10 classes, 3 × 32 × 32 bytes.
    Cifar,
    /// MNIST's IDX files: 10 classes, 28 × 28 bytes.
    Mnist,
}

impl Like {
    /// Classes of the set.
    pub fn classes(self) -> u32 {
        if self == Like::Imagenet { 1000 } else { 10 }
    }
}

/// JPEG quality of ImageNet's images here.
const JPEG: u8 = 94;
/// Samples of one CIFAR file.
const BATCH: usize = 10_000;

/// A picture of a class: `octaves` grids of noise, the coarsest first and the first two drawn by the class, and grain
/// of ±`grain`.
fn draw((seed, number, class): (u64, u64, u32), (width, height, channels): (u16, u16, u8), grain: i32) -> Picture {
    let mut own = stream(seed, 2 * number + 1);
    let mut shared = stream(seed, 2 * u64::from(class));
    let (columns, rows, planes) = (usize::from(width), usize::from(height), usize::from(channels));
    let mut values = vec![128i32 * 256; columns * rows * planes];
    let mut cell = usize::from(width.max(height)).next_power_of_two() / 2;
    let mut amplitude = 60i32;
    for octave in 0.. {
        if cell < 4 || amplitude < 4 {
            break;
        }
        let random = if octave < 2 { &mut shared } else { &mut own };
        add_noise(&mut values, (columns, rows, planes), cell, amplitude, random);
        (cell, amplitude) = (cell / 2, amplitude * 3 / 4);
    }
    let mut bytes = vec![0u8; values.len()];
    own.fill_bytes(&mut bytes);
    let span = 2 * grain + 1;
    let pixels = values.iter().zip(bytes).map(|(value, byte)| {
        let noise = i32::from(byte) * span / 256 - grain;
        (value / 256 + noise).clamp(0, 255) as u8
    });
    Picture { width, height, channels, pixels: pixels.collect() }
}

/// The numbers of purpose `number`.
fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(number);
    random
}

/// Adds a grid of random values, one every `cell` pixels with linear interpolation, in 1/256 of a step.
fn add_noise(
    values: &mut [i32],
    (columns, rows, planes): (usize, usize, usize),
    cell: usize,
    amplitude: i32,
    random: &mut impl Rng,
) {
    let across = columns / cell + 2;
    let grid: Vec<i32> =
        (0..across * (rows / cell + 2) * planes).map(|_| random.random_range(-amplitude..=amplitude)).collect();
    let size = cell as i32;
    for (y, row) in values.chunks_exact_mut(columns * planes).enumerate() {
        let (top, down) = (y / cell, (y % cell) as i32);
        for (x, pixel) in row.chunks_exact_mut(planes).enumerate() {
            let (left, right) = (x / cell, (x % cell) as i32);
            for (plane, value) in pixel.iter_mut().enumerate() {
                let at = |y: usize, x: usize| grid[(y * across + x) * planes + plane];
                let upper = at(top, left) * (size - right) + at(top, left + 1) * right;
                let lower = at(top + 1, left) * (size - right) + at(top + 1, left + 1) * right;
                *value += ((upper * (size - down) + lower * down) / size) * 256 / size;
            }
        }
    }
}

/// Width and height of ImageNet's image `number`: two fifths 500 × 375, one fifth 375 × 500, the others of random size
/// near that.
fn size(random: &mut impl Rng) -> (u16, u16) {
    match random.random_range(0..10u32) {
        0..4 => (500, 375),
        4 | 5 => (375, 500),
        _ => (random.random_range(200..=480), random.random_range(180..=420)),
    }
}

/// The `number`-th JPEG file of a set like ImageNet, of class `class`.
///
/// # Errors
/// Encoder errors.
pub fn jpeg(seed: u64, number: u64, class: u32) -> Result<Vec<u8>, String> {
    let (width, height) = size(&mut stream(seed ^ 0x5152, number));
    picture::encode(&draw((seed, number, class), (width, height, 3), 27), JPEG)
}

/// The `[channels, height, width]` bytes of the `number`-th sample of a set of small images.
fn array(seed: u64, number: u64, class: u32, size: (u16, u16, u8)) -> Vec<u8> {
    let picture = draw((seed, number, class), size, 12);
    let planes = usize::from(size.2);
    (0..planes).flat_map(|plane| picture.pixels.iter().skip(plane).step_by(planes).copied()).collect()
}

/// Writes a set of `samples` samples that resembles `like` into the folder `out`, which must be new or empty; sample n
/// is of class n mod `classes`. Sets of small images have a sixth as many held out. `progress` is called with the
/// number of samples done, and stops the generation by returning false.
///
/// # Errors
/// A folder that has files or cannot be written, or `progress` that stops it.
pub fn generate(
    (like, classes): (Like, u32),
    (samples, seed): (usize, u64),
    out: &Path,
    threads: usize,
    progress: impl Fn(usize) -> bool + Sync,
) -> Result<(), InputError> {
    let wrong = |message: String| InputError::flag("out", out.display().to_string(), message);
    if samples == 0 || classes == 0 {
        return Err(InputError::flag("samples", samples.to_string(), "must be 1 or more, of 1 class or more"));
    }
    if out.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(wrong("has files already: name a new folder".to_owned()));
    }
    let written = std::fs::create_dir_all(out).and_then(|()| match like {
        Like::Imagenet => folders((samples, classes, seed), out, threads, progress),
        Like::Cifar => cifar((samples, classes, seed), out, progress),
        Like::Mnist => mnist((samples, classes, seed), out, progress),
    });
    written.map_err(|failure| wrong(format!("cannot be written: {failure}; name another folder")))
}

fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}

fn folders(
    (samples, classes, seed): (usize, u32, u64),
    out: &Path,
    threads: usize,
    progress: impl Fn(usize) -> bool + Sync,
) -> io::Result<()> {
    let folder = |class: u32| -> PathBuf { out.join(format!("n{class:08}")) };
    (0..classes.min(samples as u32)).try_for_each(|class| std::fs::create_dir(folder(class)))?;
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= samples {
                return Ok(());
            }
            let class = (number as u64 % u64::from(classes)) as u32;
            let bytes = jpeg(seed, number as u64, class).map_err(io::Error::other)?;
            std::fs::write(folder(class).join(format!("n{class:08}_{number}.JPEG")), bytes)?;
            if !progress(number + 1) {
                return Err(stopped());
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, io::Result<()>>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).fold(Ok(()), io::Result::and)
    })
}

/// The numbers of the training part, then of the held-out part.
fn parts(samples: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    (0..samples, samples..samples + samples.div_ceil(6))
}

fn cifar((samples, classes, seed): (usize, u32, u64), out: &Path, progress: impl Fn(usize) -> bool) -> io::Result<()> {
    let (train, held_out) = parts(samples);
    let batch = |name: String, numbers: std::ops::Range<usize>| -> io::Result<()> {
        let mut file = io::BufWriter::new(std::fs::File::create_new(out.join(name))?);
        for number in numbers {
            let class = (number as u64 % u64::from(classes.min(10))) as u32;
            file.write_all(&[class as u8])?;
            file.write_all(&array(seed, number as u64, class, (32, 32, 3)))?;
            if !progress(number + 1) {
                return Err(stopped());
            }
        }
        file.flush()
    };
    for (file, begin) in train.clone().step_by(BATCH).enumerate() {
        batch(format!("data_batch_{}.bin", file + 1), begin..(begin + BATCH).min(train.end))?;
    }
    batch("test_batch.bin".to_owned(), held_out)
}

fn mnist((samples, classes, seed): (usize, u32, u64), out: &Path, progress: impl Fn(usize) -> bool) -> io::Result<()> {
    let (train, held_out) = parts(samples);
    for (prefix, numbers) in [("train", train), ("t10k", held_out)] {
        let create =
            |name: &str| std::fs::File::create_new(out.join(format!("{prefix}-{name}"))).map(io::BufWriter::new);
        let (mut images, mut labels) = (create("images-idx3-ubyte")?, create("labels-idx1-ubyte")?);
        let length = numbers.len() as u32;
        images.write_all(&idx::encode(&[length, 28, 28], &[]))?;
        labels.write_all(&idx::encode(&[length], &[]))?;
        for number in numbers {
            let class = (number as u64 % u64::from(classes.min(10))) as u32;
            images.write_all(&array(seed, number as u64, class, (28, 28, 1)))?;
            labels.write_all(&[class as u8])?;
            if !progress(number + 1) {
                return Err(stopped());
            }
        }
        images.flush()?;
        labels.flush()?;
    }
    Ok(())
}
