//! Tests the refusals and notes of vendors' files and of racks: each names what is missing, and its cure works.

use super::*;

/// A `<pci>` of a slot, with these attributes and this content.
fn slot(bus: u32, attributes: &str, inside: &str) -> String {
    format!(
        "<pci busid=\"0000:{bus:02x}:00.0\" {attributes} link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">{inside}</pci>\n"
    )
}

fn system(inside: &str) -> String {
    format!("<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\">\n{inside}</cpu>\n</system>")
}

/// What is refused, with which words, and what the words advise: another text, or a GPU.
struct Cure {
    text: String,
    place: &'static str,
    says: &'static [&'static str],
    cured: String,
    gpu: Option<&'static str>,
    /// Of the cured file.
    model: &'static str,
    gpus: usize,
}

const GPU: &str = "class=\"0x030200\"";

fn of_gpus() -> Vec<Cure> {
    let two = |attributes: &str, inside: &str| system(&(slot(1, attributes, inside) + &slot(2, attributes, "")));
    let bare = two(GPU, "");
    let classless = two("", "");
    let unknown = two(&format!("{GPU} vendor=\"0x10de\" device=\"0x1af1\""), "");
    let named = |device: &str| format!("{GPU} vendor=\"0x10de\" device=\"{device}\"");
    let unlike = system(&(slot(1, &named("0x2330"), "") + &slot(2, &named("0x20b2"), "")));
    let job = |sm: &str| system(&slot(1, GPU, &format!("<gpu dev=\"0\" {sm}/>")));
    vec![
        Cure {
            text: classless,
            place: "t.txt:1: ",
            says: &["has no GPU, neither a <gpu> nor a <pci> of its class", "class=\"0x030200\"", "the setting gpu"],
            cured: bare.clone(),
            gpu: Some("a100-80-sxm"),
            model: "a100-80-sxm",
            gpus: 2,
        },
        Cure {
            text: bare.clone(),
            place: "t.txt:3: ",
            says: &["is a GPU of which the file says neither device nor model", "name its model by the setting gpu"],
            cured: bare,
            gpu: Some("h100-sxm"),
            model: "h100-sxm",
            gpus: 2,
        },
        Cure {
            text: unknown.clone(),
            place: "t.txt:3: device=\"0x1af1\"",
            says: &["is no GPU that is known here (vendor 0x10de)", "lockstep clusters gpus lists them"],
            cured: unknown,
            gpu: Some("b200-sxm"),
            model: "b200-sxm",
            gpus: 2,
        },
        Cure {
            text: unlike.clone(),
            place: "t.txt:4: device=\"0x20b2\"",
            says: &["a host has one kind of GPU", "name the model of all by the setting gpu"],
            cured: unlike,
            gpu: Some("h100-sxm"),
            model: "h100-sxm",
            gpus: 2,
        },
        Cure {
            text: job(""),
            place: "t.txt:3: <gpu dev=\"0\"",
            says: &["has no sm, its compute capability: add sm=\"80\", or name the GPU's model by the setting gpu"],
            cured: job("sm=\"80\""),
            gpu: None,
            model: "a100-80-pcie",
            gpus: 1,
        },
        Cure {
            text: job("sm=\"999\""),
            place: "t.txt:3: sm=\"999\"",
            says: &["is of no GPU in the catalogue", "by the setting gpu"],
            cured: job("sm=\"999\""),
            gpu: Some("l40s"),
            model: "l40s",
            gpus: 1,
        },
    ]
}

