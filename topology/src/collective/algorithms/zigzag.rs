//! Orders members of a fully connected node so that few links are used twice: Walecki's zigzag paths.
//!
//! Path i of n members is i, i + 1, i − 1, i + 2, i − 2 … (mod n). The members of a link add up to 2i or 2i + 1, so the
//! paths of an even n have no link in common, and path i + n/2 is path i backwards.

/// The member at `position` of path `i` among `n` members.
pub(super) fn member(i: u32, position: u32, n: u32) -> u32 {
    let step = position.div_ceil(2) % n;
    if position % 2 == 1 { (i + step) % n } else { (i + n - step) % n }
}

/// The position of `member` on path `i` among `n` members.
pub(super) fn position(i: u32, member: u32, n: u32) -> u32 {
    let ahead = (member + n - i % n) % n;
    if (1..=n / 2).contains(&ahead) { 2 * ahead - 1 } else { 2 * ((n - ahead) % n) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn positions_and_members_are_inverse() {
        for n in 1..20 {
            for i in 0..n {
                assert!((0..n).all(|at| position(i, member(i, at, n), n) == at), "path {i} of {n}");
                assert_eq!((0..n).map(|at| member(i, at, n)).collect::<BTreeSet<_>>().len(), n as usize);
            }
        }
    }

    #[test]
    fn paths_of_an_even_number_of_members_use_each_link_once() {
        for n in (2..20).step_by(2) {
            let links = (0..n).flat_map(|i| (1..n).map(move |at| (member(i, at - 1, n), member(i, at, n))));
            let distinct: BTreeSet<_> = links.clone().collect();
            assert_eq!((distinct.len(), links.count()), ((n * (n - 1)) as usize, (n * (n - 1)) as usize));
        }
    }
}
