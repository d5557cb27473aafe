//! Parses Protocol Buffers as text, the form of Caffe's files: fields, each a word, a text in quotes or a
//! message in braces.

use std::collections::BTreeSet;

use lockstep_topology::{ErrorPlace, InputError, LineIndex, nearest};

/// Deepest nesting of messages.
const MAX_DEPTH: u32 = 16;

/// Fields that may be given several times, each with a value of its own.
const REPEATED: &[&str] = &[
    "slice_point",
    "layer",
    "layers",
    "input",
    "input_dim",
    "input_shape",
    "bottom",
    "top",
    "include",
    "exclude",
    "param",
    "blobs_lr",
    "weight_decay",
    "propagate_down",
    "loss_weight",
    "dim",
    "shape",
    "kernel_size",
    "stride",
    "pad",
    "dilation",
    "coeff",
    "mean_value",
    "phase",
    "stage",
    "not_stage",
    "stepvalue",
    "test_net",
    "test_iter",
    "test_state",
    "test_net_param",
    "weights",
];

/// The file being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
    pub(super) lines: &'a LineIndex,
}

/// The fields between two braces, or of the whole file.
#[derive(Debug, Clone)]
pub(super) struct Message<'a> {
    source: Source<'a>,
    offset: usize,
    fields: Vec<Field<'a>>,
}

/// `name: value` or `name { … }`.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    source: Source<'a>,
    pub(super) name: &'a str,
    offset: usize,
    value: Value<'a>,
}

#[derive(Debug, Clone)]
enum Value<'a> {
    /// A number, a name of an enumeration, true or false.
    Word(&'a str),
    /// In quotes, without them.
    Text(&'a str),
    Message(Message<'a>),
}

impl<'a> Source<'a> {
    /// The whole file.
    pub(super) fn read(self) -> Result<Message<'a>, InputError> {
        Reader { source: self, at: 0 }.message(0, 0)
    }

    fn error(self, offset: usize, value: impl Into<String>, message: impl Into<String>) -> InputError {
        InputError::new(ErrorPlace::line(self.file, self.lines.line(offset)), value, message)
    }
}

impl<'a> Message<'a> {
    /// All fields in their order.
    pub(super) fn fields(&self) -> &[Field<'a>] {
        &self.fields
    }

    /// An error about the message, under the name `what`.
    pub(super) fn error(&self, what: impl Into<String>, message: impl Into<String>) -> InputError {
        self.source.error(self.offset, what, message)
    }

    /// File and line where it begins.
    pub(super) fn place(&self) -> ErrorPlace {
        self.error("", "").place
    }

    /// Refuses fields that are not among `known`, and fields that are given twice and counted once.
    pub(super) fn allow(&self, known: &[&[&'static str]]) -> Result<(), InputError> {
        let all = || known.iter().copied().flatten().copied();
        match self.fields.iter().find(|field| !all().any(|name| name == field.name)) {
            None => self.refuse_doubles(),
            Some(field) => {
                let near = nearest(field.name, all());
                let cure = match near.is_empty() {
                    true => "leave it out if the network means the same without it".to_owned(),
                    false => format!("did you mean {}?", near.join(" or ")),
                };
                Err(field.error(format!("this field is not supported: {cure}")))
            }
        }
    }

    /// Refuses fields that are given twice, unless they list values.
    fn refuse_doubles(&self) -> Result<(), InputError> {
        let mut given = BTreeSet::new();
        match self.fields.iter().find(|field| !given.insert(field.name) && !REPEATED.contains(&field.name)) {
            None => Ok(()),
            Some(field) => Err(field.error("this field is given twice: give it once")),
        }
    }

    /// All fields of that name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &Field<'a>> {
        self.fields.iter().filter(move |field| field.name == name)
    }

    /// The last field of that name, which is the one that counts.
    pub(super) fn get(&self, name: &str) -> Option<&Field<'a>> {
        self.all(name).last()
    }

    /// The text under `name`; empty without one.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, InputError> {
        self.get(name).map_or(Ok(""), Field::text)
    }

    /// A number under `name`, as exact as it is written.
    pub(super) fn double(&self, name: &str, without: f64) -> Result<f64, InputError> {
        self.get(name).map_or(Ok(without), Field::double)
    }

    /// The message under `name`; one without fields if there is none.
    pub(super) fn message(&self, name: &str) -> Result<Message<'a>, InputError> {
        let none = || Message { source: self.source, offset: self.offset, fields: Vec::new() };
        self.get(name).map_or_else(|| Ok(none()), |field| field.message().cloned())
    }

    /// A whole number from 0 to 2³² − 1 under `name`.
    pub(super) fn size(&self, name: &str, without: u32) -> Result<u32, InputError> {
        self.get(name).map_or(Ok(without), Field::size)
    }

    /// A number under `name`.
    pub(super) fn number(&self, name: &str, without: f32) -> Result<f32, InputError> {
        self.get(name).map_or(Ok(without), Field::number)
    }

    /// true or false under `name`.
    pub(super) fn boolean(&self, name: &str, without: bool) -> Result<bool, InputError> {
        self.get(name).map_or(Ok(without), Field::boolean)
    }

    /// The name of an enumeration's value under `name`.
    pub(super) fn word(&self, name: &str, without: &'a str) -> Result<&'a str, InputError> {
        self.get(name).map_or(Ok(without), Field::word)
    }
}

