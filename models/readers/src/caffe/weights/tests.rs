//! Tests files of weights in both forms, written by an encoder here and read back; and mismatched and broken files.

use lockstep_models::InitialValues;
use proptest::prelude::*;

use super::*;

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// A field of bytes.
fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    varint(number << 3 | 2, &mut field);
    varint(content.len() as u64, &mut field);
    field.extend(content);
    field
}

fn integer(number: u64, value: u64) -> Vec<u8> {
    let mut field = Vec::new();
    varint(number << 3, &mut field);
    varint(value, &mut field);
    field
}

/// How a blob is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Shape,
    FourSizes,
    Doubles,
    Unpacked,
}

fn blob(shape: &[u64], values: &[f32], form: Form) -> Vec<u8> {
    let mut content = Vec::new();
    if form == Form::FourSizes {
        let ones = 4 - shape.len();
        let sizes = std::iter::repeat_n(1, ones).chain(shape.iter().copied());
        content.extend((1..).zip(sizes).flat_map(|(number, size)| integer(number, size)));
    } else {
        let mut dims = Vec::new();
        shape.iter().for_each(|size| varint(*size, &mut dims));
        content.extend(bytes(7, &bytes(1, &dims)));
    }
    match form {
        Form::Doubles => {
            let all: Vec<u8> = values.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
            content.extend(bytes(8, &all));
        }
        Form::Unpacked => values.iter().for_each(|value| {
            varint(5 << 3 | 5, &mut content);
            content.extend(value.to_le_bytes());
        }),
        _ => {
            let all: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            content.extend(bytes(5, &all));
        }
    }
    content
}

/// A layer in the present form, from and to these blobs.
fn layer(name: &str, kind: &str, from: &str, to: &str, blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut content =
        [(1, name), (2, kind), (3, from), (4, to)].map(|(number, text)| bytes(number, text.as_bytes())).concat();
    content.extend(blobs.iter().flat_map(|blob| bytes(7, blob)));
    bytes(100, &content)
}

/// The same in the first form, whose type is a number.
fn first(name: &str, blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut content = [bytes(2, b"data"), bytes(4, name.as_bytes()), integer(5, 4)].concat();
    content.extend(blobs.iter().flat_map(|blob| bytes(6, blob)));
    bytes(2, &content)
}

/// Distinct numbers for the elements.
fn ramp(count: u64, from: f32) -> Vec<f32> {
    (0..count).map(|at| from + at as f32 * 0.25).collect()
}

