//! `Part`: what memory is used for; `Live`: the bytes of each part at a moment.

use std::ops::{Add, AddAssign, Index, IndexMut, Mul};

/// What a part of a GPU's memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The parameters that products read, and copies of them in other formats.
    Weights,
    /// Gradients of parameters.
    Gradients,
    /// Master weights and moments.
    Optimizer,
    /// Activations of attention that wait for the backward pass.
    Attention,
    /// Activations of the feed-forward part.
    FeedForward,
    /// Inputs and outputs of norms, and what recomputation starts from.
    Norms,
    /// Scores of tokens, with what the loss keeps of them.
    Logits,
    /// Gradients of activations, and activations that were computed again.
    Temporaries,
    /// Parameters gathered from the ranks that share them, and their gradients before these are scattered.
    Gathered,
    /// Buffers of exchanges, and those in which results are staged.
    Buffers,
    /// Workspaces of libraries.
    Workspace,
}

impl Part {
    /// All of them, in the order of tables and pictures.
    pub const ALL: [Part; 11] = [
        Part::Weights,
        Part::Gradients,
        Part::Optimizer,
        Part::Gathered,
        Part::Buffers,
        Part::Workspace,
        Part::Attention,
        Part::FeedForward,
        Part::Norms,
        Part::Logits,
        Part::Temporaries,
    ];

    /// Its name, as legends and columns have it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Weights => "weights",
            Part::Gradients => "gradients",
            Part::Optimizer => "optimizer",
            Part::Attention => "attention",
            Part::FeedForward => "feed_forward",
            Part::Norms => "norms",
            Part::Logits => "logits",
            Part::Temporaries => "temporaries",
            Part::Gathered => "gathered",
            Part::Buffers => "buffers",
            Part::Workspace => "workspace",
        }
    }
}

/// Bytes of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live([u64; 11]);

impl Live {
    /// This many bytes of one part.
    pub fn of(part: Part, bytes: u64) -> Live {
        let mut live = Live::default();
        live[part] = bytes;
        live
    }

    /// The bytes of all parts.
    ///
    /// ```
    /// use lockstep_stack::{Live, Part};
    /// assert_eq!((Live::of(Part::Weights, 3) + Live::of(Part::Logits, 4)).total(), 7);
    /// ```
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl Index<Part> for Live {
    type Output = u64;

    fn index(&self, part: Part) -> &u64 {
        &self.0[part as usize]
    }
}

impl IndexMut<Part> for Live {
    fn index_mut(&mut self, part: Part) -> &mut u64 {
        &mut self.0[part as usize]
    }
}

impl Add for Live {
    type Output = Live;

    fn add(mut self, other: Live) -> Live {
        self += other;
        self
    }
}

impl AddAssign for Live {
    fn add_assign(&mut self, other: Live) {
        self.0.iter_mut().zip(other.0).for_each(|(bytes, more)| *bytes = bytes.saturating_add(more));
    }
}

impl Mul<u64> for Live {
    type Output = Live;

    fn mul(mut self, times: u64) -> Live {
        self.0.iter_mut().for_each(|bytes| *bytes = bytes.saturating_mul(times));
        self
    }
}
