//! Tests of papers: what files are refused, that anchors come out, and that computed rows are what was published.

use super::*;

/// A paper on two GPUs' worth of LeNet with these rows.
fn paper(rows: &str) -> Result<Paper, InputError> {
    let head = "name = \"p\"\nsource = \"a test\"\n[experiment]\ncluster = \"ethernet-gpu-8\"\nmodel = \"lenet\"\nbatch_per_rank = 16\n";
    Paper::parse("p.toml", &format!("{head}{rows}"))
}

const ROW: &str = "[[row]]\nrow = \"A\"\nsays = \"so\"\ncite = \"there\"\n";

#[test]
fn an_anchor_comes_out_and_ratios_are_those_of_its_machine() {
    let anchor = "mark = \"anchor\"\nquantity = \"time\"\nepochs = 2\nsamples = 1600\npublished = 3\nunit = \"s\"\n";
    let speedup = "quantity = \"speedup\"\nat = { ranks = 4 }\nover = { ranks = 1 }\npublished = 2\nunit = \"x\"\n";
    let efficiency =
        "quantity = \"efficiency\"\nat = { ranks = 4 }\nover = { ranks = 1 }\npublished = 50\nunit = \"%\"\n";
    let step = "quantity = \"step-time\"\npublished = 15\nunit = \"us\"\n";
    let text: String = [anchor, speedup, efficiency, step].iter().map(|row| format!("{ROW}{row}")).collect();
    let found = account(&[paper(&text).unwrap()], |_, _| ()).unwrap();
    let [anchor, speedup, efficiency, step] = found.rows.as_slice() else { panic!("four rows") };
    // 2 · 1,600 images in 3 s are 200 steps of 16: 15 ms each.
    assert!(anchor.error_pct.unwrap().abs() < 1e-3 && !anchor.counted, "{anchor:?}");
    assert!((step.predicted.unwrap() - 15_000.0).abs() < 0.1, "{step:?}");
    let (times, percent) = (speedup.predicted.unwrap(), efficiency.predicted.unwrap());
    assert!((times / 4.0 * 100.0 - percent).abs() < 1e-9 && percent > 50.0 && percent < 100.0, "{times} {percent}");
    assert!((speedup.error_pct.unwrap() - (times / 2.0 - 1.0) * 100.0).abs() < 1e-9);
    assert!(found.notes.iter().any(|note| note.contains("3 rows count: mean error")), "{:?}", found.notes);
}

/// Where learners share a device the ring goes across devices, unless the file names a method.
#[test]
fn a_method_that_is_named_is_the_one_taken() {
    let step = |named: &str| {
        let at = format!("at = {{ ranks = 4, learners = 2, strategy = \"sma\"{named} }}\n");
        let text = format!("{ROW}quantity = \"step-time\"\n{at}published = 1\nunit = \"s\"\n");
        account(&[paper(&text).unwrap()], |_, _| ()).unwrap().rows[0].predicted.unwrap()
    };
    let (none, ring) = (step(""), step(", algorithm = \"ring\""));
    assert_eq!(none, step(", algorithm = \"hierarchical:ring\""));
    assert!(none < ring, "a ring among learners goes twice through each device: {none} {ring}");
}

/// The server takes in everything through one wire, so it is behind the ring, and more so the more there are.
#[test]
fn orderings_hold_or_do_not() {
    let cases = |first: &str, second: &str| {
        let case = |ranks: u32| {
            format!("[{{ ranks = {ranks}, algorithm = \"{first}\" }}, {{ ranks = {ranks}, algorithm = \"{second}\" }}]")
        };
        let quantity = "mark = \"o\"\nquantity = \"order\"\ngrows = true\n";
        let text = format!("{ROW}{quantity}cases = [{}, {}]\n", case(8), case(16));
        account(&[paper(&text).unwrap()], |_, _| ()).unwrap().rows[0].holds
    };
    assert_eq!(cases("ring", "parameter-server:1"), Some(true));
    assert_eq!(cases("parameter-server:1", "ring"), Some(false));
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line() {
    let time = "quantity = \"time\"\nepochs = 2\nsamples = 1600\npublished = 3\n";
    let anchor = "mark = \"anchor\"\nunit = \"s\"\n";
    let twice = format!("{ROW}{time}{anchor}{ROW}{time}{anchor}");
    for (rows, wanted) in [
        (format!("{ROW}{time}unit = \"GB\"\n"), "p.toml:15: unit = \"GB\": unknown unit"),
        (format!("{ROW}{time}unit = \"%\"\n"), "p.toml:15: unit = \"%\": unit % is none of Time"),
        (format!("{ROW}quantity = \"hours\"\n"), "p.toml:11: quantity = \"hours\": unknown quantity"),
        (ROW.to_owned(), "says not what it is a figure of"),
        (format!("{ROW}quantity = \"step-time\"\nunit = \"s\"\n"), "lacks published"),
        (format!("{ROW}quantity = \"speedup\"\npublished = 3\n"), "lacks over"),
        (format!("{ROW}mark = \"d\"\n"), "unknown mark"),
        (format!("{ROW}at = {{ rank = 3 }}\n"), "p.toml:11: rank: unknown key in a configuration"),
        (twice, "A is an anchor of lenet already"),
        (
            format!("{ROW}mark = \"anchor\"\nquantity = \"efficiency\"\nover = {{}}\npublished = 9\n"),
            "a time or a throughput",
        ),
    ] {
        let error = paper(&rows).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}\nlacks\n{wanted}");
    }
    let text = format!("{ROW}quantity = \"step-time\"\nat = {{ ranks = 999 }}\npublished = 3\nunit = \"s\"\n");
    let error = account(&[paper(&text).unwrap()], |_, _| ()).unwrap_err().to_string();
    assert!(error.starts_with("p.toml:7: --ranks 999") && error.contains("places for 32"), "{error}");
    assert!(Paper::load("goyal").unwrap_err().to_string().contains("there are goyal2017"));
}

/// Within 2 % of the printed figures, which are rounded themselves; G-7 takes ResNet-50's 102 MB for 100.
#[test]
fn computed_rows_are_what_was_published() {
    let mut names = std::collections::BTreeSet::new();
    for (name, _) in PAPERS {
        let paper = Paper::load(name).unwrap();
        assert_eq!(paper.name, name);
        for row in &paper.rows {
            assert!(names.insert(row.name.clone()), "{} stands twice", row.name);
            // What a cluster's figures enter into is a prediction like others.
            let (Some(Quantity::Computed(computed)), Some(Mark::Exact)) = (&row.quantity, row.mark) else { continue };
            let (value, published) = (computed.value().unwrap() / row.unit.factor, row.published.unwrap());
            assert!(
                (value / published - 1.0).abs() < if row.name == "G-7" { 0.025 } else { 0.02 },
                "{}: {value} against {published}",
                row.name
            );
        }
    }
}
