//! Lists tar shards as written by WebDataset: a sample is an image with the label whose name differs in its ending.

use std::collections::{HashMap, HashSet};
use std::io::{Cursor, Read};

use tar::{Archive, EntryType};

use super::SampleEntry;

/// Most bytes of a label's file.
const MOST_LABEL: u64 = 20;
/// Most bytes of a JSON file with a label.
const MOST_JSON: u64 = 1 << 20;

/// Bytes of a block, to which members are rounded up.
const BLOCK: u64 = 512;

/// Endings of images, read or refused by their content.
pub(super) const IMAGES: [&str; 12] =
    ["jpg", "jpeg", "jpe", "png", "webp", "avif", "gif", "bmp", "tif", "tiff", "ppm", "jp2"];
/// Endings of labels; the first of a sample that is there counts.
const LABELS: [&str; 7] = ["cls", "label", "lbl", "class", "target", "json", "txt"];
/// Keys of a label in a JSON file.
const KEYS: [&str; 7] = ["label", "cls", "class", "target", "class_id", "label_id", "fine_label"];

/// A member of a shard.
struct Member {
    /// Its path without the ending.
    stem: String,
    ending: String,
    place: (u64, u64),
    /// What a label says.
    label: Option<Result<u32, String>>,
}

/// The samples of a shard; if it is truncated or broken, the last one reports it.
pub fn list(bytes: &[u8]) -> Vec<SampleEntry> {
    let mut members = Vec::new();
    let broken = read(bytes, &mut members).err();
    let last = members.last().map_or_else(String::new, |member| member.stem.clone());
    // The sample that was being read may lack members.
    if broken.is_some() {
        members.retain(|member| member.stem != last);
    }
    let mut found = samples(&members);
    if let Some(reason) = broken {
        found.push(SampleEntry::bad("the rest", format!("cannot be read after {last:?}: {reason}")));
    }
    found
}

/// Joins images and labels, in the order of the images.
fn samples(members: &[Member]) -> Vec<SampleEntry> {
    let is_image = |member: &&Member| IMAGES.contains(&&*member.ending);
    let mut labels = HashMap::<&str, &Member>::new();
    for member in members.iter().filter(|member| member.label.is_some()) {
        let rank = |member: &Member| LABELS.iter().position(|ending| *ending == member.ending);
        let own = labels.entry(&member.stem).or_insert(member);
        if rank(member) < rank(own) {
            *own = member;
        }
    }
    let (mut found, mut used) = (Vec::new(), HashMap::<&str, usize>::new());
    for image in members.iter().filter(is_image) {
        let Some(label) = stems(&image.stem).find_map(|stem| labels.get(stem)) else {
            let reason = "has an image and no .cls, .json or .txt with a class: its label is missing";
            found.push(SampleEntry::bad(image.stem.clone(), reason));
            continue;
        };
        let entry = match &label.label {
            Some(Err(reason)) => SampleEntry::bad(label.stem.clone(), reason.clone()),
            Some(Ok(class)) => SampleEntry { name: label.stem.clone(), label: *class, place: Ok(image.place) },
            None => continue,
        };
        // Of several images, the one with the label's own name, else the first.
        match used.get(&*label.stem) {
            Some(at) if image.stem == label.stem && found[*at].place.is_ok() => found[*at] = entry,
            Some(_) => {}
            None => {
                used.insert(&label.stem, found.len());
                found.push(entry);
            }
        }
    }
    let alone = members.iter().filter(|member| {
        let own = labels.get(&*member.stem).is_some_and(|label| std::ptr::eq(*label, *member));
        own && member.ending == "cls" && !used.contains_key(&*member.stem)
    });
    let reason = "has a .cls and no .jpg or .png: its image is missing";
    found.extend(alone.map(|label| SampleEntry::bad(label.stem.clone(), reason)));
    found
}

