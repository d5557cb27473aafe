//! Tests that no command replaces what it reads: under the same name, through a link, by another name of the file,
//! named by a file that it reads, or in a folder that it reads.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::commands::{folder, lockstep};

/// Commands whose output `@` would replace a file that they read, and that file.
const COMMANDS: [(&str, &str); 24] = [
    ("sim predict e.toml --trace @", "e.toml"),
    ("sim predict e.toml --trace @", "m.toml"),
    ("sim predict e.toml --trace @", "c.toml"),
    ("sim predict e.toml --html @", "p.json"),
    ("sim predict e.toml --profile p.json --trace @", "p.json"),
    ("sim predict e.toml --replay claims.jsonl --driver-log @", "claims.jsonl"),
    ("sim predict --model m.toml --cluster c.toml --trace @", "m.toml"),
    ("sim sweep --model mlp,m.toml --cluster c.toml --out @", "c.toml"),
    ("sim sweep --model mlp,m.toml --cluster workstation --plot @", "m.toml"),
    ("sim sweep --model mlp --cluster workstation --profile p.json --out @", "p.json"),
    ("sim sweep e.toml --html @", "m.toml"),
    ("exec run e.toml --metrics @", "m.toml"),
    ("exec run --model mlp --data i.pack --steps 1 --trace @", "i.pack"),
    ("exec run --model mlp --data i.pack+o.pack:4+1 --steps 1 --metrics @", "o.pack"),
    ("exec run --model mlp --data idx --steps 1 --trace @", "idx/train-images-idx3-ubyte"),
    ("exec run --model mlp --resume kept --metrics @", "kept/step-0000000001.safetensors"),
    ("exec run --model mlp --steps 1 --checkpoint kept --trace @", "kept/step-0000000001.safetensors"),
    ("exec run --model mlp --replay-tuner claims.jsonl --tuner-log @", "claims.jsonl"),
    ("exec run --model gpt2-char --weights w.safetensors --save-weights @", "w.safetensors"),
    ("exec sweep e.toml --out @", "e.toml"),
    ("calibrate e.toml --profile @", "e.toml"),
    ("compare e.toml --trace @", "out/this-machine.json"),
    ("data pack idx --out @", "idx/train-images-idx3-ubyte"),
    ("clusters import topo.xml --output @", "topo.xml"),
];

fn prepared(name: &str) -> PathBuf {
    let folder = folder(name);
    let write = |file: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.join(file).parent().expect("a folder")).expect("a folder");
        fs::write(folder.join(file), bytes).expect("a file");
    };
    let experiment =
        "name = \"e\" # \"none.toml\"\nmodel = \"m.toml\"\ncluster = 'c.toml'\nweights = \"p.json\"\nsteps = 1\n";
    write("e.toml", experiment.as_bytes());
    for file in ["m.toml", "c.toml"] {
        write(file, b"# never read: the command is refused first");
    }
    write("topo.xml", include_bytes!("../topology/machines/src/tests/dgx-a100.xml"));
    for file in [
        "p.json",
        "out/this-machine.json",
        "claims.jsonl",
        "i.pack",
        "o.pack",
        "w.safetensors",
        "kept/step-0000000001.safetensors",
    ] {
        write(file, file.as_bytes());
    }
    for file in ["images-idx3-ubyte", "labels-idx1-ubyte"] {
        write(&format!("idx/train-{file}"), file.as_bytes());
    }
    write("classes/a/1.jpg", b"a picture");
    folder
}

/// Every file below the folder with its content.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(contents(&entry));
        } else {
            found.insert(entry.clone(), fs::read(&entry).expect("a file"));
        }
    }
    found
}

/// Runs a command of `COMMANDS` with this output, which must be refused with everything as it was.
fn refused(folder: &Path, command: &str, output: &str) {
    let before = contents(folder);
    let words: Vec<&str> = command.split(' ').map(|word| if word == "@" { output } else { word }).collect();
    let ended = lockstep(&folder.to_owned(), &words);
    let error = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{command} {output}: {error}");
    assert!(error.contains(output) && error.contains("name another file"), "{command} {output}: {error}");
    assert_eq!(contents(folder), before, "{command} {output}");
}

#[test]
fn outputs_that_are_inputs_are_refused_by_any_name() {
    let folder = prepared("kept-inputs");
    for (command, input) in COMMANDS {
        refused(&folder, command, input);
        refused(&folder, command, &format!("./{input}"));
        refused(&folder, command, &folder.join(input).display().to_string());
        // Ends of names that a flag may require are not what saves the file.
        for ending in ["json", "html", "svg", "csv", "pack"] {
            let other = format!("other.{ending}");
            symlink(input, folder.join(&other)).expect("a link");
            refused(&folder, command, &other);
            fs::remove_file(folder.join(&other)).expect("the link");
            fs::hard_link(folder.join(input), folder.join(&other)).expect("a hard link");
            refused(&folder, command, &other);
            fs::remove_file(folder.join(&other)).expect("the link");
        }
    }
}

/// A file that the set does not have yet is refused where readers would take it for a sample; results are written.
#[test]
fn outputs_do_not_join_the_set_that_is_read() {
    let folder = prepared("kept-sets");
    for output in ["classes/a/2.jpg", "classes/x.tar", "classes/data_batch_1.bin"] {
        refused(&folder, "data pack classes --out @", output);
    }
    let made = ["data", "generate", "--shape", "mnist", "--samples", "60", "--out", "made"];
    assert!(lockstep(&folder, &made).status.success());
    for _ in 0..2 {
        let ended = lockstep(&folder, &["data", "pack", "made", "--out", "made/all.pack"]);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// Updates in place that are documented stay possible: a sweep's rows, and the kept checkpoints of a run.
#[test]
fn documented_updates_in_place_are_accepted() {
    let folder = folder("kept-updates");
    let sweep = ["sim", "sweep", "--model", "mlp", "--cluster", "workstation", "--ranks", "1..2", "--out", "rows.csv"];
    let train = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --checkpoint kept --metrics m.jsonl";
    let train: Vec<&str> = train.split(' ').collect();
    for words in [
        &sweep[..],
        &sweep,
        &[&train[..], &["--steps", "2"]].concat(),
        &[&train[..], &["--steps", "3", "--resume", "kept"]].concat(),
    ] {
        let ended = lockstep(&folder, words);
        assert!(ended.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// An experiment from a pipe is read once, by the command.
#[test]
fn a_pipe_is_read_once() {
    let folder = folder("kept-pipe");
    let line = "\"$0\" sim sweep <(echo 'name = \"e\"'; echo 'model = \"mlp\"') --cluster workstation --out rows.csv";
    let mut shell = std::process::Command::new("bash");
    let ended = shell.args(["-c", line, env!("CARGO_BIN_EXE_lockstep")]).current_dir(&folder).output().expect("bash");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
