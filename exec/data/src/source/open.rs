//! Opens a set: finds out its format, and lists its samples.

use std::path::{Path, PathBuf};

use lockstep_topology::InputError;

use super::{Content, Item, Kind, Piece, SampleEntry, SetPart, Source, cifar, folder, lmdb, shards};
use crate::{datum, idx, packed};

impl Source {
    /// Opens the set at `path`: a folder of class folders with JPEG or PNG files, a tar shard or a folder of them, a folder
    /// of IDX files, of CIFAR's binaries, or with Caffe's `data.mdb`. Folders `train` and `val` within it are its parts.
    ///
    /// # Errors
    /// A path that is none of these, or files that cannot be listed.
    pub fn open(path: &Path, part: SetPart) -> Result<Source, InputError> {
        let place = path.display().to_string();
        let error = |message: String| InputError::new(&place, "", message);
        if path.is_file() {
            return match path.extension().is_some_and(|extension| extension == "tar") {
                true => Source::of_shards(place, vec![path.to_owned()]),
                false => Err(error("is not a tar shard (.tar); give one unpacked, or a folder".to_owned())),
            };
        }
        let names = folder::names(path).map_err(|failure| error(format!("cannot be listed: {failure}")))?;
        if let Some((within, note)) = folder::of_part(path, &names, part).map_err(error)? {
            let mut source = Source::of_folder(&within, part)?;
            source.notes.insert(0, note);
            return Ok(Source { has_parts: true, ..source });
        }
        Source::of_folder(path, part)
    }

    fn of_folder(path: &Path, part: SetPart) -> Result<Source, InputError> {
        let place = path.display().to_string();
        let error = |message: String| InputError::new(&place, "", message);
        let names = folder::names(path).map_err(|failure| error(format!("cannot be listed: {failure}")))?;
        let ending = |ending: &str| -> Vec<PathBuf> {
            names.iter().filter(|name| name.ends_with(ending)).map(|name| path.join(name)).collect()
        };
        if names.iter().any(|name| name.contains("-idx") || name.contains(".idx")) {
            Source::of_idx(place, path, part)
        } else if names.iter().any(|name| name == "data.mdb") {
            Source::of_lmdb(place, path.join("data.mdb"))
        } else if !ending(".bin").is_empty() {
            Source::of_cifar(place, path, &names, part)
        } else if !ending(".tar").is_empty() {
            Source::of_shards(place, ending(".tar"))
        } else {
            Source::of_classes(path, &names, &place)
        }
    }

    /// A folder of class folders.
    fn of_classes(path: &Path, names: &[String], place: &str) -> Result<Source, InputError> {
        let error = |message: String| InputError::new(place, "", message);
        let unlisted = |failure: std::io::Error| error(format!("cannot be listed: {failure}"));
        // A folder that only holds one other, which holds folders, is a step on the way.
        if let [only] = names
            && let within = path.join(only)
            && within.is_dir()
        {
            let below = folder::names(&within).map_err(unlisted)?;
            if !below.is_empty() && below.iter().all(|name| within.join(name).is_dir()) {
                let mut source = Source::of_classes(&within, &below, &within.display().to_string())?;
                source.notes.push(format!("the classes are the folders in {}", within.display()));
                return Ok(source);
            }
        }
        let listing = folder::list(path, names).map_err(unlisted)?;
        if listing.items.is_empty() {
            let cure = if listing.unlabelled > 0 {
                "has images that are in no class folder: put each into a folder of its class"
            } else {
                "has no samples: give a folder of class folders with JPEG or PNG files, tar shards (.tar, not compressed), IDX \
                 files, CIFAR's binaries (.bin) or Caffe's data.mdb"
            };
            return Err(error(cure.to_owned()));
        }
        let mut notes = Vec::new();
        if listing.others > 0 {
            notes.push(format!("left out: {} files that are no images by their endings", listing.others));
        }
        if listing.unlabelled > 0 {
            notes.push(format!("left out: {} files in no class folder", listing.unlabelled));
        }
        Ok(Source {
            place: place.to_owned(),
            kind: Kind::Jpeg,
            contents: Vec::new(),
            items: listing.items,
            classes: Some(listing.classes),
            has_parts: false,
            notes,
        })
    }

