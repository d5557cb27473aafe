//! Lists image folders: a folder for each class, classes numbered in the order of the folders' names.

use std::io;
use std::path::Path;

use super::{Item, Piece};

/// The names in a folder, sorted, without hidden ones.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else {
            let message = format!("the name {name:?} is not UTF-8: rename the file");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        if !name.starts_with('.') {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The files in those of `classes` that are folders, with the number of these folders.
pub(super) fn list(folder: &Path, classes: &[String]) -> io::Result<(Vec<Item>, u32)> {
    let (mut items, mut label) = (Vec::new(), 0);
    for class in classes.iter().map(|name| folder.join(name)).filter(|path| path.is_dir()) {
        for name in names(&class)? {
            items.push(Item { name: String::new(), label, piece: Piece::File(class.join(name)) });
        }
        label += 1;
    }
    Ok((items, label))
}
