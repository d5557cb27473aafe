//! Defines the numbers of documents that are packed into one sequence, by a token that ends each of them.

use super::*;

/// The number of a position's document: how many tokens before it are the separator, which belongs to the document that it ends,
/// modulo 256, which bf16 stores exactly. Attention that takes it as fourth input lets no position see another document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Documents {
    /// The token that ends a document.
    pub separator: u32,
}

pub(super) const KIND: LayerKind = LayerKind {
    reads_integers: true,
    keys: &["separator"],
    ..LayerKind::new("documents", |of| {
        let example = "the token that ends a document, e.g. separator = 50256";
        let separator = of.size("separator")?.ok_or_else(|| of.missing("separator", example))?;
        Ok(Layer::Documents(Documents { separator }))
    })
};

impl LayerRule for Documents {
    /// A position needs all tokens before it.
    fn signature(&self, inputs: &[Shape]) -> Result<Signature, String> {
        if inputs[0].dimensions().iter().any(|(dimension, _)| *dimension != Dimension::Position) {
            return Err(format!("takes a token at each position, and its input is {}: give it tokens", inputs[0]));
        }
        let mut of = Signature::elementwise(inputs, inputs[0]).with_whole(&[Dimension::Position]);
        let one = of.index(1, IndexUse::Whole);
        of.output.push((one, Dimension::Feature));
        Ok(of)
    }

    fn settings(&self) -> String {
        format!(", separator = {}", self.separator)
    }
}
