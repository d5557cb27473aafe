//! Hashes commands, and finds which commands of a list change from one time to the next.
//!
//! A training step is nearly the same each time: only numbers change (dropout's random numbers, a decaying learning
//! rate), while tensors stay in place. Lists that differ only in such numbers have the same form; lists of one form are
//! cut where they differ, and the pieces in between can be recognised again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::command::Command;

/// The hashes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print {
    /// Hash of its kind and addresses.
    form: u64,
    /// The same with its numbers.
    whole: u64,
}

/// The forms of lists seen so far.
#[derive(Debug, Default)]
pub(super) struct Forms {
    all: Vec<TensorForm>,
}

#[derive(Debug)]
struct TensorForm {
    key: u64,
    /// The hash of each command when it was last seen.
    last: Vec<u64>,
    /// Whether a command has ever changed.
    changing: Vec<bool>,
    used: u64,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its commands.
    pub(super) range: Range<usize>,
    /// Their hash, if they have never changed.
    pub(super) print: Option<u64>,
}

impl Print {
    pub(super) fn of(command: &Command) -> Print {
        let mut form = DefaultHasher::new();
        match command {
            Command::Launch(call) => {
                let geometry = call.geometry;
                (0, call.entry.function, geometry.blocks, geometry.threads, geometry.shared_bytes).hash(&mut form);
                for argument in &call.arguments {
                    argument.tensor.map(|tensor| (tensor.address, tensor.bytes)).hash(&mut form);
                }
                let mut whole = form.clone();
                for argument in call.arguments.iter().filter(|argument| argument.tensor.is_none()) {
                    argument.value.hash(&mut whole);
                }
                return Print { form: form.finish(), whole: whole.finish() };
            }
            Command::Zero { address, bytes } => (1, address, bytes).hash(&mut form),
            Command::Convolve(of) => (2, of).hash(&mut form),
            Command::Multiply(of) => (3, of).hash(&mut form),
        }
        let form = form.finish();
        Print { form, whole: form }
    }
}

impl Forms {
    /// A list's pieces, in order: maximal runs without a command that ever changed, and such commands. It was executed
    /// at time `now`; beyond `most` forms the least recently seen one is forgotten.
    pub(super) fn pieces(&mut self, list: &[Print], now: u64, most: usize) -> Vec<Piece> {
        let key = hash(list.iter().map(|print| print.form));
        let at = self.all.iter().position(|form| form.key == key && form.last.len() == list.len());
        let at = at.unwrap_or_else(|| {
            evict_least_recent(&mut self.all, most, |form| form.used);
            let last = list.iter().map(|print| print.whole).collect();
            self.all.push(TensorForm { key, last, changing: vec![false; list.len()], used: now });
            self.all.len() - 1
        });
        let TensorForm { last, changing, used, .. } = &mut self.all[at];
        *used = now;
        for (at, print) in list.iter().enumerate() {
            changing[at] |= last[at] != print.whole;
            last[at] = print.whole;
        }
        let mut pieces = Vec::new();
        let mut begin = 0;
        for run in changing.chunk_by(|one, next| one == next) {
            let range = begin..begin + run.len();
            begin = range.end;
            let print = (!run[0]).then(|| hash(list[range.clone()].iter().map(|print| print.whole)));
            pieces.push(Piece { range, print });
        }
        pieces
    }
}

/// Removes the least recently used element if there are `most` already.
pub(super) fn evict_least_recent<T>(all: &mut Vec<T>, most: usize, used: impl Fn(&T) -> u64) {
    if all.len() >= most {
        let oldest = (0..all.len()).min_by_key(|at| used(&all[*at]));
        oldest.map(|at| all.swap_remove(at));
    }
}

fn hash(all: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    all.for_each(|one| one.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::{View, ViewMut};
    use crate::kernel::KernelLaunch;
    use crate::table::Add;

    fn add(address: u64, elements: u32) -> Command {
        let (x, y) = (View::<f32>::new(address, 1000), ViewMut::<f32>::new(0x9000, 1000));
        Command::Launch(Add { a: x, b: x, y, elements, rectified: false }.call())
    }

    fn pieces(forms: &mut Forms, list: &[Command]) -> Vec<(Range<usize>, bool)> {
        let prints: Vec<Print> = list.iter().map(Print::of).collect();
        forms.pieces(&prints, 0, 10).into_iter().map(|piece| (piece.range, piece.print.is_some())).collect()
    }

    /// A command whose number changes once is excluded from its list permanently; another tensor makes another form.
    #[test]
    fn lists_are_split_at_changing_commands() {
        let zero = |address| Command::Zero { address, bytes: 16 };
        let list = |first, rectified| {
            let (x, y) = (View::<f32>::new(first, 8), ViewMut::<f32>::new(0x9000, 8));
            let step = Command::Launch(Add { a: x, b: x, y, elements: 8, rectified }.call());
            [zero(0x1000), zero(0x2000), step, zero(0x3000)]
        };
        let mut forms = Forms::default();
        assert_eq!(pieces(&mut forms, &list(0x8000, false)), [(0..4, true)]);
        assert_eq!(pieces(&mut forms, &list(0x8000, false)), [(0..4, true)]);
        let cut = [(0..2, true), (2..3, false), (3..4, true)];
        assert_eq!(pieces(&mut forms, &list(0x8000, true)), cut);
        assert_eq!(pieces(&mut forms, &list(0x8000, true)), cut);
        assert_eq!(pieces(&mut forms, &list(0x7000, true)), [(0..4, true)]);
        assert_eq!(pieces(&mut forms, &list(0x8000, false)), cut);
        assert_eq!(pieces(&mut forms, &[]), []);
    }

    #[test]
    fn commands_are_identified_by_all_their_fields() {
        // 8 and 9 elements take equally many blocks; the tensors' bytes differ.
        let all = [add(0x1000, 8), add(0x1000, 9), add(0x2000, 8), Command::Zero { address: 0x1000, bytes: 8 }];
        for (at, command) in all.iter().enumerate() {
            assert_eq!(Print::of(command), Print::of(&command.clone()));
            for other in &all[at + 1..] {
                assert_ne!(Print::of(command).whole, Print::of(other).whole, "{command:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_oldest_form_is_evicted() {
        let mut forms = Forms::default();
        let print = |form| [Print { form, whole: form }];
        for (now, form) in [(1, 1), (2, 2), (3, 1), (4, 3)] {
            forms.pieces(&print(form), now, 2);
        }
        let used: Vec<u64> = forms.all.iter().map(|form| form.used).collect();
        assert_eq!(used, [3, 4], "the second was not seen for longest");
    }
}
