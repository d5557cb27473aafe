//! `Foreign`: a file of another training framework that an experiment names.

use std::path::Path;

use lockstep_flags::{Read, read_file};
use lockstep_topology::document::Entry;
use lockstep_topology::{ErrorPlace, InputError};

/// A file of another framework.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    /// Its path.
    pub(crate) file: String,
    /// Whether what is not understood is left out.
    ignore: bool,
    /// What it says, once it has been read.
    pub(crate) read: Read,
    /// Where the experiment names it.
    pub(crate) place: ErrorPlace,
}

impl Foreign {
    /// The file under the key `from`: its path, or a table with it and whether to leave out what is not understood.
    pub(crate) fn of(entry: &Entry<'_>) -> Result<Foreign, InputError> {
        let (file, ignore) = match entry.text() {
            Ok(file) => (file.to_owned(), false),
            Err(_) if entry.as_table().is_none() => {
                return Err(entry.error("must be the path of a file, or { file = \"train.yml\", ignore = true }"));
            }
            Err(_) => {
                let table = entry.section("from", &["file", "ignore"])?;
                let file = table.need("file", "\"train.toml\"")?.text()?.to_owned();
                (file, table.get("ignore").map_or(Ok(false), |ignore| ignore.boolean())?)
            }
        };
        Ok(Foreign { file, ignore, read: Read::default(), place: entry.place() })
    }

    /// The same, read; the flag says that the model is named elsewhere.
    pub(crate) fn opened(self, has_model: bool) -> Result<Foreign, InputError> {
        let read = read_file(Path::new(&self.file), has_model)?.for_predictions();
        if !self.ignore {
            read.check(&self.file, "write from = { file = …, ignore = true }")?;
        }
        Ok(Foreign { read, ..self })
    }

    /// What of it is taken and what not, a line each.
    pub(crate) fn account(&self) -> Vec<String> {
        let Foreign { file, read, .. } = self;
        let flags: Vec<String> =
            read.flags.iter().map(|(flag, value)| format!("{flag} {value}").trim_end().to_owned()).collect();
        let first = format!("{file} ({}) stands for {}, where nothing else sets them", read.source, flags.join(", "));
        std::iter::once(first).chain(read.notes().map(|note| format!("{file}: {note}"))).collect()
    }
}
