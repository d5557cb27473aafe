//! Tests packed token sets: what is written is read, in windows of any size, and damage is named.

use std::path::PathBuf;

use lockstep_data::{BYTES, Dataset, TokenFile, TokenHeader, TokenWriter, pack_texts};
use lockstep_readers::parse_model;
use proptest::prelude::*;

/// A file of its own name.
fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lockstep-tokens-{name}-{}", std::process::id()))
}

/// The set of these documents, packed.
fn packed(name: &str, vocabulary: u32, documents: &[Vec<u32>]) -> (PathBuf, TokenHeader) {
    let path = file(name);
    let mut writer = TokenWriter::create(&path, vocabulary).unwrap();
    documents.iter().for_each(|document| writer.add(document.iter().copied()).unwrap());
    let header = writer.finish().unwrap();
    (path, header)
}

/// A model of so many positions and tokens.
fn model(positions: u32, tokens: u32) -> lockstep_models::Model {
    let text = format!(
        "name = \"m\"\ninput = {{ positions = {positions}, tokens = {tokens} }}\nlayer = [{{ kind = \"embedding\", entries = {tokens}, \
         out_features = 2 }}, {{ kind = \"linear\", out_features = {tokens} }}, {{ kind = \"softmax_cross_entropy\" }}]"
    );
    parse_model("m.toml", &text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The documents of a file are those that were packed; its windows are the stream in order, and each label is the token
    /// behind its own.
    #[test]
    fn sets_read_back_as_they_were_written(
        documents in prop::collection::vec(prop::collection::vec(0u32..300, 0..60), 1..8),
        wide: bool, positions in 1u32..7,
    ) {
        let (vocabulary, stream) = (if wide { 70_000 } else { 300 }, documents.concat());
        if stream.len() < 20 {
            return Ok(());
        }
        let (path, header) = packed(&format!("{wide}-{positions}"), vocabulary, &documents);
        let set = TokenFile::open(&path).unwrap();
        prop_assert_eq!((header.tokens, header.width()), (stream.len() as u64, if wide { 4 } else { 2 }));
        prop_assert_eq!(header.bytes(), path.metadata().ok().map(|found| found.len()));
        let starts: Vec<u64> = (0..documents.len()).map(|number| documents[..number].concat().len() as u64).collect();
        let full = |number: &usize| !documents[*number].is_empty();
        let wanted: Vec<u64> = (0..documents.len()).filter(full).map(|number| starts[number]).collect();
        prop_assert_eq!(set.documents(), wanted);
        let (train, held_out) = Dataset::load(&path.display().to_string(), &model(positions, vocabulary)).unwrap();
        let (windows, positions) = ((stream.len() - 1) / positions as usize, positions as usize);
        prop_assert_eq!((train.len() + held_out.len(), held_out.len()), (windows, (windows / 10).max(1)));
        for (data, first) in [(&train, 0), (&held_out, train.len())] {
            for window in 0..data.len() {
                let at = (first + window) * positions;
                prop_assert_eq!(data.labels_of(&[window as u32]), &stream[at + 1..at + 1 + positions]);
                let mut labels = vec![0; positions];
                let mut tokens = vec![0u32; positions];
                if wide {
                    data.draw(&[window as u32], 1, 0, &mut tokens, &mut labels).unwrap();
                } else {
                    let mut narrow = vec![0u16; positions];
                    data.draw(&[window as u32], 1, 0, &mut narrow, &mut labels).unwrap();
                    tokens = narrow.into_iter().map(u32::from).collect();
                }
                prop_assert_eq!(&tokens, &stream[at..at + positions]);
                // In the memory of a rank it is the same.
                prop_assert_eq!(data.held(&[window as u32]).unwrap().labels_of(&[0]), labels);
            }
        }
        std::fs::remove_file(path).unwrap();
    }

    /// Any byte of a file that is changed, and any end of it that is cut, is found when the file is opened or its tokens are
    /// read: no other tokens come of it.
    #[test]
    fn damage_is_found(at in 0usize..1_000_000, flip in 1u8..=255, cut in 0usize..1_000_000, cuts: bool) {
        let (path, _) = packed(&format!("damaged-{at}-{cut}-{cuts}"), 500, &[(0..200).collect(), (100..300).collect()]);
        let mut bytes = std::fs::read(&path).unwrap();
        // The rest of the header's page has no meaning.
        let at = if at % bytes.len() < 4096 { at % 64 } else { at % bytes.len() };
        match cuts {
            true => bytes.truncate(cut % bytes.len()),
            false => bytes[at] ^= flip,
        }
        std::fs::write(&path, &bytes).unwrap();
        let opened = TokenFile::open(&path).and_then(|set| set.verify(0..set.header().tokens));
        let error = opened.unwrap_err().to_string();
        prop_assert!(error.contains("lockstep-tokens-damaged"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_token_beyond_the_vocabulary_is_refused_where_it_is_written_and_read() {
    let written = file("beyond-written");
    let refused = TokenWriter::create(&written, 500).unwrap().add([1, 500]).unwrap_err().to_string();
    assert!(refused.contains("token 500") && refused.contains("has 500 tokens"), "{refused}");
    assert!(TokenWriter::create(&written, 1).is_err() && TokenWriter::create(&written, u32::MAX).is_err());
    std::fs::remove_file(format!("{}.partial", written.display())).unwrap();
    // A file whose header states fewer.
    let (path, header) = packed("beyond", 501, &[vec![1; 40], vec![500; 2]]);
    let fewer = TokenHeader { vocabulary: 500, ..header }.encode();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..fewer.len()].copy_from_slice(&fewer);
    std::fs::write(&path, bytes).unwrap();
    let (train, _) = Dataset::load(&path.display().to_string(), &model(20, 500)).unwrap();
    let (mut tokens, mut labels) = (vec![0u16; 20], vec![0; 20]);
    let error = train.draw(&[0], 1, 0, &mut tokens, &mut labels).unwrap_err().to_string();
    assert!(error.contains("token 40 is 500, and the vocabulary has 500: pack it again"), "{error}");
    std::fs::remove_file(path).unwrap();
}

/// Scores may be padded; tokens that the model's input does not have are refused all the same.
#[test]
fn a_vocabulary_beyond_the_models_tokens_is_refused() {
    let (path, _) = packed("padded", 300, &[vec![299; 60]]);
    let text = "name = \"m\"\ninput = { positions = 4, tokens = 290 }\nlayer = [{ kind = \"embedding\", entries = 290, out_features = 2 }, \
                { kind = \"linear\", out_features = 320 }, { kind = \"softmax_cross_entropy\" }]";
    let model = parse_model("m.toml", text).unwrap();
    let error = Dataset::load(&path.display().to_string(), &model).and_then(|(train, _)| train.check_fits(&model));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a vocabulary of 300") && error.contains("takes tokens below 290"), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn bytes_of_texts_are_tokens_and_each_file_is_a_document() {
    let texts = [file("one.txt"), file("empty.txt"), file("two.txt")];
    std::fs::write(&texts[0], "Ab\n").unwrap();
    std::fs::write(&texts[1], "").unwrap();
    std::fs::write(&texts[2], "c\u{e9}").unwrap();
    let out = file("texts.pack");
    let header = pack_texts(&texts, None, &out, |_| {}).unwrap();
    assert_eq!((header.tokens, header.documents, header.vocabulary), (6, 2, BYTES));
    let mut tokens = [0; 6];
    TokenFile::open(&out).unwrap().copy(0, &mut tokens);
    assert_eq!(tokens, [65, 98, 10, 99, 0xc3, 0xa9]);
    let nothing = pack_texts(&texts[1..2], None, &file("nothing.pack"), |_| {}).unwrap_err().to_string();
    assert!(nothing.contains("the files have no text"), "{nothing}");
    let absent = pack_texts(&[file("absent.txt")], None, &out, |_| {}).unwrap_err().to_string();
    assert!(absent.contains("absent.txt") && absent.contains("cannot be read"), "{absent}");
    assert!(TokenFile::is(&out) && !TokenFile::is(&texts[0]));
    texts.iter().chain([&out]).for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn sets_that_do_not_fit_a_model_are_refused() {
    let (path, _) = packed("unfit", 500, &[(0..300).collect()]);
    let (other, _) = packed("unfit-other", 400, &[(0..300).collect()]);
    let (path, other) = (path.display().to_string(), other.display().to_string());
    let refused =
        |what: &str, positions, tokens| Dataset::load(what, &model(positions, tokens)).unwrap_err().to_string();
    for (error, wanted) in [
        (
            refused(&path, 4, 499),
            "a vocabulary of 500: the model m tells 499 tokens apart: give it as many, a decoder by vocabulary=500",
        ),
        (refused(&path, 200, 500), "300 tokens: make 1 windows of 200 positions, and 2 to"),
        (refused(&format!("{path}+{other}"), 4, 500), "the training tokens have a vocabulary of 500"),
        (refused("mnist", 4, 500), "images of 1×28×28: the model m takes position 4"),
    ] {
        assert!(error.contains(wanted), "{error} lacks {wanted}");
    }
    let mlp = lockstep_readers::load_model("mlp").unwrap();
    for what in [path.as_str(), "text"] {
        let error = Dataset::load(what, &mlp).unwrap_err().to_string();
        assert!(error.contains("tokens"), "{error}");
    }
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(other).unwrap();
}

/// 952,775 bytes make 952,774 / 64 windows of 64 positions.
#[test]
fn the_text_in_the_binary_has_the_documented_size() {
    let (train, held_out) = Dataset::load("text", &model(64, 256)).unwrap();
    assert_eq!((train.len(), held_out.len(), train.classes()), (14_887 - 1_488, 1_488, 256));
    let sizes = lockstep_models::SetSizes::of("text", model(64, 256).input()).unwrap();
    assert_eq!((sizes.train, sizes.held_out), (train.len() as u64, held_out.len() as u64));
    let beginning: Vec<u8> = train.labels_of(&[0]).iter().map(|token| *token as u8).collect();
    assert!(beginning.starts_with(b"atthew 1\n\nThe book of the generation of Jesus Christ"));
}
