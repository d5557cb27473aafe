//! Tests NCCL's XML: a host like DGX A100 against the preset, each kind of link against its rate, and random hosts.

use super::*;
use lockstep_topology::cluster::catalogue;
use proptest::prelude::*;

#[test]
fn a_host_like_dgx_a100_has_the_presets_bandwidths() {
    let two = Import { hosts: 2, network: Some("infiniband-hdr".to_owned()), ..import(None) };
    let read = Cluster::parse("r.toml", &toml(DGX_A100, &two)).unwrap();
    let preset = Cluster::load("dgx-a100:2").unwrap();
    assert_eq!(gpu_model(&read), gpu_model(&preset));
    assert_eq!(read.devices().len(), preset.devices().len());
    let ends = |name: &str| {
        let [read, preset] = [&read, &preset].map(|cluster| route(cluster, "node0.gpu0", name));
        (read.bandwidth, read.latency, read.links.len()) == (preset.bandwidth, preset.latency, preset.links.len())
    };
    for gpu in 1..8 {
        assert!(ends(&format!("node0.gpu{gpu}")), "gpu{gpu}");
    }
    // By the NIC beside it, through one bridge at each end.
    for gpu in 0..8 {
        let [from, to] = [0, 1].map(|node| format!("node{node}.gpu{gpu}"));
        let [read, preset] = [&read, &preset].map(|cluster| route(cluster, &from, &to));
        assert_eq!(
            (read.bandwidth, read.latency, read.links.len()),
            (preset.bandwidth, preset.latency, preset.links.len())
        );
    }
    let ways = [0, 3, 7].map(|gpu| way(&read, &format!("node0.gpu{gpu}"), &format!("node1.gpu{gpu}"))[1].clone());
    assert_eq!(ways, ["mlx5_0", "mlx5_3", "mlx5_7"]);
    let preset_nic = rates(&preset, "ib0", LinkKind::Pcie);
    assert_eq!(rates(&read, "mlx5_0", LinkKind::Pcie), preset_nic);
}

#[test]
fn the_documented_example_gives_the_documented_figures() {
    let page = include_str!("../../../../docs/clusters.md");
    let example = page.split("```xml\n").nth(1).unwrap().split("```").next().unwrap();
    let read = cluster(example, None).unwrap();
    assert_eq!((gpu_model(&read), read.devices().len()), ("a100-80-sxm", 3));
    assert_eq!(
        (rates(&read, "gpu0", LinkKind::NvLink), rates(&read, "mlx5_0", LinkKind::Pcie)),
        (vec![100.0], vec![15.754])
    );
    assert!(page.contains("connected at 100 GB/s") && page.contains("15.75 GB/s"));
}

#[test]
fn the_written_file_cites_the_source_of_each_figure() {
    let read = cluster(DGX_A100, None).unwrap();
    let links = read.describe().iter().find(|table| table.title == "links").unwrap();
    let sources: Vec<&str> = links.rows.iter().map(|row| row.last().unwrap().as_str()).collect();
    assert!(sources.contains(&"assumed: as NCCL does for AMD"), "{sources:?}");
    assert!(sources.contains(
        &"datasheet: NVIDIA NVLink 3.0, 12 links (bandwidth); latency assumed: NCCL's topology in t.txt has none"
    ));
    let toml = import_machine("a\"\\\n.xml", DGX_A100, &import(None)).unwrap().toml;
    assert!(toml.contains("# 200 Gbit/s") && Cluster::parse("w.toml", &toml).is_ok());
}

/// One socket with `inside`.
fn system(inside: &str) -> String {
    format!(
        "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n{inside}</cpu>\n</system>\n"
    )
}

/// A GPU in a slot with `lanes`, with `links` inside.
fn gpu(dev: u32, sm: u32, speed: &str, links: &str) -> String {
    format!(
        "<pci busid=\"0000:0{dev}:00.0\" class=\"0x030200\" link_speed=\"{speed}\" link_width=\"16\">\n\
         <gpu dev=\"{dev}\" sm=\"{sm}\">{links}</gpu></pci>\n"
    )
}

fn nvlink(to: u32, count: u32) -> String {
    format!("<nvlink target=\"0000:0{to}:00.0\" count=\"{count}\" tclass=\"0x030200\"/>")
}

