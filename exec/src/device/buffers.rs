//! Holds the buffers of a rank in host memory, where messages read and write.

use std::ops::Range;

use lockstep_models::memory::BufferAddresses;
use lockstep_models::{Buffer, Copy, Program};
use lockstep_topology::Dtype;

use crate::arena::Arena;
use crate::bf16::{Bf16, Float};
use crate::number::{numbers, numbers_mut};
use crate::simd::wide;

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
        program: &Program,
        (parameters, statistics): (Vec<f32>, Vec<f32>),
        declared: Vec<Arena>,
        places: BufferAddresses,
    ) -> Buffers {
        let held = |buffer: Buffer| zeros(places.of(buffer).elements(), program.dtype(buffer));
        let [weights, gradients, norm] = [Buffer::Weights, Buffer::Gradients, Buffer::Norm].map(held);
        let states = places.states().map(held).collect();
        let parameters = Some(Arena::new(parameters));
        Buffers { parameters, weights, gradients, places, declared, states, norm, statistics }
    }

    /// The buffers of a dedicated server.
    pub(crate) fn of_server(program: &Program, places: BufferAddresses, declared: Vec<Arena>) -> Buffers {
        let [parameters, gradients] =
            [Buffer::Parameters, Buffer::Gradients].map(|buffer| (places.of(buffer).elements(), program.dtype(buffer)));
        // Sums of another format than the parameters' have memory of their own.
        let apart = parameters.1 != gradients.1;
        let gradients = zeros(if apart { gradients.0 } else { gradients.0.max(parameters.0) }, gradients.1);
        Buffers {
            parameters: apart.then(|| zeros(parameters.0, parameters.1)),
            weights: zeros(0, Dtype::F32),
            gradients,
            places,
            declared,
            states: Vec::new(),
            norm: zeros(0, Dtype::F32),
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

    /// Frees the memory of gradients or of a state.
    pub(super) fn free(&mut self, buffer: Buffer) {
        let arena = match buffer {
            Buffer::Gradients => &mut self.gradients,
            Buffer::State(index) => &mut self.states[index],
            _ => return,
        };
        *arena = zeros(0, arena.dtype());
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
                Values::Buffer(buffer) => {
                    let arena = self.arena(buffer);
                    arena.widened(0..arena.len()).into_owned()
                }
                Values::Statistics => self.statistics.clone(),
            }
        }
    }

    /// Replaces values, from the first on.
    pub(super) fn write(&mut self, values: Values, content: &[f32]) {
        match values {
            // SAFETY: as above.
            Values::Buffer(buffer) => unsafe { self.arena(buffer).write(0, content) },
            Values::Statistics => self.statistics[..content.len()].copy_from_slice(content),
        }
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
            let read = (from.bytes(0..read as usize), from.dtype());
            move_numbers(of, read, (to.bytes_mut(0..written as usize), to.dtype()));
        }
    }

    /// Copies `from` to `to`, up to the shorter length.
    pub(crate) fn assign(&self, to: Buffer, from: Buffer) {
        let (to, from) = (self.arena(to), self.arena(from));
        let range: Range<usize> = 0..to.len().min(from.len());
        // SAFETY: between iterations, when nothing is in flight.
        unsafe { to.write(0, &from.widened(range)) }
    }
}

/// Zeros of a format.
pub(crate) fn zeros(elements: usize, dtype: Dtype) -> Arena {
    match dtype {
        Dtype::F32 => Arena::new(vec![0.0f32; elements]),
        Dtype::Bf16 => Arena::new(vec![Bf16::default(); elements]),
        other => Arena::of_pages(elements, other),
    }
}

/// Zeros of the elements and formats of declared buffers.
pub(crate) fn declared_arenas(numbers: impl Iterator<Item = (usize, Dtype)>) -> Vec<Arena> {
    numbers.map(|(elements, dtype)| zeros(elements, dtype)).collect()
}

/// Copies or adds rows of numbers, given as bytes with their formats; what is written is rounded to its format once.
pub(super) fn move_numbers(of: &Copy, from: (&[u8], Dtype), to: (&mut [u8], Dtype)) {
    match (from.1, to.1) {
        (dtype, _) if dtype.is_integer() => move_integers(of, dtype, from.0, to.0),
        (Dtype::F32, Dtype::F32) => move_rows(of, numbers::<f32>(from.0), numbers_mut::<f32>(to.0)),
        (Dtype::F32, Dtype::Bf16) => move_rows(of, numbers::<f32>(from.0), numbers_mut::<Bf16>(to.0)),
        (Dtype::Bf16, Dtype::F32) => move_rows(of, numbers::<Bf16>(from.0), numbers_mut::<f32>(to.0)),
        (Dtype::Bf16, Dtype::Bf16) => move_rows(of, numbers::<Bf16>(from.0), numbers_mut::<Bf16>(to.0)),
        (from, to) => panic!("the host stores fp32 and bf16, not {from} or {to}"),
    }
}

/// Copies or adds row by row.
fn move_rows<A: Float, B: Float>(of: &Copy, from: &[A], to: &mut [B]) {
    if of.clear {
        to.fill(B::nearest(0.0));
    }
    for rows in &of.rows {
        for index in 0..rows.count {
            let (read, written) = rows.at(index);
            let source = &from[read as usize..(read + rows.length) as usize];
            let target = &mut to[written as usize..(written + rows.length) as usize];
            let pairs = target.iter_mut().zip(source);
            match of.add {
                true => wide!(pairs.for_each(|(to, from)| *to = B::nearest(to.widened() + from.widened()))),
                false => wide!(pairs.for_each(|(to, from)| *to = B::nearest(from.widened()))),
            }
        }
    }
}

/// Copies integers row by row; the program's check refuses to add them.
fn move_integers(of: &Copy, dtype: Dtype, from: &[u8], to: &mut [u8]) {
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
    use std::sync::Arc;

    use lockstep_models::memory::{Memory, Reuse};
    use lockstep_models::{Area, Job, Moments, Rows, Turns, UpdateRule};

    use super::*;
    use crate::number::{bytes_of, bytes_of_mut};

    /// What is allocated for the optimizer and for gradients is what the plan of memory says.
    #[test]
    fn states_take_the_planned_bytes() {
        let model = Arc::new(lockstep_readers::load_model("lenet").unwrap());
        for (rule, strategy) in
            UpdateRule::ALL.into_iter().flat_map(|rule| ["ssgd", "zero-1", "zero-2", "zero-3"].map(|of| (rule, of)))
        {
            for moments in Moments::ALL {
                let strategy = strategy.parse().unwrap();
                let program = Job { rule, moments, strategy, ..Job::new(model.clone(), 3, 4) }.program().unwrap();
                let planned = Memory::of_role(&program, 0, rule.states().len() as u64).unwrap();
                let places = BufferAddresses::of_role(&program, (&program.roles[0], 0), Reuse::Full);
                let buffers = Buffers::of_worker(&program, (Vec::new(), Vec::new()), Vec::new(), places);
                let bytes = |arena: &Arena| arena.dtype().bytes(arena.len() as u64);
                assert_eq!(buffers.states.iter().map(bytes).sum::<u64>(), planned.optimizer, "{rule} {moments}");
                assert_eq!(bytes(&buffers.gradients), planned.gradients, "{rule} {moments}");
            }
        }
    }

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
