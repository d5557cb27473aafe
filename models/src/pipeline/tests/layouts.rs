//! Tests that layouts are read as their letters written one by one, and that what is printed reads back.

use proptest::prelude::*;

use crate::{StageCut, StageLayout, random_model};

/// A layout: its text, with groups repeated, and its letters written out.
fn layouts() -> impl Strategy<Value = (String, String)> {
    let part = prop_oneof![
        (1..5_usize).prop_map(|count| ("t".repeat(count), "t".repeat(count))),
        (1..9_usize).prop_map(|count| (format!("t*{count}"), "t".repeat(count))),
        Just((",t".to_owned(), "t".to_owned())),
    ];
    let group = (prop::collection::vec((part, any::<bool>()), 1..4), 1..6_usize).prop_map(|(parts, times)| {
        let joined = |of: fn(&(String, String)) -> &String| -> String {
            parts.iter().map(|(part, ends)| format!("{}{}", of(part), if *ends { "|" } else { "" })).collect()
        };
        let (text, letters) = (joined(|part| &part.0), joined(|part| &part.1));
        (if times == 1 { text } else { format!("({text})*{times}") }, letters.repeat(times))
    });
    (prop::collection::vec(group, 0..4), any::<[bool; 2]>()).prop_map(|(groups, [first, last])| {
        let text: String = groups.iter().map(|(text, _)| text.as_str()).collect();
        let letters: String = groups.iter().map(|(_, letters)| letters.as_str()).collect();
        let end = if last && !letters.ends_with('|') { "|L" } else { "L" };
        let around = |inner: &str, comma: &str| format!("{}{comma}{inner}{end}", if first { "E|" } else { "E" });
        // E|L, and not E||L, where nothing is between.
        if letters.is_empty() {
            ("E|L".to_owned(), "E|L".to_owned())
        } else {
            (around(&text, ","), around(&letters, ""))
        }
    })
}

proptest! {
    #[test]
    fn layouts_are_read_letter_by_letter_and_read_back((text, letters) in layouts()) {
        let chunks: Vec<&str> = letters.split('|').collect();
        let parsed = text.parse::<StageLayout>().unwrap();
        let blocks: Vec<u32> = chunks.iter().map(|chunk| chunk.matches('t').count() as u32).collect();
        prop_assert_eq!(parsed.blocks(), blocks);
        prop_assert_eq!(&letters.parse::<StageLayout>().unwrap(), &parsed);
        prop_assert_eq!(&parsed.to_string().parse::<StageLayout>().unwrap(), &parsed);
        prop_assert_eq!(text.parse::<StageCut>().unwrap(), StageCut::Layout(parsed));
    }

    #[test]
    fn balanced_layouts_have_equal_parts(blocks in 0..300_u32, chunks in 0..40_u32) {
        let Some(layout) = StageLayout::balanced(blocks, chunks) else {
            prop_assert!(chunks == 0 || chunks > blocks + 2);
            return Ok(());
        };
        prop_assert_eq!((layout.blocks().len(), layout.blocks().iter().sum::<u32>()), (chunks as usize, blocks));
        let text = layout.to_string();
        prop_assert_eq!(&text.parse::<StageLayout>().unwrap(), &layout);
        // With E and L counted, parts differ by one at most.
        let mut parts = layout.blocks().to_vec();
        parts[0] += 1;
        parts[chunks as usize - 1] += 1;
        let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[EtLm|()*,0-9x ]{0,40}") {
        if let Ok(layout) = text.parse::<StageLayout>() {
            prop_assert_eq!(layout.to_string().parse::<StageLayout>().unwrap(), layout);
        }
    }
}

#[test]
fn layouts_that_mean_nothing_are_refused() {
    for (text, message) in [
        ("Ettt|m|L", "multi-token prediction, which is not supported yet: leave it out"),
        ("Et|dL", "has 'd': write E for the embedding, t for each block, L for the loss"),
        ("*3EL", "has '*'"),
        ("tt|L", "has E 0 times or elsewhere: begin with the embedding, E, once"),
        ("tE|L", "begin with the embedding, E, once"),
        ("EtE|L", "has E 2 times"),
        ("Et|Lt", "has L 1 times or elsewhere: end with the loss, L, once"),
        ("Et|L|", "end with the loss, L, once"),
        ("Et||L", "leaves part 1, counted from 0, empty: give it a block, or leave a | out"),
        ("E(tt|*3L", "does not close: add )"),
        ("Ett)L", "has ')'"),
        ("Et*L", "has *: write a number from 1 behind *"),
        ("Et*0L", "has *0: write a number from 1"),
        ("Et*99999999999999999999999L", "write a number from 1"),
        ("E((t*999)*999)*999L", "has more than 100000 letters: repeat less"),
    ] {
        let error = text.parse::<StageLayout>().unwrap_err();
        assert!(error.contains(message), "{text}: {error}");
    }
    let deep = format!("E{}t{}L", "(".repeat(1000), ")".repeat(1000));
    assert!(deep.parse::<StageLayout>().unwrap_err().contains("more than 16 parentheses"));
    let model = random_model(7, false);
    let stages = |cut: &str| crate::Stages::new(&model, 2, 1, &cut.parse().unwrap()).unwrap_err().to_string();
    for cut in ["blocks", "Et|tL"] {
        assert!(stages(cut).contains("is not one row of numbered blocks, as decoders are"), "{}", stages(cut));
    }
}
