//! Tests that bad files are refused with place, value and cure, and never a panic.

use proptest::prelude::*;

use super::write::bytes;
use super::*;

/// Fills a graph.
type Build<'a> = &'a dyn Fn(&mut Writer);

fn refused(file: &[u8]) -> InputError {
    match parse("net.onnx", file, false, crate::zoo::biased) {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

#[test]
fn files_without_protobuf_or_graph_are_refused() {
    let cases: [(&[u8], &str, &str); 6] = [
        (b"", "net.onnx", "holds no graph: is it an ONNX model?"),
        (b"name = \"lenet\"\n", "net.onnx: byte 0", "the unknown wire type 6: this is not a whole ONNX file"),
        (&[0x3a, 0x05, 0x0a], "net.onnx: byte 2", "5 bytes should follow, but 1 do"),
        (&[0xff; 11], "net.onnx: byte 0", "a number of more than 64 bits"),
        (&[0x02, 0x00], "net.onnx: byte 0", "a field with the number 0"),
        (&[0x38, 0x01], "net.onnx: byte 0", "field 7 is not bytes"),
    ];
    for (file, place, message) in cases {
        let error = refused(file);
        assert!(error.place.to_string() == place && error.message.contains(message), "{error}");
    }
    let name = bytes(7, &bytes(1, &bytes(4, &[0xff, 0xfe])));
    assert!(refused(&name).message.contains("a name that is not UTF-8"));
}

/// Operator, sizes of its constant, attributes, and what the error says; the input is 4×6×6.
#[test]
fn nodes() {
    let cases: [(&str, &[i64], Attributes<'_>, &str); 19] = [
        ("Softplus", &[], &[], "a prediction does as well with Relu or HardSwish in its place"),
        ("Resize", &[], &[], "its sizes are not constants of this file"),
        ("ConvTranspose", &[4, 4, 3, 3], &[], "a prediction cannot do without it"),
        ("Hardmax", &[], &[], "there is no layer for Hardmax: known are Conv, Gemm"),
        ("Conv", &[], &[], "its weight \"\" is not an initializer"),
        ("Conv", &[8, 3, 3, 3], &[], "takes 3 channels in each of 1 groups, but its input is 4×6×6"),
        ("Conv", &[8, 4, 3], &[], "moves over one dimension of samples of 4×6×6"),
        ("Conv", &[8, 4, 3, 3], &[("kernel_shape", &[5, 5])], "does not fit a kernel of (5, 5)"),
        ("Conv", &[8, 4, 3, 3], &[("pads", &[1, 1])], "pads are [1, 1]"),
        ("Conv", &[8, 4, 9, 9], &[], "a kernel of 9 does not fit the height of its input 4×6×6"),
        ("Conv", &[8, -4, 3, 3], &[], "has the shape [8, -4, 3, 3]"),
        ("Conv", &[8, 4, 3, 3], &[("strides", &[-1, 1])], "strides is [-1, 1]"),
        ("MaxPool", &[], &[], "has no kernel_shape"),
        ("MaxPool", &[], &[("kernel_shape", &[2, 2]), ("dilations", &[2, 2])], "a pooling has none here"),
        ("Gemm", &[144, 10], &[], "its weight takes 144 features, but its input is 4×6×6"),
        ("BatchNormalization", &[4], &[], "its weight \"\" is not an initializer"),
        ("Mul", &[6], &[], "has the shape [6], but there are 4 channels"),
        ("Mul", &[4], &[], "over 4×6×6 it must be [4, 1, 1]"),
        ("Softmax", &[], &[], "as the graph's last operator"),
    ];
    for (op, weight, attributes, message) in cases {
        let error = refused(&operator(op, weight, attributes));
        assert_eq!(
            (error.place.to_string().as_str(), error.value),
            ("net.onnx: node 0", format!("{op} \"1\"")),
            "{}",
            error.message
        );
        assert!(error.message.contains(message), "{}", error.message);
    }
}

#[test]
fn graphs() {
    let with = |build: Build<'_>, output: &str| {
        let mut writer = Writer::default();
        build(&mut writer);
        refused(&writer.model(output))
    };
    let relu = |writer: &mut Writer, input: &str| writer.node("Relu", "r", &[input], &["y"], &[]);
    let cases: [(Build<'_>, &str, &str, &str); 10] = [
        (&|w| relu(w, "x"), "y", "net.onnx: inputs", "the graph has none"),
        (
            &|w| (w.input("x", &[1, 4]), w.input("z", &[1, 4]), relu(w, "x")).2,
            "y",
            "net.onnx: inputs",
            "\"z\" is an input too",
        ),
        (
            &|w| (w.input("x", &[1, 0, 5, 5]), relu(w, "x")).1,
            "y",
            "net.onnx: inputs",
            "has the shape [1, ?, 5, 5]: export with",
        ),
        (&|w| (w.input("x", &[4]), relu(w, "x")).1, "y", "net.onnx: inputs", "has the shape [4]"),
        (&|w| (w.bare_input(&bytes(1, b"x")), relu(w, "x")).1, "y", "net.onnx: inputs", "has no shape"),
        (&|w| (w.input("x", &[1, 4]), relu(w, "q")).1, "y", "net.onnx: node 0", "its input \"q\" is made by no node"),
        (&|w| (w.input("x", &[1, 4]), relu(w, "x")).1, "z", "net.onnx: outputs", "no layer makes it"),
        (&|w| (w.input("x", &[1, 4, 2, 2]), relu(w, "x")).1, "y", "net.onnx: outputs", "needs one score per class"),
        (
            &|w| {
                w.input("x", &[1, 4, 2, 2]);
                w.external_integers("t");
                w.node("Reshape", "flat", &["x", "t"], &["y"], &[]);
            },
            "y",
            "net.onnx: node 0",
            "its shape is not a constant of this file",
        ),
        (
            &|w| {
                w.input("x", &[1, 4, 2, 2]);
                w.integers("t", &[1, 2, 8]);
                w.node("Reshape", "flat", &["x", "t"], &["y"], &[]);
            },
            "y",
            "net.onnx: outputs",
            "rearranged to [1, 2, 8]",
        ),
    ];
    for (build, output, place, message) in cases {
        let error = with(build, output);
        assert!(error.place.to_string() == place && error.message.contains(message), "{error}");
    }
}

/// A file with most operators in it.
fn sample() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.input("x", &[1, 3, 8, 8]);
    writer.weight("w", &[4, 3, 3, 3]);
    writer.weight("n", &[4]);
    writer.integers("dims", &[10, 36]);
    writer.integers("flat", &[1, -1]);
    writer.node("Conv", "c", &["x", "w", "n"], &["1"], &[("pads", &[1, 1, 1, 1]), ("group", &[1])]);
    writer.node("BatchNormalization", "", &["1", "n", "n", "n", "n"], &["2"], &[]);
    writer.node("LRN", "", &["2"], &["3"], &[("size", &[3])]);
    writer.node(
        "MaxPool",
        "",
        &["3"],
        &["4"],
        &[("kernel_shape", &[3, 3]), ("pads", &[0, 0, 1, 1]), ("strides", &[3, 3])],
    );
    writer.node("Reshape", "", &["4", "flat"], &["5"], &[]);
    writer.node("ConstantOfShape", "", &["dims"], &["d"], &[]);
    writer.node("Gemm", "", &["5", "d"], &["y"], &[("transB", &[1])]);
    writer.model("y")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn flipped_and_cut_files_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut file = sample();
        for (place, new) in flips {
            let place = place.index(file.len());
            file[place] = new;
        }
        if is_cut {
            file.truncate(end.index(file.len()));
        }
        if let Err(error) = parse("net.onnx", &file, false, crate::zoo::biased) {
            prop_assert!(error.place.to_string().starts_with("net.onnx") && !error.message.is_empty(), "{}", error);
        }
    }
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let file = sample();
    assert!(parse("net.onnx", &file, false, crate::zoo::biased).is_ok());
    // Only the operators' version follows the graph.
    let graph = file.len() - 6;
    for end in 0..graph {
        refused(&file[..end]);
    }
}