#[test]
fn links_have_the_rates_of_their_generation_and_number() {
    for (sm, count, nvlink_gb, model) in [
        (60, 4, 80.0, "p100-sxm2"),
        (70, 2, 50.0, "v100-sxm2-32"),
        (80, 12, 300.0, "a100-80-sxm"),
        (90, 18, 450.0, "h100-sxm"),
        (100, 18, 900.0, "b200-sxm"),
    ] {
        let text = system(
            &(gpu(0, sm, "8.0 GT/s PCIe", &nvlink(1, count)) + &gpu(1, sm, "32.0 GT/s PCIe", &nvlink(0, count))),
        );
        let read = cluster(&text, None).unwrap();
        assert_eq!(gpu_model(&read), model);
        assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [nvlink_gb]);
        assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
        // 8 and 32 GT/s over 16 lanes.
        assert_eq!(rates(&read, "gpu0", LinkKind::Pcie), [15.754]);
        assert_eq!(rates(&read, "gpu1", LinkKind::Pcie), [63.015]);
    }
    for (speed, width, gb) in [
        ("2.5 GT/s", "16", 4.0),
        ("5 GT/s PCIe", "8", 4.0),
        ("16 GT/s", "4", 7.877),
        ("64.0 GT/s PCIe", "16", 121.0),
        ("", "", 15.754),
        ("Unknown", "255", 15.754),
    ] {
        let text = system(&gpu(0, 75, speed, "").replace("link_width=\"16\"", &format!("link_width=\"{width}\"")));
        assert_eq!(rates(&cluster(&text, None).unwrap(), "gpu0", LinkKind::Pcie), [gb], "{speed}");
    }
    // A Grace CPU by NVLink-C2C: ten links of 45 GB/s, beside 18 NVLinks to a switch.
    let links = "<nvlink target=\"fffffff:ffff:ff\" count=\"18\" tclass=\"0x068000\"/><c2c bw=\"45000\" count=\"10\"/>";
    let text = system(&gpu(0, 90, "32.0 GT/s PCIe", links));
    let read = cluster(&text, Some("h200-sxm")).unwrap();
    assert_eq!(rates(&read, "gpu0", LinkKind::HostBridge), [450.0]);
    assert_eq!((rates(&read, "gpu0", LinkKind::NvLink), gpu_model(&read)), (vec![450.0], "h200-sxm"));
}

#[test]
fn sockets_are_joined_as_nccl_assumes() {
    for (arch, vendor, family, model, gb) in [
        ("x86_64", "AuthenticAMD", 23, 49, 16.0),
        ("x86_64", "GenuineIntel", 6, 79, 6.0),
        ("x86_64", "GenuineIntel", 6, 85, 10.0),
        ("x86_64", "GenuineIntel", 6, 143, 22.0),
        ("ppc64", "", 0, 0, 32.0),
        ("arm64", "", 0, 0, 6.0),
    ] {
        let cpu = |node: u32| {
            let slot = gpu(node, 75, "8.0 GT/s PCIe", "");
            format!(
                "<cpu numaid=\"{node}\" arch=\"{arch}\" vendor=\"{vendor}\" familyid=\"{family}\" modelid=\"{model}\">{slot}</cpu>"
            )
        };
        let read = cluster(&format!("<system>{}{}</system>", cpu(0), cpu(1)), None).unwrap();
        assert_eq!(rates(&read, "socket0", LinkKind::HostBridge), [gb], "{arch} {vendor} {model}");
        assert_eq!(
            route(&read, "node0.gpu0", "node0.gpu1").bandwidth.bytes_per_s(),
            f64::min(gb * 1e9, 8e9),
            "through memory"
        );
    }
}

#[test]
fn cards_with_two_ports_share_a_slot_and_names_are_made_valid() {
    let card = "<pci busid=\"0000:20:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"8\"><nic>\
                <net name=\"gpu0\" dev=\"0\" speed=\"100000\"/><net name=\"eth.0\" dev=\"1\" speed=\"100000\"/></nic></pci>\n";
    let text = system(&(gpu(0, 80, "16.0 GT/s PCIe", "") + card));
    let read = cluster(&text, None).unwrap();
    for nic in ["nic0", "eth_0"] {
        assert_eq!(rates(&read, nic, LinkKind::Pcie), [15.754]);
    }
    assert_eq!(rates(&read, "card0", LinkKind::Pcie).len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any tree of bridges with GPUs and NICs: every device is present, and the route between two GPUs of one bridge
    /// turns in it.
    #[test]
    fn random_hosts_keep_their_devices(slots in prop::collection::vec((0..3usize, 0..3usize, 0..3u32), 1..8), sm in prop::sample::select(vec![60, 70, 75, 80, 90, 100])) {
        let (mut dev, mut net, mut inside) = (0, 0, String::new());
        for (slot, (gpus, nics, depth)) in slots.iter().enumerate() {
            let bridge = |level: u32| format!("<pci busid=\"00{slot:02}:f{level}:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">");
            (0..=*depth).for_each(|level| inside += &bridge(level));
            for _ in 0..*gpus {
                inside += &gpu(dev, sm, "16.0 GT/s PCIe", "").replace(":00.0", &format!(":{slot:02}.0"));
                dev += 1;
            }
            for _ in 0..*nics {
                inside += &format!("<pci busid=\"b{net}\" class=\"0x020000\" link_speed=\"16 GT/s\" link_width=\"16\"><nic><net name=\"m{net}\" dev=\"{net}\" speed=\"100000\"/></nic></pci>");
                net += 1;
            }
            inside += &"</pci>".repeat(*depth as usize + 1);
        }
        prop_assume!(dev > 0);
        let read = cluster(&system(&inside), None).unwrap();
        prop_assert_eq!(read.devices().len(), 1 + dev as usize);
        let spec = catalogue().unwrap().into_iter().find(|known| known.name == gpu_model(&read));
        prop_assert!(spec.is_some());
        let mut first = 0;
        for (gpus, ..) in &slots {
            if *gpus > 1 {
                let [one, other] = [first, first + 1].map(|gpu| format!("node0.gpu{gpu}"));
                let way = way(&read, &one, &other);
                prop_assert!(way.len() == 2 && way[0].starts_with("pcie"), "{:?}", way);
            }
            first += gpus;
        }
    }
}
