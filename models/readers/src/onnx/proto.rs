//! Parses an ONNX file: the fields of `onnx.proto` from which shapes follow, and no others.

use super::tensor::Tensor;
use crate::wire::{Field, Malformed, Piece};

/// ModelProto: the graph and the version of its operators.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    pub(super) producer: &'a str,
    /// Version of the standard operators.
    pub(super) opset: i64,
    pub(super) graph: Option<Graph<'a>>,
    /// Functions of the file's own.
    pub(super) functions: Vec<Function<'a>>,
}

/// FunctionProto: an operator that is made of others.
#[derive(Debug, Default)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) nodes: Vec<Node<'a>>,
    /// Defaults of its attributes.
    pub(super) attributes: Vec<Attribute<'a>>,
}

/// GraphProto.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) initializers: Vec<Tensor<'a>>,
    pub(super) inputs: Vec<Input<'a>>,
    pub(super) outputs: Vec<&'a str>,
}

/// NodeProto.
#[derive(Debug, Clone, Default)]
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) op: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

/// AttributeProto.
#[derive(Debug, Clone, Default)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    pub(super) float: f32,
    pub(super) integer: i64,
    pub(super) text: &'a [u8],
    pub(super) integers: Vec<i64>,
    pub(super) floats: Vec<f32>,
    pub(super) tensor: Option<Tensor<'a>>,
    /// A branch.
    pub(super) graph: Option<Graph<'a>>,
    /// The attribute of the surrounding function that it takes its value from.
    pub(super) refers: &'a str,
}

/// ValueInfoProto of a tensor; a dimension is `None` where the file gives a name or nothing.
#[derive(Debug, Clone, Default)]
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
                25 => file.functions.push(Function::read(field)?),
                _ => {}
            }
        }
        Ok(file)
    }
}

impl<'a> Function<'a> {
    fn read(field: Field<'a>) -> Result<Function<'a>, Malformed> {
        let mut function = Function::default();
        for field in field.piece()?.fields()? {
            match field.number {
                1 => function.name = field.text()?,
                4 => function.inputs.push(field.text()?),
                5 => function.outputs.push(field.text()?),
                7 => function.nodes.push(Node::read(field)?),
                10 => function.domain = field.text()?,
                11 => function.attributes.push(Attribute::read(field)?),
                _ => {}
            }
        }
        Ok(function)
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
                6 => attribute.graph = Some(Graph::read(field)?),
                7 => field.floats(&mut attribute.floats)?,
                21 => attribute.refers = field.text()?,
                8 => field.integers(&mut attribute.integers)?,
                _ => {}
            }
        }
        Ok(attribute)
    }
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
