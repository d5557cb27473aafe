//! Tests that all bad XML is refused with its line and cure, and nothing panics.

use super::*;
use proptest::prelude::*;

#[test]
fn invalid_values_are_refused_with_line_and_cure() {
    let nvlink = "<nvlink target=\"0000:f0:00.0\" count=\"12\" tclass=\"0x068000\"/>";
    for (old, new, expected) in [
        ("</system>\n", "", "t.txt:"),
        (
            "speed=\"200000\"",
            "speed=\"-200000\"",
            "t.txt:11: speed=\"-200000\": must be a whole number from 1 to 1000000000",
        ),
        ("speed=\"200000\"", "speed=\"99999999999\"", "t.txt:11: speed=\"99999999999\": must be a whole number"),
        ("latency=\"0.000000\"", "latency=\"-1\"", "t.txt:11: latency=\"-1\": must be a time in microseconds"),
        ("latency=\"0.000000\"", "latency=\"nan\"", "t.txt:11: latency=\"nan\": must be a time in microseconds"),
        (
            "link_speed=\"16.0 GT/s PCIe\"",
            "link_speed=\"-16 GT/s\"",
            "t.txt:3: link_speed=\"-16 GT/s\": is not a speed of PCI",
        ),
        (
            "link_speed=\"16.0 GT/s PCIe\"",
            "link_speed=\"fast\"",
            "t.txt:3: link_speed=\"fast\": is not a speed: write it like",
        ),
        ("link_width=\"16\"", "link_width=\"99\"", "t.txt:3: link_width=\"99\": is not a number of lanes"),
        ("tclass=\"0x068000\"", "tclass=\"0x123456\"", "t.txt:6: tclass=\"0x123456\": is not a supported end"),
        ("count=\"12\"", "count=\"0\"", "t.txt:6: count=\"0\": must be a whole number from 1 to 1024"),
        ("count=\"12\"", "count=\"13\"", "t.txt:5: <gpu dev=\"0\" sm=\"80\""),
        (nvlink, "<warp count=\"1\"/>", "t.txt:6: <warp count=\"1\"/>: is not a supported link"),
        (nvlink, "<c2c count=\"1\"/>", "t.txt:6: <c2c count=\"1\"/>: needs a count, and a bw in MB/s"),
        ("dev=\"1\" sm", "dev=\"0\" sm", "t.txt:15: <gpu dev=\"0\" sm=\"80\""),
        ("dev=\"1\" sm=\"80\"", "dev=\"1\" sm=\"90\"", "t.txt:15: sm=\"90\": has another sm than 80"),
        ("dev=\"0\" sm=\"80\"", "dev=\"0\"", "t.txt:5: <gpu dev=\"0\""),
        ("numaid=\"1\"", "numaid=\"0\"", "t.txt:26: <cpu numaid=\"0\""),
        ("affinity=\"", "affinity=\"xyz", "t.txt:2: affinity="),
        ("0000:15:00.0", "0000:11:00.0", "t.txt:14: busid=\"0000:11:00.0\": is that of another GPU"),
        ("<nic>", "<nic/><nix>", "t.txt:"),
        ("<system version=\"1\">", "<!DOCTYPE a [<!ENTITY b \"c\">]><system>", "t.txt:1"),
        ("<system version=\"1\">", "<system><gpu dev=\"9\"/>", "t.txt:1: <gpu dev=\"9\"/>: is not in any <cpu>"),
    ] {
        assert!(DGX_A100.contains(old), "{old}");
        let error = refused(&DGX_A100.replacen(old, new, 1), None);
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
    // All GPUs equal, but of an unknown kind.
    let error = refused(&DGX_A100.replace("sm=\"80\"", "sm=\"12\""), None);
    assert!(error.contains("sm=\"12\": is of no GPU in the catalogue"), "{error}");
    let error = refused(DGX_A100, Some("h100-smx"));
    assert!(error.starts_with("--gpu: h100-smx: is not a GPU; did you mean h100-sxm"), "{error}");
    assert!(refused("<topology/>", None).contains("is not NCCL's topology, which is one <system>"));
    let error = refused("<system><cpu numaid=\"0\"/></system>", None);
    assert!(error.contains("has no GPU, neither a <gpu> nor"), "{error}");
}

#[test]
fn links_whose_ends_disagree_are_refused() {
    let side = |dev: u32, to: u32, count: u32| {
        format!(
            "<pci busid=\"0000:0{dev}:00.0\" class=\"0x030200\"><gpu dev=\"{dev}\" sm=\"80\">\n\
             <nvlink target=\"0000:0{to}:00.0\" count=\"{count}\" tclass=\"0x030200\"/></gpu></pci>\n"
        )
    };
    let text = |back: u32| format!("<system><cpu numaid=\"0\">{}{}</cpu></system>", side(0, 1, 4), side(1, 0, back));
    assert!(cluster(&text(4), None).is_ok());
    let error = refused(&text(3), None);
    assert!(error.starts_with("t.txt:2: <nvlink") && error.contains("says 4 from gpu0 to gpu1"), "{error}");
    assert!(error.contains("its other end, in line 4, says 3"), "{error}");
}

#[test]
fn several_hosts_need_a_network_that_the_nics_support() {
    let of = |hosts, network: Option<&str>| {
        let import = Import { hosts, network: network.map(str::to_owned), ..import(None) };
        import_machine("t.txt", DGX_A100, &import).map(|read| read.toml).map_err(|error| error.to_string())
    };
    assert_eq!(Cluster::parse("w.toml", &of(4, Some("infiniband-hdr")).unwrap()).unwrap().hosts().len(), 4);
    assert!(of(1, Some("infiniband-edr")).is_ok(), "a slower one");
    assert!(of(4, None).unwrap_err().starts_with("--network: is needed to join several hosts"));
    let error = of(4, Some("infiniband-ndr")).unwrap_err();
    assert!(error.starts_with("--network: infiniband-ndr: has 400 Gbit/s, but the NIC mlx5_0 only 200"), "{error}");
    assert!(of(4, Some("infiniband-hdd")).unwrap_err().contains("infiniband-hdr"));
}

#[test]
fn deep_and_wide_files_end_in_an_error() {
    let deep =
        format!("<system><cpu>{}{}</cpu></system>", "<pci class=\"0x060400\">".repeat(20_000), "</pci>".repeat(20_000));
    assert!(refused(&deep, None).contains("inside each other"), "{}", refused(&deep, None));
    let many = "<pci class=\"0x060400\"><pci class=\"0x060400\"/><nic><net speed=\"1\"/></nic></pci>"
        .replace("<nic>", "<pci><nic>")
        .replace("</nic>", "</nic></pci>");
    let wide = format!("<system><cpu>{}</cpu></system>", many.repeat(5_000));
    assert!(refused(&wide, None).contains("at most 4096 parts"), "{}", refused(&wide, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Any damage to the text gives a cluster, or an error with a place.
    #[test]
    fn damaged_files_never_panic(at in 0..DGX_A100.len(), length in 0..60usize, with in "[ -~\n]{0,20}") {
        let mut text = DGX_A100.to_owned();
        let end = (at + length).min(text.len());
        text.replace_range(at..end, &with);
        if let Err(error) = import_machine("t.txt", &text, &import(None)) {
            prop_assert!(!error.place.to_string().is_empty() && !error.message.is_empty(), "{}", error);
        }
    }
}
