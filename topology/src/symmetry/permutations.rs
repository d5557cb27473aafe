//! `Permutations`: describes collectives' groups of permutations, each moving blocks of consecutive members without
//! fixed points.
//!
//! A ring is unchanged when every member moves by one; halving-doubling when all numbers are XORed with one mask. Both
//! act regularly on blocks of `unit` members: exactly one permutation takes a given block to another given one, so the
//! first block holds one representative of each orbit. A larger unit is a smaller group of the same kind.

use std::fmt;

/// A group of permutations of `0..members`, where `members` is known from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permutations {
    /// The identity alone.
    Identity,
    /// m → (m + j·unit) mod members, for every j; `unit` divides the number of members.
    Rotations {
        /// Members of a block.
        unit: u32,
    },
    /// ⌊m/unit⌋ → ⌊m/unit⌋ XOR j, for every j below members/unit, which is a power of two.
    Masks {
        /// Members of a block.
        unit: u32,
    },
    /// Blocks of `block` members rotate, and in each of them the same rotation by a multiple of `unit`; `unit` divides
    /// `block`, and that the number of members. The first `unit` members hold one of each orbit.
    Grid {
        /// Members of a block.
        block: u32,
        /// Members of a part of a block.
        unit: u32,
    },
}

impl Permutations {
    /// Members of a block: how many orbits there are.
    #[inline]
    pub fn unit(self, members: u32) -> u32 {
        match self {
            Permutations::Identity => members,
            Permutations::Rotations { unit } | Permutations::Masks { unit } | Permutations::Grid { unit, .. } => unit,
        }
    }

    /// How many permutations there are.
    #[inline]
    pub fn order(self, members: u32) -> u32 {
        members / self.unit(members).max(1)
    }

    /// The image of `member` under the permutation that takes the first block to block `to`.
    #[inline]
    pub fn image(self, members: u32, to: u32, member: u32) -> u32 {
        match self {
            Permutations::Identity => member,
            Permutations::Rotations { unit } => {
                ((u64::from(member) + u64::from(to) * u64::from(unit)) % u64::from(members)) as u32
            }
            Permutations::Masks { unit } => ((member / unit) ^ to) * unit + member % unit,
            Permutations::Grid { block, unit } => {
                let (blocks, parts) = (u64::from(members / block), u64::from(block / unit));
                let (of_blocks, of_parts) = (u64::from(to) / parts, u64::from(to) % parts);
                let outer = (u64::from(member / block) + of_blocks) % blocks;
                let inner = (u64::from(member % block) + of_parts * u64::from(unit)) % u64::from(block);
                (outer * u64::from(block) + inner) as u32
            }
        }
    }

    /// The image of `member` under the permutation that takes block `from` to the first.
    #[inline]
    pub fn back(self, members: u32, from: u32, member: u32) -> u32 {
        match self {
            Permutations::Rotations { .. } if from > 0 => self.image(members, self.order(members) - from, member),
            Permutations::Grid { block, unit } => {
                let (blocks, parts) = (members / block, block / unit);
                let (outer, inner) = ((blocks - from / parts) % blocks, (parts - from % parts) % parts);
                self.image(members, outer * parts + inner, member)
            }
            _ => self.image(members, from, member),
        }
    }

    /// Generators of the group, by the block to which they take the first one.
    pub fn generators(self, members: u32) -> Vec<u32> {
        match self {
            Permutations::Identity => Vec::new(),
            Permutations::Rotations { .. } => vec![1 % self.order(members)],
            Permutations::Masks { .. } => {
                let order = self.order(members);
                std::iter::successors(Some(1u32), |to| to.checked_mul(2)).take_while(|to| *to < order).collect()
            }
            Permutations::Grid { block, unit } => vec![1 % (block / unit), (block / unit) % self.order(members)],
        }
    }

    /// The same kind of permutation of blocks of `size` members each.
    pub fn of_blocks(self, size: u32) -> Permutations {
        match self {
            Permutations::Identity => Permutations::Identity,
            Permutations::Rotations { unit } => Permutations::Rotations { unit: unit.saturating_mul(size) },
            Permutations::Masks { unit } => Permutations::Masks { unit: unit.saturating_mul(size) },
            Permutations::Grid { block, unit } => {
                Permutations::Grid { block: block.saturating_mul(size), unit: unit.saturating_mul(size) }
            }
        }
    }

    /// Those of blocks of `size` members that are among these, as permutations of the blocks: those that take each
    /// member to the same position of another block.
    pub fn among_blocks(self, size: u32) -> Permutations {
        match self {
            Permutations::Identity => Permutations::Identity,
            Permutations::Rotations { unit } => Permutations::Rotations { unit: unit / gcd(unit, size) },
            Permutations::Masks { unit } if unit.is_multiple_of(size) => Permutations::Masks { unit: unit / size },
            Permutations::Masks { unit } if size.is_multiple_of(unit) && (size / unit).is_power_of_two() => {
                Permutations::Masks { unit: 1 }
            }
            Permutations::Masks { .. } | Permutations::Grid { .. } => Permutations::Identity,
        }
    }

    /// The permutations in both groups, as far as they are of one kind.
    pub fn common(self, other: Permutations, members: u32) -> Permutations {
        let unit = |one: u32, other: u32| {
            let unit = u64::from(one) / u64::from(gcd(one, other)) * u64::from(other);
            u32::try_from(unit).ok().filter(|unit| *unit < members && members.is_multiple_of(*unit))
        };
        let found = match (self, other) {
            (Permutations::Rotations { unit: a }, Permutations::Rotations { unit: b }) => {
                unit(a, b).map(|unit| Permutations::Rotations { unit })
            }
            (Permutations::Masks { unit: a }, Permutations::Masks { unit: b }) => {
                // Masks of the larger unit are masks of the smaller one where that is a power of two times smaller.
                let (small, large) = (a.min(b), a.max(b));
                let nested = large.is_multiple_of(small) && (large / small).is_power_of_two() && large < members;
                nested.then_some(Permutations::Masks { unit: large })
            }
            _ => None,
        };
        found.unwrap_or(Permutations::Identity)
    }
}

impl fmt::Display for Permutations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permutations::Identity => f.write_str("no permutation"),
            Permutations::Rotations { unit } => write!(f, "rotation by {unit}"),
            Permutations::Masks { unit: 1 } => f.write_str("XOR of ranks"),
            Permutations::Masks { unit } => write!(f, "XOR of blocks of {unit}"),
            Permutations::Grid { block, unit } => write!(f, "rotation of blocks of {block}, and by {unit} in each"),
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}
