//! Tests flags that write a file: through links, into devices and pipes, and refused beforehand where the file cannot
//! be written.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::commands::{folder, lockstep};

/// Fast commands, with `@` for the file.
const QUICK: [&str; 14] = [
    "sim predict --model mlp --cluster ethernet-4 --ranks 2 --trace @.json",
    "sim predict --model mlp --cluster ethernet-4 --ranks 2 --strategy sma:first-come --driver-log @.jsonl",
    "sim sweep --model mlp --cluster workstation --ranks 1..2 --out @.csv",
    "sim sweep --model mlp --cluster workstation --ranks 1..2 --out @.jsonl",
    "sim sweep --model mlp --cluster workstation --ranks 1..2 --plot @.svg",
    "papers paper.toml --html @.html",
    "papers paper.toml --write-errors @.csv",
    "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --trace @.json",
    "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --metrics @.jsonl",
    "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --strategy sma --learners auto --tuner-log @.json",
    "exec sweep epochs.toml --data mnist:64+10 --out @.csv",
    "models layouts lenet --plot @.svg",
    "memory --model llama-3-8b:layers=2 --gpus 1xh200 --plot @.svg",
    "clusters import topo.xml --output @.toml",
];

/// Commands that take minutes, or a GPU: they must refuse at once.
const SLOW: [&str; 3] =
    ["calibrate --profile @.json", "exec profile --model mlp -o @.json", "compare tiny.toml --trace @.json"];

/// A folder with the commands' input.
fn prepared(name: &str) -> PathBuf {
    let folder = folder(name);
    let write = |file: &str, text: &str| fs::write(folder.join(file), text).expect("a file");
    write("tiny.toml", "name = \"tiny\"\nmodel = \"mlp\"\nsteps = 2\n");
    write("epochs.toml", "name = \"e\"\nmodel = \"mlp\"\ndata = \"mnist\"\nbatch_per_rank = 8\nepochs = 1\n");
    write("topo.xml", include_str!("../topology/machines/src/tests/dgx-a100.xml"));
    write("paper.toml", include_str!("../experiments/papers/krizhevsky2014.toml"));
    folder
}

/// The command's words with `path` instead of `@`, and the path with its ending.
fn words(command: &str, path: &str) -> (Vec<String>, String) {
    let words: Vec<String> = command.split_whitespace().map(|word| word.replace('@', path)).collect();
    let named = words.iter().find(|word| word.starts_with(path)).expect("a path").clone();
    (words, named)
}