impl<'a> Field<'a> {
    /// An error about the field.
    pub(super) fn error(&self, message: impl Into<String>) -> InputError {
        let shown = match &self.value {
            Value::Word(word) => format!("{}: {word}", self.name),
            Value::Text(text) => format!("{}: \"{text}\"", self.name),
            Value::Message(_) => self.name.to_owned(),
        };
        self.source.error(self.offset, shown, message)
    }

    pub(super) fn message(&self) -> Result<&Message<'a>, InputError> {
        match &self.value {
            Value::Message(message) => Ok(message),
            _ => Err(self.error("must be a message in braces")),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, InputError> {
        match self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.error("must be a text in quotes")),
        }
    }

    pub(super) fn word(&self) -> Result<&'a str, InputError> {
        match self.value {
            Value::Word(word) => Ok(word),
            _ => Err(self.error("must be a word")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, InputError> {
        match self.value {
            Value::Word("true" | "1") => Ok(true),
            Value::Word("false" | "0") => Ok(false),
            _ => Err(self.error("must be true or false")),
        }
    }

    /// Its word, or the text in its quotes.
    pub(super) fn name_of_type(&self) -> Result<&'a str, InputError> {
        self.word().or_else(|_| self.text()).map_err(|_| self.error("must be a name"))
    }

    pub(super) fn size(&self) -> Result<u32, InputError> {
        let size = self.word().ok().and_then(|word| word.parse().ok());
        size.ok_or_else(|| self.error(format!("must be a whole number from 0 to {}", u32::MAX)))
    }

    pub(super) fn double(&self) -> Result<f64, InputError> {
        let number = self.word().ok().and_then(|word| word.trim_end_matches(['f', 'F']).parse().ok());
        number.filter(|number: &f64| number.is_finite()).ok_or_else(|| self.error("must be a number"))
    }

    /// File and line where it begins.
    pub(super) fn place(&self) -> ErrorPlace {
        self.error("").place
    }

    pub(super) fn number(&self) -> Result<f32, InputError> {
        let number = self.word().ok().and_then(|word| word.trim_end_matches(['f', 'F']).parse().ok());
        number.filter(|number: &f32| number.is_finite()).ok_or_else(|| self.error("must be a number"))
    }
}

