//! Writes small sets of every kind that can be packed, as other tools write them: LMDB by LMDB itself.

use std::fs;
use std::path::Path;

use heed::types::Bytes;
use jpeg_encoder::{ColorType, Encoder};
use lockstep_data::datum::Datum;
use prost::Message;

/// A kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    Folder,
    Tar,
    Idx,
    Cifar,
    Lmdb,
    LmdbEncoded,
}

/// `length` bytes of sample `number`.
fn bytes(seed: u64, number: usize, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(31) ^ (number as u64) << 32 | 1;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// A JPEG file.
pub(crate) fn jpeg(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let pixels = bytes(seed, 0, (3 * width * height) as usize);
    Encoder::new(&mut file, 80).encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
    file
}

fn tar(samples: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut shard = tar::Builder::new(Vec::new());
    let mut add = |name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        shard.append_data(&mut header, name, bytes).unwrap();
    };
    for (number, (label, bytes)) in samples.iter().enumerate() {
        add(format!("x/{number:06}.json"), b"{}");
        add(format!("x/{number:06}.jpg"), bytes);
        add(format!("x/{number:06}.cls"), label.to_string().as_bytes());
    }
    shard.into_inner().unwrap()
}

fn lmdb(folder: &Path, samples: &[(u32, Vec<u8>)], encoded: bool) {
    // SAFETY: the folder is new, and nothing else opens it.
    let env = unsafe { heed::EnvOpenOptions::new().map_size(64 << 20).open(folder) }.unwrap();
    let mut write = env.write_txn().unwrap();
    let database: heed::Database<Bytes, Bytes> = env.create_database(&mut write, None).unwrap();
    for (number, (label, bytes)) in samples.iter().enumerate() {
        let side = |side| (!encoded).then_some(side);
        let datum = Datum {
            channels: side(3),
            height: side(20),
            width: side(30),
            data: Some(bytes.clone()),
            label: Some(*label as i32),
            float_data: Vec::new(),
            encoded: encoded.then_some(true),
        };
        database.put(&mut write, format!("{number:08}_x.jpg").as_bytes(), &datum.encode_to_vec()).unwrap();
    }
    write.commit().unwrap();
}

impl Set {
    pub(crate) const ALL: [Set; 6] = [Set::Folder, Set::Tar, Set::Idx, Set::Cifar, Set::Lmdb, Set::LmdbEncoded];

    pub(crate) fn is_raw(self) -> bool {
        matches!(self, Set::Idx | Set::Cifar | Set::Lmdb)
    }

    /// Writes a sample for each label into a new folder; returns their labels and bytes.
    pub(crate) fn write(self, folder: &Path, labels: &[u32], seed: u64) -> Vec<(u32, Vec<u8>)> {
        fs::create_dir_all(folder).unwrap();
        let sample = |(number, label): (usize, &u32)| {
            let bytes = match self {
                Set::Folder | Set::Tar | Set::LmdbEncoded => jpeg(seed + number as u64, 8 + number as u32 % 9, 8),
                Set::Idx => bytes(seed, number, 12),
                Set::Cifar => bytes(seed, number, 3072),
                Set::Lmdb => bytes(seed, number, 1800),
            };
            (*label, bytes)
        };
        let mut samples: Vec<(u32, Vec<u8>)> = labels.iter().enumerate().map(sample).collect();
        let write = |name: &str, bytes: Vec<u8>| fs::write(folder.join(name), bytes).unwrap();
        match self {
            Set::Folder => {
                // One folder per class present, so labels are the indices of these classes.
                let mut classes = labels.to_vec();
                classes.sort_unstable();
                classes.dedup();
                for (number, (label, bytes)) in samples.iter_mut().enumerate() {
                    fs::create_dir_all(folder.join(format!("c{label}"))).unwrap();
                    write(&format!("c{label}/{number:03}.jpg"), bytes.clone());
                    *label = classes.iter().position(|class| class == label).unwrap() as u32;
                }
            }
            Set::Tar => {
                let half = samples.len() / 2;
                write("a.tar", tar(&samples[half..]));
                write("b.tar", tar(&samples[..half]));
            }
            Set::Idx => {
                let count = (samples.len() as u32).to_be_bytes();
                let images = [&[0, 0, 8, 3], &count[..], &[0, 0, 0, 3, 0, 0, 0, 4]].concat();
                let pixels = samples.iter().flat_map(|(_, bytes)| bytes.iter().copied());
                write("train-images-idx3-ubyte", images.into_iter().chain(pixels).collect());
                let header = [&[0, 0, 8, 1], &count[..]].concat();
                let labels = samples.iter().map(|(label, _)| *label as u8);
                write("train-labels-idx1-ubyte", header.into_iter().chain(labels).collect());
            }
            Set::Cifar => {
                let records = samples.iter().flat_map(|(label, bytes)| [&[*label as u8], &bytes[..]].concat());
                write("data_batch_1.bin", records.collect());
            }
            Set::Lmdb => lmdb(folder, &samples, false),
            Set::LmdbEncoded => lmdb(folder, &samples, true),
        }
        samples
    }
}