/// Samples of a shard in which more than one image has the same label.
pub(super) fn with_several_images(bytes: &[u8]) -> usize {
    let mut members = Vec::new();
    let _ = read(bytes, &mut members);
    let labels: HashSet<&str> = members.iter().filter(|m| m.label.is_some()).map(|m| &*m.stem).collect();
    let mut counts = HashMap::<&str, u32>::new();
    for image in members.iter().filter(|member| IMAGES.contains(&&*member.ending)) {
        if let Some(label) = stems(&image.stem).find(|stem| labels.contains(stem)) {
            *counts.entry(label).or_default() += 1;
        }
    }
    counts.values().filter(|count| **count > 1).count()
}

/// A name, and the names of which it is a part: `x/a.b`, `x/a`.
fn stems(stem: &str) -> impl Iterator<Item = &str> {
    let name = stem.rfind('/').map_or(0, |slash| slash + 1);
    std::iter::successors(Some(stem), move |stem| stem[name..].rfind('.').map(|dot| &stem[..name + dot]))
}

fn read(bytes: &[u8], members: &mut Vec<Member>) -> Result<(), String> {
    let as_text = |error: std::io::Error| error.to_string();
    let mut after = 0;
    let mut names = HashSet::new();
    let mut archive = Archive::new(Cursor::new(bytes));
    for member in archive.entries_with_seek().map_err(as_text)? {
        let mut member = member.map_err(as_text)?;
        after = member
            .raw_file_position()
            .checked_add(member.size())
            .and_then(|end| end.checked_next_multiple_of(BLOCK))
            .unwrap_or(u64::MAX);
        if !matches!(member.header().entry_type(), EntryType::Regular | EntryType::Continuous) {
            continue;
        }
        let path = String::from_utf8_lossy(&member.path_bytes()).into_owned();
        let name = path.rfind('/').map_or(0, |slash| slash + 1);
        let Some(dot) = path[name..].rfind('.').map(|dot| name + dot).filter(|dot| *dot > name) else { continue };
        let (offset, length) = (member.raw_file_position(), member.size());
        let (stem, ending) = (path[..dot].to_owned(), path[dot + 1..].to_ascii_lowercase());
        let (is_label, is_image) = (LABELS.contains(&&*ending), IMAGES.contains(&&*ending));
        if offset.checked_add(length).is_none_or(|end| end > bytes.len() as u64) {
            members.push(Member { stem, ending, place: (offset, 0), label: None });
            return Err(format!("{path} claims {length} bytes, which the shard does not have: it is truncated"));
        }
        if (is_label || is_image) && !names.insert(path.clone()) {
            return Err(format!("{path} appears twice"));
        }
        let label = if is_label { label(&ending, &mut member, length) } else { None };
        if is_image || is_label {
            members.push(Member { stem, ending, place: (offset, length), label });
        }
    }
    let end = usize::try_from(after).ok().and_then(|after| bytes.get(after..)?.get(..BLOCK as usize));
    match end {
        Some(end) if end.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err("it has no end (a block of zeros), so it is truncated".to_owned()),
    }
}

/// What a label's file says; `None` for a text or JSON file that states no class.
fn label(ending: &str, member: &mut impl Read, length: u64) -> Option<Result<u32, String>> {
    let most = if ending == "json" { MOST_JSON } else { MOST_LABEL };
    let mut text = String::new();
    let read = Read::take(member, most + 1).read_to_string(&mut text);
    let is_whole = read.is_ok() && length <= most;
    if ending == "json" {
        let value: serde_json::Value = serde_json::from_str(&text).ok().filter(|_| is_whole)?;
        let stated = if value.is_object() { KEYS.iter().find_map(|key| value.get(key)) } else { Some(&value) };
        let number = |value: &serde_json::Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        return stated.map(|value| {
            number(value).ok_or_else(|| format!("its label {value} must be a whole number from 0: number the classes"))
        });
    }
    let label = text.trim().parse().ok().filter(|_| is_whole);
    match (ending, label) {
        (_, Some(label)) => Some(Ok(label)),
        // A caption.
        ("txt", None) => None,
        (_, None) => Some(Err(format!("its label {text:?} must be a whole number from 0: number the classes"))),
    }
}