/// A position in the text.
struct Reader<'a> {
    source: Source<'a>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The fields up to the closing brace, or to the end at depth 0.
    fn message(&mut self, offset: usize, depth: u32) -> Result<Message<'a>, InputError> {
        let mut fields = Vec::new();
        loop {
            self.skip(",;");
            let (offset_of_field, name) = (self.at, self.token());
            match name {
                "" if depth > 0 => return Err(self.source.error(offset, "{", "is never closed: add a brace")),
                "}" if depth == 0 => return Err(self.wrong(offset_of_field, "closes nothing: remove it")),
                "" | "}" => return Ok(Message { source: self.source, offset, fields }),
                _ if !is_name(name) => return Err(self.wrong(offset_of_field, "a field must begin with its name")),
                _ => self.field(name, offset_of_field, depth, &mut fields)?,
            }
        }
    }

    /// One field, or one for each item of a list in brackets.
    fn field(
        &mut self,
        name: &'a str,
        offset: usize,
        depth: u32,
        fields: &mut Vec<Field<'a>>,
    ) -> Result<(), InputError> {
        let mut push = |value| fields.push(Field { source: self.source, name, offset, value });
        let mut reader = Reader { source: self.source, at: self.at };
        let colon = reader.peek() == ":";
        if colon {
            reader.token();
        }
        if reader.peek() == "[" {
            reader.token();
            while reader.peek() != "]" {
                push(reader.value(colon, offset, depth)?);
                reader.skip(",");
            }
            reader.token();
        } else {
            push(reader.value(colon, offset, depth)?);
        }
        self.at = reader.at;
        Ok(())
    }

    fn value(&mut self, colon: bool, offset: usize, depth: u32) -> Result<Value<'a>, InputError> {
        self.skip("");
        let (start, token) = (self.at, self.token());
        match token {
            "{" | "<" if depth >= MAX_DEPTH => {
                Err(self.wrong(start, format!("messages lie deeper than {MAX_DEPTH} in each other")))
            }
            "{" => Ok(Value::Message(self.message(start, depth + 1)?)),
            _ if !colon => Err(self.wrong(offset, "a colon and a value, or a message in braces, must follow")),
            _ if token.starts_with(['"', '\'']) => match token.get(1..token.len().max(2) - 1) {
                Some(inner) if token.len() > 1 && token.ends_with(&token[..1]) => Ok(Value::Text(inner)),
                _ => Err(self.source.error(start, "", "a quote is never closed: add one")),
            },
            _ if token.starts_with(|letter: char| letter.is_ascii_alphanumeric() || "+-._".contains(letter)) => {
                Ok(Value::Word(token))
            }
            _ => Err(self.wrong(start, "is not a value")),
        }
    }

    fn wrong(&self, offset: usize, message: impl Into<String>) -> InputError {
        let token = Reader { source: self.source, at: offset }.token();
        self.source.error(offset, token.chars().take(40).collect::<String>(), message)
    }

    fn peek(&self) -> &'a str {
        Reader { source: self.source, at: self.at }.token()
    }

    /// Skips blanks, comments and any of `also`.
    fn skip(&mut self, also: &str) {
        let rest = |at: usize| &self.source.text[at..];
        while let Some(letter) = rest(self.at).chars().next() {
            match letter {
                '#' => self.at += rest(self.at).find('\n').unwrap_or(rest(self.at).len()),
                _ if letter.is_whitespace() || also.contains(letter) => self.at += letter.len_utf8(),
                _ => break,
            }
        }
    }

    /// The next token, empty at the end: a text with its quotes (to the end of the line if it has no second one), a run
    /// of letters, digits and signs, or any other character.
    fn token(&mut self) -> &'a str {
        self.skip("");
        let rest = &self.source.text[self.at..];
        let in_word = |letter: char| letter.is_alphanumeric() || "+-._/".contains(letter);
        let length = match rest.chars().next() {
            None => 0,
            Some(quote @ ('"' | '\'')) => {
                let line = rest.find('\n').unwrap_or(rest.len());
                rest[1..line].find(quote).map_or(line, |end| end + 2)
            }
            Some(letter) if in_word(letter) => rest.find(|letter| !in_word(letter)).unwrap_or(rest.len()),
            Some(letter) => letter.len_utf8(),
        };
        self.at += length;
        &rest[..length]
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
}
