//! `Merges`: joins the tokens of a piece pair by pair, the pair that was learnt first before others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// No place.
const NONE: usize = usize::MAX;

/// The pairs of tokens that become one, each with its rank and that token.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Merges(HashMap<(u32, u32), (u32, u32)>);

/// A token of the piece, between its neighbours; one that has been joined to the token before is no longer reached.
struct Link {
    token: u32,
    before: usize,
    behind: usize,
}

impl Merges {
    /// Adds a pair of a rank, which becomes `token`; of a pair that is there already it changes both.
    pub(super) fn add(&mut self, pair: (u32, u32), (rank, token): (u32, u32)) {
        self.0.insert(pair, (rank, token));
    }

    /// Joins tokens until no neighbours are a pair: always the pair of the lowest rank, of equal ones the first. n tokens take
    /// O(n log n).
    pub(super) fn join(&self, tokens: &[u32]) -> Vec<u32> {
        let place = |at: usize| Link {
            token: tokens[at],
            before: at.checked_sub(1).unwrap_or(NONE),
            behind: if at + 1 < tokens.len() { at + 1 } else { NONE },
        };
        let mut links: Vec<Link> = (0..tokens.len()).map(place).collect();
        // Rank, place of the first, and the pair, which has passed if one of the two has been joined.
        let mut queue = BinaryHeap::new();
        let offer = |queue: &mut BinaryHeap<_>, links: &[Link], at: usize| {
            if let Some(behind) = links.get(links[at].behind)
                && let Some((rank, _)) = self.0.get(&(links[at].token, behind.token))
            {
                queue.push(Reverse((*rank, at, links[at].token, behind.token)));
            }
        };
        (0..links.len()).for_each(|at| offer(&mut queue, &links, at));
        while let Some(Reverse((_, at, first, second))) = queue.pop() {
            let behind = links[at].behind;
            if links[at].token != first || links.get(behind).is_none_or(|link| link.token != second) {
                continue;
            }
            let Some((_, token)) = self.0.get(&(first, second)) else { continue };
            let after = links[behind].behind;
            (links[at].token, links[at].behind) = (*token, after);
            // Nothing leads there any more: a pair that begins there has passed.
            links[behind].behind = NONE;
            if let Some(after) = links.get_mut(after) {
                after.before = at;
            }
            offer(&mut queue, &links, at);
            if links[at].before != NONE {
                let before = links[at].before;
                offer(&mut queue, &links, before);
            }
        }
        let first = (!links.is_empty()).then_some(0);
        let follow = |at: &usize| Some(links[*at].behind).filter(|behind| *behind != NONE);
        std::iter::successors(first, follow).map(|at| links[at].token).collect()
    }
}
