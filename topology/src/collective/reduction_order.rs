//! Records the order in which the contributions to each element are added: its reduction order.
//!
//! Expressions are shared: two sums of the same two expressions are one, whichever operand came first, because IEEE
//! addition commutes (it does not associate). So members agree to the bit exactly where their expressions are equal.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Names an expression of a [`ReductionOrder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpressionId(pub(super) u32);

impl ExpressionId {
    /// The empty sum, without contributions.
    pub(super) const NOTHING: ExpressionId = ExpressionId(0);

    /// The contribution of a member.
    pub(super) fn leaf(member: u32) -> ExpressionId {
        ExpressionId(1 + member)
    }
}

/// The sums of a collective: for each range of elements, the tree of additions. An alltoallv has none.
#[derive(Debug, Clone)]
pub struct ReductionOrder {
    members: u32,
    /// The sums; expression `1 + members + i` is the sum of pair `i`, smaller ids only.
    sums: Vec<(ExpressionId, ExpressionId)>,
    ranges: Vec<(Range<u64>, ExpressionId)>,
}

impl ReductionOrder {
    /// Ranges of elements in order, covering the buffer, each with the expression that the result holds there.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u64>, ExpressionId)> + '_ {
        self.ranges.iter().cloned()
    }

    /// Evaluates an expression of this reduction order: `leaf(member)` gives a contribution, `add` the sum of two.
    ///
    /// Each contribution is asked for exactly once. Sums are made as in the collective, up to the order of the two
    /// operands of an addition.
    pub fn fold<T>(&self, id: ExpressionId, mut leaf: impl FnMut(u32) -> T, mut add: impl FnMut(T, T) -> T) -> T {
        // an explicit stack: the sum of a ring is as deep as it has members
        enum Task {
            Visit(ExpressionId),
            Add,
        }
        let (mut tasks, mut values) = (vec![Task::Visit(id)], Vec::new());
        while let Some(task) = tasks.pop() {
            match task {
                Task::Visit(id) => match self.operands(id) {
                    Some((left, right)) => tasks.extend([Task::Add, Task::Visit(right), Task::Visit(left)]),
                    None => values.push(leaf(id.0 - 1)),
                },
                Task::Add => {
                    if let (Some(right), Some(left)) = (values.pop(), values.pop()) {
                        values.push(add(left, right));
                    }
                }
            }
        }
        values.pop().expect("an expression has at least one leaf")
    }

    /// The expression as text, e.g. `((1+2)+0)`.
    pub fn describe(&self, id: ExpressionId) -> String {
        self.fold(id, |member| member.to_string(), |left, right| format!("({left}+{right})"))
    }

    /// The operands of a sum, `None` for a contribution.
    fn operands(&self, id: ExpressionId) -> Option<(ExpressionId, ExpressionId)> {
        id.0.checked_sub(1 + self.members).map(|index| self.sums[index as usize])
    }
}

impl fmt::Display for ReductionOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ranges.iter().try_for_each(|(range, id)| writeln!(f, "{range:?}: {}", self.describe(*id)))
    }
}

/// Expressions under construction.
pub(super) struct Expressions {
    members: u32,
    sums: Vec<(ExpressionId, ExpressionId)>,
    /// Looked up and never iterated.
    known: HashMap<(ExpressionId, ExpressionId), ExpressionId>,
    /// Contributors: `words` words of bits for each expression.
    sets: Vec<u64>,
    words: usize,
}

impl Expressions {
    /// The empty sum, and the contribution of each member.
    pub(super) fn new(members: u32) -> Expressions {
        let words = members.div_ceil(64) as usize;
        let mut sets = vec![0; words * (1 + members as usize)];
        for member in 0..members as usize {
            sets[(1 + member) * words + member / 64] |= 1 << (member % 64);
        }
        Expressions { members, sums: Vec::new(), known: HashMap::new(), sets, words }
    }

    fn set(&self, id: ExpressionId) -> &[u64] {
        &self.sets[id.0 as usize * self.words..][..self.words]
    }

    /// The sum of two expressions, or a member that contributes to both.
    pub(super) fn sum(&mut self, a: ExpressionId, b: ExpressionId) -> Result<ExpressionId, u32> {
        let pair = (a.min(b), a.max(b));
        if let Some(known) = self.known.get(&pair) {
            return Ok(*known);
        }
        let both = self.set(a).iter().zip(self.set(b)).map(|(a, b)| a & b);
        if let Some((word, bits)) = both.enumerate().find(|(_, bits)| *bits != 0) {
            return Err(word as u32 * 64 + bits.trailing_zeros());
        }
        for word in 0..self.words {
            let bits = self.set(a)[word] | self.set(b)[word];
            self.sets.push(bits);
        }
        let id = ExpressionId(1 + self.members + self.sums.len() as u32);
        self.sums.push(pair);
        self.known.insert(pair, id);
        Ok(id)
    }

    /// Whether `member` contributes to an expression.
    pub(super) fn holds(&self, id: ExpressionId, member: u32) -> bool {
        self.set(id)[member as usize / 64] & (1 << (member % 64)) != 0
    }

    /// The reduction order of a result, given in ranges without overlap.
    pub(super) fn finish(self, mut ranges: Vec<(Range<u64>, ExpressionId)>) -> ReductionOrder {
        ranges.sort_by_key(|(range, _)| range.start);
        let mut merged: Vec<(Range<u64>, ExpressionId)> = Vec::new();
        for (range, id) in ranges {
            match merged.last_mut() {
                Some((last, same)) if last.end == range.start && *same == id => last.end = range.end,
                _ => merged.push((range, id)),
            }
        }
        ReductionOrder { members: self.members, sums: self.sums, ranges: merged }
    }
}
