//! Writes the ONNX files of the tests, field by field.

/// A graph under construction.
#[derive(Default)]
pub(super) struct Writer {
    graph: Vec<u8>,
}

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// A field of bytes.
pub(super) fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    varint(number << 3 | 2, &mut field);
    varint(content.len() as u64, &mut field);
    field.extend(content);
    field
}

fn integer(number: u64, value: i64) -> Vec<u8> {
    let mut field = Vec::new();
    varint(number << 3, &mut field);
    varint(value as u64, &mut field);
    field
}

fn packed(number: u64, values: &[i64]) -> Vec<u8> {
    let mut content = Vec::new();
    values.iter().for_each(|value| varint(*value as u64, &mut content));
    bytes(number, &content)
}

impl Writer {
    /// An input; a size below 1 is written as a name.
    pub(super) fn input(&mut self, name: &str, dims: &[i64]) {
        let dimension = |size: &i64| {
            let size = if *size > 0 { integer(1, *size) } else { bytes(2, b"N") };
            bytes(1, &size)
        };
        let shape: Vec<u8> = dims.iter().flat_map(dimension).collect();
        let tensor = [integer(1, 1), bytes(2, &shape)].concat();
        self.bare_input(&[bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat());
    }

    /// An input given as raw bytes.
    pub(super) fn bare_input(&mut self, content: &[u8]) {
        self.graph.extend(bytes(11, content));
    }

    /// A float initializer whose values are in another file.
    pub(super) fn weight(&mut self, name: &str, dims: &[i64]) {
        let tensor = [packed(1, dims), integer(2, 1), bytes(8, name.as_bytes()), integer(14, 1)].concat();
        self.graph.extend(bytes(5, &tensor));
    }

    /// An int64 initializer.
    pub(super) fn integers(&mut self, name: &str, values: &[i64]) {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dims = integer(1, values.len() as i64);
        let tensor = [dims, integer(2, 7), bytes(8, name.as_bytes()), bytes(9, &raw)].concat();
        self.graph.extend(bytes(5, &tensor));
    }

    /// A float, one number without dimensions.
    pub(super) fn number(&mut self, name: &str, value: f32) {
        let tensor = [integer(2, 1), bytes(8, name.as_bytes()), bytes(9, &value.to_le_bytes())].concat();
        self.graph.extend(bytes(5, &tensor));
    }

    /// Floats.
    pub(super) fn numbers(&mut self, name: &str, dims: &[i64], values: &[f32]) {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = [packed(1, dims), integer(2, 1), bytes(8, name.as_bytes()), bytes(9, &raw)].concat();
        self.graph.extend(bytes(5, &tensor));
    }

    /// Floats of a `Constant`, which training does not change.
    pub(super) fn constant(&mut self, name: &str, dims: &[i64], values: &[f32]) {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = [packed(1, dims), integer(2, 1), bytes(9, &raw)].concat();
        let value = bytes(5, &[bytes(1, b"value"), bytes(5, &tensor)].concat());
        let node = [bytes(2, name.as_bytes()), bytes(4, b"Constant"), value].concat();
        self.graph.extend(bytes(1, &node));
    }

    /// The same in another file.
    pub(super) fn external_integers(&mut self, name: &str) {
        let tensor = [integer(1, 2), integer(2, 7), bytes(8, name.as_bytes()), integer(14, 1)].concat();
        self.graph.extend(bytes(5, &tensor));
    }

    /// A node; each attribute is written as a number, as a list and, after an equals sign in its name, as a text.
    pub(super) fn node(
        &mut self,
        op: &str,
        name: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, &[i64])],
    ) {
        let mut node: Vec<u8> = inputs.iter().flat_map(|input| bytes(1, input.as_bytes())).collect();
        node.extend(outputs.iter().flat_map(|output| bytes(2, output.as_bytes())));
        node.extend([bytes(3, name.as_bytes()), bytes(4, op.as_bytes())].concat());
        for (name, values) in attributes {
            let (name, text) = name.split_once('=').unwrap_or((name, ""));
            let number = values.first().copied().unwrap_or(0);
            node.extend(bytes(
                5,
                &[bytes(1, name.as_bytes()), integer(3, number), bytes(4, text.as_bytes()), packed(8, values)].concat(),
            ));
        }
        self.graph.extend(bytes(1, &node));
    }

    /// The file, with one output.
    pub(super) fn model(&self, output: &str) -> Vec<u8> {
        self.model_of(output, 13)
    }

    /// The file in a version of the operators.
    pub(super) fn model_of(&self, output: &str, opset: i64) -> Vec<u8> {
        let graph = [self.graph.clone(), bytes(12, &bytes(1, output.as_bytes()))].concat();
        let opset = [bytes(1, b""), integer(2, opset)].concat();
        [integer(1, 8), bytes(2, b"by hand"), bytes(7, &graph), bytes(8, &opset)].concat()
    }
}

/// `op` on 4×6×6, with a constant of the sizes `weight` if there are any, followed by flatten and scores.
pub(super) fn operator(op: &str, weight: &[i64], attributes: &[(&str, &[i64])]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.input("x", &[1, 4, 6, 6]);
    let mut inputs = vec!["x"];
    if !weight.is_empty() {
        writer.weight("w", weight);
        inputs.push("w");
    }
    writer.node(op, "", &inputs, &["1"], attributes);
    writer.node("GlobalAveragePool", "", &["1"], &["y"], &[]);
    writer.model("y")
}

/// Consecutive operators without attributes.
pub(super) fn chain(ops: &[&str]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.input("v0", &[1, 4, 1, 1]);
    for (index, op) in ops.iter().enumerate() {
        writer.node(op, "", &[&format!("v{index}")], &[&format!("v{}", index + 1)], &[]);
    }
    writer.model(&format!("v{}", ops.len()))
}
