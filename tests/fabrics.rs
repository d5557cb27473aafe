//! Runs the worked examples of `docs/fabrics.md`: its numbers must hold to the last digit shown.

use crate::commands::{folder, lockstep};

/// The content between ```` ```KIND ```` and the closing fence, block by block.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let opening = format!("```{kind}\n");
    page.split(&opening).skip(1).map(|rest| rest.split("```").next().expect("a block ends")).collect()
}

#[test]
fn every_number_of_the_page_is_reproduced() {
    let page = std::fs::read_to_string("docs/fabrics.md").expect("the page");
    let folder = folder("fabrics");
    for cluster in blocks(&page, "toml") {
        let name = cluster.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a file name");
        std::fs::write(folder.join(name), cluster).expect("written");
    }
    let (mut commands, mut numbers) = (0, 0);
    for block in blocks(&page, "console") {
        let mut lines = block.lines();
        while let (Some(command), Some(stated)) = (lines.next(), lines.next()) {
            let arguments = command.strip_prefix("$ lockstep ").expect("a command").split_whitespace();
            let arguments: Vec<&str> = arguments.chain(["--format", "json"]).collect();
            let output = lockstep(&folder, &arguments);
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let rows = answer["rows"].as_array().expect("rows");
            let stated: Vec<&str> = stated.strip_prefix("# time_us: ").expect("numbers").split(", ").collect();
            assert_eq!(rows.len(), stated.len(), "{command}");
            for (row, stated) in rows.iter().zip(stated) {
                assert_eq!(format!("{:.3}", row["time_us"].as_f64().expect("a time")), stated, "{command}");
                numbers += 1;
            }
            commands += 1;
        }
    }
    assert!(commands >= 10 && numbers >= 12, "the page lost its examples: {commands} commands, {numbers} numbers");
}