    /// Converts a content's list of samples to items.
    fn range(content: usize, found: Vec<SampleEntry>) -> impl Iterator<Item = Item> {
        found.into_iter().map(move |found| Item {
            name: found.name,
            label: found.label,
            piece: found.place.map_or_else(Piece::Bad, |(offset, length)| Piece::Range { content, offset, length }),
        })
    }

    fn of_shards(place: String, paths: Vec<PathBuf>) -> Result<Source, InputError> {
        let (mut contents, mut items, mut several) = (Vec::new(), Vec::new(), 0);
        for path in paths {
            let map = packed::map(&path)?;
            items.extend(Source::range(contents.len(), shards::list(&map)));
            several += shards::with_several_images(&map);
            contents.push((path, Content::Mapped(map)));
        }
        if items.is_empty() {
            let message =
                "has no samples: a shard has images (.jpg, .png) with their classes (.cls, or .json with a label)";
            return Err(InputError::new(place, "", message));
        }
        let of_several = "samples have several images: the one with the label's name is packed, else the first";
        let notes = (several > 0).then(|| format!("{several} {of_several}")).into_iter().collect();
        Ok(Source { place, kind: Kind::Jpeg, contents, items, classes: None, has_parts: false, notes })
    }

    fn of_idx(place: String, path: &Path, part: SetPart) -> Result<Source, InputError> {
        let prefix = if part == SetPart::Train { "train" } else { "t10k" };
        let set = idx::part(path, prefix)?;
        let length = set.shape.elements();
        let item = |(number, label): (u64, &u32)| Item {
            name: String::new(),
            label: *label,
            piece: Piece::Range { content: 0, offset: number * length, length },
        };
        let items = (0..).zip(&set.labels).map(item).collect();
        let contents = vec![(PathBuf::from(set.place), Content::Owned(set.images))];
        let kind = Kind::Raw(set.shape);
        Ok(Source { place, kind, contents, items, classes: None, has_parts: true, notes: Vec::new() })
    }

    fn of_cifar(place: String, path: &Path, names: &[String], part: SetPart) -> Result<Source, InputError> {
        let files = cifar::files(names, part);
        let (mut contents, mut items, mut classes) = (Vec::new(), Vec::new(), None);
        for (name, form) in files {
            let path = path.join(name);
            let map = packed::map(&path)?;
            items.extend(Source::range(contents.len(), cifar::list(&map, form)));
            contents.push((path, Content::Mapped(map)));
            classes = Some(form.classes());
        }
        let kind = Kind::Raw(cifar::SHAPE);
        Ok(Source { place, kind, contents, items, classes, has_parts: true, notes: Vec::new() })
    }

    fn of_lmdb(place: String, path: PathBuf) -> Result<Source, InputError> {
        let map = packed::map(&path)?;
        let found = lmdb::list(&map).map_err(|message| InputError::new(path.display().to_string(), "", message))?;
        let items: Vec<Item> = Source::range(0, found).collect();
        let mut source = Source {
            place,
            kind: Kind::Datum(None),
            contents: vec![(path, Content::Mapped(map))],
            items,
            classes: None,
            has_parts: false,
            notes: Vec::new(),
        };
        if source.items.is_empty() {
            return Err(InputError::new(source.place, "", "has no samples: its data.mdb is empty"));
        }
        // All samples must be like the first readable one.
        let shape = (0..source.len()).find_map(|number| source.bytes(number).ok().and_then(|b| datum::read(&b).ok()));
        source.kind = Kind::Datum(shape.and_then(|sample| sample.shape));
        Ok(source)
    }
}
