//! Collects on rank 0 the micro-batches that the ranks of all processes have claimed.

use lockstep_models::Claim;
use lockstep_topology::{Rank, Time};

use crate::transport::{Transport, TransportError, control};

/// The claims of all ranks on rank 0, in the order of their times; `None` elsewhere. `own` are those of this rank.
pub(crate) fn gather_claims(end: &mut dyn Transport, own: &[Claim]) -> Result<Option<Vec<Claim>>, TransportError> {
    if end.rank().0 != 0 {
        control::send_words(end, Rank(0), &claims_to_words(own))?;
        return Ok(None);
    }
    let mut all = own.to_vec();
    for rank in 1..end.ranks() {
        all.extend(claims_of(rank, &control::receive_words(end, Rank(rank))?));
    }
    Ok(Some(in_order(all)))
}

/// Claims in the order of their times.
pub(crate) fn in_order(mut claims: Vec<Claim>) -> Vec<Claim> {
    claims.sort_by_key(|claim| (claim.at, claim.rank, claim.iteration));
    claims
}

/// The claims of one rank, as [`claims_of`] reads them.
pub(crate) fn claims_to_words(claims: &[Claim]) -> Vec<u64> {
    claims.iter().flat_map(|one| [u64::from(one.iteration) | u64::from(one.micro_batch) << 32, one.at.0]).collect()
}

/// The claims of `rank`, from their words.
pub(crate) fn claims_of(rank: u32, words: &[u64]) -> impl Iterator<Item = Claim> {
    words.chunks_exact(2).map(move |word| Claim {
        iteration: word[0] as u32,
        rank,
        micro_batch: (word[0] >> 32) as u32,
        at: Time(word[1]),
    })
}
