//! Tests which GPU a file names: by its PCI device, by its architecture, or by `--gpu` in a vendor's file.

use super::*;

fn host(pci: &str, gpu: &str) -> String {
    let slot = |dev: u32| {
        format!(
            "<pci busid=\"0000:0{dev}:00.0\" class=\"0x030200\" {pci} link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{dev}\" {gpu}/></pci>\n"
        )
    };
    format!(
        "<system version=\"1\">\n<cpu numaid=\"-1\" affinity=\"ffff\" arch=\"x86_64\">\n{}{}</cpu></system>",
        slot(0),
        slot(1)
    )
}

#[test]
fn the_device_names_the_gpu() {
    for (vendor, device, sm, model) in [
        ("0x10de", "0x2684", 89, "rtx-4090"),
        ("0x10de", "0x27b8", 89, "l4"),
        ("0x10de", "0x2335", 90, "h200-sxm"),
        ("0x10de", "0x2330", 90, "h100-sxm"),
        ("0x10de", "0x2324", 90, "h800-sxm"),
        ("0x10de", "0x20b5", 80, "a100-80-pcie"),
        ("0x10de", "0x2230", 86, "rtx-a6000"),
        ("0x10de", "0x2b85", 120, "rtx-5090"),
        ("0x10de", "0x2e12", 121, "gb10"),
        ("0x10de", "0x2941", 100, "gb200"),
        ("0x1002", "0x740c", 104, "mi250"),
        ("0x1002", "0x740c", 110, "mi250x"),
        ("0x1002", "0x74a1", 304, "mi300x"),
    ] {
        let text = host(&format!("vendor=\"{vendor}\" device=\"{device}\""), &format!("sm=\"{sm}\""));
        let (read, notes) = noted(&text, None).unwrap();
        assert_eq!(gpu_model(&read), model);
        assert!(!notes.contains("fits several"), "{notes}");
        // A machine without NUMA nodes has one socket.
        assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["cpu", "gpu1"]);
    }
    let text = host("vendor=\"0x10de\" device=\"0x1af1\"", "sm=\"80\"");
    let error = refused(&text, None);
    assert!(error.starts_with("t.txt:3: device=\"0x1af1\": is no GPU that is known here (vendor 0x10de)"), "{error}");
    assert!(error.contains("by the setting gpu"), "{error}");
    assert_eq!(gpu_model(&cluster(&text, Some("a100-40-sxm")).unwrap()), "a100-40-sxm");
    // A model beside the file's is said to be one.
    let text = host("vendor=\"0x10de\" device=\"0x2335\"", "sm=\"90\"");
    let (_, notes) = noted(&text, Some("h100-sxm")).unwrap();
    assert!(
        notes.contains("the file's PCI device 0x2335 is h200-sxm, and h100-sxm is taken for it, as asked"),
        "{notes}"
    );
    let error = refused(&text.replacen("0x2335", "0x2330", 1), None);
    assert!(error.contains("has another device than 0x2330: a host has one kind of GPU"), "{error}");
}

#[test]
fn where_several_gpus_fit_the_choice_is_named() {
    for (gpu, model, said) in [
        ("sm=\"89\"", "l4", "sm 89 fits several GPUs, and l4 is taken: the setting gpu names another (l40s"),
        ("sm=\"80\"", "a100-80-pcie", "a100-40-pcie"),
        ("sm=\"104\" gcn=\"910\"", "mi250", "gcn 910 fits several GPUs, and mi250 is taken"),
        ("sm=\"75\"", "t4", "rtx-2080-ti"),
    ] {
        let (read, notes) = noted(&host("", gpu), None).unwrap();
        assert_eq!(gpu_model(&read), model);
        assert!(notes.contains(said), "{notes}");
    }
    let (read, notes) = noted(&host("", "sm=\"120\" gcn=\"908\""), None).unwrap();
    assert_eq!((gpu_model(&read), notes.as_str()), ("mi100", ""));
}

/// A file as clouds publish them: bridges, and under them devices of a class.
fn published(device: &str) -> String {
    let leaf = |bus: &str, class: &str, device: &str| {
        format!("<pci busid=\"{bus}:00:00.0\" class=\"{class}\" {device} link_speed=\"16 GT/s\" link_width=\"16\"/>\n")
    };
    let bridge = |at: u32| {
        let inside = [1, 2].map(|i| {
            leaf(&format!("000{}", 2 * at + i), "0x030200", device)
                + &leaf(&format!("010{}", 2 * at + i), "0x020700", "")
        });
        format!(
            "<pci busid=\"ffff:ff:0{at}.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n{}</pci>\n",
            inside.concat()
        )
    };
    format!(
        "<!-- a cloud -->\n<system version=\"1\">\n<cpu numaid=\"0\">\n{}</cpu><cpu numaid=\"1\">{}</cpu></system>",
        bridge(0),
        bridge(1)
    )
}

#[test]
fn a_vendors_file_needs_no_job() {
    let error = refused(&published(""), None);
    assert!(
        error.contains("is a GPU of which the file says neither device nor model: name its model by the setting gpu"),
        "{error}"
    );
    let (read, notes) = noted(&published(""), Some("a100-80-sxm")).unwrap();
    assert_eq!((gpu_model(&read), read.devices().len()), ("a100-80-sxm", 5));
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu3"), ["nvswitch", "gpu3"]);
    assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [300.0]);
    assert!(notes.contains("NVLinks are not in it: all 12 of each GPU lead to NVSwitch"), "{notes}");
    assert!(notes.contains("NICs are in it without names and rates"), "{notes}");
    let two = Import { hosts: 2, network: Some("infiniband-hdr".to_owned()), ..import(Some("a100-80-sxm")) };
    let two = Cluster::parse("w.toml", &toml(&published(""), &two)).unwrap();
    assert_eq!(way(&two, "node0.gpu0", "node1.gpu0")[..2], ["pcie0", "nic0"]);
    // EC2's files name the device.
    let read = cluster(&published("vendor=\"0x10de\" device=\"0x20b0\""), None).unwrap();
    assert_eq!(gpu_model(&read), "a100-40-sxm");
    // Cards are joined by PCI Express, and AMD's boards by Infinity Fabric.
    let (read, _) = noted(&published(""), Some("l40s")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["pcie0", "gpu1"]);
    let (read, notes) = noted(&published(""), Some("mi300x")).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu3"), ["gpu3"]);
    assert!(notes.contains("links between GPUs are not in it"), "{notes}");
    // Beside GPUs of a job, others are unused.
    let job = published("").replacen("link_width=\"16\"/>", "link_width=\"16\"><gpu dev=\"0\" sm=\"80\"/></pci>", 1);
    let (read, notes) = noted(&job, None).unwrap();
    assert_eq!(read.devices().len(), 2);
    assert!(notes.contains("3 GPUs without their <gpu>"), "{notes}");
    assert!(refused("<graphs version=\"1\"><graph id=\"0\"/></graphs>", None).contains("NCCL_GRAPH_DUMP_FILE"));
}
