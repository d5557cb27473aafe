//! Tests folders of IDX files: what is written is read back, and every kind of damage is named.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::idx::{compress, encode};

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[(&str, Vec<u8>)]) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockstep-idx-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for (name, bytes) in files {
            fs::write(path.join(name), bytes).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Names and contents.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Three training samples and one held out, 1×2 pixels, as the four files of a set.
fn set() -> Files {
    vec![
        ("train-images-idx3-ubyte", encode(&[3, 1, 2], &[1, 2, 3, 4, 5, 6])),
        ("train-labels-idx1-ubyte", encode(&[3], &[0, 4, 1])),
        ("t10k-images-idx3-ubyte", encode(&[1, 1, 2], &[7, 255])),
        ("t10k-labels-idx1-ubyte", encode(&[1], &[2])),
    ]
}

#[test]
fn a_folder_is_read_plain_or_gzipped_under_either_name() {
    let gzipped = set().into_iter().map(|(name, bytes)| (format!("{name}.gz"), compress(&bytes).unwrap()));
    let dotted = set().into_iter().map(|(name, bytes)| (name.replace("-idx", ".idx"), bytes));
    let plain = set().into_iter().map(|(name, bytes)| (name.to_owned(), bytes));
    for files in [plain.collect::<Vec<_>>(), gzipped.collect(), dotted.collect()] {
        let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        let folder = Folder::new(&files);
        let (train, held_out) = load_idx(&folder.0).unwrap();
        assert_eq!(train.shape, Shape::of_image(1, 1, 2));
        assert_eq!((train.classes, held_out.classes), (5, 5));
        assert_eq!((train.values(), &train.labels[..]), (&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..], &[0, 4, 1][..]));
        assert_eq!((held_out.values(), &held_out.labels[..]), (&[7.0, 255.0][..], &[2][..]));
    }
}

#[test]
fn four_dimensions_have_channels() {
    let mut files = set();
    files[0] = ("train-images-idx4-ubyte", encode(&[3, 2, 1, 1], &[1, 2, 3, 4, 5, 6]));
    files[2] = ("t10k-images-idx4-ubyte", encode(&[1, 2, 1, 1], &[7, 8]));
    let (train, _) = load_idx(&Folder::new(&files).0).unwrap();
    assert_eq!(train.shape, Shape::of_image(2, 1, 1));
}

#[test]
fn a_damaged_folder_is_named_with_the_cure() {
    let replace = |at: usize, bytes: Vec<u8>| {
        let mut files = set();
        files[at].1 = bytes;
        files
    };
    let without = |at: usize| {
        let mut files = set();
        files.remove(at);
        files
    };
    let images = encode(&[3, 1, 2], &[1, 2, 3, 4, 5, 6]);
    let mut flipped = compress(&images).unwrap();
    let middle = flipped.len() - 6;
    flipped[middle] ^= 0xff;
    let huge = encode(&[u32::MAX, u32::MAX, u32::MAX], &[]);
    let cases: Vec<(Files, &str)> = vec![
        (vec![], "has no train-images-idx3-ubyte or train-images-idx3-ubyte.gz: give a folder of IDX files"),
        (without(1), "has no train-labels-idx1-ubyte"),
        (without(2), "has no t10k-images-idx3-ubyte"),
        (replace(0, vec![]), "0 bytes found: 4 expected for the magic number"),
        (replace(0, images[..9].to_vec()), "5 bytes found: 12 expected for the dimensions"),
        (replace(0, images[..20].to_vec()), "4 bytes found: 6 expected for the 3×1×2 values"),
        (replace(0, compress(&images).unwrap()[..20].to_vec()), "truncated or damaged"),
        (replace(0, compress(&images).unwrap()[..4].to_vec()), "0 bytes found: 4 expected for the magic number"),
        (replace(0, flipped), "restore the file"),
        (replace(0, [images.clone(), vec![0]].concat()), "promises 6 bytes, but more follow"),
        (replace(0, encode(&[3], &[0, 1, 2])), "magic number 0x00000801: must be 0x00000803 or 0x00000804"),
        (replace(0, b"%PDF-1.7".to_vec()), "magic number 0x25504446"),
        (replace(0, huge), "more than 4294967296 values are too many"),
        (replace(0, encode(&[0, 1, 2], &[])), "0×1×2: is empty"),
        (replace(0, encode(&[3, 0, 2], &[])), "3×0×2: is empty"),
        (replace(1, encode(&[2], &[0, 1])), "2 labels: "),
        (replace(1, encode(&[2], &[0, 1])), "has 3 images: use both files from one set"),
        (replace(3, encode(&[1], &[5])), "label 5: of sample 0 must be below 5"),
        (replace(2, encode(&[1, 2, 1], &[7, 8])), "images of 1×2×1: the training images are 1×1×2"),
    ];
    for (files, message) in cases {
        let folder = Folder::new(&files);
        let error = load_idx(&folder.0).unwrap_err();
        assert!(error.place.to_string().starts_with(&folder.0.display().to_string()), "{error} has no place");
        assert!(error.to_string().contains(message), "{error} lacks {message}");
    }
}

#[test]
fn a_file_instead_of_the_folder_is_an_error() {
    let folder = Folder::new(&set());
    let error = load_idx(&folder.0.join("train-images-idx3-ubyte")).unwrap_err().to_string();
    assert!(error.contains("give a folder"), "{error}");
}
