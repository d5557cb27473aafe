//! Loads the 5,000 MNIST digits that are part of the binary, with their fixed split into 4,000 to train and 1,000 held
//! out.
//!
//! Origin, licence and format are in `data/README.md`. The split does not depend on the run's seed, so that runs with
//! different seeds are evaluated on the same digits.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use lockstep_models::Shape;
use lockstep_topology::{ErrorPlace, InputError};

use super::Dataset;
use super::split::stratified;

/// The file as it ships.
const FILE: &[u8] = include_bytes!("../../../../data/mnist-5k.csv.gz");

/// Seed of the split: the year of MNIST's paper. It must never change, or accuracies stop being comparable.
const SPLIT_SEED: u64 = 1998;

/// One in five digits is held out: 100 of each class.
const HELD_OUT: (u32, u32) = (1, 5);

/// Shape of a grey image.
const SHAPE: Shape = Shape::of_image(1, 28, 28);

/// Number of classes.
const CLASSES: u32 = 10;

/// Returns (4,000 to train, 1,000 held out), pixels 0 to 255 as in the file.
pub(super) fn load() -> Result<(Dataset, Dataset), InputError> {
    let all = parse("mnist", FILE)?;
    let (train, held_out) = stratified(&all.labels, CLASSES, HELD_OUT.0, HELD_OUT.1, SPLIT_SEED);
    Ok((all.subset(&train), all.subset(&held_out)))
}

/// Reads gzipped lines of 784 pixels and a label.
fn parse(place: &str, gzipped: &[u8]) -> Result<Dataset, InputError> {
    let mut text = Vec::new();
    if let Err(error) = MultiGzDecoder::new(gzipped).read_to_end(&mut text) {
        let found = format!("{} bytes unpacked", text.len());
        return Err(InputError::new(place, found, format!("the gzip stream is broken ({error}): restore the file")));
    }
    let pixels = SHAPE.elements() as usize;
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n');
    for (number, line) in lines.enumerate() {
        let place = || ErrorPlace::line(place, number + 1);
        let before = images.len();
        for field in line.split(|byte| *byte == b',') {
            let value: Option<u8> = std::str::from_utf8(field).ok().and_then(|field| field.trim().parse().ok());
            let value = value.ok_or_else(|| {
                InputError::new(place(), String::from_utf8_lossy(field), "must be a whole number from 0 to 255")
            })?;
            images.push(f32::from(value));
        }
        let found = images.len() - before;
        if found != pixels + 1 {
            let message = format!("must have {} fields: {pixels} pixels and the label", pixels + 1);
            return Err(InputError::new(place(), format!("{found} fields"), message));
        }
        labels.extend(images.pop().map(|label| label as u32));
    }
    Dataset::new(place, SHAPE, CLASSES, images, labels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        crate::idx::compress(text).unwrap()
    }

    fn line(label: &str) -> String {
        format!("{}{label}\n", "7,".repeat(784))
    }

    #[test]
    fn four_thousand_train_and_a_thousand_are_held_out_evenly() {
        let (train, held_out) = load().unwrap();
        for class in 0..10 {
            let of = |data: &Dataset| data.labels.iter().filter(|label| **label == class).count();
            assert_eq!((of(&train), of(&held_out)), (400, 100), "digit {class}");
        }
        assert!(train.values().iter().all(|pixel| (0.0..=255.0).contains(pixel)));
    }

    #[test]
    fn no_held_out_digit_is_trained_on() {
        let (train, held_out) = load().unwrap();
        let train: std::collections::BTreeSet<Vec<u8>> = (0..train.len()).map(|i| bytes(&train, i)).collect();
        assert_eq!(train.len(), 4_000, "no digit is given twice in the training part");
        assert!((0..held_out.len()).all(|i| !train.contains(&bytes(&held_out, i))));
    }

    fn bytes(data: &Dataset, sample: usize) -> Vec<u8> {
        data.values()[sample * 784..(sample + 1) * 784].iter().map(|pixel| *pixel as u8).collect()
    }

    #[test]
    fn bad_files_are_named_with_line_and_cure() {
        let good = line("3");
        let data = parse("d.csv", &gzip((good.clone() + &line("9")).as_bytes())).unwrap();
        assert_eq!((&data.labels[..], data.values()[783]), (&[3, 9][..], 7.0));
        let cases: [(Vec<u8>, &str); 7] = [
            (gzip(good.as_bytes())[..20].to_vec(), "restore the file"),
            (b"plain text".to_vec(), "gzip stream is broken"),
            (gzip(b""), "d.csv:1: must be a whole number"),
            (gzip((good.clone() + &line("12")).as_bytes()), "label 12"),
            (gzip((good.clone() + "1,2,3\n").as_bytes()), "d.csv:2: 3 fields: must have 785"),
            (gzip((good.clone() + &line("-1")).as_bytes()), "d.csv:2: -1: must be a whole number from 0 to 255"),
            (gzip(b"\xff\xfe\n"), "d.csv:1"),
        ];
        for (file, message) in cases {
            let error = parse("d.csv", &file).unwrap_err().to_string();
            assert!(error.contains(message), "{error} lacks {message}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn mutated_files_never_panic(at in 0usize..3_000, byte: u8, cut in 0usize..3_000, packed: bool) {
            let text = line("3") + &line("4");
            let mut file = if packed { gzip(text.as_bytes()) } else { text.into_bytes() };
            let length = file.len();
            file[at % length] = byte;
            file.truncate(length - cut % length);
            let _ = parse("d.csv", &if packed { file } else { gzip(&file) });
        }
    }
}
