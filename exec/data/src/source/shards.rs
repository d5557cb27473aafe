//! Lists tar shards as written by WebDataset: members whose names differ only after the first dot are one sample,
//! `.jpg` with its `.cls`.

use std::io::{Cursor, Read};

use tar::{Archive, EntryType};

use super::SampleEntry;

/// Most bytes of a label's file.
const MOST_LABEL: u64 = 20;

/// Bytes of a block, to which members are rounded up.
const BLOCK: u64 = 512;

/// The sample whose members are being read.
#[derive(Default)]
struct Open {
    key: String,
    image: Option<(u64, u64)>,
    label: Option<Result<u32, String>>,
}

impl Open {
    /// Adds the completed sample.
    fn close(self, found: &mut Vec<SampleEntry>) {
        found.push(match (self.image, self.label) {
            (None, None) => return,
            (Some(place), Some(Ok(label))) => SampleEntry { name: self.key, label, place: Ok(place) },
            (_, Some(Err(reason))) => SampleEntry::bad(self.key, reason),
            (Some(_), None) => SampleEntry::bad(self.key, "has an image and no .cls: its label is missing"),
            (None, Some(_)) => SampleEntry::bad(self.key, "has a .cls and no .jpg: its image is missing"),
        });
    }
}

/// The samples of a shard; if it is truncated or broken, the last one reports it.
pub fn list(bytes: &[u8]) -> Vec<SampleEntry> {
    let mut found = Vec::new();
    let mut open = Open::default();
    if let Err(reason) = members(bytes, &mut open, &mut found) {
        let last = std::mem::take(&mut open.key);
        found.push(SampleEntry::bad("the rest", format!("cannot be read after {last:?}: {reason}")));
        return found;
    }
    open.close(&mut found);
    found
}

fn members(bytes: &[u8], open: &mut Open, found: &mut Vec<SampleEntry>) -> Result<(), String> {
    let as_text = |error: std::io::Error| error.to_string();
    let mut after = 0;
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
        let Some(dot) = path[name..].find('.').map(|dot| name + dot).filter(|dot| *dot > name) else { continue };
        let (key, ending) = (&path[..dot], &path[dot + 1..]);
        let (offset, length) = (member.raw_file_position(), member.size());
        let end = offset.checked_add(length);
        if end.is_none_or(|end| end > bytes.len() as u64) {
            return Err(format!("{path} claims {length} bytes, which the shard does not have: it is truncated"));
        }
        if key != open.key {
            std::mem::replace(open, Open { key: key.to_owned(), ..Open::default() }).close(found);
        }
        match ending.to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" if open.image.is_some() => return Err(format!("{path} appears twice")),
            "jpg" | "jpeg" => open.image = Some((offset, length)),
            "cls" if open.label.is_some() => return Err(format!("{path} appears twice")),
            "cls" => {
                let mut text = String::new();
                let read = Read::take(&mut member, MOST_LABEL + 1).read_to_string(&mut text);
                let label = text.trim().parse().ok().filter(|_| read.is_ok() && length <= MOST_LABEL);
                open.label = Some(label.ok_or_else(|| format!("its label {text:?} must be a whole number from 0")));
            }
            _ => {}
        }
    }
    let end = usize::try_from(after).ok().and_then(|after| bytes.get(after..)?.get(..BLOCK as usize));
    match end {
        Some(end) if end.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err("it has no end (a block of zeros), so it is truncated".to_owned()),
    }
}
