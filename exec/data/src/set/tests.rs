//! Tests data sets: `--data` loads normalised data that fit the model, and refuses what does not fit.

use super::*;

fn small() -> Dataset {
    let images = (0..12).map(|x| x as f32).collect();
    Dataset::new("small", Shape::of_image(1, 2, 2), 3, images, vec![0, 2, 1]).unwrap()
}

#[test]
fn the_digits_are_normalised_by_their_training_part() {
    let model = lockstep_readers::load_model("lenet").unwrap();
    let (train, held_out) = Dataset::load("mnist", &model).unwrap();
    assert_eq!((train.len(), held_out.len(), train.classes()), (4_000, 1_000, 10));
    let normalisation = train.pixels.normalisation(train.shape);
    assert!(normalisation.mean[0].abs() < 1e-6 && (normalisation.deviation[0] - 1.0).abs() < 1e-6, "{normalisation:?}");
    // The held-out part was scaled by the training part's statistics, so its own are near 0 and 1 but not equal.
    let own = held_out.pixels.normalisation(held_out.shape);
    assert!(own.mean[0].abs() < 0.02 && (own.deviation[0] - 1.0).abs() < 0.02, "{own:?}");
    assert!(own.mean[0].abs() > 1e-5);
    // White paper is the smallest value: −mean / deviation; data/README.md states both.
    let paper = train.values().iter().copied().fold(f32::MAX, f32::min);
    assert!((f64::from(paper) + 33.516 / 78.711).abs() < 1e-3, "{paper}");
}

#[test]
fn the_documented_figures_are_those_of_the_digits() {
    let (train, _) = digits::load().unwrap();
    let normalisation = train.pixels.normalisation(train.shape);
    assert!(
        (normalisation.mean[0] - 33.5).abs() < 0.05 && (normalisation.deviation[0] - 78.7).abs() < 0.05,
        "{normalisation:?}"
    );
}

#[test]
fn synthetic_data_take_the_shape_of_the_model() {
    for (model, shape) in [("lenet", (1, 28, 28)), ("resnet-32", (3, 32, 32))] {
        let model = lockstep_readers::load_model(model).unwrap();
        let (train, held_out) = Dataset::load("synthetic:40", &model).unwrap();
        let found = train.shape().image();
        assert_eq!((found.channels, found.height, found.width), shape);
        assert_eq!((train.len(), held_out.len(), train.classes()), (40, 10, 10));
        let normalisation = train.pixels.normalisation(train.shape);
        assert!(normalisation.mean.iter().all(|mean| mean.abs() < 1e-6), "{normalisation:?}");
    }
    let (train, held_out) = Dataset::load("synthetic", &lockstep_readers::load_model("lenet").unwrap()).unwrap();
    assert_eq!((train.len(), held_out.len()), (4_000, 1_000));
}

