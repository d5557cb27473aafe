//! Reads LMDB's `data.mdb` (64-bit, little-endian, version 1): the values of its main database in the order of their keys.
//!
//! LMDB itself maps the file and trusts every page number in it, so a truncated file kills the process; here each is
//! checked. Source: the structures `MDB_meta`, `MDB_page` and `MDB_node` of LMDB's `mdb.c`.

use super::SampleEntry;

const MAGIC: u32 = 0xBEEF_C0DE;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
/// Flag of a value on overflow pages.
const BIG: u16 = 1;
/// Flags of a nested database, and of several values per key.
const NESTED: u16 = 6;
/// Bytes before a page's list of nodes, and before a value on overflow pages.
const HEADER: usize = 16;
/// The root of an empty database.
const NONE: u64 = u64::MAX;
/// The most levels of a tree, as in LMDB's cursors.
const MOST_DEPTH: u32 = 32;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// The fields of a meta page.
struct Meta {
    page: usize,
    entries: u64,
    root: u64,
    transaction: u64,
}

fn meta(bytes: &[u8], at: usize) -> Option<Meta> {
    let at = at.checked_add(HEADER)?;
    let known = u32_at(bytes, at)? == MAGIC && u32_at(bytes, at + 4)? == 1;
    let page = u32_at(bytes, at + 24)? as usize;
    let sound = known && page.is_power_of_two() && (256..=65536).contains(&page);
    sound.then_some(())?;
    let (entries, root) = (u64_at(bytes, at + 104)?, u64_at(bytes, at + 112)?);
    Some(Meta { page, entries, root, transaction: u64_at(bytes, at + 128)? })
}

/// Lists the values in the order of their keys; a value on missing pages is listed with the reason.
///
/// # Errors
/// Not an LMDB file, or an empty one.
pub fn list(bytes: &[u8]) -> Result<Vec<SampleEntry>, String> {
    let first = meta(bytes, 0).ok_or("is not an LMDB file of version 1 (64-bit, little-endian)")?;
    let second = meta(bytes, first.page).filter(|second| second.page == first.page);
    let newest = match second {
        Some(second) if second.transaction > first.transaction => second,
        _ => first,
    };
    if newest.root == NONE || newest.entries == 0 {
        return Err("is an empty database".to_owned());
    }
    let mut walk = Walk { bytes, page: newest.page, found: Vec::new(), left: bytes.len() / newest.page };
    walk.visit(newest.root, MOST_DEPTH);
    let (found, claimed) = (walk.found.len() as u64, newest.entries);
    if found != claimed && walk.found.iter().all(|found| found.place.is_ok()) {
        walk.found.push(SampleEntry::bad(
            "the rest",
            format!("{found} values found, {claimed} claimed: the file is damaged"),
        ));
    }
    Ok(walk.found)
}

/// A walk over the pages of a tree.
struct Walk<'a> {
    bytes: &'a [u8],
    /// Bytes per page.
    page: usize,
    found: Vec<SampleEntry>,
    /// Pages that may still be visited: in a valid tree each occurs once.
    left: usize,
}

impl Walk<'_> {
    /// Offset of a page, if the file contains it.
    fn start(&self, page: u64) -> Option<usize> {
        let start = usize::try_from(page).ok()?.checked_mul(self.page)?;
        (start.checked_add(self.page)? <= self.bytes.len()).then_some(start)
    }

    fn visit(&mut self, page: u64, depth: u32) {
        let visited = self.left.checked_sub(1).filter(|_| depth > 0).and_then(|left| {
            self.left = left;
            self.nodes(page, depth)
        });
        if visited.is_none() {
            let reason = "is not there or broken: the file is truncated or damaged".to_owned();
            self.found.push(SampleEntry::bad(format!("page {page}"), reason));
        }
    }

    /// Visits the nodes of a page; `None` if it is not a page of a tree.
    fn nodes(&mut self, page: u64, depth: u32) -> Option<()> {
        let start = self.start(page)?;
        let bytes = &self.bytes[start..start + self.page];
        let flags = u16_at(bytes, 10)?;
        let nodes = usize::from(u16_at(bytes, 12)?).checked_sub(HEADER)? / 2;
        for number in 0..nodes {
            let at = usize::from(u16_at(bytes, HEADER + 2 * number)?);
            let (low, high) = (u16_at(bytes, at)?, u16_at(bytes, at + 2)?);
            let (node, length) = (u16_at(bytes, at + 4)?, usize::from(u16_at(bytes, at + 6)?));
            let low = u64::from(low) | u64::from(high) << 16;
            match flags & (BRANCH | LEAF) {
                BRANCH => self.visit(low | u64::from(node) << 32, depth - 1),
                LEAF => {
                    let key = bytes.get(at + 8..at + 8 + length)?;
                    let place = self.value(start, at + 8 + length, node, low);
                    self.found.push(SampleEntry { name: String::from_utf8_lossy(key).into_owned(), label: 0, place });
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// The location of a leaf node's value: at `at` in the page that begins at `start`, or on overflow pages.
    fn value(&self, start: usize, at: usize, node: u16, length: u64) -> Result<(u64, u64), String> {
        if node & NESTED != 0 {
            return Err("is a database or several values of a key, which Caffe's sets do not have".to_owned());
        }
        let outside = || "its value lies outside the file, which is cut or damaged".to_owned();
        let begin = if node & BIG == 0 {
            let fits = (at as u64).checked_add(length).is_some_and(|end| end <= self.page as u64);
            fits.then_some(start + at)
        } else {
            let page = u64_at(&self.bytes[start..start + self.page], at).and_then(|page| self.start(page));
            page.filter(|page| u16_at(self.bytes, page + 10) == Some(OVERFLOW)).map(|page| page + HEADER)
        };
        let begin = begin.ok_or_else(outside)? as u64;
        match begin.checked_add(length) {
            Some(end) if end <= self.bytes.len() as u64 => Ok((begin, length)),
            _ => Err(outside()),
        }
    }
}
