//! Tests `lockstep data`: generated sets are packed, checked, shown and counted; a killed pack resumes; a seed
//! determines a set.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::commands::{folder, lockstep, number, rows, stdout};

/// The files below a folder, with their content.
fn files(folder: &PathBuf) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), fs::read(&path).expect("a file"))),
        }
    }
    found.sort();
    found
}

#[test]
fn generated_sets_are_packed_checked_shown_and_counted() {
    let folder = folder("data");
    for (shape, encoding, samples) in [("imagenet", "jpeg", 12), ("cifar", "raw", 30), ("mnist", "raw", 30)] {
        let out = format!("{shape}.pack");
        let samples_flag = samples.to_string();
        let flags =
            ["data", "generate", "--shape", shape, "--samples", &samples_flag, "--classes", "3", "--out", shape];
        stdout(&folder, &flags);
        let mut pack = vec!["data", "pack", shape, "--out", &out];
        pack.extend(["--short-side", "64"].iter().filter(|_| encoding == "jpeg"));
        let packed = rows(&folder, "data-pack", &pack);
        assert_eq!((packed[0]["samples"].as_u64(), packed[0]["encoding"].as_str()), (Some(samples), Some(encoding)));
        assert_eq!(packed[0]["bytes"].as_u64(), Some(fs::metadata(folder.join(&out)).expect("the file").len()));
        assert_eq!(rows(&folder, "check", &["data", "check", &out])[0]["status"], "ok");
        let shown = rows(&folder, "data-show", &["data", "show", &out]);
        assert_eq!((shown.len(), shown[0]["offset"].as_u64()), (10, Some(4096)));
        if encoding == "jpeg" {
            assert!(shown.iter().all(|row| number(row, "width").min(number(row, "height")) == 64.0));
        }
        let groups = rows(&folder, "data-stats", &["data", "stats", &out]);
        let of = |group: &str| groups.iter().find(|row| row["group"] == group).map(|row| number(row, "samples"));
        assert_eq!((of("all"), of("class 2")), (Some(samples as f64), Some(samples as f64 / 3.0)));
    }
    let mut bytes = fs::read(folder.join("mnist.pack")).expect("the file");
    bytes[4096 + 5 * 784] ^= 4;
    fs::write(folder.join("mnist.pack"), bytes).expect("the file");
    let checked = lockstep(&folder, &["data", "check", "mnist.pack"]);
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{errors}");
    assert!(errors.contains("mnist.pack: sample 5: bytes 8016 to 8799 do not have their checksum"), "{errors}");
}

/// "In the beginning …" is 32 bytes with its two ends of lines, the second text 4; packed, checked, shown, counted and trained on.
#[test]
fn texts_are_packed_checked_shown_and_counted() {
    let folder = folder("data-texts");
    fs::write(folder.join("one.txt"), "In the beginning was the Word.\n\n").expect("a file");
    fs::write(folder.join("two.txt"), "end\n").expect("a file");
    let packed = rows(&folder, "data-pack", &["data", "pack", "--text", "one.txt", "two.txt", "--out", "t.pack"]);
    let counts = ["samples", "classes", "tokens"].map(|column| number(&packed[0], column));
    assert_eq!((counts, packed[0]["encoding"].as_str()), ([2.0, 256.0, 36.0], Some("u16")));
    assert_eq!(packed[0]["bytes"].as_u64(), Some(fs::metadata(folder.join("t.pack")).expect("the file").len()));
    assert_eq!(rows(&folder, "check", &["data", "check", "t.pack"])[0]["status"], "ok");
    let shown = rows(&folder, "data-show-documents", &["data", "show", "t.pack", "1"]);
    let document = ["document", "first", "tokens"].map(|column| number(&shown[0], column));
    assert_eq!((document, shown[0]["begins"].as_str()), ([1.0, 32.0, 4.0], Some("end\\n")));
    let groups = rows(&folder, "data-stats", &["data", "stats", "t.pack"]);
    let of = |group: &str| groups.iter().find(|row| row["group"] == group).map(|row| number(row, "samples"));
    assert_eq!((of("all"), of("4 to 7 tokens"), of("32 to 63 tokens")), (Some(2.0), Some(1.0), Some(1.0)));
    let mut bytes = fs::read(folder.join("t.pack")).expect("the file");
    bytes[4096 + 7] ^= 4;
    fs::write(folder.join("t.pack"), bytes).expect("the file");
    let checked = lockstep(&folder, &["data", "check", "t.pack"]);
    let errors = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{errors}");
    assert!(errors.contains("t.pack: bytes 4096 to 4167: the tokens do not have their checksum"), "{errors}");
}

