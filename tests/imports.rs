//! Tests commands on other programs' output: topologies of machines, tables of nccl-tests, exported networks.

use crate::commands::{folder, lockstep, number, rows, stdout};

/// A dumped topology is written as a cluster file for other commands.
#[test]
fn a_dumped_topology_is_used_in_predictions() {
    let folder = folder("import");
    std::fs::write(folder.join("topo.xml"), include_str!("../topology/machines/src/tests/dgx-a100.xml"))
        .expect("a writable folder");
    let import = ["clusters", "import", "topo.xml", "--hosts", "2", "--network", "infiniband-hdr", "--name", "mine"];
    let printed = stdout(&folder, &import);
    assert_eq!(stdout(&folder, &[&import[..], &["--output", "mine.toml"]].concat()), "");
    assert_eq!(std::fs::read_to_string(folder.join("mine.toml")).expect("the file"), printed);
    let sim = |cluster| {
        let found = rows(
            &folder,
            "collective",
            &["sim", "collective", "--ranks", "16", "--bytes", "16MiB", "--cluster", cluster],
        );
        (number(&found[0], "time_us"), found[0]["on"].clone())
    };
    let (time, name) = sim("mine.toml");
    // The preset has the same links between GPUs and to NICs, so the time is the same.
    assert_eq!((time, name.as_str()), (sim("dgx-a100:2").0, Some("mine")));
    assert!(
        !lockstep(&folder, &["clusters", "import", "topo.xml", "--gpu", "t4"]).status.success(),
        "a T4 has no NVLink"
    );
}

/// A printed table of predictions, read as measurements: the only error is rounding.
#[test]
fn predictions_compared_with_their_own_table_have_no_error() {
    let folder = folder("beside");
    let sizes = ["sim", "collective", "--cluster", "dgx-a100", "--ranks", "8"];
    let table = stdout(&folder, &[&sizes[..], &["--bytes", "8..16MiB", "--format", "nccl-tests"]].concat());
    std::fs::write(folder.join("t.txt"), &table).expect("a writable folder");
    let read = rows(&folder, "collective-beside", &[&sizes[..], &["--beside", "t.txt"]].concat());
    assert_eq!(read.len(), 22);
    for row in &read {
        assert!(number(row, "log_error") < 1e-3, "{row}");
    }
    let slower = [&sizes[..], &["--algorithm", "direct", "--beside", "t.txt"]].concat();
    assert!(rows(&folder, "collective-beside", &slower).iter().any(|row| number(row, "log_error") > 0.1));
    assert!(stdout(&folder, &slower).contains("|ln(predicted / measured)|: median"));
}

/// A log as Open MPI prints it: four ranks of a host, with this operation and share of the bandwidth on the bus.
fn log(operation: &str, share: f64) -> String {
    let mut lines = vec!["# nThread 1 nGpus 1".to_owned(), "# Using devices".to_owned()];
    let rank = |rank: u32| {
        format!("#  Rank  {rank} Group  0 Pid {rank} on host-a device  {rank} [0x0{rank}] NVIDIA A100-SXM4-40GB")
    };
    lines.extend((0..4).map(rank));
    lines.push("#  size  count  type  redop  root  time  algbw  busbw #wrong".to_owned());
    let row = |bytes: u32, time: f64| {
        let algbw = f64::from(bytes) / time * 1e-3;
        format!("{bytes} {} float {operation} -1 {time:.2} {algbw:.2} {:.2} 0", bytes / 4, algbw * share)
    };
    lines.extend([row(1 << 20, 40.0), row(4 << 20, 80.0)]);
    lines.iter().map(|line| format!("[1,0]<stdout>:{line}\n")).collect()
}

