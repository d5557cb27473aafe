//! Packs every kind of source and reads it back: every sample once, the same bytes whatever the threads and
//! interruptions, changed bytes detected, broken samples named.

mod sets;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lockstep_data::format::{Encoding, Header, MOST_CLASSES};
use lockstep_data::{Outcome, Packed, Packing, SetPart, Source, pack};
use lockstep_topology::InputError;
use proptest::prelude::*;
use sets::{Set, jpeg};

fn packing(out: &Path) -> Packing {
    Packing { out: out.to_owned(), short_side: 0, threads: 2, skip_bad: false, shuffle_seed: None }
}

fn packed(source: &Path, packing: &Packing) -> Result<Outcome, InputError> {
    pack(&Source::open(source, SetPart::Train)?, packing, |_| true)
}

/// The number of occurrences of each (label, bytes).
fn counted<'a>(samples: impl Iterator<Item = (u32, &'a [u8])>) -> BTreeMap<(u32, Vec<u8>), u32> {
    let mut counts = BTreeMap::new();
    samples.for_each(|(label, bytes)| *counts.entry((label, bytes.to_vec())).or_default() += 1);
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_sample_occurs_once_with_its_label(
        labels in prop::collection::vec(0u32..10, 1..40), seed in 0u64..1000, shuffle in any::<Option<u64>>(), threads in 1usize..5,
    ) {
        for set in Set::ALL {
            let folder = tempfile::tempdir().unwrap();
            let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
            let samples = set.write(&source, &labels, seed);
            let settings = Packing { threads, shuffle_seed: shuffle, ..packing(&out) };
            let outcome = packed(&source, &settings).unwrap();
            let read = Packed::open(&out).unwrap();
            prop_assert!(read.is_dense());
            prop_assert_eq!(outcome.header, *read.header());
            let got = (0..read.entries().len()).map(|at| (read.entries()[at].label, read.checked(at).unwrap()));
            let expected = samples.iter().map(|(label, bytes)| (*label, bytes.as_slice()));
            prop_assert_eq!(counted(got), counted(expected), "{:?}", set);
            prop_assert!(matches!(read.header().encoding, Encoding::Raw(_)) == set.is_raw());
            prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "source and output alone are left");
        }
    }

    #[test]
    fn an_interrupted_pack_equals_an_uninterrupted_one(
        stops in prop::collection::vec(1usize..30, 0..4), cuts in prop::collection::vec(0usize..400, 4), garbage in 0usize..50,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (source, out, whole) =
            (folder.path().join("in"), folder.path().join("out.pack"), folder.path().join("whole.pack"));
        Set::Folder.write(&source, &(0..30).map(|n| n % 3).collect::<Vec<u32>>(), 7);
        let settings = |out: &Path, threads| Packing { shuffle_seed: Some(3), threads, short_side: 6, ..packing(out) };
        packed(&source, &settings(&whole, 1)).unwrap();
        let list = Source::open(&source, SetPart::Train).unwrap();
        for (stop, cut) in stops.iter().zip(&cuts) {
            let stopped = pack(&list, &settings(&out, 3), |done| done < *stop);
            prop_assert!(stopped.is_ok() || !out.exists(), "no half a file");
            // A power loss may leave a journal truncated anywhere, and more samples than it records.
            let journal = folder.path().join("out.pack.journal");
            if let Ok(bytes) = fs::read(&journal) {
                fs::write(&journal, &bytes[..bytes.len().saturating_sub(*cut)]).unwrap();
                let part = folder.path().join("out.pack.part");
                let blob = [fs::read(&part).unwrap(), vec![0xaa; garbage]].concat();
                fs::write(&part, blob).unwrap();
            }
        }
        packed(&source, &settings(&out, 2)).unwrap();
        prop_assert_eq!(fs::read(&out).unwrap(), fs::read(&whole).unwrap());
    }

    /// Whatever is flipped, cut or overwritten in the files of an interrupted pack: the next one writes the same bytes as
    /// an uninterrupted one, or refuses files that it cannot have written and leaves them.
    #[test]
    fn a_damaged_part_is_packed_again_or_refused(
        stop in 1usize..30, in_part in any::<bool>(), at in any::<prop::sample::Index>(), how in 0u8..10,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (source, out, whole) =
            (folder.path().join("in"), folder.path().join("out.pack"), folder.path().join("whole.pack"));
        Set::Folder.write(&source, &(0..30).map(|n| n % 3).collect::<Vec<u32>>(), 7);
        packed(&source, &packing(&whole)).unwrap();
        let list = Source::open(&source, SetPart::Train).unwrap();
        prop_assert!(pack(&list, &packing(&out), |done| done < stop).is_err());
        let damaged = folder.path().join(if in_part { "out.pack.part" } else { "out.pack.journal" });
        let mut bytes = fs::read(&damaged).unwrap();
        let at = at.index(bytes.len());
        match how {
            0..8 => bytes[at] ^= 1 << how,
            8 => bytes.truncate(at),
            _ => bytes[at..].fill(0x55),
        }
        fs::write(&damaged, &bytes).unwrap();
        match packed(&source, &packing(&out)) {
            Ok(outcome) => {
                prop_assert_eq!(fs::read(&out).unwrap(), fs::read(&whole).unwrap());
                prop_assert!(outcome.resumed <= stop);
            }
            Err(error) => {
                prop_assert!(error.to_string().contains("remove it"), "{}", error);
                prop_assert!(!out.exists());
                prop_assert_eq!(fs::read(&damaged).unwrap(), bytes);
            }
        }
    }

    #[test]
    fn a_flipped_byte_is_found(at in 0usize..100_000, bit in 0u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
        Set::Cifar.write(&source, &[1, 2, 3], 5);
        packed(&source, &packing(&out)).unwrap();
        let mut bytes = fs::read(&out).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        fs::write(&out, &bytes).unwrap();
        let found = match Packed::open(&out) {
            Err(_) => !(4096..4096 + 3 * 3072).contains(&at),
            Ok(read) if (64..4096).contains(&at) => !read.is_dense(),
            Ok(read) => (0..3).all(|sample| {
                let inside = (at - 4096) / 3072 == sample;
                let message = read.checked(sample).err().map(|error| error.to_string());
                let (from, to) = (4096 + sample * 3072, 4096 + sample * 3072 + 3071);
                message.is_some() == inside
                    && message.is_none_or(|message| message.contains(&format!("sample {sample}: bytes {from} to {to} do not")))
            }),
        };
        prop_assert!(found, "byte {}", at);
    }
}

