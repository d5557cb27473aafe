//! Maps ranks and tags to MPI's processes and tags.
//!
//! MPI matches by process, our transport by rank, so a message's MPI tag encodes the sending and receiving rank within
//! their processes. From the lowest bit: receiver, sender (as indices in their processes), slot, exchange.

use std::ffi::c_int;

use lockstep_topology::Rank;

use super::super::{Tag, TransportError};

/// Bits of a slot: at most 1,024 lanes in flight.
const SLOT_BITS: u32 = 10;

/// The location of each rank, and the MPI tags of messages.
#[derive(Debug, Clone)]
pub(super) struct Tags {
    /// The process of each rank and its index there.
    places: Vec<(u32, u32)>,
    place_bits: u32,
    largest: u32,
}

impl Tags {
    /// For ranks in the processes that `hosts` lists, with a library that supports tags up to `largest`.
    pub(super) fn new(hosts: &[u32], largest: u32) -> Tags {
        let place = |rank: usize| hosts[..rank].iter().filter(|host| **host == hosts[rank]).count() as u32;
        let places: Vec<(u32, u32)> = (0..hosts.len()).map(|rank| (hosts[rank], place(rank))).collect();
        let most = places.iter().map(|(_, place)| *place).max().unwrap_or(0);
        Tags { places, place_bits: u32::BITS - most.leading_zeros(), largest }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.places.len() as u32
    }

    pub(super) fn process(&self, rank: Rank) -> u32 {
        self.places[rank.0 as usize].0
    }

    /// The ranks of a process, ascending.
    pub(super) fn hosted(&self, process: u32) -> Vec<Rank> {
        (0..self.ranks()).map(Rank).filter(|rank| self.process(*rank) == process).collect()
    }

    /// The MPI tag of a message.
    ///
    /// # Errors
    /// When the library's tags do not suffice.
    pub(super) fn number(&self, from: Rank, to: Rank, tag: Tag) -> Result<c_int, TransportError> {
        let place = |rank: Rank| u64::from(self.places[rank.0 as usize].1);
        let above = u64::from(tag.exchange) << SLOT_BITS | u64::from(tag.slot);
        let number = (above << self.place_bits | place(from)) << self.place_bits | place(to);
        if tag.slot >> SLOT_BITS == 0 && number <= u64::from(self.largest) {
            return Ok(number as c_int);
        }
        Err(TransportError::Unsupported(format!(
            "{tag} between ranks {} and {} is beyond this MPI library, whose largest tag is {}; use larger buckets, \
             fewer lanes in flight (at most {}) or fewer ranks in a process",
            from.0,
            to.0,
            self.largest,
            1 << SLOT_BITS
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_one_process_pair_have_different_numbers() {
        // Three processes of 3, 1 and 2 ranks, interleaved: two bits distinguish the ranks of a process.
        let tags = Tags::new(&[0, 2, 0, 1, 2, 0], i32::MAX as u32);
        assert_eq!(tags.hosted(0), [Rank(0), Rank(2), Rank(5)]);
        let mut seen = std::collections::BTreeSet::new();
        let mut count = 0;
        for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (Rank(from), Rank(to)))) {
            for tag in
                [Tag::control(0), Tag::control(1), Tag::exchange(0, 0), Tag::exchange(0, 1023), Tag::exchange(9, 5)]
            {
                let number = tags.number(from, to, tag).unwrap();
                count += 1;
                assert!(seen.insert((tags.process(from), tags.process(to), number)), "{from:?} {to:?} {tag}");
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn tags_beyond_the_limit_are_refused_with_a_cure() {
        let tags = Tags::new(&[0, 1], 32_767);
        assert!(tags.number(Rank(0), Rank(1), Tag::exchange(30, 7)).is_ok());
        let error = tags.number(Rank(0), Rank(1), Tag::exchange(31, 0)).unwrap_err().to_string();
        assert!(error.contains("exchange 31 slot 0") && error.contains("larger buckets"), "{error}");
        assert!(tags.number(Rank(0), Rank(1), Tag::exchange(0, 1024)).is_err());
    }
}