/// What a log says of itself is used where no flag says it, and a flag that contradicts it is refused with the cure.
#[test]
fn a_log_gives_ranks_collective_and_cluster() {
    let folder = folder("like");
    std::fs::write(folder.join("allreduce.log"), log("sum", 1.5)).expect("a writable folder");
    std::fs::write(folder.join("shards.log"), log("none", 0.75)).expect("a writable folder");
    let like = |more: &[&'static str]| [&["sim", "collective", "--like", "allreduce.log"][..], more].concat();
    let found = rows(&folder, "collective-beside", &like(&[]));
    let stated = ["sim", "collective", "--collective", "allreduce", "--ranks", "4", "--cluster", "p4d.24xlarge"];
    let stated = [&stated[..], &["--beside", "allreduce.log"]].concat();
    assert_eq!(found, rows(&folder, "collective-beside", &stated));
    assert_eq!((found.len(), number(&found[0], "bytes"), number(&found[0], "time_us")), (2, 1_048_576.0, 40.0));
    let other = rows(&folder, "collective-beside", &like(&["--cluster", "dgx-a100"]));
    assert_eq!(other[0]["on"].as_str(), Some("dgx-a100"), "of another size of memory alone");
    let shards = ["sim", "collective", "--like", "shards.log"];
    let gathered = rows(&folder, "collective-beside", &[&shards[..], &["--collective", "all_gather"]].concat());
    assert_eq!(gathered[0]["collective"].as_str(), Some("allgather"));
    for (arguments, expected) in [
        (like(&["--ranks", "8"]), &["--ranks", "8", "is of 4 ranks", "give 4"][..]),
        (like(&["--collective", "broadcast"]), &["--collective", "is of allreduce", "leave --collective out"]),
        (like(&["--cluster", "dgx-h100"]), &["--cluster", "h100-sxm", "NVIDIA A100-SXM4-40GB", "name a cluster with"]),
        (like(&["--cluster", "ethernet-4"]), &["--cluster", "has no GPUs", "name a cluster with such GPUs"]),
        (like(&["--algorithm", "library:nccl", "--explain"]), &["--explain"]),
        (shards.to_vec(), &["allgather or alltoallv", "name it with --collective"]),
        (vec!["sim", "collective", "--bytes", "1MiB"], &["--ranks"]),
    ] {
        let output = lockstep(&folder, &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        expected.iter().for_each(|part| assert!(said.contains(part), "{arguments:?}: {part}: {said}"));
    }
}

/// The flag and the key do what the file's name with `:unfold` does, in each command that takes a model.
#[test]
fn normalisation_is_restored_by_the_flag_by_the_key_and_by_the_name() {
    let folder = folder("unfold");
    let net = include_bytes!("../models/readers/src/onnx/tests/cases/onnx-folded-twin.onnx");
    std::fs::write(folder.join("net.onnx"), net).expect("a writable folder");
    let settings = "name = \"net\"\ncluster = \"dgx-a100\"\nranks = [2]\nbatch_per_rank = [8]\n";
    std::fs::write(folder.join("key.toml"), format!("model = \"net.onnx\"\nunfold = true\n{settings}"))
        .expect("a file");
    std::fs::write(folder.join("name.toml"), format!("model = \"net.onnx:unfold\"\n{settings}")).expect("a file");
    let predict = |model: &[&str]| {
        let sizes = ["sim", "predict", "--cluster", "dgx-a100", "--ranks", "2", "--batch-per-rank", "8", "--model"];
        rows(&folder, "sim-predict", &[&sizes[..], model].concat())
    };
    let restored = predict(&["net.onnx:unfold"]);
    assert_eq!(predict(&["net.onnx", "--unfold"]), restored);
    assert_ne!(predict(&["net.onnx"]), restored);
    let of_file = |name| rows(&folder, "sim-predict", &["sim", "predict", name]);
    assert_eq!(of_file("key.toml"), of_file("name.toml"));
    for (command, more) in [("show", &[][..]), ("plan", &["--stages", "2"]), ("layouts", &["--ranks", "2"])] {
        let printed = |model: &[&str]| stdout(&folder, &[&["models", command], model, more].concat());
        assert_eq!(printed(&["net.onnx", "--unfold"]), printed(&["net.onnx:unfold"]), "{command}");
    }
    let refused = lockstep(&folder, &["models", "check", "lenet", "--unfold"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("this model is none: leave it out"), "{message}");
}

/// Some commands have --out and others --output: what the command itself has is named.
#[test]
fn the_other_form_of_an_argument_is_named() {
    let folder = folder("import-out");
    let refused = lockstep(&folder, &["clusters", "import", "topo.xml", "--out", "mine.toml"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    let named = message.contains("--out: is not an argument of this command; did you mean --output?");
    assert!(refused.status.code() == Some(2) && named, "{message}");
}
