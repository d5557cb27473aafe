//! Tests that every bad matrix is refused with its line and cure, and nothing panics.

use super::*;
use proptest::prelude::*;

const GOOD: &str =
    "     GPU0 GPU1 NIC0 CPU Affinity NUMA Affinity\nGPU0 X PIX PHB 0-7 0\nGPU1 PIX X PHB 0-7 0\nNIC0 PHB PHB X\n";

#[test]
fn invalid_values_are_refused_with_line_and_cure() {
    assert_eq!(cluster(GOOD, Some("t4")).unwrap().devices().len(), 3);
    for (old, new, expected) in [
        ("GPU1 PIX", "GPU1 WARP", "t.txt:3: WARP: is not a supported kind of path"),
        ("GPU1 PIX", "GPU1 NV-3", "t.txt:3: NV-3: is not a supported kind of path"),
        ("GPU1 PIX", "GPU1 NV99999", "t.txt:3: NV99999: is not a supported kind of path"),
        ("GPU1 PIX", "GPU1 OK", "t.txt:1: is what nvidia-smi topo -p2p prints"),
        (
            "GPU1 PIX",
            "GPU1 SYS",
            "t.txt:3: GPU1 - GPU0: is one way and another: line 3 says SYS, and line 2 says PIX; correct one",
        ),
        ("GPU0 X PIX", "GPU0 PIX PIX", "t.txt:2: PIX: is on the diagonal"),
        ("GPU1 PIX X PHB 0-7 0\n", "", "t.txt:3: GPU1: is a column without a row: the text was cut after 2 rows"),
        ("NIC0 PHB PHB X\n", "NIC0 PHB\n", "t.txt:4: NIC0: has 1 of 3 cells"),
        (
            "NIC0 PHB PHB X\n",
            "GPU1 PHB X PHB\nNIC0 PHB PHB X\n",
            "t.txt:4: GPU1: has other cells than its row in line 3",
        ),
    ] {
        assert!(GOOD.contains(old), "{old}");
        let error = refused(&GOOD.replacen(old, new, 1), Some("t4"));
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
    // Two devices that share a bridge with a third, and are far from each other.
    let far = "GPU0 GPU1 GPU2 CPU\nGPU0 X PIX PIX\nGPU1 PIX X SYS\nGPU2 PIX SYS X\n";
    let error = refused(far, Some("t4"));
    let cells = "is near by way of GPU0 (GPU2 - GPU0: line 4 says PIX; GPU0 - GPU1: line 2 says PIX)";
    assert!(error.starts_with("t.txt:4: GPU2 - GPU1: ") && error.contains(cells), "{error}");
    assert!(error.contains("by its own cell far (line 4 says SYS)"), "{error}");
    assert!(refused(GOOD, None).starts_with("--gpu: is needed, since t.txt does not say which GPUs"));
    assert!(refused("", Some("t4")).starts_with("t.txt:1: has no matrix of devices"));
    let twice = "GPU0 GPU0 CPU\nGPU0 X PIX\nGPU0 PIX X\n";
    assert!(refused(twice, Some("t4")).starts_with("t.txt:1: GPU0: is the name of two columns"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Any damage to the text gives a cluster, or an error with a place.
    #[test]
    fn damaged_matrices_never_panic(at in 0..GOOD.len(), length in 0..20usize, with in "[ -~\n\u{1b}\t]{0,12}") {
        let mut text = GOOD.to_owned();
        let end = (at + length).min(text.len());
        text.replace_range(at..end, &with);
        if let Err(error) = import_machine("t.txt", &text, &import(Some("v100-sxm2"))) {
            prop_assert!(!error.place.to_string().is_empty() && !error.message.is_empty(), "{}", error);
        }
    }
}
