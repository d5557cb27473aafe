//! Parses an ONNX file: the fields of `onnx.proto` from which shapes follow, and no others.

use crate::wire::{Field, Malformed, Piece};

/// ModelProto: the graph and the version of its operators.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    pub(super) producer: &'a str,
    /// Version of the standard operators.
    pub(super) opset: i64,
    pub(super) graph: Option<Graph<'a>>,
}

/// GraphProto.
#[derive(Debug, Default)]
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) initializers: Vec<Tensor<'a>>,
    pub(super) inputs: Vec<Input<'a>>,
    pub(super) outputs: Vec<&'a str>,
}

/// NodeProto.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) op: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

/// AttributeProto.
#[derive(Debug, Default)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    pub(super) float: f32,
    pub(super) integer: i64,
    pub(super) text: &'a [u8],
    pub(super) integers: Vec<i64>,
    pub(super) tensor: Option<Tensor<'a>>,
}

/// TensorProto.
#[derive(Debug, Default)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    pub(super) dims: Vec<i64>,
    /// 1 is float, 7 is int64.
    pub(super) data_type: i64,
    pub(super) floats: Vec<f32>,
    pub(super) integers: Vec<i64>,
    pub(super) raw: &'a [u8],
    /// Whether the values are in another file.
    pub(super) external: bool,
}

/// ValueInfoProto of a tensor; a dimension is `None` where the file gives a name or nothing.
#[derive(Debug, Default)]
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    pub(super) dims: Option<Vec<Option<i64>>>,
}

impl<'a> File<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<File<'a>, Malformed> {
        let mut file = File::default();
        for field in (Piece { bytes, offset: 0 }).fields()? {
            match field.number {
                2 => file.producer = field.text()?,
                7 => file.graph = Some(Graph::read(field)?),
                8 => {
                    let (mut domain, mut version) = ("", 0);
                    for field in field.piece()?.fields()? {
                        match field.number {
                            1 => domain = field.text()?,
                            2 => version = field.integer()?,
                            _ => {}
                        }
                    }
                    if matches!(domain, "" | "ai.onnx") {
                        file.opset = version;
                    }
                }
                _ => {}
            }
        }
        Ok(file)
    }
}

impl<'a> Graph<'a> {
    fn read(field: Field<'a>) -> Result<Graph<'a>, Malformed> {
        let mut graph = Graph::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => graph.nodes.push(Node::read(field)?),
                5 => graph.initializers.push(Tensor::read(field)?),
                11 => graph.inputs.push(Input::read(field)?),
                12 => graph.outputs.push(Input::read(field)?.name),
                _ => {}
            }
        }
        Ok(graph)
    }
}

impl<'a> Node<'a> {
    fn read(field: Field<'a>) -> Result<Node<'a>, Malformed> {
        let mut node = Node::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => node.inputs.push(field.text()?),
                2 => node.outputs.push(field.text()?),
                3 => node.name = field.text()?,
                4 => node.op = field.text()?,
                5 => node.attributes.push(Attribute::read(field)?),
                7 => node.domain = field.text()?,
                _ => {}
            }
        }
        Ok(node)
    }
}

impl<'a> Attribute<'a> {
    fn read(field: Field<'a>) -> Result<Attribute<'a>, Malformed> {
        let mut attribute = Attribute::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => attribute.name = field.text()?,
                2 => attribute.float = field.float()?,
                3 => attribute.integer = field.integer()?,
                4 => attribute.text = field.piece()?.bytes,
                5 => attribute.tensor = Some(Tensor::read(field)?),
                8 => field.integers(&mut attribute.integers)?,
                _ => {}
            }
        }
        Ok(attribute)
    }
}

impl<'a> Tensor<'a> {
    fn read(field: Field<'a>) -> Result<Tensor<'a>, Malformed> {
        let mut tensor = Tensor::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => field.integers(&mut tensor.dims)?,
                2 => tensor.data_type = field.integer()?,
                // One float that is not packed; of packed ones only the first is ever needed.
                4 => match field.piece() {
                    Ok(piece) => tensor.floats.extend(first_float(piece.bytes)),
                    Err(_) => tensor.floats.push(field.float()?),
                },
                7 => field.integers(&mut tensor.integers)?,
                8 => tensor.name = field.text()?,
                9 => tensor.raw = field.piece()?.bytes,
                14 => tensor.external = field.integer()? == 1,
                _ => {}
            }
        }
        Ok(tensor)
    }

    /// The values of an int64 tensor, if it is one and they are here.
    pub(super) fn int64(&self) -> Option<Vec<i64>> {
        if self.data_type != 7 || self.external {
            return None;
        }
        if self.raw.is_empty() {
            return Some(self.integers.clone());
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64;
        Some(self.raw.chunks_exact(8).map(word).collect())
    }

    /// The first value of a float tensor.
    pub(super) fn scalar(&self) -> Option<f32> {
        let here = self.data_type == 1 && !self.external;
        here.then(|| self.floats.first().copied().or_else(|| first_float(self.raw))).flatten()
    }
}

fn first_float(bytes: &[u8]) -> Option<f32> {
    let word = bytes.get(..4)?;
    Some(f32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

impl<'a> Input<'a> {
    fn read(field: Field<'a>) -> Result<Input<'a>, Malformed> {
        let mut input = Input::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => input.name = field.text()?,
                2 => input.dims = dimensions(field)?,
                _ => {}
            }
        }
        Ok(input)
    }
}

/// The dimensions in a TypeProto: its tensor type's shape.
fn dimensions(field: Field<'_>) -> Result<Option<Vec<Option<i64>>>, Malformed> {
    let mut dims = None;
    let tensor_type = |field: &Field<'_>| field.number == 1;
    for field in field.piece()?.fields()?.into_iter().filter(tensor_type) {
        for shape in field.piece()?.fields()?.into_iter().filter(|field| field.number == 2) {
            let mut found = Vec::new();
            for dimension in shape.piece()?.fields()?.into_iter().filter(|field| field.number == 1) {
                let parts = dimension.piece()?.fields()?;
                let value = parts.iter().find(|field| field.number == 1).map(Field::integer).transpose()?;
                found.push(value);
            }
            dims = Some(found);
        }
    }
    Ok(dims)
}
