//! Copies data inside a rank's memory, between activations and the buffers that exchanges read and write.
//!
//! Exchanges work on contiguous blocks of one member each, layers on samples with all their features; a copy converts
//! one to the other. It is a task like any other, so simulator and executor both count its bytes.

use crate::{Buffer, LayerId, Turns};

/// A piece of a rank's memory that a copy reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// A buffer of the program.
    Buffer(Buffer),
    /// The output of a layer, `[samples, features]`.
    Activation(LayerId),
    /// The gradient of a layer's output, `[samples, features]`.
    Gradient(LayerId),
}

/// Rows of equal length at equal distances, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// Elements of a row.
    pub length: u64,
    /// The first element in the area read, and the distance from one row to the next.
    pub from: (u64, u64),
    /// The same in the area written.
    pub to: (u64, u64),
}

impl Rows {
    /// `length` elements in one row.
    pub fn one(length: u64, from: u64, to: u64) -> Rows {
        Rows { count: 1, length, from: (from, length), to: (to, length) }
    }

    /// Row `index` in the areas read and written, as first elements.
    pub fn at(&self, index: u64) -> (u64, u64) {
        (self.from.0 + index * self.from.1, self.to.0 + index * self.to.1)
    }

    /// The ends of what is read and of what is written.
    fn ends(&self) -> (u64, u64) {
        if self.count == 0 || self.length == 0 {
            return (0, 0);
        }
        let (from, to) = self.at(self.count - 1);
        (from + self.length, to + self.length)
    }
}

/// Moves rows of one area to another, or adds them there.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// What is read.
    pub from: Area,
    /// What is written.
    pub to: Area,
    /// Which elements; none where other ranks of the program copy something and this one does not.
    pub rows: Vec<Rows>,
    /// Whether they are added to the destination.
    pub add: bool,
    /// Whether the rest of the area written is set to zero.
    pub clear: bool,
    /// The parts of the buffer that other runs read or write.
    pub turns: Turns,
}

impl Copy {
    /// Elements copied.
    pub fn elements(&self) -> u64 {
        self.rows.iter().map(|rows| rows.count * rows.length).sum()
    }

    /// Elements that go through memory: each is read and written, and read where it is added to.
    pub fn moved(&self) -> u64 {
        self.elements() * if self.add { 3 } else { 2 }
    }

    /// Elements that the areas read and written must have at least.
    pub fn extents(&self) -> (u64, u64) {
        let ends = self.rows.iter().map(Rows::ends);
        let (from, to) = ends.fold((0, 0), |(from, to), (a, b)| (from.max(a), to.max(b)));
        let behind = |area| if matches!(area, Area::Buffer(_)) { self.turns.end() } else { 0 };
        (from + behind(self.from), to + behind(self.to))
    }

    /// The copy that a run does.
    pub fn of_run(&self, run: u64) -> Copy {
        let by = self.turns.first(run);
        let behind =
            |area, first: (u64, u64)| if matches!(area, Area::Buffer(_)) { (first.0 + by, first.1) } else { first };
        let rows = self.rows.iter().map(|rows| Rows {
            from: behind(self.from, rows.from),
            to: behind(self.to, rows.to),
            ..*rows
        });
        Copy { rows: rows.collect(), turns: Turns::ONE, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_hand() {
        // Two samples of three features each out of a matrix that is five wide, its columns 1 to 3.
        let rows = Rows { count: 2, length: 3, from: (1, 5), to: (0, 3) };
        assert_eq!((rows.at(0), rows.at(1)), ((1, 0), (6, 3)));
        let area = |index| Area::Buffer(Buffer::Declared(index));
        let copy = Copy {
            from: area(0),
            to: area(1),
            rows: vec![rows, Rows::one(4, 20, 6)],
            add: false,
            clear: false,
            turns: Turns::ONE,
        };
        assert_eq!((copy.elements(), copy.moved(), copy.extents()), (10, 20, (24, 10)));
        assert_eq!(Copy { add: true, ..copy.clone() }.moved(), 30);
        assert_eq!(Copy { rows: Vec::new(), ..copy }.extents(), (0, 0));
    }
}
