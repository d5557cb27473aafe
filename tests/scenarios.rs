//! Tests scenarios as users use them: the worked example of `docs/scenarios.md` holds, and impossible ones are refused
//! by name.

use serde_json::Value;

use crate::commands::{folder, lockstep};

/// The content of a block of the page that begins with `# NAME`.
fn file<'a>(page: &'a str, name: &str) -> &'a str {
    let opening = format!("```toml\n# {name}\n");
    let (_, rest) = page.split_once(&opening).expect("the block");
    rest.split("```").next().expect("a block ends")
}

#[test]
fn the_worked_example_is_reproduced() {
    let page = std::fs::read_to_string("docs/scenarios.md").expect("the page");
    let folder = folder("scenarios");
    for name in ["two-leaves.toml", "bad-day.toml"] {
        std::fs::write(folder.join(name), file(&page, name)).expect("written");
    }
    let output = lockstep(&folder, &["sim", "predict", "bad-day.toml", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut rows: Vec<Vec<String>> = Vec::new();
    for row in answer["rows"].as_array().expect("rows") {
        let name = row["scenario"].as_str().expect("a name");
        let factor = format!("{:.3}", row["scenario_factor"].as_f64().expect("a factor"));
        // The second algorithm of a scenario follows the first.
        match rows.last_mut().filter(|last| last[0] == name) {
            Some(last) => last.push(factor),
            None => rows.push(vec![name.to_owned(), factor]),
        }
    }
    let (_, table) = page.split_once("| scenario | ring | halving-doubling |\n|---|---|---|\n").expect("the table");
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let stated: Vec<Vec<String>> = table.lines().take_while(|line| line.starts_with('|')).map(cells).collect();
    assert_eq!(rows, stated);
    let step_ms = |row: usize| format!("{:.3} ms", answer["rows"][row]["step_time_s"].as_f64().expect("a time") * 1e3);
    // Undisturbed with both algorithms, the slow host with ring, the lost spine with halving-doubling.
    for row in [0, 1, 2, 7] {
        assert!(page.contains(&step_ms(row)), "{} of row {row}", step_ms(row));
    }
}

#[test]
fn conditions_without_effect_change_no_byte() {
    let page = std::fs::read_to_string("docs/scenarios.md").expect("the page");
    let folder = folder("no-scenario");
    std::fs::write(folder.join("two-leaves.toml"), file(&page, "two-leaves.toml")).expect("written");
    let text = "name = \"e\"\nmodel = \"mlp\"\ncluster = \"two-leaves.toml\"\nranks = 8\n[[scenario]]\nname = \"s\"\n\
                slow = { hosts = \"node3\", factor = 1 }\ndegraded = { between = \"ib.leaf0\", bandwidth = 1.0 }\n";
    std::fs::write(folder.join("e.toml"), text).expect("written");
    let output = lockstep(&folder, &["sim", "predict", "e.toml", "--format", "csv"]);
    let csv = String::from_utf8(output.stdout).expect("UTF-8");
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 3, "{csv}");
    assert_eq!(rows[1].replace(",none,1.0,", ",s,1.0,"), rows[2]);
    assert_ne!(rows[1], rows[2]);
}

#[test]
fn impossible_scenarios_are_refused_with_the_nearest_names() {
    let page = std::fs::read_to_string("docs/scenarios.md").expect("the page");
    let folder = folder("bad-scenarios");
    std::fs::write(folder.join("two-leaves.toml"), file(&page, "two-leaves.toml")).expect("written");
    let cases: &[(&str, &[&str])] = &[
        ("slow = { hosts = \"nod3\", factor = 2.0 }", &["is not a host", "node3"]),
        ("slow = { ranks = [2], factor = 2.0 }", &["no rank 2", "at most 2"]),
        (
            "slow = [{ hosts = \"node0\", factor = 2 }, { hosts = \"node*\", factor = 3 }]",
            &["at the same time", "merge"],
        ),
        ("degraded = { between = [\"node0.ib1\", \"*\"], bandwidth = 0.5 }", &["did you mean node0.ib0"]),
        ("degraded = { between = [\"node0.ib0\", \"node1.ib0\"], bandwidth = 0.5 }", &["no link joins"]),
        ("failed = { between = [\"node3.ib0\", \"ib.leaf0\"] }", &["node0.cpu and node3.cpu cannot reach each other"]),
        ("failed = { between = \"ib.spine0\", count = 3 }", &["only 2 such links"]),
        (
            "failed = { between = \"ib.spine0\" }\ndegraded = { between = \"ib.leaf0\", bandwidth = 0.5 }",
            &["another entry", "each link once"],
        ),
        ("traffic = { from = \"node0.cpu\", to = \"node0.cpu\", bytes = \"1MiB\" }", &["to itself"]),
        ("traffic = { from = \"node0\", to = \"node1.cpu\", bytes = \"1MiB\" }", &["is not a device", "node0.cpu"]),
        ("slow = { hosts = \"node3\", factor = 2.0 }", &["affects no rank", "node0 to node1", "leave it out"]),
    ];
    for (entry, words) in cases {
        let text = format!(
            "name = \"e\"\nmodel = \"mlp\"\ncluster = \"two-leaves.toml\"\nranks = 2\n[[scenario]]\nname = \"s\"\n{entry}\n"
        );
        std::fs::write(folder.join("e.toml"), text).expect("written");
        let output = lockstep(&folder, &["sim", "predict", "e.toml"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{entry}: {errors}");
        assert!(errors.starts_with("e.toml:7") || entry.contains('\n'), "{entry}: {errors}");
        words.iter().for_each(|word| assert!(errors.contains(word), "{entry}: {word:?} is not in {errors}"));
    }
}
