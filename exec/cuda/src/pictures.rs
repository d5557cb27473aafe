//! Packs decoded pictures and their transforms into the words that the kernel `transform_pictures` reads.

use lockstep_data::{Decoded, Untransformed};

/// Words of a picture's record, in the order of the kernel's `Record`.
const RECORD: usize = 17;

/// The number of words of a batch.
pub fn picture_word_count(of: &Untransformed<'_>) -> usize {
    let pixels: usize = of.samples.iter().map(|sample| sample.picture.pixels.len().div_ceil(4)).sum();
    2 * of.shape.channels as usize + RECORD * of.samples.len() + pixels
}

/// Writes a batch: means and scales of the channels as bits of fp32, a record for each picture, and the pictures' bytes,
/// each from a whole word.
///
/// # Panics
/// When `words` is not [`picture_word_count`] long, or takes 2^32 words and more.
pub fn picture_words(of: &Untransformed<'_>, words: &mut [u32]) {
    assert_eq!(words.len(), picture_word_count(of), "room for the pictures");
    let channels = of.shape.channels as usize;
    let (scales, rest) = words.split_at_mut(2 * channels);
    for channel in 0..channels {
        scales[channel] = (of.normalisation.mean[channel] as f32).to_bits();
        scales[channels + channel] = ((1.0 / of.normalisation.deviation[channel]) as f32).to_bits();
    }
    let (records, mut pixels) = rest.split_at_mut(RECORD * of.samples.len());
    let mut first = 2 * channels + records.len();
    for (Decoded { picture, transform }, record) in of.samples.iter().zip(records.chunks_exact_mut(RECORD)) {
        // Windows begin and end at whole pixels.
        let window = |(top, left, height, width): (f64, f64, f64, f64)| [top, left, height, width].map(|at| at as u32);
        let finish = &transform.finish;
        let size = [picture.height.into(), picture.width.into(), picture.channels.into()];
        let inner = finish.window.map_or([0; 4], window);
        let fields = [&[u32::try_from(first).expect("fewer than 2^32 words")][..], &size, &window(transform.window)];
        let rest = [finish.padding, finish.corner[0], finish.corner[1], finish.mirrored.into()];
        let fields = [&fields.concat()[..], &[finish.window.is_some().into()], &inner, &rest].concat();
        record.copy_from_slice(&fields);
        let (own, others) = pixels.split_at_mut(picture.pixels.len().div_ceil(4));
        for (word, bytes) in own.iter_mut().zip(picture.pixels.chunks(4)) {
            let mut of_word = [0; 4];
            of_word[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_le_bytes(of_word);
        }
        first += own.len();
        pixels = others;
    }
}