fn run(folder: &PathBuf, words: &[String]) -> std::process::Output {
    lockstep(folder, &words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn names(folder: &PathBuf) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|one| one.expect("one").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// The user that made a link, maybe another one, would choose what is overwritten.
#[test]
fn links_to_files_are_refused() {
    let folder = prepared("outputs-links");
    fs::write(folder.join("target"), "mine").unwrap();
    for command in QUICK.iter().chain(&SLOW) {
        for target in ["target", "absent"] {
            let (arguments, link) = words(command, "link");
            symlink(target, folder.join(&link)).unwrap();
            let output = run(&folder, &arguments);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command}: {errors}");
            assert!(errors.contains("is a symbolic link to"), "{command}: {errors}");
            assert!(folder.join(&link).is_symlink() && !folder.join("absent").exists(), "{command}");
            fs::remove_file(folder.join(&link)).unwrap();
        }
    }
    assert_eq!(fs::read_to_string(folder.join("target")).unwrap(), "mine");
}

/// The files of a comparison that no flag names follow the same rule.
#[test]
fn links_in_the_folder_of_comparisons_are_refused() {
    let folder = prepared("outputs-planted");
    fs::create_dir(folder.join("out")).unwrap();
    fs::write(folder.join("target"), "mine").unwrap();
    for planted in ["out/tiny-predicted.json", "out/this-machine.json"] {
        symlink("../target", folder.join(planted)).unwrap();
        let output = lockstep(&folder, &["compare", "tiny.toml"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{planted}: {errors}");
        assert!(errors.contains(planted) && errors.contains("is a symbolic link to"), "{planted}: {errors}");
        fs::remove_file(folder.join(planted)).unwrap();
    }
    assert_eq!(fs::read_to_string(folder.join("target")).unwrap(), "mine");
}

#[test]
fn devices_are_written_and_not_replaced() {
    let folder = prepared("outputs-devices");
    for command in QUICK {
        let (arguments, link) = words(command, "link");
        symlink("/dev/null", folder.join(&link)).unwrap();
        let output = run(&folder, &arguments);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device(), "{command}");
        assert!(folder.join(&link).is_symlink(), "{command}: the link is gone");
        fs::remove_file(folder.join(&link)).unwrap();
    }
    // A failed write is reported, and training with metrics continues.
    for (command, code) in QUICK.iter().zip([2, 2, 2, 2, 2, 2, 2, 2, 0, 2, 2, 2]) {
        let (arguments, link) = words(command, "link");
        symlink("/dev/full", folder.join(&link)).unwrap();
        let output = run(&folder, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{command}: {errors}");
        assert!(errors.contains("cannot be written") && !errors.contains("panicked"), "{command}: {errors}");
        fs::remove_file(folder.join(&link)).unwrap();
    }
}

/// A pipe is opened once and stays open until the output is complete.
#[test]
fn pipes_are_written() {
    let folder = prepared("outputs-pipes");
    for command in QUICK {
        let (arguments, pipe) = words(command, "pipe");
        let pipe = folder.join(pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        // Once the pipe is closed the reader ends, and a second opening would wait for another for ever.
        let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().expect("a reader");
        // It reads all the time: pages are longer than pipes are deep.
        let reader = std::thread::spawn(|| reader.wait_with_output());
        let mut limited = Command::new("timeout");
        limited.args(["60", env!("CARGO_BIN_EXE_lockstep")]).args(&arguments).current_dir(&folder);
        let output = limited.output().expect("timeout");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let read = reader.join().expect("no panic").expect("it ends");
        assert!(!read.stdout.is_empty(), "{command}");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{command}");
        fs::remove_file(pipe).unwrap();
    }
}

#[test]
fn standard_output_receives_a_file_and_the_report() {
    let folder = prepared("outputs-stdout");
    let file = fs::File::create(folder.join("all.txt")).unwrap();
    let words = "sim predict --model mlp --cluster ethernet-4 --ranks 2 --trace /dev/stdout --format csv";
    let status = Command::new(env!("CARGO_BIN_EXE_lockstep"))
        .args(words.split_whitespace())
        .current_dir(&folder)
        .stdout(file)
        .status()
        .unwrap();
    let all = fs::read_to_string(folder.join("all.txt")).unwrap();
    assert!(status.success() && all.starts_with("{\"") && all.contains("\nmodel,strategy,"), "{all}");
}

#[test]
fn unwritable_outputs_are_refused_before_the_work() {
    let folder = prepared("outputs-refused");
    for ending in ["json", "jsonl", "csv", "svg", "html", "toml"] {
        fs::create_dir(folder.join(format!("taken.{ending}"))).unwrap();
    }
    let before = names(&folder);
    for command in QUICK.iter().chain(&SLOW) {
        for (path, wanted) in
            [("taken", "is a folder"), ("no/file", "folder that does not exist"), ("tiny.toml/file", "")]
        {
            // For profiles, folders are created.
            if command.contains("--profile") && path.starts_with("no/") {
                continue;
            }
            let (arguments, _) = words(command, path);
            let output = run(&folder, &arguments);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
            assert!(errors.lines().count() == 1 && errors.contains(wanted), "{arguments:?}: {errors}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
    assert_eq!(names(&folder), before);
}

#[test]
fn no_two_flags_name_one_file() {
    let folder = prepared("outputs-twice");
    let words = "sim sweep --model mlp --cluster workstation --out a.svg --plot ./a.svg";
    let output = lockstep(&folder, &words.split_whitespace().collect::<Vec<_>>());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(2) && errors.contains("--plot: ./a.svg: is also the file of --out"),
        "{errors}"
    );
}

/// As documented, a file that cannot be written gives exit code 2, and so does standard output; if standard error is
/// full too, there is no panic.
#[test]
fn a_full_standard_output_is_exit_code_2() {
    let folder = prepared("outputs-full");
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    for words in ["models list", "--help", "sim predict --model mlp --cluster ethernet-4", "papers paper.toml"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.args(words.split_whitespace()).current_dir(&folder);
        let output = command.stdout(full()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}: {errors}");
        assert!(
            errors.contains("standard output: cannot be written") && !errors.contains("panicked"),
            "{words}: {errors}"
        );
    }
    let run = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2";
    for (words, code) in [(run, 0), ("models show absent", 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
        command.args(words.split_whitespace()).current_dir(&folder).stdout(Stdio::null());
        assert_eq!(command.stderr(full()).status().unwrap().code(), Some(code), "{words}");
    }
}

/// `--quiet` reduces standard error to warnings and errors, and does not change standard output.
#[test]
fn quiet_commands_print_only_warnings_and_errors() {
    let folder = prepared("outputs-quiet");
    let run = "exec run --model mlp --data synthetic:64 --batch-per-rank 4 --steps 2 --format json";
    let of = |words: &str| {
        let output = lockstep(&folder, &words.split_whitespace().collect::<Vec<_>>());
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
        (stdout, stderr)
    };
    let weights = |stdout: &str| {
        let answer: serde_json::Value = serde_json::from_str(stdout).expect("JSON");
        answer["rows"][0]["weights_sha256"].as_str().expect("a digest").to_owned()
    };
    let (spoken, quiet) = (of(run), of(&format!("{run} --quiet")));
    assert!(spoken.1.contains("seed 1") && quiet.1.is_empty(), "{spoken:?}\n{quiet:?}");
    assert_eq!(weights(&spoken.0), weights(&quiet.0));
    let (_, wrong) = of("-q models show absent");
    assert!(wrong.contains("absent"), "{wrong}");
}

/// `--verbose` adds the phases of the work to standard error, and does not change standard output.
#[test]
fn verbose_commands_print_the_phases_of_the_work() {
    let folder = prepared("outputs-verbose");
    let of = |words: &str| {
        let output = lockstep(&folder, &words.split_whitespace().collect::<Vec<_>>());
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"))
    };
    let predict = "sim predict --model lenet --cluster ethernet-4 --ranks 4 --trace steps.json";
    let ([plain, silent], [same, phases]) = (of(predict), of(&format!("{predict} --verbose")));
    assert!(silent.is_empty() && plain == same, "{silent}\n{plain}\n{same}");
    let lines: Vec<&str> = phases.lines().collect();
    let what = ["cluster ethernet-4: ", ": program: ", ": simulation: ", "steps.json written"];
    assert_eq!(lines.len(), what.len(), "{phases}");
    for (line, what) in lines.iter().zip(what) {
        let at = line.strip_prefix('[').and_then(|line| line.split_once(" s] ")).expect("seconds in brackets");
        assert!(at.0.trim().parse::<f64>().is_ok() && at.1.contains(what), "{line}");
    }
    let [_, wrong] = of("-q -v models list");
    assert!(wrong.contains("--verbose"), "{wrong}");
}

/// The published schemas are those of the printed rows.
#[test]
fn published_schemas_are_current() {
    for (name, schema) in lockstep::cli::schemas() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schema/{name}.json"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let cure = format!("write it again: cargo run -- schema {name} > docs/schema/{name}.json");
        assert!(text == format!("{schema:#}\n"), "{} is not current; {cure}", path.display());
    }
}
