//! Tests that a matrix is found whatever stands around it: launchers' prefixes, rows in any order, wrapped lines,
//! empty cells, and devices that the matrix names as drivers do.

use super::*;

const PLAIN: &str = "\
\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNODE\tPIX\t0-15,32-47\t0\t\tN/A
GPU1\tNODE\t X \tSYS\t0-15,32-47\t0\t\tN/A
mlx5_0\tPIX\tSYS\t X \t\t\t\t
";

/// The plain matrix without the contradiction: NODE and SYS cannot both be.
fn plain() -> String {
    PLAIN.replace("NODE", "SYS")
}

fn read_as(text: &str) -> String {
    toml(text, &import(Some("a100-80-pcie")))
}

#[test]
fn what_stands_around_a_matrix_does_not_matter() {
    let text = plain();
    let whole = read_as(&text);
    let lines = |form: &dyn Fn(&str) -> String| text.lines().map(form).collect::<Vec<_>>().join("\n");
    for (what, other) in [
        ("mpirun --tag-output", lines(&|line| format!("[1,0]<stdout>:{line}"))),
        ("srun --label", lines(&|line| format!("0: {line}"))),
        ("a pod", lines(&|line| format!("worker-0 | {line}"))),
        ("time stamps", lines(&|line| format!("2024-05-01T10:11:12.345Z {line}"))),
        ("blanks", text.replace("\t\tN/A", "\tN/A").replace('\t', "   ")),
        ("indented", lines(&|line| format!("        {line}"))),
        ("a comment", lines(&|line| format!("//{line}"))),
        ("colours", text.replacen("GPU0", "\u{1b}[4mGPU0", 1).replacen("ID", "ID\u{1b}[0m", 1)),
        ("text before", format!("$ nvidia-smi topo -m\nGPU 0: NVIDIA A100\n\n{text}")),
        ("two tabs", text.replace("\t\tN/A", "\tN/A").replace('\t', "\t\t")),
        ("every rank's", format!("{text}{text}")),
        ("permissions before", format!(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\n{text}")),
        ("wrapped", text.replace("\tmlx5_0\tCPU", "\nmlx5_0\tCPU").replace("\tSYS\t0", "\n SYS\t0")),
    ] {
        let other = read_as(&other);
        assert_eq!(other, whole, "{what}");
    }
    // A table of a document.
    let table =
        lines(&|line| format!("| {} |", line.split('\t').take(5).map(str::trim).collect::<Vec<_>>().join(" | ")));
    assert_eq!(read_as(&table.replacen('\n', "\n|---|---|---|---|---|\n", 1)), whole);
}

#[test]
fn rows_and_columns_may_be_in_any_order() {
    let text = "mlx5_0 GPU1 GPU0 CPU Affinity\nGPU0 PIX SYS X 0-3\nmlx5_0 X SYS PIX\nGPU1 SYS X SYS 4-7\n";
    let read = cluster(text, Some("a100-80-pcie")).unwrap();
    assert_eq!(buses(&read, "node0.gpu0", "node0.gpu1").len(), 5, "pcie0, socket, cpu, socket, gpu1");
    assert_eq!(rates(&read, "gpu0", LinkKind::Pcie).len(), 1);
    let DeviceKind::Cpu(cpu) = &read.devices()[0].kind else { panic!("no CPU") };
    assert_eq!(cpu.cores, 4);
}

/// Some print the rows of the GPUs alone.
#[test]
fn nics_without_rows_are_placed_by_those_of_gpus() {
    let text =
        "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\nGPU0\t X \tNV18\tPIX\tSYS\t0-7\nGPU1\tNV18\t X \tSYS\tPIX\t8-15\n";
    let (read, notes) = noted(&text.replace("mlx5_", "NIC"), Some("h100-sxm")).unwrap();
    assert!(notes.contains("NIC0, NIC1 have no rows, as if cut"), "{notes}");
    assert_eq!(rates(&read, "pcie0", LinkKind::Pcie).len(), 3);
    assert_eq!(rates(&read, "pcie1", LinkKind::Pcie).len(), 3);
}

#[test]
fn other_matrices_after_the_first_are_noted() {
    let text = format!("{}\n{}", plain(), PLAIN.replace("NODE", "SYS").replace("GPU0\t X \tSYS", "GPU0\t X \tPHB"));
    let (_, notes) = noted(&text, Some("a100-80-pcie")).unwrap();
    assert!(notes.contains("line 7: another matrix begins, and only the first is read"), "{notes}");
}

#[test]
fn cells_that_are_empty_or_open_are_no_others() {
    // The CPUs of GPU1 are not stated: its NUMA node is 1, and no number of CPUs.
    for text in [
        " \tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV12\t0-7\t0\t\tN/A\nGPU1\tNV12\t X \t\t1\t\tN/A\n",
        " GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X NV12 0-7 0 N/A\nGPU1 NV12 X 1 N/A\n",
        " GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X NV12 0-7 0 N/A\nGPU1 NV12 X N/A 1 N/A\n",
    ] {
        let read = cluster(text, Some("a100-80-sxm")).unwrap();
        let DeviceKind::Cpu(cpu) = &read.devices()[0].kind else { panic!("no CPU") };
        assert_eq!((cpu.cores, rates(&read, "socket1", LinkKind::HostBridge).len()), (4, 1), "{text}");
    }
    let (read, notes) = noted(" GPU0 GPU1 CPU\nGPU0 X N/A 0-7\nGPU1 N/A X 0-7\n", Some("t4")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["cpu", "gpu1"]);
    assert!(notes.contains("line 3: N/A leaves open how GPU1 reaches GPU0"), "{notes}");
}
