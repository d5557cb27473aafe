//! `Element`: reads the children and attributes of an element of an XML file, with its line for errors.

use std::ops::RangeInclusive;

use lockstep_topology::document::SourceText;
use lockstep_topology::{ErrorPlace, InputError};
use roxmltree::{Document, Node, ParsingOptions};

/// An element with the file that it is in.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    pub(super) node: Node<'a, 'a>,
}

/// The file's tree.
pub(super) fn parse<'a>(file: &str, text: &'a str) -> Result<Document<'a>, InputError> {
    // A node of the largest machines is a few hundred; a document type is not allowed.
    let options = ParsingOptions { nodes_limit: 100_000, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| {
        let message = format!("not XML: {error}; dump it again if it was cut");
        InputError::new(ErrorPlace::line(file, error.pos().row as usize), "", message)
    })
}

impl<'a> Element<'a> {
    /// Its tag.
    pub(super) fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    /// The elements in it.
    pub(super) fn children(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        let (file, text) = (self.file, self.text);
        self.node.children().filter(|node| node.is_element()).map(move |node| Element { file, text, node })
    }

    pub(super) fn attribute(&self, key: &str) -> Option<&'a str> {
        self.node.attribute(key)
    }

    /// The whole number of an attribute, if it is there.
    pub(super) fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
        let Some(text) = self.attribute(key) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let message = format!("must be a whole number from {} to {}", range.start(), range.end());
                Err(self.error_in(key, message))
            }
        }
    }

    /// Its line, from 1.
    pub(super) fn line(&self) -> u32 {
        self.node.document().text_pos_at(self.node.range().start).row
    }

    /// An error about the element.
    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        let source = SourceText { file: self.file, text: self.text };
        source.error(self.node.range(), message)
    }

    /// An error about one of its attributes.
    pub(super) fn error_in(&self, key: &str, message: impl Into<String>) -> InputError {
        let source = SourceText { file: self.file, text: self.text };
        match self.node.attribute_node(key) {
            Some(attribute) => source.error(attribute.range(), message),
            None => self.error(message),
        }
    }
}
