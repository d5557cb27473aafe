//! Holds the buffers of a rank in host memory, where messages read and write.

use std::ops::Range;

use lockstep_models::memory::BufferAddresses;
use lockstep_models::{Buffer, Copy};
use lockstep_topology::Dtype;

use crate::arena::Arena;
use crate::simd::add_into;

use super::Values;

/// Gradients, parameters, buffers declared by the program, and other training state.
pub(crate) struct Buffers {
    /// `None` on dedicated servers, which sum what others send in place.
    parameters: Option<Arena>,
    /// Gathered parameters; empty where the rank holds all of them.
    weights: Arena,
    gradients: Arena,
    /// The places of buffers.
    places: BufferAddresses,
    declared: Vec<Arena>,
    /// What the optimizer keeps for the parameters that the rank updates.
    states: Vec<Arena>,
    /// The sum of the squares of gradients, where they are clipped.
    norm: Arena,
    /// Running statistics of batch normalisation.
    statistics: Vec<f32>,
}

impl Buffers {
    /// The buffers of a rank that trains, from its parameters in their layout and its running statistics.
    pub(super) fn of_worker(
        parameters: Vec<f32>,
        statistics: Vec<f32>,
        declared: Vec<Arena>,
        places: BufferAddresses,
    ) -> Buffers {
        let held = |buffer: Buffer| zeros(places.of(buffer).elements());
        let [weights, gradients, norm] = [Buffer::Weights, Buffer::Gradients, Buffer::Norm].map(held);
        let states = places.states().map(held).collect();
        let parameters = Some(Arena::new(parameters));
        Buffers { parameters, weights, gradients, places, declared, states, norm, statistics }
    }

    /// The buffers of a dedicated server.
    pub(crate) fn of_server(places: BufferAddresses, declared: Vec<Arena>) -> Buffers {
        let elements = [Buffer::Parameters, Buffer::Gradients].map(|buffer| places.of(buffer).elements());
        let gradients = zeros(elements[0].max(elements[1]));
        Buffers {
            parameters: None,
            weights: zeros(0),
            gradients,
            places,
            declared,
            states: Vec::new(),
            norm: zeros(0),
            statistics: Vec::new(),
        }
    }

    /// The memory of a buffer.
    pub(crate) fn arena(&self, buffer: Buffer) -> &Arena {
        match buffer {
            Buffer::Declared(index) => &self.declared[index],
            Buffer::Gradients => &self.gradients,
            Buffer::State(index) => &self.states[index],
            Buffer::Norm => &self.norm,
            Buffer::Weights => &self.weights,
            Buffer::Parameters => self.parameters.as_ref().unwrap_or(&self.gradients),
        }
    }

    /// The place of elements `range` of a buffer.
    pub(crate) fn place(&self, buffer: Buffer, range: &Range<usize>) -> Range<usize> {
        self.places.place(buffer, range)
    }

    /// The memory from which layers read their parameters.
    pub(super) fn of_layers(&self) -> &Arena {
        of_layers(&self.weights, self.parameters.as_ref().unwrap_or(&self.gradients))
    }

    /// The parameters that a chain reads, and its running statistics, which it updates.
    pub(super) fn of_chain(&mut self, parameters: Range<usize>, statistics: Range<usize>) -> (&[f32], &mut [f32]) {
        let all = of_layers(&self.weights, self.parameters.as_ref().unwrap_or(&self.gradients));
        // SAFETY: no message is in flight on parameters that a layer reads, and what updates them runs on this thread.
        (unsafe { all.slice(parameters) }, &mut self.statistics[statistics])
    }

    /// A copy of some values.
    pub(super) fn read(&self, values: Values) -> Vec<f32> {
        // SAFETY: values are read between tasks, when nothing is in flight.
        unsafe {
            match values {
                Values::Buffer(buffer) => self.arena(buffer).to_vec(),
                Values::Statistics => self.statistics.clone(),
            }
        }
    }

    /// Replaces values, from the first on.
    pub(super) fn write(&mut self, values: Values, content: &[f32]) {
        let range = 0..content.len();
        // SAFETY: as above.
        let first = unsafe {
            match values {
                Values::Buffer(buffer) => self.arena(buffer).slice_mut(range),
                Values::Statistics => &mut self.statistics[range],
            }
        };
        first.copy_from_slice(content);
    }