#[test]
fn only_a_pack_with_equal_settings_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
    Set::Folder.write(&source, &[0, 1, 2, 0, 1, 2], 7);
    let list = Source::open(&source, SetPart::Train).unwrap();
    let stop = || pack(&list, &packing(&out), |done| done < 4).unwrap_err().to_string();
    assert!(stop().contains("rerunning the command resumes"));
    assert_eq!(packed(&source, &packing(&out)).unwrap().resumed, 4);
    stop();
    assert_eq!(packed(&source, &Packing { short_side: 4, ..packing(&out) }).unwrap().resumed, 0);
}

/// Files beside the output that belong to something else are refused, and stay as they are, also behind a link.
#[test]
fn files_that_no_pack_has_written_are_left_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
    Set::Folder.write(&source, &[0, 1, 2, 0, 1, 2], 7);
    let precious = folder.path().join("precious");
    for name in ["out.pack.part", "out.pack.journal"] {
        let beside = folder.path().join(name);
        for how in ["file", "link", "hard link"] {
            fs::write(&precious, "precious").unwrap();
            match how {
                "file" => fs::write(&beside, "precious").unwrap(),
                "link" => std::os::unix::fs::symlink(&precious, &beside).unwrap(),
                _ => fs::hard_link(&precious, &beside).unwrap(),
            }
            let error = packed(&source, &packing(&out)).unwrap_err().to_string();
            assert!(error.contains("remove it") && error.contains(name), "{how}: {error}");
            assert_eq!(fs::read_to_string(&beside).unwrap(), "precious", "{how}");
            fs::remove_file(&beside).unwrap();
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.iter().filter(|left| left.to_string_lossy().starts_with("out")).for_each(|left| {
                fs::remove_file(folder.path().join(left)).unwrap();
            });
        }
    }
    packed(&source, &packing(&out)).unwrap();
}

