//! Tests that each attribute of NCCL's XML decides the cluster, is refused where it is wrong, or is listed as unread.

use super::*;
use std::collections::BTreeSet;

/// Attributes that decide nothing here, by element, with the reason.
const UNREAD: [(&str, &[&str], &str); 7] = [
    ("system", &["version"], "of NCCL's format, which only adds attributes"),
    ("cpu", &["familyid", "modelid"], "NCCL's own table of processors; arch, vendor and affinity say what is needed"),
    ("pci", &["class"], "of bridges; of cards, what they hold says it"),
    ("gpu", &["rank", "gdr"], "of the job that wrote the file"),
    ("net", &["dev", "port", "maxconn", "gdr"], "of the job that wrote the file"),
    ("net", &["latency"], "that of the network, which --network names"),
    ("net", &["guid"], "of the fabric; where both it and the port are 0, the NIC is none of it: tests/nics.rs"),
];

/// Identities: what they are does not matter, and that they differ does.
const IDENTITIES: [(&str, &str); 3] = [("cpu", "numaid"), ("pci", "busid"), ("nvlink", "target")];

/// Each attribute as its element's name, its own, and where its value is.
fn attributes(text: &str) -> Vec<(&str, &str, std::ops::Range<usize>)> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices("=\"") {
        let name_at = text[..at].rfind([' ', '\n']).map_or(0, |blank| blank + 1);
        let element = text[..at].rfind('<').map_or("", |open| text[open + 1..].split([' ', '>']).next().unwrap());
        let end = at + 2 + text[at + 2..].find('"').unwrap();
        all.push((element, &text[name_at..at], at + 2..end));
    }
    all
}

#[test]
fn attributes_are_read_or_refused_or_listed() {
    let whole = import_machine("t.txt", DGX_A100, &import(None)).unwrap();
    let all: BTreeSet<(&str, &str)> = attributes(DGX_A100).into_iter().map(|(of, name, _)| (of, name)).collect();
    assert!(all.len() > 20, "{all:?}");
    let mut read = BTreeSet::new();
    for (element, name, value) in attributes(DGX_A100) {
        for other in ["12345", "zzz", "0"] {
            let text = [&DGX_A100[..value.start], other, &DGX_A100[value.end..]].concat();
            // An error is also a way of reading it.
            if import_machine("t.txt", &text, &import(None)).map_or(true, |cluster| cluster != whole) {
                read.insert((element, name));
            }
        }
    }
    let listed = |(element, name): &(&str, &str)| {
        let unread = UNREAD.iter().any(|(of, names, _)| of == element && names.contains(name));
        unread || IDENTITIES.contains(&(*element, *name))
    };
    let unread: Vec<_> = all.iter().filter(|one| !read.contains(*one) && !listed(one)).collect();
    assert!(unread.is_empty(), "{unread:?}");
}
