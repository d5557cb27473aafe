//! Tests which NICs are taken for a fabric's, and that `nics` chooses others.

use super::*;

/// A host of an H100 with NICs of these names, rates in Mbit/s and identities.
fn host(nics: &[(&str, u32, &str)]) -> String {
    let nic = |(name, speed, guid): &(&str, u32, &str)| {
        format!(
            "<pci busid=\"{name}\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic>\
             <net name=\"{name}\" dev=\"0\" speed=\"{speed}\" port=\"{}\" guid=\"{guid}\"/></nic></pci>\n",
            u8::from(*guid != "0x0")
        )
    };
    let nics: String = nics.iter().map(nic).collect();
    format!(
        "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" class=\"0x030200\" vendor=\"0x10de\" \
         device=\"0x2330\"><gpu dev=\"0\" sm=\"90\"/></pci>\n{nics}</cpu></system>"
    )
}

/// The NICs that are kept, and the notes.
fn kept(text: &str, nics: Option<&str>, network: Option<&str>) -> Result<(Vec<String>, String), String> {
    let import = Import { nics: nics.map(str::to_owned), network: network.map(str::to_owned), ..import(None) };
    let Imported { toml, notes } = import_machine("t.txt", text, &import).map_err(|error| error.to_string())?;
    let names = toml.split("[[host.nic]]\nname = \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    Ok((names.collect(), notes.join("\n")))
}

#[test]
fn management_storage_and_virtual_nics_are_not_of_the_fabric() {
    let fabric = ("mlx5_0", 400_000, "0x1");
    for (other, reason) in [
        (("mlx5_1", 100_000, "0x2"), "100 Gbit/s, and others have 400"),
        (("eno1", 10_000, "0x0"), "without an identity"),
        (("veth1a2b", 400_000, "0x1"), "virtual"),
        (("docker0", 400_000, "0x1"), "virtual"),
        (("lo", 400_000, "0x1"), "virtual"),
        (("bond0", 400_000, "0x1"), "over other interfaces"),
        (("ens1f0v3", 400_000, "0x1"), "over other interfaces"),
        (("ens5", 400_000, "0x1"), "Ethernet by its name"),
    ] {
        let text = host(&[other, fabric]);
        let (names, notes) = kept(&text, None, Some("infiniband-ndr")).unwrap();
        assert_eq!(names, ["mlx5_0"], "{other:?}");
        assert!(notes.contains(&format!("{} ({reason}", other.0)), "{notes}");
        assert!(notes.contains("the setting nics names the NICs to keep"), "{notes}");
        assert_eq!(kept(&text, Some("all"), None).unwrap().0.len(), 2);
        assert_eq!(kept(&text, Some(other.0), None).unwrap().0, [other.0]);
    }
    assert_eq!(kept(&host(&[fabric, ("mlx5_1", 400_000, "0x2")]), None, None).unwrap().0.len(), 2);
    // Where there is nothing else, an interface of the system is the fabric.
    let (names, notes) = kept(&host(&[("eth0", 100_000, "0x0")]), None, Some("ethernet-100g")).unwrap();
    assert_eq!(names, ["eth0"]);
    assert!(!notes.contains("left out"), "{notes}");
    let error = kept(&host(&[("lo", 100_000, "0x0")]), None, Some("ethernet-100g")).unwrap_err();
    assert!(error.contains("since all are virtual"), "{error}");
}

#[test]
fn nics_are_chosen_by_name_or_by_the_start_of_it() {
    let text = host(&[("mlx5_0", 400_000, "0x1"), ("mlx5_1", 400_000, "0x2"), ("bnxt0", 400_000, "0x3")]);
    for (nics, names) in
        [("mlx5_1", vec!["mlx5_1"]), ("mlx5_*", vec!["mlx5_0", "mlx5_1"]), ("bnxt0, mlx5_0", vec!["mlx5_0", "bnxt0"])]
    {
        let (kept, notes) = kept(&text, Some(nics), Some("infiniband-ndr")).unwrap();
        assert_eq!(kept, names);
        assert!(!notes.contains("left out"), "{notes}");
    }
    let error = kept(&text, Some("mlx5_9"), None).unwrap_err();
    assert!(error.starts_with("--nics: mlx5_9: is no NIC of the file; did you mean mlx5_0"), "{error}");
    assert!(kept(&host(&[]), Some("mlx5_0"), None).unwrap_err().contains("the file has none: leave it out"));
    // A slower one that is named makes the network too fast, as before.
    let slow = host(&[("mlx5_0", 400_000, "0x1"), ("mlx5_1", 100_000, "0x2")]);
    let error = kept(&slow, Some("all"), Some("infiniband-ndr")).unwrap_err();
    assert!(error.contains("but the NIC mlx5_1 only 100"), "{error}");
}

#[test]
fn a_nic_of_a_matrix_is_of_the_fabric_where_it_is_as_near_as_others() {
    let text = " GPU0 GPU1 NIC0 NIC1 NIC2 CPU\nGPU0 X PHB PIX SYS SYS\nGPU1 PHB X SYS PXB SYS\nNIC0 PIX SYS X SYS SYS\n\
                NIC1 SYS PXB SYS X SYS\nNIC2 SYS SYS SYS SYS X\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC2: mlx5_2\n";
    let far = text.replace("X PHB", "X SYS").replace("GPU1 PHB", "GPU1 SYS");
    let read = |nics: Option<&str>| {
        import_machine("t.txt", &far, &Import { nics: nics.map(str::to_owned), ..import(Some("t4")) }).unwrap()
    };
    let likely = read(None);
    assert!(likely.notes.join("").contains("mlx5_2 (farther from every GPU than other NICs)"), "{:?}", likely.notes);
    assert!(likely.toml.contains("\"mlx5_0\"") && likely.toml.contains("\"NIC1\"") && !likely.toml.contains("mlx5_2"));
    // By either of its names.
    assert_eq!(read(Some("mlx5_2")).toml, read(Some("NIC2")).toml);
    // Where a GPU has none of its own, all are.
    let all = text.replace("PXB", "PHB");
    assert!(import_machine("t.txt", &all.replace("SYS", "PHB"), &import(Some("t4"))).unwrap().toml.contains("mlx5_2"));
}

#[test]
fn an_interface_under_every_cpu_is_one() {
    let nic = "<nic><net name=\"eth0\" dev=\"0\" speed=\"100000\" port=\"0\" guid=\"0x0\"/></nic>";
    let gpu = |dev: u32| format!("<pci busid=\"0{dev}\" class=\"0x030200\"><gpu dev=\"{dev}\" sm=\"75\"/></pci>");
    let text = format!(
        "<system version=\"1\"><cpu numaid=\"0\">{}{nic}</cpu><cpu numaid=\"1\">{}{nic}</cpu></system>",
        gpu(0),
        gpu(1)
    );
    let read = cluster(&text, None).unwrap();
    assert_eq!(rates(&read, "eth0", LinkKind::Pcie).len(), 2);
}

#[test]
fn a_rate_that_is_missing_or_impossible_is_left_open() {
    for speed in ["", "speed=\"-1\"", "speed=\"200000000\""] {
        let text = host(&[("mlx5_0", 7, "0x1")]).replace("speed=\"7\"", speed);
        let (names, notes) = kept(&text, None, Some("infiniband-hdr")).unwrap();
        assert_eq!(names, ["mlx5_0"]);
        assert!(notes.contains("mlx5_0 has ") && notes.contains("its rate is left open"), "{notes}");
    }
}