/// Memory is taken for each class: labels that would take more than any set's are refused, in sources and in packs.
#[test]
fn labels_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in.tar"), folder.path().join("out.pack"));
    for (label, packs) in [(MOST_CLASSES - 1, true), (MOST_CLASSES, false), (u32::MAX - 1, false), (u32::MAX, false)] {
        let mut shard = tar::Builder::new(fs::File::create(&source).unwrap());
        for (name, bytes) in [("a.jpg", jpeg(1, 8, 8)), ("a.cls", label.to_string().into_bytes())] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            shard.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        shard.finish().unwrap();
        let found = packed(&source, &packing(&out)).map(|outcome| outcome.header);
        assert_eq!(found.is_ok(), packs, "{label}: {found:?}");
        let Ok(header) = found else {
            assert!(found.unwrap_err().to_string().contains("too large"));
            continue;
        };
        let mut bytes = fs::read(&out).unwrap();
        let more = Header { classes: MOST_CLASSES + 1, ..header }.encode(None);
        bytes[..more.len()].copy_from_slice(&more);
        fs::write(&out, &bytes).unwrap();
        assert!(Packed::open(&out).unwrap_err().to_string().contains("classes are more than"));
    }
}

/// What is no regular file, or longer than a sample may be, is refused before it is read.
#[test]
fn samples_without_an_end_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
    Set::Folder.write(&source, &[0, 1], 7);
    let bad = source.join("c1/bad.jpg");
    std::os::unix::fs::symlink("/dev/zero", &bad).unwrap();
    assert!(packed(&source, &packing(&out)).unwrap_err().to_string().contains("not a regular file"));
    fs::remove_file(&bad).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&bad).status().unwrap().success());
    assert!(packed(&source, &packing(&out)).unwrap_err().to_string().contains("not a regular file"));
    fs::remove_file(&bad).unwrap();
    fs::File::create(&bad).unwrap().set_len(1 << 40).unwrap();
    assert!(packed(&source, &packing(&out)).unwrap_err().to_string().contains("is longer than"));
}

#[test]
fn resized_samples_have_the_requested_short_side() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in/a"), folder.path().join("out.pack"));
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("wide.jpg"), jpeg(1, 60, 40)).unwrap();
    fs::write(source.join("small.jpg"), jpeg(2, 10, 30)).unwrap();
    packed(&folder.path().join("in"), &Packing { short_side: 20, ..packing(&out) }).unwrap();
    let read = Packed::open(&out).unwrap();
    let sizes: Vec<(u16, u16)> = read.entries().iter().map(|entry| (entry.width, entry.height)).collect();
    assert_eq!(sizes, [(10, 30), (30, 20)]);
    assert_eq!(read.bytes(0), jpeg(2, 10, 30), "what is small is kept as it was");
    let picture = read.pixels(1).unwrap();
    assert_eq!((picture.width, picture.height, picture.channels), (30, 20, 3));
}

