//! Lists image folders: a folder for each class, classes numbered in the order of the folders' names.

use std::io;
use std::path::{Path, PathBuf};

use lockstep_topology::ErrorPlace;

use super::{Item, Piece, SetPart};

/// Most folders within each other.
const MOST_DEPTH: u32 = 16;

/// Names of folders with the part to train on, and of those with what is held out; the first that exists counts.
const PARTS: [(SetPart, &[&str]); 2] = [
    (SetPart::Train, &["train", "training", "trainset", "train_set"]),
    (SetPart::HeldOut, &["val", "valid", "validation", "test", "testing", "eval", "dev", "valset", "test_set"]),
];

/// Endings of files beside images that are no images.
const OTHERS: [&str; 17] = [
    "txt", "md", "json", "jsonl", "xml", "csv", "tsv", "yaml", "yml", "html", "db", "ini", "pkl", "mat", "npy", "npz",
    "py",
];

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

/// The folder of `part` in one that has parts, with a note; `None` where it has none. A part holds folders or shards: a
/// folder of that name with images is a class.
pub(super) fn of_part(folder: &Path, all: &[String], part: SetPart) -> Result<Option<(PathBuf, String)>, String> {
    let is_part = |name: &&String| {
        let within = folder.join(name.as_str());
        let below = if within.is_dir() { names(&within).unwrap_or_default() } else { Vec::new() };
        below.iter().any(|name| within.join(name).is_dir() || name.ends_with(".tar"))
            && !below.iter().any(|name| is_image(&within.join(name)))
    };
    let find = |part: SetPart| {
        let known = PARTS.iter().find(|(own, _)| *own == part).map_or(&[][..], |(_, names)| names);
        let of = |known: &&str| all.iter().filter(|name| name.to_ascii_lowercase() == **known).find(is_part);
        known.iter().find_map(of)
    };
    let (train, held_out) = (find(SetPart::Train), find(SetPart::HeldOut));
    match (part, train, held_out) {
        (_, None, None) => Ok(None),
        // A class may be called test; two parts are no accident.
        (SetPart::Train, None, Some(_)) => Ok(None),
        (SetPart::Train, Some(found), other) => {
            let other = other
                .map_or_else(String::new, |other| format!("; {} held-out packs {other}", ErrorPlace::Flag("part")));
            Ok(Some((folder.join(found), format!("packed: the folder {found}{other}"))))
        }
        (SetPart::HeldOut, _, Some(found)) => Ok(Some((folder.join(found), format!("packed: the folder {found}")))),
        (SetPart::HeldOut, Some(train), None) => {
            Err(format!("has {train} and no folder val or test: name the folder with the classes that are held out"))
        }
    }
}

/// What a folder of classes holds.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) items: Vec<Item>,
    pub(super) classes: u32,
    /// Files that are no images.
    pub(super) others: usize,
    /// Images that are in no class.
    pub(super) unlabelled: usize,
}

/// The images in those of `names` that are folders, at any depth: the class is the first folder.
pub(super) fn list(folder: &Path, classes: &[String]) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for path in classes.iter().map(|name| folder.join(name)) {
        if path.is_dir() {
            let before = listing.items.len();
            images(&path, 0, &mut listing)?;
            // A folder without images is no class unless it is empty.
            listing.classes += u32::from(listing.items.len() > before || names(&path)?.is_empty());
        } else {
            listing.unlabelled += usize::from(!is_other(&path));
        }
    }
    Ok(listing)
}

/// Adds the images in a class's folder and the folders within.
fn images(folder: &Path, depth: u32, listing: &mut Listing) -> io::Result<()> {
    if depth > MOST_DEPTH {
        let message = format!("{} is more than {MOST_DEPTH} folders deep: a link leads back", folder.display());
        return Err(io::Error::other(message));
    }
    for name in names(folder)? {
        let path = folder.join(name);
        if path.is_dir() {
            images(&path, depth + 1, listing)?;
        } else if is_other(&path) {
            listing.others += 1;
        } else {
            listing.items.push(Item { name: String::new(), label: listing.classes, piece: Piece::File(path) });
        }
    }
    Ok(())
}

/// Whether the file's ending says that it is an image.
fn is_image(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
    super::shards::IMAGES.contains(&ending.as_str())
}

/// Whether the file's ending says that it is no image.
fn is_other(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("").to_ascii_lowercase();
    OTHERS.contains(&ending.as_str())
}
