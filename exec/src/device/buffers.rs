//! The buffers of a rank in host memory: where messages read and write.

use std::ops::Range;

use lockstep_models::{Buffer, Copy};

use crate::arena::Arena;

use super::cpu::{add_into, copy};

/// Gradients, parameters, and what the program declares.
pub(crate) struct Buffers {
    /// `None` on ranks that only serve, which sum what others send into one place.
    parameters: Option<Arena>,
    gradients: Arena,
    declared: Vec<Arena>,
}

impl Buffers {
    /// Those of a rank that trains, with its parameters.
    pub(crate) fn of_worker(parameters: Vec<f32>, declared: &[usize]) -> Buffers {
        let gradients = zeros(parameters.len());
        Buffers { parameters: Some(Arena::new(parameters)), gradients, declared: all(declared) }
    }

    /// Those of a rank that only serves.
    pub(crate) fn of_server(elements: usize, declared: &[usize]) -> Buffers {
        Buffers { parameters: None, gradients: zeros(elements), declared: all(declared) }
    }

    /// The memory of a buffer.
    pub(crate) fn arena(&self, buffer: Buffer) -> &Arena {
        match buffer {
            Buffer::Declared(index) => &self.declared[index],
            Buffer::Gradients => &self.gradients,
            Buffer::Parameters => self.parameters.as_ref().unwrap_or(&self.gradients),
        }
    }

    /// Does what a copy between two buffers says.
    pub(crate) fn copy(&self, of: &Copy, from: Buffer, to: Buffer) {
        let (read, written) = of.extents();
        // SAFETY: no message is in flight on what a copy writes, by the program's order, nobody writes what it reads, and the
        // program's check has seen to it that they are two buffers.
        unsafe {
            move_rows(of, self.arena(from).slice(0..read as usize), self.arena(to).slice_mut(0..written as usize));
        }
    }

    /// Lets `to` be what `from` is, as far as both go.
    pub(crate) fn assign(&self, to: Buffer, from: Buffer) {
        let (to, from) = (self.arena(to), self.arena(from));
        let range: Range<usize> = 0..to.len().min(from.len());
        // SAFETY: between iterations, when nothing is in flight.
        unsafe { to.slice_mut(range.clone()).copy_from_slice(from.slice(range)) }
    }
}

fn zeros(elements: usize) -> Arena {
    Arena::new(vec![0.0; elements])
}

fn all(elements: &[usize]) -> Vec<Arena> {
    elements.iter().map(|elements| zeros(*elements)).collect()
}

/// Copies or adds row by row.
pub(super) fn move_rows(of: &Copy, from: &[f32], to: &mut [f32]) {
    if of.clear {
        to.fill(0.0);
    }
    for rows in &of.rows {
        for index in 0..rows.count {
            let (read, written) = rows.at(index);
            let source = &from[read as usize..(read + rows.length) as usize];
            let target = &mut to[written as usize..(written + rows.length) as usize];
            if of.add { add_into(target, source) } else { copy(target, source) }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Area, Rows};

    use super::*;

    #[test]
    fn rows_are_packed_unpacked_and_added() {
        let area = |index| Area::Buffer(Buffer::Declared(index));
        // Columns 1 and 2 of a 2 × 3 matrix become a block, and go back to where they were.
        let rows = vec![Rows { count: 2, length: 2, from: (1, 3), to: (0, 2) }];
        let pack = Copy { from: area(0), to: area(1), rows, add: false, clear: false };
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut block = [0.0; 4];
        move_rows(&pack, &matrix, &mut block);
        assert_eq!(block, [2.0, 3.0, 5.0, 6.0]);
        let rows = vec![Rows { count: 2, length: 2, from: (0, 2), to: (1, 3) }];
        let mut sum = matrix;
        move_rows(&Copy { from: area(1), to: area(0), rows, add: true, clear: false }, &block, &mut sum);
        assert_eq!(sum, [1.0, 4.0, 6.0, 4.0, 10.0, 12.0]);
    }
}
