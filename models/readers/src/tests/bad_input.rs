//! Tests that bad model files are refused with file, line, value and cure, and never a panic.

use proptest::prelude::*;

use super::*;

/// The error of an invalid text.
fn refused(text: &str) -> InputError {
    match parse_model("m.toml", text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error,
    }
}

/// Line 4 of [`with_layers`] is the first of these; each case is layers, line, value, part of the message.
#[test]
fn layers() {
    let cases = [
        ("{ kind = \"conv\" },", 4, "kind = \"conv\"", "there is no kind of layer \"conv\": did you mean"),
        ("{ kind = \"xyzzy\" },", 4, "kind = \"xyzzy\"", "choose from conv2d, dense"),
        ("{ kind = \"input\" },", 4, "kind = \"input\"", "a model has one input"),
        ("{ kind = \"relu\", slope = 1 },", 4, "slope = 1", "relu has no key slope: choose from name, kind, inputs"),
        ("{ kind = \"max_pool\", kernal = 1 },", 4, "kernal = 1", "did you mean kernel?"),
        ("{ kind = \"max_pool\" },", 4, "", "lacks the key kernel"),
        ("{ kind = \"rotary\" },", 4, "", "lacks the key heads"),
        ("{ kind = \"rotary\", heads = 1, pairing = \"odd\" },", 4, "pairing = \"odd\"", "none of halves, neighbours"),
        (
            "{ kind = \"rotary\", heads = 1, scaling = \"ntk\" },",
            4,
            "scaling = \"ntk\"",
            "none of none, linear, llama3",
        ),
        ("{ kind = \"rotary\", heads = 1, factor = 2.0 },", 4, "factor = 2.0", "no key of scaling = \"none\""),
        ("{ kind = \"rotary\", heads = 1, scaling = \"yarn\" },", 4, "", "lacks the key factor"),
        ("{ kind = \"rms_norm\" },", 4, "rms_norm1 (rms_norm)", "its input is an image of 1×8×8"),
        ("{ name = \"r\" },", 4, "", "a layer needs a kind"),
        ("{ kind = \"relu\", block = \"b\" },", 4, "kind = \"relu\"", "a kind or a block, not both"),
        ("{ block = \"b\" },", 4, "block = \"b\"", "there is no block \"b\": there is none to choose from"),
        (
            "{ kind = \"relu\" },\n{ name = \"c\", kind = \"conv2d\", out_channels = 4, kernel = 9 },",
            5,
            "c (conv2d)",
            "a kernel of 9 does not fit the height of its input 1×8×8",
        ),
        (
            "{ name = \"p\", kind = \"max_pool\", kernel = 2 },\n{ kind = \"add\", inputs = [\"p\", \"input\"] },",
            5,
            "add1 (add)",
            "adds inputs of shapes 1×4×4 and 1×8×8: they must be equal",
        ),
        ("{ kind = \"add\" },", 4, "add1 (add)", "add takes two or more inputs"),
        ("{ kind = \"add\", inputs = [\"input\", \"input\"] },", 4, "add1 (add)", "\"input\" as input twice"),
        ("{ kind = \"relu\", inputs = [] },", 4, "inputs = []", "inputs must not be empty"),
        ("{ kind = \"relu\", inputs = [3] },", 4, "3", "inputs must be a text in quotes, not of type integer"),
        (
            "{ kind = \"relu\" },\n{ kind = \"relu\", inputs = \"relo1\" },",
            5,
            "inputs = \"relo1\"",
            "did you mean relu1",
        ),
        ("{ name = \"a\", kind = \"relu\", inputs = \"a\" },", 4, "a (relu)", "the model has a cycle: a → a"),
        (
            "{ name = \"a\", kind = \"add\", inputs = [\"input\", \"c\"] },\n{ name = \"b\", kind = \"relu\" },\n\
             { name = \"c\", kind = \"relu\" },",
            4,
            "a (add)",
            "the model has a cycle: a → b → c → a",
        ),
        (
            "{ name = \"a\", kind = \"relu\" },\n{ name = \"a\", kind = \"relu\" },",
            5,
            "name = \"a\"",
            "the name \"a\" is taken by the layer at m.toml:4",
        ),
        ("{ name = \"a.b\", kind = \"relu\" },", 4, "name = \"a.b\"", "letters, digits, _ and -"),
        ("{ name = \"input\", kind = \"relu\" },", 4, "name = \"input\"", "choose another"),
        ("{ kind = \"dense\", out_features = 0 },", 4, "dense1 (dense)", "0×1×1: every size must be at least 1"),
        ("{ kind = \"dense\", out_features = -3 },", 4, "out_features = -3", "a whole number from 0 to 4294967295"),
        (
            "{ kind = \"dense\", out_features = 2.5 },",
            4,
            "out_features = 2.5",
            "must be a whole number from 0 to 4294967295, not of type float",
        ),
        (
            "{ kind = \"dense\", out_features = 99999999999999999999999 },",
            4,
            "out_features = 99999999999999999999999",
            "a whole number from 0 to",
        ),
        ("{ kind = \"dense\", out_features = 4294967295 },", 4, "dense1 (dense)", "elements per sample"),
        ("{ kind = \"dense\", out_features = \"$n\" },", 4, "out_features = \"$n\"", "no size $n"),
        (
            "{ kind = \"dense\", out_features = 2000000000 },\n{ kind = \"dense\", out_features = 2000000000 },",
            5,
            "dense2 (dense)",
            "its weight of 4000000000000000000 elements makes a model of more than",
        ),
        (
            "{ kind = \"conv2d\", out_channels = 4, kernel = 1, groups = 3 },",
            4,
            "conv2d1 (conv2d)",
            "groups is 3: it must divide the 1 input channels and the 4 output channels",
        ),
        (
            "{ kind = \"conv2d\", out_channels = 4, kernel = [1, 2, 3] },",
            4,
            "kernel = [1, 2, 3]",
            "one size or [vertical",
        ),
        ("{ kind = \"conv2d\", out_channels = 4, kernel = 1, bias = 1 },", 4, "bias = 1", "must be true or false"),
        ("{ kind = \"batch_norm\", epsilon = nan },", 4, "epsilon = nan", "must be a finite number"),
        ("{ kind = \"batch_norm\", epsilon = 0 },", 4, "batch_norm1 (batch_norm)", "epsilon is 0"),
        (
            "{ kind = \"dense\", out_features = 2, weight_init = \"zero\" },",
            4,
            "weight_init = \"zero\"",
            "must be \"he\"",
        ),
        (
            "{ kind = \"dense\", out_features = 2, bias = false, bias_init = 0.5 },",
            4,
            "bias_init = 0.5",
            "is of a bias, and bias = false",
        ),
        ("{ kind = \"softmax_cross_entropy\" },", 4, "softmax_cross_entropy1", "the loss must be the last layer"),
        (
            "{ name = \"stray\", kind = \"relu\" },\n{ kind = \"relu\", inputs = \"input\" },",
            4,
            "stray (relu)",
            "2 outputs",
        ),
        (
            "{ name = \"a\", kind = \"dense\", out_features = 3 },\n{ kind = \"softmax_cross_entropy\" },\n\
             { kind = \"relu\", inputs = \"a\" },",
            5,
            "softmax_cross_entropy1",
            "tells 3 classes apart, but the last loss 2",
        ),
        ("{ kind = \"softmax_cross_entropy\", loss_weight = 0.0 },", 4, "loss_weight = 0.0", "must be positive"),
        ("{ kind = \"relu\", loss_weight = 1.0 },", 4, "loss_weight = 1.0", "relu has no key"),
    ];
    for (layers, line, value, message) in cases {
        let error = refused(&with_layers(layers));
        assert_eq!(error.place.to_string(), format!("m.toml:{line}"), "{error}");
        assert!(error.value.starts_with(value), "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn files() {
    let head = "name = \"m\"\ninput = [1, 8, 8]\n";
    let end = "[[layer]]\nkind = \"softmax_cross_entropy\"\n";
    let cases = [
        (String::new(), 1, "lacks the key name"),
        ("name = \"\"\n".to_owned(), 1, "name must not be empty"),
        ("name = \"m\"\n".to_owned(), 1, "lacks the key input"),
        (head.to_owned(), 1, "lacks the key layer"),
        (format!("{head}layer = []\n"), 3, "layer must not be empty"),
        (format!("{head}layer = 3\n"), 3, "a list of tables"),
        (format!("{head}layer = [3]\n"), 3, "must be a table"),
        ("name = \"m\"\ninput = [1, 8]\n".to_owned(), 2, "must be three sizes"),
        ("name = \"m\"\ninput = [1, 8, 0]\n".to_owned(), 2, "every size must be at least 1"),
        ("name = \"m\"\ninput = [1, 8, -1]\n".to_owned(), 2, "must be a whole number from 0"),
        (format!("{head}input = [1, 8, 8]\n"), 3, "not TOML: duplicate key"),
        (format!("{head}inputs = [1, 8, 8]\n{end}"), 3, "a model has no key inputs: did you mean input?"),
        (format!("{head}[[layer]\nkind = 3\n"), 3, "not TOML"),
        ("\u{0}".to_owned(), 1, "not TOML"),
        (format!("{head}[[layer]]\nkind = \"dense\"\nout_features = 2\n"), 3, "ends without a loss"),
        (format!("{head}{end}"), 3, "put a dense layer before it"),
        (format!("{head}[block.b]\nlayer = []\n{end}"), 4, "layer must not be empty"),
        (format!("{head}[block.b]\nx = 1\n{end}"), 4, "a block has no key x"),
        (format!("{head}block = 1\n{end}"), 3, "block must be a table"),
    ];
    for (text, line, message) in cases {
        let error = refused(&text);
        assert_eq!(error.place.to_string(), format!("m.toml:{line}"), "{error}\n{text}");
        assert!(error.message.contains(message), "{error}");
    }
}

/// Block on lines 3 and 4, its use from line 5; each case is what is inside, the lines of the use, line, message.
#[test]
fn blocks() {
    let cases = [
        ("{ kind = \"relu\" }", "block = \"c\"", 6, "there is no block \"c\": did you mean b?"),
        ("{ kind = \"relu\" }", "block = \"b\"\nrepeat = 0", 7, "repeat must be at least 1"),
        ("{ kind = \"relu\" }", "block = \"b\"\nrepeat = 4000000000", 4, "more than 20000 layers"),
        ("{ kind = \"relu\" }", "block = \"b\"\nn = 3", 7, "block \"b\" has no key n"),
        ("{ kind = \"relu\" }", "block = \"b\"\ninputs = [\"input\", \"b1\"]", 5, "has 2 inputs: it takes one"),
        (
            "{ kind = \"dense\", out_features = \"$n\" }",
            "block = \"b\"",
            5,
            "lacks the key n: add n = 1, which block \"b\" uses",
        ),
        ("{ kind = \"dense\", out_features = \"3*$n\" }", "block = \"b\"\nn = 4294967295", 4, "more than 4294967295"),
        ("{ kind = \"dense\", out_features = \"n\" }", "block = \"b\"", 4, "a size such as"),
        ("{ block = \"b\" }", "block = \"b\"", 4, "block \"b\" contains itself (b → b)"),
        ("{ kind = \"relu\", inputs = \"outer\" }", "block = \"b\"", 4, "there is no layer \"outer\" here"),
        ("{ kind = \"max_pool\", kernel = 9 }", "name = \"u\"\nblock = \"b\"\nrepeat = 2", 4, "does not fit"),
        ("{ kind = \"relu\" }", "name = \"u\"\nblock = \"b\"\ninputs = \"u\"", 4, "a cycle: u.relu1 → u.relu1"),
    ];
    for (inside, usage, line, message) in cases {
        let text = format!(
            "name = \"m\"\ninput = [1, 8, 8]\n[block.b]\nlayer = [{inside}]\n[[layer]]\n{usage}\n[[layer]]\n\
             kind = \"softmax_cross_entropy\"\n"
        );
        let error = refused(&text);
        assert_eq!(error.place.to_string(), format!("m.toml:{line}"), "{error}\n{text}");
        assert!(error.message.contains(message), "{error}");
    }
    let chain: Vec<String> = (0..20).map(|at| format!("b{at}.layer = [{{ block = \"b{}\" }}]\n", at + 1)).collect();
    let text = format!("name = \"m\"\ninput = [1, 8, 8]\nlayer = [{{ block = \"b0\" }}]\n[block]\n{}", chain.concat());
    assert!(refused(&text).message.contains("more than 16 blocks inside one another"));
}

/// Refused by counting, before anything is parsed: the text after the layers is not TOML.
#[test]
fn far_too_many_layers_are_counted_and_not_parsed() {
    let listed = "[[layer]]\nkind = \"relu\"\n".repeat(20_001);
    let inline = "{kind=\"relu\"},".repeat(80_001);
    for (layers, line) in [(listed, 2 + 2 * 20_000), (format!("layer = [{inline}"), 2)] {
        let error = parse_model("deep.toml", &format!("name = \"m\"\n{layers}\n= no TOML [")).expect_err("too many");
        assert_eq!(
            (error.place, error.message.contains("more than 20000 layers")),
            (lockstep_topology::ErrorPlace::line("deep.toml", line), true)
        );
    }
}

#[test]
fn names_and_paths() {
    let error = load_model("lennet").expect_err("misspelt");
    assert!(
        error.to_string().contains(
            "\"lennet\": there is no such model in the zoo, and a path ends in .toml, .json, .onnx or .prototxt: did \
             you mean lenet,"
        ),
        "{error}"
    );
    let error = load_model("nowhere/lenet.toml").expect_err("missing");
    assert_eq!(error.place.to_string(), "nowhere/lenet.toml");
    assert!(error.message.contains("the model cannot be read"), "{error}");
}

/// What replaces a token: sizes at the edges of their types, names that exist elsewhere, other types, broken syntax.
const REPLACEMENTS: [&str; 20] = [
    "-1",
    "0",
    "1",
    "3",
    "99",
    "65537",
    "4294967295",
    "4294967296",
    "1.5",
    "nan",
    "true",
    "[2, 3]",
    "\"$channels\"",
    "\"input\"",
    "\"relu1\"",
    "[\"relu1\", \"conv1\"]",
    "\"add\"",
    "inputs",
    "é",
    "[",
];

/// One edit: of a line (drop, double, move) or of a token within it.
#[derive(Debug, Clone)]
enum Edit {
    Drop(usize),
    Double(usize),
    Move(usize, usize),
    Token(usize, usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = 0..1_000usize;
    let edit = prop_oneof![
        1 => place.clone().prop_map(Edit::Drop),
        1 => place.clone().prop_map(Edit::Double),
        1 => (place.clone(), place.clone()).prop_map(|(from, to)| Edit::Move(from, to)),
        5 => (place.clone(), place, 0..REPLACEMENTS.len()).prop_map(|(line, token, new)| Edit::Token(line, token, new)),
    ];
    proptest::collection::vec(edit, 1..4)
}

/// The text after the edits; positions wrap around its length.
fn edited(text: &str, edits: &[Edit]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for edit in edits {
        let count = lines.len();
        match *edit {
            Edit::Drop(line) => drop(lines.remove(line % count)),
            Edit::Double(line) => lines.insert(line % count, lines[line % count].clone()),
            Edit::Move(from, to) => {
                let line = lines.remove(from % count);
                lines.insert(to % count, line);
            }
            Edit::Token(line, token, new) => {
                let line = &mut lines[line % count];
                // Values are between "= " and "," or the end of the line, so whole words of a line are good
                // places to cut.
                let mut words: Vec<&str> = line.split(' ').collect();
                let at = token % words.len();
                let tail = if words[at].ends_with(',') { "," } else { "" };
                let word = format!("{}{tail}", REPLACEMENTS[new]);
                words[at] = &word;
                *line = words.join(" ");
            }
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn mutated_texts_never_panic(model in 0..ZOO.len(), edits in edits()) {
        let text = edited(ZOO[model].1, &edits);
        if let Err(error) = parse_model("m.toml", &text) {
            let line: usize = error.place.to_string().strip_prefix("m.toml:").expect("a file").parse().expect("a line");
            prop_assert!(line >= 1 && line <= text.lines().count() + 1, "{}", error);
            prop_assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn cut_texts_never_panic(model in 0..ZOO.len(), place in 0..10_000usize, removed in 0..40usize, new in 0..20usize) {
        let mut text: Vec<char> = ZOO[model].1.chars().collect();
        let start = place % text.len();
        let end = (start + removed).min(text.len());
        text.splice(start..end, REPLACEMENTS[new].chars());
        let text: String = text.into_iter().collect();
        if let Err(error) = parse_model("m.toml", &text) {
            prop_assert!(error.place.to_string().starts_with("m.toml:"), "{}", error);
        }
    }
}

#[test]
fn deep_nesting_is_an_error_not_an_overflow() {
    for (open, close) in [("[", "]"), ("{ a = ", "}")] {
        let text = format!("name = {}1{}\n", open.repeat(100_000), close.repeat(100_000));
        assert!(refused(&text).message.contains("not TOML"));
    }
}

#[test]
fn mutations_reach_beyond_the_toml_parser() {
    // A fixed walk over all single-token edits of LeNet: most must be TOML, and some must be refused for their meaning.
    let text = zoo_text("lenet");
    let (mut accepted, mut syntax, mut meaning) = (0, 0, 0);
    for line in 0..text.lines().count() {
        for token in 0..12 {
            for new in 0..REPLACEMENTS.len() {
                match parse_model("m.toml", &edited(text, &[Edit::Token(line, token, new)])) {
                    Ok(_) => accepted += 1,
                    Err(error) if error.message.starts_with("not TOML") => syntax += 1,
                    Err(_) => meaning += 1,
                }
            }
        }
    }
    assert!(accepted > 100 && syntax > 100 && meaning > 500, "{accepted} {syntax} {meaning}");
}