#[test]
fn a_generated_set_depends_on_the_seed_and_not_on_threads() {
    let folder = folder("data-seeds");
    let generate = |seed: &str, threads: &str, out: &str| {
        let flags = ["--samples", "6", "--classes", "2", "--seed", seed, "--threads", threads, "--out", out];
        stdout(&folder, &[&["data", "generate", "--shape", "imagenet"], &flags[..]].concat());
        files(&folder.join(out)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    let one = generate("1", "1", "a");
    assert_eq!(one, generate("1", "3", "b"));
    assert_ne!(one, generate("2", "1", "c"));
    let mean = one.iter().map(Vec::len).sum::<usize>() / one.len();
    assert!((60_000..180_000).contains(&mean), "files of {mean} bytes, ImageNet's have 110,000");
}

#[test]
fn a_killed_pack_resumes_to_the_same_bytes() {
    let folder = folder("data-killed");
    stdout(&folder, &["data", "generate", "--shape", "mnist", "--samples", "20000", "--out", "in"]);
    let flags = |out: &'static str| ["data", "pack", "in", "--out", out, "--threads", "2", "--shuffle-seed", "7"];
    stdout(&folder, &flags("whole.pack"));
    let read = |name: &str| fs::read(folder.join(name)).expect("a file");
    for wait in [10, 30, 60, 100, 200] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        let started = command.args(flags("out.pack")).current_dir(&folder).stdout(Stdio::null()).spawn();
        let (mut child, begun) = (started.expect("the binary runs"), Instant::now());
        while begun.elapsed() < Duration::from_millis(wait) {
            std::thread::yield_now();
        }
        child.kill().expect("a signal");
        child.wait().expect("an end");
        let left = fs::read(folder.join("out.pack"));
        assert!(left.is_err() || left.ok() == Some(read("whole.pack")), "a killed pack leaves no half a file");
    }
    stdout(&folder, &flags("out.pack"));
    assert!(read("out.pack") == read("whole.pack"));
    assert!(!folder.join("out.pack.part").exists() && !folder.join("out.pack.journal").exists());
}

#[test]
fn invalid_outputs_and_arguments_are_refused() {
    let folder = folder("data-refused");
    let refused = |arguments: &[&str], message: &str| {
        let output = lockstep(&folder, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    };
    stdout(&folder, &["data", "generate", "--shape", "mnist", "--samples", "3", "--out", "in"]);
    refused(&["data", "pack", "in", "--out", "/dev/null"], "must be a file");
    refused(&["data", "pack", "nothing", "--out", "a.pack"], "cannot be listed");
    refused(&["data", "generate", "--shape", "mnist", "--samples", "3", "--out", "in"], "has files already");
    refused(&["data", "generate", "--shape", "cifar", "--samples", "3", "--classes", "11", "--out", "x"], "at most 10");
    refused(&["data", "show", "in/train-images-idx3-ubyte"], "is not a packed set");
    stdout(&folder, &["data", "pack", "in", "--out", "a.pack"]);
    refused(&["data", "show", "a.pack", "3"], "name one from 0 to 2");
    fs::create_dir(folder.join("empty")).expect("a folder");
    refused(&["data", "pack", "empty", "--out", "a.pack"], "has no samples");
    let linked = folder.join("link.pack");
    std::os::unix::fs::symlink("target.pack", &linked).expect("a link");
    refused(&["data", "pack", "in", "--part", "held-out", "--out", "link.pack"], "is a symbolic link to ./target.pack");
    assert!(linked.is_symlink() && !folder.join("target.pack").exists());
}