#[test]
fn broken_samples_are_refused_with_their_place_or_skipped_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
    Set::Folder.write(&source, &[0, 1], 7);
    let good = fs::read(source.join("c0/000.jpg")).unwrap();
    let mut bomb = good.clone();
    let frame = bomb.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bomb[frame + 5..frame + 9].fill(0xff);
    let cases: [(&str, &[u8], &str); 6] = [
        ("bomb.jpg", &bomb, "65535 x 65535"),
        ("cut.jpg", &good[..good.len() - 9], "broken JPEG"),
        ("empty.jpg", b"", "has 0 bytes"),
        ("text.jpg", b"not an image", "is not a JPEG"),
        ("w.webp", b"RIFF\0\0\0\0WEBPVP8 ", "is WebP, which is not read: convert"),
        ("z.png", b"\x89PNG\r\n\x1a\n", "is not a PNG file that can be read"),
    ];
    for (name, bytes, reason) in cases {
        fs::write(source.join("c1").join(name), bytes).unwrap();
        let message = packed(&source, &packing(&out)).unwrap_err().to_string();
        assert!(
            message.contains(&format!("c1/{name}")) && message.contains(reason) && message.contains("--skip-bad"),
            "{message}"
        );
        assert!(!out.exists());
        fs::remove_file(source.join("c1").join(name)).unwrap();
    }
    cases.iter().for_each(|(name, bytes, _)| fs::write(source.join("c1").join(name), bytes).unwrap());
    let outcome = packed(&source, &Packing { skip_bad: true, ..packing(&out) }).unwrap();
    assert_eq!(outcome.header.samples, 2);
    for (skipped, (name, _, reason)) in outcome.skipped.iter().zip(&cases) {
        assert!(skipped.name.ends_with(name) && skipped.reason.contains(reason), "{skipped:?}");
    }
    assert_eq!(outcome.skipped.len(), cases.len());
}

#[test]
fn a_truncated_source_keeps_its_complete_samples() {
    for (set, file) in [(Set::Tar, "a.tar"), (Set::Lmdb, "data.mdb"), (Set::Cifar, "data_batch_1.bin")] {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("in"), folder.path().join("out.pack"));
        let labels: Vec<u32> = (0..40).map(|n| n % 4).collect();
        let samples = set.write(&source, &labels, 3);
        let path = source.join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() * 3 / 5 + 100]).unwrap();
        let Ok(list) = Source::open(&source, SetPart::Train) else { panic!("{set:?} cannot be listed") };
        let message = pack(&list, &packing(&out), |_| true).unwrap_err().to_string();
        assert!(message.contains("--skip-bad"), "{message}");
        let Ok(outcome) = pack(&list, &Packing { skip_bad: true, ..packing(&out) }, |_| true) else { continue };
        assert!(!outcome.skipped.is_empty() && outcome.header.samples < 40, "{set:?}: {outcome:?}");
        let read = Packed::open(&out).unwrap();
        let all = counted(samples.iter().map(|(label, bytes)| (*label, bytes.as_slice())));
        let got = counted((0..read.entries().len()).map(|at| (read.entries()[at].label, read.checked(at).unwrap())));
        assert!(got.keys().all(|sample| all.contains_key(sample)), "{set:?}");
    }
}

/// PNG files keep their bytes; how many there are is counted, and seen in the packed file.
#[test]
fn png_files_are_counted() {
    let mut png = Vec::new();
    let mut writer = png::Encoder::new(&mut png, 2, 2).write_header().unwrap();
    writer.write_image_data(&[0, 80, 160, 240]).unwrap();
    writer.finish().unwrap();
    for (pngs, jpegs) in [(3u8, 0u8), (2, 1), (0, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("in/a"), folder.path().join("out.pack"));
        fs::create_dir_all(&source).unwrap();
        (0..pngs).for_each(|at| fs::write(source.join(format!("{at}.png")), &png).unwrap());
        (0..jpegs).for_each(|at| fs::write(source.join(format!("{at}.jpg")), jpeg(at.into(), 9, 8)).unwrap());
        let outcome = packed(&folder.path().join("in"), &packing(&out)).unwrap();
        assert_eq!((outcome.pngs, outcome.header.samples), (pngs.into(), u64::from(pngs + jpegs)));
        assert_eq!(Packed::open(&out).unwrap().pngs(100), (pngs.into(), usize::from(pngs + jpegs)));
    }
}
