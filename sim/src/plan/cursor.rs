//! `Cursor`: a rank's position in one of its streams, run by run.

use super::Slot;

/// The position of a rank's stream: the next run of which task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) iteration: u32,
    pub(crate) repetition: u32,
    pub(crate) position: u32,
}

impl Cursor {
    /// The task that comes next; there is always one, unless the stream is empty.
    pub(crate) fn task(self, stream: &[Slot]) -> Option<u32> {
        stream.get(self.position as usize).map(|slot| slot.task)
    }

    /// Advances by one run, into the next iteration where this one ends.
    pub(crate) fn step(&mut self, stream: &[Slot]) {
        match stream[self.position as usize].repeat {
            Some((first, count)) if self.repetition + 1 < count => {
                self.repetition += 1;
                self.position = first;
            }
            at_end => {
                // Inside a body the repetition continues; after it counting starts again.
                let listed = stream[self.position as usize].micro_batch.is_some();
                self.position += 1;
                let next = stream.get(self.position as usize).and_then(|slot| slot.micro_batch);
                if at_end.is_some() || listed || next.is_some() {
                    self.repetition = next.unwrap_or(0);
                }
            }
        }
        if self.position as usize == stream.len() {
            *self = Cursor { iteration: self.iteration + 1, repetition: 0, position: 0 };
        }
    }
}
