//! Tests links that a matrix or a file gives by number, and the nodes that NVLinks hide.

use super::*;

/// NVLinks hide how GPUs of a node reach each other; what other cells say of them goes first.
#[test]
fn sockets_follow_from_cells_before_columns() {
    // Part of a DGX-2, whose matrix has no column of NUMA nodes.
    let dgx2 = "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\nGPU0\t X \tNV2\tNV1\tSYS\tPIX\t0-19\n\
                GPU1\tNV2\t X \tSYS\tNV1\tPIX\t0-19\nGPU2\tNV1\tSYS\t X \tNV2\tSYS\t20-39\n\
                GPU3\tSYS\tNV1\tNV2\t X \tSYS\t20-39\nmlx5_0\tPIX\tPIX\tSYS\tSYS\t X \t\n";
    let read = cluster(dgx2, Some("v100-sxm2-32")).unwrap();
    assert_eq!(buses(&read, "node0.gpu0", "node0.gpu3"), ["pcie0", "socket0", "cpu", "socket1", "gpu3"]);
    assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [50.0, 25.0]);
    // A NIC that is SYS from a GPU of its own NUMA node.
    let within = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\tPIX\t0-47\t0\t\tN/A\n\
                  GPU1\tNV18\t X \tSYS\t0-47\t0\t\tN/A\nNIC0\tPIX\tSYS\t X \t\t\t\t\n";
    let two = Import { hosts: 2, network: Some("infiniband-ndr".to_owned()), ..import(Some("h100-sxm")) };
    let two = Cluster::parse("w.toml", &toml(within, &two)).unwrap();
    let out = buses(&two, "node0.gpu1", "node1.gpu0");
    assert_eq!(out[..5], ["socket1", "cpu", "socket0", "pcie0", "NIC0"]);
    // Both sockets are near the same 48 threads.
    let DeviceKind::Cpu(cpu) = &two.devices()[0].kind else { panic!("no CPU") };
    assert_eq!(cpu.cores, 24);
    // GPUs of a tray of GB200: lists of nodes, and CPUs by NVLink-C2C.
    let tray = " GPU0 GPU1 GPU2 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X NV18 NV18 0-71 0,3-9,11-17 2\n\
                GPU1 NV18 X NV18 0-71 0,3-9,11-17 10\nGPU2 NV18 NV18 X 72-143 1,19-25 18\n";
    let read = cluster(tray, Some("gb200")).unwrap();
    assert_eq!(rates(&read, "gpu0", LinkKind::HostBridge), [225.0]);
    assert_eq!(rates(&read, "socket0", LinkKind::HostBridge).len(), 3);
    assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [900.0]);
}

#[test]
fn nvlinks_are_between_the_pairs_that_have_them() {
    let pairs = "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV12\tSYS\tSYS\t0-15\t0\n\
                 GPU1\tNV12\t X \tSYS\tSYS\t0-15\t0\nGPU2\tSYS\tSYS\t X \tNV12\t16-31\t1\n\
                 GPU3\tSYS\tSYS\tNV12\t X \t16-31\t1\n";
    let (read, notes) = noted(pairs, Some("a100-80-pcie")).unwrap();
    assert_eq!(rates(&read, "gpu0", LinkKind::NvLink), [300.0]);
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
    assert_eq!(buses(&read, "node0.gpu1", "node0.gpu2"), ["socket0", "cpu", "socket1", "gpu2"]);
    // One UPI link of the time of PCI Express 4.0.
    assert!((rates(&read, "socket0", LinkKind::HostBridge)[0] - 22.4).abs() < 1e-6);
    assert!(notes.is_empty(), "{notes}");
    // Four links of GA102 are slower than four of A100, by their data sheets.
    let bridge = " GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV4 0-31 0\nGPU1 NV4 X 0-31 0\n";
    for (model, gb) in [("rtx-a6000", 56.25), ("rtx-3090", 56.25), ("a30", 100.0), ("a100-40-pcie", 100.0)] {
        assert_eq!(rates(&cluster(bridge, Some(model)).unwrap(), "gpu0", LinkKind::NvLink), [gb], "{model}");
    }
    let error = refused(bridge, Some("a10"));
    assert!(
        error.contains("has 4 NVLinks, but a a10 has 0: name the right model by the setting gpu, one of ")
            && error.contains("rtx-a6000"),
        "{error}"
    );
    // A board without any is one that was printed without them.
    let (_, notes) = noted(" GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X\n", Some("h100-sxm")).unwrap();
    assert!(notes.contains("no GPU has an NVLink in it, and a h100-sxm has 18") && notes.contains("-mp"), "{notes}");
}

fn amd(links: [&str; 2], device: &str) -> String {
    let slot = |dev: usize, links: &str| {
        format!(
            "<pci busid=\"0000:0{dev}:00.0\" class=\"0x120000\" vendor=\"0x1002\" {device} link_speed=\"32.0 GT/s PCIe\" \
             link_width=\"16\">\n<gpu dev=\"{dev}\" sm=\"304\" gcn=\"gfx942\" rank=\"{dev}\" gdr=\"1\">{links}</gpu></pci>\n"
        )
    };
    format!(
        "<system version=\"2\">\n<cpu numaid=\"0\" affinity=\"ffff\" arch=\"x86_64\" vendor=\"AuthenticAMD\">\n{}{}</cpu></system>",
        slot(0, links[0]),
        slot(1, links[1])
    )
}

fn xgmi(to: u32, count: u32) -> String {
    format!("<xgmi target=\"0000:0{to}:00.0\" count=\"{count}\" tclass=\"0x120000\"/>")
}

#[test]
fn infinity_fabric_has_the_rate_of_its_model_and_number() {
    for (device, model, gb) in [
        ("device=\"0x74a1\"", "mi300x", 64.0),
        ("device=\"0x74a5\"", "mi325x", 64.0),
        ("device=\"0x75a3\"", "mi355x", 76.8),
        ("device=\"0x740f\"", "mi210", 50.0),
        ("device=\"0x738c\"", "mi100", 46.0),
        ("", "mi300x", 64.0),
    ] {
        for count in [1, 4] {
            let read = cluster(&amd([&xgmi(1, count), &xgmi(0, count)], device), None).unwrap();
            assert_eq!(gpu_model(&read), model);
            assert_eq!(rates(&read, "gpu0", LinkKind::HostBridge), [gb * f64::from(count)], "{model}");
            assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["gpu1"]);
        }
    }
    let error = refused(&amd([&xgmi(1, 1), &xgmi(0, 2)], ""), None);
    assert!(error.contains("says 1 from gpu0 to gpu1, and its other end, in line 6, says 2"), "{error}");
    let error = refused(&amd([&xgmi(1, 1), &xgmi(0, 1)], ""), Some("h100-sxm"));
    assert!(error.contains("is not a link of a h100-sxm"), "{error}");
    // What leads nowhere is left out with a word.
    let (read, notes) = noted(&amd([&xgmi(0, 1), &xgmi(7, 1)], ""), None).unwrap();
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["cpu", "gpu1"]);
    assert!(
        notes.contains("1 links of GPUs lead to themselves")
            && notes.contains("1 links lead to GPUs that the file has not"),
        "{notes}"
    );
}
