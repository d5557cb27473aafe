//! Tests commands on other programs' output: topologies of machines, and tables of nccl-tests.

use crate::commands::{folder, lockstep, number, rows, stdout};

/// A dumped topology is written as a cluster file for other commands.
#[test]
fn a_dumped_topology_is_used_in_predictions() {
    let folder = folder("import");
    std::fs::write(folder.join("topo.xml"), include_str!("../topology/readers/src/tests/dgx-a100.xml"))
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
