//! Tests the tables of `rocm-smi --showtopo` and `amd-smi topology`.

use super::*;

/// Tables of four GPUs of which 0 and 1, and 2 and 3, are joined as `kind`, with `weight`.
fn tables(kind: &str, weight: u32) -> String {
    let table = |heading: &str, near: &str, far: &str| {
        let cell = |one: usize, other: usize| match (one == other, one / 2 == other / 2) {
            (true, _) => "0".to_owned(),
            (_, true) => near.to_owned(),
            (_, false) => far.to_owned(),
        };
        let row =
            |one| format!("GPU{one}   {}\n", [0, 1, 2, 3].map(|other| format!("{:<12}", cell(one, other))).join(" "));
        format!(
            "=============== {heading} ================\n       GPU0         GPU1         GPU2         GPU3\n{}\n",
            [0, 1, 2, 3].map(row).concat()
        )
    };
    let nodes = [0, 1, 2, 3].map(|gpu| {
        format!("GPU[{gpu}]\t\t: (Topology) Numa Node: {}\nGPU[{gpu}]\t\t: (Topology) Numa Affinity: {0}\n", gpu / 2)
    });
    [
        "============ ROCm System Management Interface ============\n".to_owned(),
        table("Weight between two GPUs", &weight.to_string(), "72"),
        table("Hops between two GPUs", "1", "3"),
        table("Link Type between two GPUs", kind, "PCIE"),
        format!("======= Numa Nodes =======\n{}", nodes.concat()),
        "======= End of ROCm SMI Log =======\n".to_owned(),
    ]
    .concat()
}

#[test]
fn gpus_are_joined_by_fabric_or_by_their_sockets() {
    let (read, notes) = noted(&tables("XGMI", 15), Some("mi210")).unwrap();
    assert_eq!((gpu_model(&read), read.devices().len()), ("mi210", 5));
    assert_eq!(rates(&read, "gpu0", LinkKind::HostBridge), [50.0]);
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
    assert_eq!(buses(&read, "node0.gpu1", "node0.gpu2"), ["socket0", "cpu", "socket1", "gpu2"]);
    assert!(notes.contains("it does not say how many links join two GPUs"), "{notes}");
    let (read, _) = noted(&tables("PCIE", 40), Some("mi50")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["socket0", "gpu1"]);
    // Two links away.
    let (read, notes) = noted(&tables("XGMI", 30), Some("mi250x")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["socket0", "gpu1"]);
    assert!(notes.contains("2 pairs of GPUs are joined by way of a third"), "{notes}");
}

/// The same tables as amd-smi prints them: addresses for numbers, other headings, SELF, and no NUMA nodes.
fn of_amd_smi(kind: &str, weight: u32) -> String {
    let own = tables(kind, weight);
    let own = own[..own.find("======= Numa").unwrap()].replace("GPU0   0 ", "GPU0   SELF ");
    let headings = [("Weight", "WEIGHT TABLE:"), ("Hops", "HOPS TABLE:"), ("Link Type", "LINK TYPE TABLE:")];
    let renamed = headings.iter().fold(own, |text, (old, new)| {
        text.replace(&format!("=============== {old} between two GPUs ================"), new)
    });
    [("GPU0", "0000:0c:00.0"), ("GPU1", "0000:22:00.0"), ("GPU2", "0000:9f:00.0"), ("GPU3", "0001:01:00.0")]
        .iter()
        .fold(renamed, |text, (name, address)| text.replace(name, address))
}

#[test]
fn tables_of_amd_smi_are_read_too() {
    let (read, notes) = noted(&of_amd_smi("XGMI", 15), Some("mi210")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
    assert_eq!(way(&read, "node0.gpu2", "node0.gpu3"), ["gpu3"]);
    assert_eq!(buses(&read, "node0.gpu1", "node0.gpu2").len(), 2, "one socket");
    assert!(notes.contains("it does not say the NUMA node of each GPU"), "{notes}");
    let whole = of_amd_smi("XGMI", 15);
    let cut = &whole[..whole.find("LINK TYPE").unwrap()];
    assert!(refused(cut, Some("mi210")).contains("use all that amd-smi topology prints"));
    let cut = &whole[..whole.rfind("0001:01:00.0").unwrap()];
    assert!(refused(cut, Some("mi210")).contains("GPU3: is a column without a row"));
}

#[test]
fn wrong_tables_are_refused_with_their_cells() {
    assert!(refused(&tables("XGMI", 15), None).starts_with("--gpu: is needed"));
    assert!(refused(&tables("XGMI", 15), Some("h100-sxm")).contains("has no Infinity Fabric"));
    assert!(refused(&tables("WARP", 15), Some("mi210")).contains("WARP: is not a supported kind of link"));
    let at = tables("XGMI", 15).rfind("GPU1   XGMI").unwrap();
    let mut text = tables("XGMI", 15);
    text.replace_range(at..at + 11, "GPU1   PCIE");
    let error = refused(&text, Some("mi210"));
    assert!(
        error.contains("GPU1 - GPU0: is one way and another: line ") && error.contains("says PCIE, and line"),
        "{error}"
    );
    let cut = tables("XGMI", 15);
    let cut = &cut[..cut.rfind("GPU3   PCIE").unwrap()];
    assert!(refused(cut, Some("mi210")).contains("GPU3: is a column without a row"));
}
