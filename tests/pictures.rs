//! Tests that the documents' pictures with axes can be read: figures and a name with a unit on each axis.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_report::svg::rules::faults;

/// All SVG files of the documents.
fn pictures() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut found = Vec::new();
    for folder in [root.clone(), root.join("claims")] {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().extension().is_some_and(|end| end == "svg") {
                found.push((entry.path(), fs::read_to_string(entry.path()).expect("a picture")));
            }
        }
    }
    found.sort();
    found
}

/// Ticks and name of each axis of a picture by matplotlib, which writes each text as a comment before its outlines.
fn axes(picture: &str) -> Vec<(usize, String)> {
    let groups = picture.split("<g id=\"matplotlib.axis_").skip(1);
    let axis = |group: &str| {
        let group = group.split("<g id=\"patch_").next().unwrap_or_default();
        let ticks = group.matches("tick_").count();
        let name = group.rsplit("<!-- ").next().and_then(|rest| rest.split(" -->").next()).unwrap_or_default();
        (ticks, name.to_owned())
    };
    groups.map(axis).collect()
}

#[test]
fn axes_of_documents_have_ticks_and_names() {
    let found = pictures();
    assert!(found.len() >= 13, "{}", found.len());
    for (path, text) in found {
        let shown = path.display();
        if !text.contains("matplotlib") {
            assert_eq!(faults(&text), [""; 0], "{shown}");
            continue;
        }
        let axes = axes(&text);
        assert!(axes.len() >= 2, "{shown}");
        for (ticks, name) in axes {
            let words = name.split(|c: char| !c.is_alphabetic()).any(|word| word.len() >= 3);
            assert!(ticks >= 2 && words, "{shown}: an axis with {ticks} figures is called {name:?}");
        }
    }
}
