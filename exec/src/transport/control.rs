//! Small blocking messages outside of every exchange: a value to and from a neighbour, and a barrier.
//!
//! They are what a run needs around its iterations (common start, clock ping-pong), built on nothing but post and wait.

use lockstep_topology::Rank;

use super::{Combine, Region, RegionMut, SendId, Tag, Transport, TransportError};

/// Kinds of control messages that this file uses itself; callers of [`send`], [`receive`] and [`swap`] stay below.
pub const FIRST_RESERVED_KIND: u32 = 64;

/// The 64 bits of a value as a message; copying does not change them, whatever they mean as numbers.
pub(crate) fn words(value: u64) -> [f32; 2] {
    [f32::from_bits(value as u32), f32::from_bits((value >> 32) as u32)]
}

/// The value of such a message.
pub(crate) fn value(words: [f32; 2]) -> u64 {
    u64::from(words[0].to_bits()) | u64::from(words[1].to_bits()) << 32
}

fn wait_sent<T: Transport + ?Sized>(end: &mut T, id: SendId) -> Result<(), TransportError> {
    loop {
        end.poll()?;
        if end.send_done(id)? {
            return Ok(());
        }
        end.wait(None)?;
    }
}

/// Sends `value` to `to` and returns when it has been taken.
///
/// # Errors
/// When the job is over.
pub fn send<T: Transport + ?Sized>(end: &mut T, to: Rank, kind: u32, value: u64) -> Result<(), TransportError> {
    let data = Box::new(words(value));
    // SAFETY: `data` lives until the send is done; after an error it is leaked, so that it outlives the transport.
    let region = unsafe { Region::new(data.as_ptr(), data.len()) };
    let sent = end.post_send(to, Tag::control(kind), region).and_then(|id| wait_sent(end, id));
    if sent.is_err() {
        Box::leak(data);
    }
    sent
}

/// The next value of this kind from `from`.
///
/// # Errors
/// When the job is over.
pub fn receive<T: Transport + ?Sized>(end: &mut T, from: Rank, kind: u32) -> Result<u64, TransportError> {
    swap_parts(end, None, from, kind)
}

/// Sends a copy of `values` to `to` and returns when it has been taken; the receiver must know how many they are.
///
/// # Errors
/// When the job is over.
pub fn send_elements<T: Transport + ?Sized>(
    end: &mut T,
    to: Rank,
    kind: u32,
    values: Vec<f32>,
) -> Result<(), TransportError> {
    let values: &'static mut [f32] = Vec::leak(values);
    // SAFETY: leaked above, freed below once the message is done, never on an error.
    let region = unsafe { Region::new(values.as_ptr(), values.len()) };
    let id = end.post_send(to, Tag::control(kind), region)?;
    wait_sent(end, id)?;
    // SAFETY: the leak from above, which no message uses any more.
    drop(unsafe { Box::from_raw(values) });
    Ok(())
}

/// The next `count` elements of this kind from `from`.
///
/// # Errors
/// When the job is over.
pub fn receive_elements<T: Transport + ?Sized>(
    end: &mut T,
    from: Rank,
    kind: u32,
    count: usize,
) -> Result<Vec<f32>, TransportError> {
    let values: &'static mut [f32] = Vec::leak(vec![0.0f32; count]);
    // SAFETY: leaked above, freed below once the message is done, never on an error.
    let region = unsafe { RegionMut::new(values.as_mut_ptr(), values.len()) };
    let id = end.post_recv(from, Tag::control(kind), region, Combine::Copy, RegionMut::empty())?;
    loop {
        end.poll()?;
        if end.recv_done(id)? {
            break;
        }
        end.wait(None)?;
    }
    // SAFETY: the leak from above, which no message uses any more.
    Ok(unsafe { Box::from_raw(values) }.into_vec())
}

/// Sends `value` to `to` and receives one from `from`, at the same time.
///
/// # Errors
/// When the job is over.
pub fn swap<T: Transport + ?Sized>(
    end: &mut T,
    to: Rank,
    from: Rank,
    kind: u32,
    value: u64,
) -> Result<u64, TransportError> {
    swap_parts(end, Some((to, value)), from, kind)
}

fn swap_parts<T: Transport + ?Sized>(
    end: &mut T,
    outgoing: Option<(Rank, u64)>,
    from: Rank,
    kind: u32,
) -> Result<u64, TransportError> {
    let tag = Tag::control(kind);
    let data = Box::leak(Box::new([words(outgoing.map_or(0, |(_, word)| word)), [0.0; 2]]));
    let start = data.as_mut_ptr().cast::<f32>();
    // SAFETY: two disjoint halves of memory that is freed below, after both messages are done, and never on an error.
    let (mine, theirs) = unsafe { (Region::new(start, 2), RegionMut::new(start.add(2), 2)) };
    let incoming = end.post_recv(from, tag, theirs, Combine::Copy, RegionMut::empty())?;
    let sent = outgoing.map(|(to, _)| end.post_send(to, tag, mine)).transpose()?;
    loop {
        end.poll()?;
        if end.recv_done(incoming)? {
            break;
        }
        end.wait(None)?;
    }
    if let Some(id) = sent {
        wait_sent(end, id)?;
    }
    // SAFETY: the leaked box from above, which no message uses any more.
    let [_, got] = *unsafe { Box::from_raw(start.cast::<[[f32; 2]; 2]>()) };
    Ok(value(got))
}

/// Returns when all ranks of the job have called it, after ⌈log2 ranks⌉ rounds.
///
/// Dissemination (Hensgen, Finkel, Manber 1988): in round r a rank tells the one 2^r ahead and hears the one behind.
///
/// # Errors
/// When the job is over.
pub fn barrier<T: Transport + ?Sized>(end: &mut T) -> Result<(), TransportError> {
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
