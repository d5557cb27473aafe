//! Tests which files of a set are its samples, and with which labels, however the set lies in folders and shards.

use std::fs;
use std::path::Path;

use super::{SetPart, Source, shards};

/// Writes files of these names, each with its own bytes.
fn write(folder: &Path, names: &[&str]) {
    for name in names {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

/// Labels and names of the samples.
fn listed(folder: &Path, part: SetPart) -> Result<(Vec<(u32, String)>, Source), String> {
    let source = Source::open(folder, part).map_err(|error| error.to_string())?;
    let sample = |at| source.sample(at).map(|s| (s.label, String::from_utf8(s.bytes.into_owned()).unwrap()));
    Ok(((0..source.len()).map(sample).collect::<Result<_, _>>()?, source))
}

#[test]
fn classes_lie_at_any_depth() {
    for (names, expected, classes, notes) in [
        (&["a/1.jpg", "b/2.png"][..], &[(0, "a/1.jpg"), (1, "b/2.png")][..], 2, 0),
        (
            &["a/x/1.jpg", "a/y/z/2.jpg", "a/3.jpg", "b/4.jpg"],
            &[(0, "a/3.jpg"), (0, "a/x/1.jpg"), (0, "a/y/z/2.jpg"), (1, "b/4.jpg")],
            2,
            0,
        ),
        (&["a/1.jpg", "a/list.txt", "b/2.jpg", "README.md", "notes/n.txt"], &[(0, "a/1.jpg"), (1, "b/2.jpg")], 2, 1),
        (&["a/1.jpg", "stray.jpg"], &[(0, "a/1.jpg")], 1, 1),
        (&["data/set/a/1.jpg", "data/set/b/2.jpg"], &[(0, "data/set/a/1.jpg"), (1, "data/set/b/2.jpg")], 2, 2),
        (&["only/1.jpg"], &[(0, "only/1.jpg")], 1, 0),
        // Classes that are called like parts.
        (&["bus/1.jpg", "train/2.jpg"], &[(0, "bus/1.jpg"), (1, "train/2.jpg")], 2, 0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), names);
        let (mut found, source) = listed(folder.path(), SetPart::Train).unwrap();
        found.sort();
        let found: Vec<(u32, &str)> = found.iter().map(|(label, name)| (*label, name.as_str())).collect();
        assert_eq!(found, expected, "{names:?}");
        assert_eq!((source.classes(), source.notes().len()), (Some(classes), notes), "{names:?} {:?}", source.notes());
    }
}

#[test]
fn parts_lie_in_folders() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &["train/a/1.jpg", "train/b/2.jpg", "val/a/3.jpg", "val/b/x/4.jpg", "meta/list.txt"]);
    let of = |part| listed(folder.path(), part).unwrap();
    let (train, source) = of(SetPart::Train);
    assert_eq!(train, [(0, "train/a/1.jpg".to_owned()), (1, "train/b/2.jpg".to_owned())]);
    assert!(source.has_parts() && source.notes()[0].contains("--part held-out packs val"), "{:?}", source.notes());
    assert_eq!(of(SetPart::HeldOut).0, [(0, "val/a/3.jpg".to_owned()), (1, "val/b/x/4.jpg".to_owned())]);
    fs::remove_dir_all(folder.path().join("val")).unwrap();
    let error = listed(folder.path(), SetPart::HeldOut).err().unwrap();
    assert!(error.contains("no folder val or test: name the folder"), "{error}");
    let flat = tempfile::tempdir().unwrap();
    write(flat.path(), &["1.jpg", "2.jpg"]);
    let error = listed(flat.path(), SetPart::Train).err().unwrap();
    assert!(error.contains("put each into a folder of its class"), "{error}");
}

/// A shard of these members.
fn shard(members: &[(&str, &str)]) -> Vec<u8> {
    let mut shard = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        shard.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    shard.into_inner().unwrap()
}

#[test]
fn labels_and_images_of_shards_are_joined() {
    for (members, expected, several) in [
        (&[("1.jpg", "A"), ("1.cls", "3")][..], &[("A", 3)][..], 0),
        (&[("1.cls", "3\n"), ("1.png", "A"), ("2.cls", "4"), ("2.JPEG", "B")], &[("A", 3), ("B", 4)], 0),
        // Dots in keys.
        (
            &[("x/a.v1.jpg", "A"), ("x/a.v1.cls", "1"), ("x/a.v2.jpg", "B"), ("x/a.v2.cls", "2")],
            &[("A", 1), ("B", 2)],
            0,
        ),
        (&[("n01.tar/1.5.jpg", "A"), ("n01.tar/1.5.cls", "1")], &[("A", 1)], 0),
        // Several images.
        (&[("1.left.jpg", "L"), ("1.right.jpg", "R"), ("1.cls", "1")], &[("L", 1)], 1),
        (&[("1.seg.png", "S"), ("1.jpg", "A"), ("1.cls", "1")], &[("A", 1)], 1),
        // Labels of other kinds.
        (&[("1.jpg", "A"), ("1.json", "{\"caption\": \"x\", \"label\": 5}")], &[("A", 5)], 0),
        (&[("1.jpg", "A"), ("1.json", "5")], &[("A", 5)], 0),
        (&[("1.jpg", "A"), ("1.txt", "6")], &[("A", 6)], 0),
        (&[("1.jpg", "A"), ("1.txt", "a dog on a mat"), ("1.json", "{}"), ("1.cls", "7")], &[("A", 7)], 0),
        (&[("1.jpg", "A"), ("1.npy", "x"), ("1.cls", "7"), ("__index__", "x")], &[("A", 7)], 0),
    ] {
        let bytes = shard(members);
        let found = shards::list(&bytes);
        let read: Vec<(&str, u32)> = found
            .iter()
            .map(|entry| {
                let (offset, length) = entry.place.clone().unwrap_or_else(|error| panic!("{members:?}: {error}"));
                let bytes = &bytes[offset as usize..(offset + length) as usize];
                (std::str::from_utf8(bytes).unwrap(), entry.label)
            })
            .collect();
        assert_eq!((&read[..], shards::with_several_images(&bytes)), (expected, several), "{members:?}");
    }
    for (members, reason) in [
        (&[("1.jpg", "A")][..], "its label is missing"),
        (&[("1.jpg", "A"), ("1.txt", "a dog")], "its label is missing"),
        (&[("1.cls", "1")], "its image is missing"),
        (&[("1.jpg", "A"), ("1.cls", "dog")], "must be a whole number from 0: number the classes"),
        (&[("1.jpg", "A"), ("1.json", "{\"label\": \"dog\"}")], "must be a whole number from 0: number the classes"),
    ] {
        let found = shards::list(&shard(members));
        assert!(found.len() == 1 && found[0].place.clone().unwrap_err().contains(reason), "{members:?}: {found:?}");
    }
}
