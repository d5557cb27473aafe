//! Sends small blocking messages outside of exchanges: a value to and from another rank, and a barrier.
//!
//! A run uses them around its iterations (common start, clock ping-pong). They are built on post and wait alone.

use lockstep_topology::Rank;

use super::{Combine, Number, Region, RegionMut, Tag, Transport, TransportError};

/// First kind of control messages that this file uses itself; callers of [`send`], [`receive`] and [`swap`] use kinds
/// below it.
pub const FIRST_RESERVED_KIND: u32 = 64;

/// Kinds of the messages that carry the number of words of a list, and the list.
const LENGTH: u32 = 1;
const CONTENT: u32 = 2;

/// The halves of a value, the lower one first, as a message carries them.
pub(crate) fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The value of such a message.
pub(crate) fn value(words: &[u32]) -> u64 {
    u64::from(words[0]) | u64::from(words[1]) << 32
}

/// Polls until `done` returns true, sleeping between polls.
fn until(
    end: &mut dyn Transport,
    mut done: impl FnMut(&mut dyn Transport) -> Result<bool, TransportError>,
) -> Result<(), TransportError> {
    loop {
        end.poll()?;
        if done(end)? {
            return Ok(());
        }
        end.wait(None)?;
    }
}

/// Sends to one rank while receiving from another, either of them optional; returns the received message when both are
/// done.
fn pass<T: Number + Default>(
    end: &mut dyn Transport,
    outgoing: Option<(Rank, Vec<T>)>,
    incoming: Option<(Rank, usize)>,
    kind: u32,
) -> Result<Vec<T>, TransportError> {
    let (to, values) = outgoing.unzip();
    let (from, count) = incoming.unzip();
    let mine = Box::leak(values.unwrap_or_default().into_boxed_slice());
    let theirs = Box::leak(vec![T::default(); count.unwrap_or(0)].into_boxed_slice());
    // SAFETY: both are leaked here and freed below once the messages are done, never on an error.
    let (source, target) =
        unsafe { (Region::new(mine.as_ptr(), mine.len()), RegionMut::new(theirs.as_mut_ptr(), theirs.len())) };
    let tag = Tag::control(kind);
    let post = |from| end.post_recv(from, tag, target, Combine::Copy, RegionMut::empty());
    let received = from.map(post).transpose()?;
    let sent = to.map(|to| end.post_send(to, tag, source)).transpose()?;
    if let Some(id) = received {
        until(end, |end| end.recv_done(id))?;
    }
    if let Some(id) = sent {
        until(end, |end| end.send_done(id))?;
    }
    // SAFETY: the leaks from above, which no message uses any more.
    drop(unsafe { Box::from_raw(mine) });
    // SAFETY: as above.
    Ok(unsafe { Box::from_raw(theirs) }.into_vec())
}

/// Sends `value` to `to` and returns when it has been received.
///
/// # Errors
/// When the job has ended.
pub fn send(end: &mut dyn Transport, to: Rank, kind: u32, value: u64) -> Result<(), TransportError> {
    send_elements(end, to, kind, words(value).to_vec())
}

/// The next value of this kind from `from`.
///
/// # Errors
/// When the job has ended.
pub fn receive(end: &mut dyn Transport, from: Rank, kind: u32) -> Result<u64, TransportError> {
    receive_elements(end, from, kind, 2).map(|words: Vec<u32>| value(&words))
}

/// Sends a copy of `values` to `to` and returns when it has been received; the receiver must know their number.
///
/// # Errors
/// When the job has ended.
pub fn send_elements<T: Number + Default>(
    end: &mut dyn Transport,
    to: Rank,
    kind: u32,
    values: Vec<T>,
) -> Result<(), TransportError> {
    pass(end, Some((to, values)), None, kind).map(drop)
}

/// The next `count` elements of this kind from `from`.
///
/// # Errors
/// When the job has ended.
pub fn receive_elements<T: Number + Default>(
    end: &mut dyn Transport,
    from: Rank,
    kind: u32,
    count: usize,
) -> Result<Vec<T>, TransportError> {
    pass(end, None, Some((from, count)), kind)
}

/// Sends words, preceded by their number, to `to` and returns when they have been received.
pub(crate) fn send_words(end: &mut dyn Transport, to: Rank, list: &[u64]) -> Result<(), TransportError> {
    send(end, to, LENGTH, list.len() as u64)?;
    send_elements(end, to, CONTENT, list.iter().flat_map(|word| words(*word)).collect())
}

/// The next list of words from `from`.
pub(crate) fn receive_words(end: &mut dyn Transport, from: Rank) -> Result<Vec<u64>, TransportError> {
    let count = receive(end, from, LENGTH)? as usize;
    let halves: Vec<u32> = receive_elements(end, from, CONTENT, 2 * count)?;
    Ok(halves.chunks_exact(2).map(value).collect())
}

/// Sends `value` to `to` while receiving one from `from`.
///
/// # Errors
/// When the job has ended.
pub fn swap(end: &mut dyn Transport, to: Rank, from: Rank, kind: u32, value: u64) -> Result<u64, TransportError> {
    pass(end, Some((to, words(value).to_vec())), Some((from, 2)), kind).map(|words: Vec<u32>| self::value(&words))
}

/// Returns when all ranks of the job have called it, after ⌈log2 ranks⌉ rounds.
///
/// Dissemination (Hensgen, Finkel, Manber 1988): in round r a rank signals the one 2^r ahead and waits for the one 2^r
/// behind.
///
/// # Errors
/// When the job has ended.
pub fn barrier(end: &mut dyn Transport) -> Result<(), TransportError> {
    let (rank, ranks) = (u64::from(end.rank().0), u64::from(end.ranks()));
    let mut distance = 1;
    let mut kind = FIRST_RESERVED_KIND;
    while distance < ranks {
        let to = Rank(((rank + distance) % ranks) as u32);
        let from = Rank(((rank + ranks - distance) % ranks) as u32);
        swap(end, to, from, kind, 0)?;
        distance *= 2;
        kind += 1;
    }
    Ok(())
}