fn of_structure() -> Vec<Cure> {
    let gpu = "<gpu dev=\"0\" sm=\"80\"/>";
    let whole = system(&slot(1, GPU, gpu));
    let cure = |text: String, place: &'static str, says: &'static [&'static str]| Cure {
        text,
        place,
        says,
        cured: whole.clone(),
        gpu: None,
        model: "a100-80-pcie",
        gpus: 1,
    };
    let rack = |first: &str, second: &str| {
        let tray = |hash: &str, numa: u32| {
            let slot = slot(1 + numa, GPU, &format!("<gpu dev=\"{numa}\" sm=\"80\"/>"));
            format!("<cpu host_hash=\"{hash}\" numaid=\"{numa}\">\n{slot}</cpu>\n")
        };
        format!("<system version=\"1\">\n{}{}</system>", tray(first, 0), tray(second, 1))
    };
    vec![
        Cure {
            cured: rack("0xa", "0xa"),
            gpus: 2,
            ..cure(
                rack("0xa", "0xb"),
                "t.txt:5: <cpu host_hash=\"0xb\"",
                &["is of another host, by its host_hash", "keep one host, and give a number of hosts", "gb200-nvl72"],
            )
        },
        cure(system(gpu), "t.txt:3: <gpu dev=\"0\"", &["must be in a <pci>, which says how it is wired"]),
        cure(
            format!("<system version=\"1\">{gpu}</system>"),
            "t.txt:1: <gpu dev=\"0\"",
            &["is not in any <cpu>, so nothing leads to it: put it into one"],
        ),
        cure(
            system(&slot(1, GPU, &format!("{gpu}<gpu dev=\"1\" sm=\"80\"/>"))),
            "t.txt:3: <gpu dev=\"1\"",
            &["is a second part of one GPU", "without partitions of GPUs"],
        ),
        cure(
            system(&format!("<rack/>\n{}", slot(1, GPU, gpu))),
            "t.txt:3: <rack/>",
            &["is not a supported part of a topology: remove it"],
        ),
        cure(
            system(&(slot(1, GPU, gpu) + &slot(2, "class=\"0x020700\"", "<nic/>"))),
            "t.txt:4: <nic/>",
            &["has no <net>: use the file that NCCL_TOPO_DUMP_FILE names"],
        ),
        cure(
            "<graphs version=\"1\"/>".to_owned(),
            "t.txt:1: <graphs version=\"1\"/>",
            &["is what NCCL_GRAPH_DUMP_FILE names", "use the file that NCCL_TOPO_DUMP_FILE names"],
        ),
    ]
}

#[test]
fn a_refusal_names_what_is_missing_and_its_cure_works() {
    for case in of_gpus().into_iter().chain(of_structure()) {
        let error = refused(&case.text, None);
        assert!(error.starts_with(case.place), "\n     got {error}\nexpected {}", case.place);
        for words in case.says {
            assert!(error.contains(words), "{error}\nlacks {words}");
        }
        let (cured, _) = noted(&case.cured, case.gpu).unwrap_or_else(|error| panic!("{}: {error}", case.place));
        assert_eq!(gpu_model(&cured), case.model, "{}", case.place);
        let gpus = cured.devices().iter().filter(|device| matches!(device.kind, DeviceKind::Gpu(_))).count();
        assert_eq!(gpus, case.gpus, "{}", case.place);
    }
}

#[test]
fn a_note_names_what_was_assumed_and_the_file_that_says_it_has_none() {
    let gpus = |inside: &str| system(&(slot(1, GPU, "") + &slot(2, GPU, "") + inside));
    let nic = |inside: &str| slot(3, "class=\"0x020700\"", inside);
    // NVLinks of a board are not in a vendor's file; those of a job are.
    let (read, notes) = noted(&gpus(""), Some("h100-sxm")).unwrap();
    assert!(notes.contains("NVLinks are not in it: all 18 of each GPU lead to NVSwitch"), "{notes}");
    assert_eq!(way(&read, "node0.gpu0", "node0.gpu1"), ["nvswitch", "gpu1"]);
    let (_, notes) = noted(DGX_A100, None).unwrap();
    assert!(!notes.contains("not in it"), "{notes}");
    // A NIC without its rate joins any network; one with a rate joins those of at most that rate.
    let network = |text: &str| {
        let import = Import { hosts: 2, network: Some("infiniband-ndr".to_owned()), ..import(Some("h100-sxm")) };
        import_machine("t.txt", text, &import).map(|read| read.notes.join("\n")).map_err(|error| error.to_string())
    };
    let notes = network(&gpus(&nic(""))).unwrap();
    assert!(notes.contains("NICs are in it without names and rates, so they are numbered and of any rate"), "{notes}");
    let rated = |speed: &str| {
        let slots = [1, 2].map(|bus| slot(bus, GPU, &format!("<gpu dev=\"{bus}\" sm=\"90\"/>"))).concat();
        system(&(slots + &nic(&format!("<nic><net name=\"mlx5_0\" {speed} guid=\"0x1\" port=\"1\"/></nic>"))))
    };
    let notes = network(&rated("")).unwrap();
    assert!(notes.contains("mlx5_0 has no speed: its rate is left open (speed=\"200000\" is 200 Gbit/s)"), "{notes}");
    let error = network(&rated("speed=\"200000\"")).unwrap_err();
    assert!(error.contains("has 400 Gbit/s, but the NIC mlx5_0 only 200: name a slower network"), "{error}");
    assert!(!network(&rated("speed=\"400000\"")).unwrap().contains("left open"));
    // Two hosts of a file without a NIC are refused, and one is not.
    let error = network(&gpus("")).unwrap_err();
    assert!(error.contains("t.txt has no NIC to join: leave it out"), "{error}");
}