#[test]
fn gather_copies_the_requested_samples() {
    let (mut images, mut labels) = ([0.0; 12], [9; 3]);
    small().gather(&[2, 0, 2], &mut images, &mut labels).unwrap();
    assert_eq!(images, [8.0, 9.0, 10.0, 11.0, 0.0, 1.0, 2.0, 3.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(labels, [1, 0, 1]);
}

#[test]
fn patches_of_larger_images_fit_a_smaller_model() {
    let of = |pixels: u32| {
        let text =
            include_str!("../../../../models/zoo/mlp.toml").replace("[1, 28, 28]", &format!("[1, {pixels}, {pixels}]"));
        lockstep_readers::parse_model("patches.toml", &text).unwrap()
    };
    let error = Dataset::load("mnist", &of(24)).unwrap_err().to_string();
    assert!(error.contains("images of 1×28×28: the model mlp takes 1×24×24: use patches of them"), "{error}");
    let patch: Augmentation = "patch".parse().unwrap();
    let (train, held_out) = Dataset::load_augmented("mnist", &of(24), patch).unwrap();
    let (whole, whole_held_out) = Dataset::load("mnist", &of(28)).unwrap();
    assert_eq!((train.shape(), held_out.shape()), (of(24).input(), of(24).input()));

    // Wherever a patch was cut, its pixels are in the image at an offset of 0 to 4; a held-out patch is the central
    // one.
    let (image, patch) = (|data: &Dataset| data.values()[..784].to_vec(), &mut [0.0; 576]);
    let stands_at = |patch: &[f32], image: &[f32], down: usize, right: usize| {
        patch.chunks(24).zip(image.chunks(28).skip(down)).all(|(row, of)| row == &of[right..right + 24])
    };
    train.draw(&[0], 1, 0, patch, &mut [0]).unwrap();
    let corners: Vec<_> = (0..5).flat_map(|down| (0..5).map(move |right| (down, right))).collect();
    assert!(corners.iter().any(|(down, right)| stands_at(patch, &image(&whole), *down, *right)));
    held_out.draw(&[0], 1, 0, patch, &mut [0]).unwrap();
    assert!(stands_at(patch, &image(&whole_held_out), 2, 2));

    let error = Dataset::load_augmented("mnist", &of(32), "patch".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("images of 1×28×28: are too small for patches of 1×32×32"), "{error}");
}

#[test]
fn invalid_data_sets_are_refused() {
    let shape = Shape::flat(2);
    for (shape, images, labels, message) in [
        (shape, vec![], vec![], "p: 0 samples of 2×1×1: is empty"),
        (Shape::flat(0), vec![], vec![0], "is empty: give images"),
        (shape, vec![0.0; 3], vec![0, 1], "p: 3 values: do not make 2 images of 2×1×1"),
        (shape, vec![0.0; 4], vec![0, 3], "p: label 3: of sample 1 must be below 3, the number of classes"),
    ] {
        let error = Dataset::new("p", shape, 3, images, labels).unwrap_err().to_string();
        assert!(error.contains(message), "{error} lacks {message}");
    }
}

#[test]
fn data_that_do_not_fit_the_model_are_refused() {
    let data = small();
    assert_eq!(data.check_takes("tiny", data.shape, 3), Ok(()));
    assert_eq!(data.check_takes("tiny", data.shape, 1_000), Ok(()), "a model may know more classes");
    let error = data.check_takes("tiny", data.shape, 2).unwrap_err().to_string();
    assert_eq!(error, "small: 3 classes: the model tiny tells 2 apart: give its last layer 3 outputs");
    let error = Dataset::load("mnist", &lockstep_readers::load_model("resnet-32").unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("mnist: images of 1×28×28: the model resnet-32 takes 3×32×32: choose other data"),
        "{error}"
    );
}

#[test]
fn unknown_data_sets_are_refused_with_the_nearest_name() {
    let model = lockstep_readers::load_model("mlp").unwrap();
    for (what, message) in [
        ("mnits", "--data: mnits: there is no such folder or file: did you mean mnist?"),
        ("sythetic", "did you mean synthetic?"),
        ("/nowhere/at/all", "--data: /nowhere/at/all: there is no such folder or file: write mnist"),
        ("", "there is no such folder or file"),
        ("synthetic:x", "--data: synthetic:x: write a whole number"),
        ("\0", "there is no such folder or file"),
    ] {
        let error = Dataset::load(what, &model).unwrap_err().to_string();
        assert!(error.contains(message), "{error} lacks {message}");
    }
}

/// A tenth of 400 and 100 digits of each class: always the same ones, none twice, normalised by the subset's own
/// statistics.
#[test]
fn a_subset_is_fixed_and_has_its_share_of_each_class() {
    let mlp = lockstep_readers::load_model("mlp").unwrap();
    let (train, held_out) = Dataset::load("mnist:400+100", &mlp).unwrap();
    assert_eq!((train.len(), held_out.len()), (400, 100));
    for class in 0..10 {
        let of = |data: &Dataset| data.labels().iter().filter(|label| **label == class).count();
        assert_eq!((of(&train), of(&held_out)), (40, 10), "digit {class}");
    }
    assert_eq!((train.clone(), held_out), Dataset::load("mnist:400+100", &mlp).unwrap());
    let images: std::collections::BTreeSet<Vec<u32>> =
        train.values().chunks(784).map(|image| image.iter().map(|pixel| pixel.to_bits()).collect()).collect();
    assert_eq!(images.len(), 400);
    let (odd, _) = Dataset::load("mnist:407+1000", &mlp).unwrap();
    let counts: Vec<usize> =
        (0..10).map(|class| odd.labels().iter().filter(|label| **label == class).count()).collect();
    assert_eq!((odd.len(), counts.iter().min(), counts.iter().max()), (407, Some(&40), Some(&41)));
    let mean = train.values().iter().map(|pixel| f64::from(*pixel)).sum::<f64>() / train.values().len() as f64;
    assert!(mean.abs() < 1e-4, "{mean}");
    for (what, message) in [
        ("mnist:4001+100", "there are 4000 samples to train on: use that many at most"),
        ("mnist:400+0", "no sample held out is too few: use more"),
        ("mnsit:400+100", "there is no such folder or file: "),
    ] {
        let error = Dataset::load(what, &mlp).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(what), "{error}");
    }
}

#[test]
fn sizes_follow_from_the_name() {
    let model = lockstep_readers::load_model("lenet").unwrap();
    for what in ["mnist", "mnist:400+100", "synthetic", "synthetic:66", "synthetic:66:20+10"] {
        let (train, held_out) = Dataset::load(what, &model).unwrap();
        let sizes = SetSizes::of(what, model.input()).unwrap();
        assert_eq!((train.len() as u64, held_out.len() as u64), (sizes.train, sizes.held_out), "{what}");
    }
}