    /// Replaces numbers of a buffer, from the first on, by those with these bytes.
    pub(super) fn write_bytes(&mut self, buffer: Buffer, content: &[u8]) {
        let arena = self.arena(buffer);
        let range = 0..arena.dtype().elements_within(content.len() as u64) as usize;
        // SAFETY: as above.
        unsafe { arena.bytes_mut(range) }.copy_from_slice(content);
    }

    /// Performs a copy between two buffers.
    pub(crate) fn copy(&self, of: &Copy, from: Buffer, to: Buffer) {
        let (read, written) = of.extents();
        // SAFETY: no message is in flight on what a copy writes, by the program's order; nothing writes what it reads;
        // and the program's check ensures that they are two buffers.
        unsafe {
            let (from, to) = (self.arena(from), self.arena(to));
            if from.dtype().is_integer() {
                move_integers(of, from.dtype(), from.bytes(0..read as usize), to.bytes_mut(0..written as usize));
            } else {
                move_rows(of, from.slice(0..read as usize), to.slice_mut(0..written as usize));
            }
        }
    }

    /// Copies `from` to `to`, up to the shorter length.
    pub(crate) fn assign(&self, to: Buffer, from: Buffer) {
        let (to, from) = (self.arena(to), self.arena(from));
        let range: Range<usize> = 0..to.len().min(from.len());
        // SAFETY: between iterations, when nothing is in flight.
        unsafe { to.slice_mut::<f32>(range.clone()).copy_from_slice(from.slice(range)) }
    }
}

fn zeros(elements: usize) -> Arena {
    Arena::new(vec![0.0f32; elements])
}

/// Zeros of the elements and formats of declared buffers.
pub(crate) fn declared_arenas(numbers: impl Iterator<Item = (usize, Dtype)>) -> Vec<Arena> {
    let arena = |(elements, dtype)| match dtype {
        Dtype::F32 => zeros(elements),
        other => Arena::of_pages(elements, other),
    };
    numbers.map(arena).collect()
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
            if of.add { add_into(target, source) } else { target.copy_from_slice(source) }
        }
    }
}

/// Copies integers row by row; the program's check refuses to add them.
pub(super) fn move_integers(of: &Copy, dtype: Dtype, from: &[u8], to: &mut [u8]) {
    if of.clear {
        to.fill(0);
    }
    let bytes = |elements: u64| dtype.bytes(elements) as usize;
    for rows in &of.rows {
        for index in 0..rows.count {
            let (read, written) = rows.at(index);
            let source = &from[bytes(read)..bytes(read + rows.length)];
            to[bytes(written)..bytes(written + rows.length)].copy_from_slice(source);
        }
    }
}

/// Gathered parameters if any, else the rank's own.
fn of_layers<'a>(gathered: &'a Arena, own: &'a Arena) -> &'a Arena {
    if gathered.is_empty() { own } else { gathered }
}

#[cfg(test)]
mod tests {
    use lockstep_models::{Area, Rows, Turns};

    use super::*;
    use crate::number::{bytes_of, bytes_of_mut};

    #[test]
    fn rows_are_packed_unpacked_and_added() {
        let area = |index| Area::Buffer(Buffer::Declared(index));
        // Columns 1 and 2 of a 2 × 3 matrix become a block, and are copied back.
        let rows = vec![Rows { count: 2, length: 2, from: (1, 3), to: (0, 2) }];
        let pack = Copy { from: area(0), to: area(1), rows, add: false, clear: false, turns: Turns::ONE };
        let matrix = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut block = [0.0; 4];
        move_rows(&pack, &matrix, &mut block);
        assert_eq!(block, [2.0, 3.0, 5.0, 6.0]);
        // Integers of two bytes, as values.
        let (tokens, mut packed) = ([1u16, 2, 3, 4, 5, 6], [0u16; 4]);
        move_integers(&pack, Dtype::U16, bytes_of(&tokens), bytes_of_mut(&mut packed));
        assert_eq!(packed, [2, 3, 5, 6]);
        let rows = vec![Rows { count: 2, length: 2, from: (0, 2), to: (1, 3) }];
        let mut sum = matrix;
        move_rows(
            &Copy { from: area(1), to: area(0), rows, add: true, clear: false, turns: Turns::ONE },
            &block,
            &mut sum,
        );
        assert_eq!(sum, [1.0, 4.0, 6.0, 4.0, 10.0, 12.0]);
    }
}
