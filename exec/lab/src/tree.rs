//! Finds the cable that closes a loop: bridges without a spanning tree would send each broadcast round it for ever.

/// The first of `edges` (pairs of things below `count`) that joins what earlier ones have joined.
pub(crate) fn closing_edge(count: usize, edges: impl IntoIterator<Item = [usize; 2]>) -> Option<usize> {
    let mut above: Vec<usize> = (0..count).collect();
    for (position, edge) in edges.into_iter().enumerate() {
        let [one, other] = edge.map(|thing| top(&mut above, thing));
        if one == other {
            return Some(position);
        }
        above[one] = other;
    }
    None
}

fn top(above: &mut [usize], mut thing: usize) -> usize {
    while above[thing] != thing {
        above[thing] = above[above[thing]];
        thing = above[thing];
    }
    thing
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The slow reference: in a tree, where item n is attached to an earlier one, no edge closes a loop; any further
        /// edge does.
        #[test]
        fn a_tree_has_no_loop_and_any_edge_more_makes_one(picks in prop::collection::vec(any::<prop::sample::Index>(), 1..30), more: [prop::sample::Index; 2]) {
            let mut edges: Vec<[usize; 2]> = picks.iter().enumerate().map(|(n, pick)| [pick.index(n + 1), n + 1]).collect();
            let count = edges.len() + 1;
            prop_assert_eq!(closing_edge(count, edges.clone()), None);
            edges.push(more.map(|index| index.index(count)));
            prop_assert_eq!(closing_edge(count, edges), Some(count - 1));
        }
    }
}