const NET: &str = "
layer { name: \"in\" type: \"Input\" top: \"x\" input_param { shape { dim: 1 dim: 2 dim: 4 dim: 4 } } }
layer { name: \"c 1\" type: \"Convolution\" bottom: \"x\" top: \"c\" convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: \"n\" type: \"BatchNorm\" bottom: \"c\" top: \"c\" }
layer { name: \"s\" type: \"Scale\" bottom: \"c\" top: \"c\" scale_param { bias_term: true } param { lr_mult: 3 } }
layer { name: \"r\" type: \"ReLU\" bottom: \"c\" top: \"c\" }
layer { name: \"d\" type: \"InnerProduct\" bottom: \"c\" top: \"y\" inner_product_param { num_output: 5 }
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 } }
layer { name: \"loss\" type: \"SoftmaxWithLoss\" bottom: \"y\" bottom: \"label\" }";

fn model() -> Model {
    crate::read_caffe("net.prototxt", NET).unwrap_or_else(|error| panic!("{error}"))
}

/// All layers of the net in the present form.
fn whole(form: Form) -> Vec<u8> {
    [
        bytes(1, b"net"),
        layer(
            "c 1",
            "Convolution",
            "x",
            "c",
            &[blob(&[3, 2, 3, 3], &ramp(54, 1.0), form), blob(&[3], &ramp(3, 9.0), form)],
        ),
        layer(
            "n",
            "BatchNorm",
            "c",
            "c",
            &[blob(&[3], &[2.0, 4.0, 8.0], form), blob(&[3], &[1.0, 3.0, 5.0], form), blob(&[1], &[4.0], form)],
        ),
        layer("s", "Scale", "c", "c", &[blob(&[3], &ramp(3, 0.5), form), blob(&[3], &ramp(3, -1.0), form)]),
        layer("r", "ReLU", "c", "c", &[]),
        layer("d", "InnerProduct", "c", "y", &[blob(&[5, 12], &ramp(60, 3.0), form), blob(&[5], &ramp(5, 7.0), form)]),
    ]
    .concat()
}

#[test]
fn every_layer_gets_its_own_blobs_in_every_form_of_the_file() {
    let model = model();
    for form in [Form::Shape, Form::FourSizes, Form::Doubles, Form::Unpacked] {
        let (values, summary) =
            read("w.caffemodel", &whole(form), &model).unwrap_or_else(|error| panic!("{form:?}: {error}"));
        let of = |name: &str| values.parameters.get(name).unwrap_or_else(|| panic!("{name}")).clone();
        assert_eq!(of("c_1.weight"), ramp(54, 1.0));
        assert_eq!(of("c_1.bias"), ramp(3, 9.0));
        assert_eq!((of("n.gamma"), of("n.beta")), (ramp(3, 0.5), ramp(3, -1.0)));
        assert_eq!((of("d.weight"), of("d.bias")), (ramp(60, 3.0), ramp(5, 7.0)));
        // Sums over four batches.
        assert_eq!(values.statistics["n"], [0.5, 1.0, 2.0, 0.25, 0.75, 1.25]);
        assert_eq!(summary, "weights of w.caffemodel: 3 layers");
        let mut parameters = vec![f32::NAN; model.parameter_elements() as usize];
        let mut statistics = vec![f32::NAN; model.statistics_elements() as usize];
        values.put(&model, &mut parameters, &mut statistics).unwrap();
        assert!(parameters.iter().chain(&statistics).all(|value| value.is_finite()));
    }
}

/// The first form of the file has types as numbers and no batch norms; its layers are matched by name too.
#[test]
fn the_first_form_is_also_matched_by_name() {
    let form = Form::FourSizes;
    let file = [
        first("c 1", &[blob(&[3, 2, 3, 3], &ramp(54, 1.0), form), blob(&[3], &ramp(3, 9.0), form)]),
        first("fc8", &[blob(&[1000, 12], &ramp(12_000, 0.0), form)]),
    ]
    .concat();
    let (values, summary) = read("w", &file, &model()).unwrap();
    assert_eq!(values.parameters["c_1.weight"], ramp(54, 1.0));
    assert_eq!(
        summary,
        "weights of w: 1 layers; only in the model, which begin as it says: n, d; only in the file: fc8"
    );
}

#[test]
fn multipliers_come_from_the_net() {
    let model = model();
    let of = |name: &str| {
        let all = model.layers().iter().flat_map(|node| &node.parameters);
        let found = all.into_iter().find(|parameter| parameter.name == name).unwrap().multipliers;
        (found.rate, found.decay)
    };
    assert_eq!((of("c_1.weight"), of("n.gamma"), of("n.beta")), ((1.0, 1.0), (3.0, 1.0), (1.0, 1.0)));
    assert_eq!((of("d.weight"), of("d.bias")), ((1.0, 1.0), (2.0, 0.0)));
    assert_eq!(
        model.multipliers().as_deref(),
        Some("rate ×3 of 1 tensors, rate ×2 of 1 tensors, decay ×0 of 1 tensors")
    );
}

#[test]
fn mismatches_name_layer_blob_and_shapes() {
    let form = Form::Shape;
    let c = |shape: &[u64], count| layer("c 1", "Convolution", "x", "c", &[blob(shape, &ramp(count, 0.0), form)]);
    let refused = |file: &[u8]| read("w.caffemodel", file, &model()).unwrap_err().to_string();
    let with_bias = |weight: Vec<u8>| layer("c 1", "Convolution", "x", "c", &[weight, blob(&[3], &ramp(3, 0.0), form)]);
    for (file, words) in [
        (
            c(&[3, 2, 3, 3], 54),
            "layer \"c 1\", blob 0: is the last of the layer, and conv2d \"c_1\" of the model has 2",
        ),
        (
            with_bias(blob(&[3, 2, 5, 5], &ramp(150, 0.0), form)),
            "layer \"c 1\", blob 0: has the shape 3x2x5x5, and c_1.weight of the model 3x2x3x3",
        ),
        (with_bias(blob(&[3, 2, 3, 3], &ramp(53, 0.0), form)), "has 53 values for its shape 3x2x3x3"),
        (with_bias(blob(&[3, 2, 3, 3], &[f32::NAN; 54], form)), "has NaN as its value 0"),
        (layer("n", "BatchNorm", "c", "c", &[blob(&[3], &ramp(3, 0.0), form)]), "a BatchNorm has three"),
        (
            layer("fc9", "InnerProduct", "c", "c", &[blob(&[1], &[1.0], form)]),
            "the model's are c_1, n, d, the file's fc9",
        ),
        (Vec::new(), "no layer of the model"),
        (b"\x89HDF\r\n".to_vec(), "HDF5"),
        (b"name: \"net\"".to_vec(), "byte 0: a field of the unknown wire type 6"),
    ] {
        let error = refused(&file);
        assert!(error.starts_with("w.caffemodel") && error.contains(words), "{error} lacks {words}");
    }
}

proptest! {
    /// A file with some bytes cut, flipped or put in is read or refused, and never panics.
    #[test]
    fn broken_files_are_refused(at in 0usize..1_000, length in 0usize..9, with in prop::collection::vec(any::<u8>(), 0..9)) {
        let file = whole(Form::Shape);
        let (start, end) = (at.min(file.len()), (at + length).min(file.len()));
        let _ = read("w", &[&file[..start], &with, &file[end..]].concat(), &model());
    }
}
