//! Finds where the parameters of a model lie in the tensors of its architecture's files.

use std::collections::BTreeMap;
use std::ops::Range;

use lockstep_models::{Model, Parameter};
use lockstep_topology::InputError;

use super::names::{Lies, Names, Row, SHIFT};
use super::{HEAD, POSITIONS};

/// Where the parameters of a model lie in the files of transformers.
#[derive(Debug)]
pub struct WeightLayout {
    pub(super) names: &'static Names,
    pub(super) tensors: Vec<Tensor>,
    /// The names of the tensor that tied scores would have, and of the embedding, which they read.
    pub(super) tied: Option<(String, String)>,
    /// Elements of the model's parameters.
    pub(super) elements: u64,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: Vec<u64>,
    /// Whether the model may have its first rows alone.
    pub(super) may_be_longer: bool,
    pub(super) parts: Vec<Part>,
}

/// A parameter in a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its name.
    pub(super) name: String,
    /// Its elements among the model's.
    range: Range<u64>,
    columns: u64,
    /// Of its rows `block` follow each other, the first from row `first` on, the next `apart` rows later.
    first: u64,
    block: u64,
    apart: u64,
    /// Elements of the tensor from one row to the next, and from one column to the next.
    strides: (u64, u64),
}

impl Part {
    /// For each row its elements among the model's parameters, and in the tensor its first element and the step to the next.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Range<usize>, usize, usize)> {
        let rows = (self.range.end - self.range.start) / self.columns;
        (0..rows).map(|row| {
            let own = self.range.start + row * self.columns;
            let there = self.first + row / self.block * self.apart + row % self.block;
            let range = own as usize..(own + self.columns) as usize;
            (range, (there * self.strides.0) as usize, self.strides.1 as usize)
        })
    }
}

impl Tensor {
    /// Its elements.
    pub(super) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// The names of its parameters.
    pub(super) fn parameters(&self) -> String {
        self.parts.iter().map(|part| &*part.name).collect::<Vec<_>>().join(", ")
    }
}

impl WeightLayout {
    /// Where the parameters of `model` lie.
    ///
    /// # Errors
    /// A model whose layers no architecture of transformers has.
    pub fn of(model: &Model) -> Result<WeightLayout, InputError> {
        Names::of(model).find_map(|names| Search::new(model, names).all()).ok_or_else(|| {
            let message = match model.architecture() {
                Some(own) => {
                    format!("has layers that {own} of transformers has not: leave out what is behind its name")
                }
                None => "has layers that no decoder of transformers has: name a decoder such as gpt2 or a config.json"
                    .to_owned(),
            };
            InputError::new("", format!("model \"{}\"", model.name()), message)
        })
    }
}

/// The parameters for which no tensor has been found.
struct Search<'a> {
    model: &'a Model,
    names: &'static Names,
    open: BTreeMap<&'a str, &'a Parameter>,
    tensors: Vec<Tensor>,
}

impl<'a> Search<'a> {
    fn new(model: &'a Model, names: &'static Names) -> Search<'a> {
        let all = model.layers().iter().flat_map(|node| &node.parameters);
        Search { model, names, open: all.map(|of| (&*of.name, of)).collect(), tensors: Vec::new() }
    }

    /// The layout, if each tensor has its parameters and each parameter its tensor.
    fn all(mut self) -> Option<WeightLayout> {
        let number = |name: &str| name.strip_prefix("layers.")?.split('.').next()?.parse::<u32>().ok();
        let layers = self.open.keys().filter_map(|name| number(name)).max()? + 1;
        let is_tied = self.model.tie().is_some();
        let mut tied = None;
        for row in self.names.rows(false) {
            if is_tied && row.0 == [HEAD] {
                let embedding = self.tensors.first().filter(|first| first.parameters() == "embedding.weight")?;
                tied = Some((format!("{}.weight", row.1), embedding.name.clone()));
            } else {
                self.row(row, 0)?;
            }
        }
        for layer in 0..layers {
            for row in self.names.rows(true) {
                self.row(row, layer)?;
            }
        }
        let elements = self.model.parameter_elements();
        self.open.is_empty().then_some(WeightLayout { names: self.names, tensors: self.tensors, tied, elements })
    }

    /// The tensors of a row: weights, and biases where our layers have some.
    fn row(&mut self, (layers, theirs, lies): &Row, number: u32) -> Option<()> {
        let named = |pattern: &str| pattern.replace('*', &number.to_string());
        let own = if *lies == Lies::Norm && self.names.shifts { ["gamma", SHIFT] } else { ["weight", "bias"] };
        for (own, theirs_end) in own.into_iter().zip(["weight", "bias"]) {
            let all: Vec<Option<&Parameter>> =
                layers.iter().map(|layer| self.open.remove(&*format!("{}.{own}", named(layer)))).collect();
            if theirs_end == "bias" && all.iter().all(Option::is_none) {
                continue;
            }
            let parts: Vec<&Parameter> = all.into_iter().collect::<Option<_>>()?;
            let name = format!("{}.{theirs_end}", named(theirs));
            let width = if *lies == Lies::Heads { Some(self.width(number)?) } else { None };
            self.tensors.push(tensor(name, &parts, *lies, width)?);
        }
        Some(())
    }

    /// Features of a head of a layer's attention: the last index of its output.
    fn width(&self, number: u32) -> Option<u64> {
        let name = format!("layers.{number}.attention");
        let of = &self.model.layers().iter().find(|node| node.name == name)?.signature;
        Some(of.indices[of.output.last()?.0].size)
    }
}

/// The tensor of parameters that lie in it so, head by head where these have a width.
fn tensor(name: String, parameters: &[&Parameter], lies: Lies, width: Option<u64>) -> Option<Tensor> {
    let sizes = |of: &Parameter| of.shape.sizes().map(u64::from).collect::<Vec<u64>>();
    let (rows, columns): (Vec<u64>, Vec<u64>) =
        parameters.iter().map(|of| (sizes(of)[0], of.elements() / sizes(of)[0])).unzip();
    let (of_row, total) = (columns[0], rows.iter().sum::<u64>());
    let is_matrix = sizes(parameters[0]).len() > 1;
    let strides = if lies == Lies::Columns { (1, total) } else { (of_row, 1) };
    let mut begun = 0;
    let parts = parameters.iter().zip(&rows).map(|(of, own)| {
        let block = width.unwrap_or(*own);
        let apart = block * if width.is_some() { rows.len() as u64 } else { 1 };
        let part = Part {
            name: of.name.clone(),
            range: of.range.clone(),
            columns: of_row,
            first: begun,
            block,
            apart,
            strides,
        };
        begun += block;
        part
    });
    let shape = match (is_matrix, lies) {
        (false, _) => vec![total],
        (true, Lies::Columns) => vec![of_row, total],
        (true, _) => vec![total, of_row],
    };
    let parts = parts.collect();
    let may_be_longer = parameters[0].name.strip_suffix(".weight") == Some(POSITIONS);
    // Fewer heads of keys than of queries have no place between these.
    let alike = |width: u64| rows.iter().all(|own| *own == rows[0] && own.is_multiple_of(width));
    let fits = columns.iter().all(|own| *own == of_row) && width.is_none_or(alike);
    fits.then_some(Tensor { name, shape, may_be_longer, parts })
}
