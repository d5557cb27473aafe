//! Reduce up a rooted tree, broadcast down it: what binomial trees, chains, k-ary trees and servers have in common.
//!
//! A shape says who is whose parent; this file says what a parent and a child do. On an edge of the tree the whole extent
//! of the lane passes once up and once down, so an allreduce sends n·(children + 1) elements from an inner member.

use std::ops::Range;

use super::binomial_tree::Binomial;
use super::kernel::Steps;
use super::multi_color::Kary;
use super::parameter_server::Star;
use super::step::{Action, Step};

/// A member's place in a rooted tree. Children are numbered in the order in which their sums are awaited.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    Binomial(Binomial),
    Kary(Kary),
    Star(Star),
}

impl Shape {
    /// The member above, none at the root.
    fn parent(&self) -> Option<u32> {
        match self {
            Shape::Binomial(tree) => tree.parent(),
            Shape::Kary(tree) => tree.parent(),
            Shape::Star(star) => star.parent(),
        }
    }

    /// Number of members directly below.
    fn children(&self) -> u32 {
        match self {
            Shape::Binomial(tree) => tree.children(),
            Shape::Kary(tree) => tree.children(),
            Shape::Star(star) => star.children(),
        }
    }

    /// Child `index`, the shallowest subtree first.
    fn child(&self, index: u32) -> u32 {
        match self {
            Shape::Binomial(tree) => tree.child(index),
            Shape::Kary(tree) => tree.child(index),
            Shape::Star(star) => star.child(index),
        }
    }

    /// Whether this member's own buffer is part of the sum.
    fn contributes(&self) -> bool {
        !matches!(self, Shape::Star(Star { dedicated: true, centre: true, .. }))
    }
}

/// Which ways a lane goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ways {
    /// Sums travel up to the root.
    pub(super) up: bool,
    /// The root's range travels down.
    pub(super) down: bool,
}

/// One lane over a tree on one member.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    shape: Shape,
    ways: Ways,
    extent: (u64, u64),
    children: u32,
    parent: Option<u32>,
}

impl Tree {
    /// The lane of the member that `shape` places, over `extent`.
    pub(super) fn new(shape: Shape, ways: Ways, extent: Range<u64>) -> Tree {
        let (children, parent) = (shape.children(), shape.parent());
        Tree { shape, ways, extent: (extent.start, extent.end), children, parent }
    }

    /// Steps of one way: one for each edge at this member.
    fn edges(&self) -> u32 {
        self.children + u32::from(self.parent.is_some())
    }
}

impl Steps for Tree {
    fn len(&self) -> u32 {
        self.edges() * (u32::from(self.ways.up) + u32::from(self.ways.down))
    }

    fn step(&self, k: u32) -> Step {
        let range = self.extent.0..self.extent.1;
        let parent = self.parent.unwrap_or(0);
        if self.ways.up && k < self.edges() {
            if k == self.children {
                return Step::new(Action::Send, parent, range);
            }
            let first = k == 0 && !self.shape.contributes();
            let action = if first { Action::RecvInto } else { Action::RecvSum };
            return Step::new(action, self.shape.child(k), range);
        }
        let k = if self.ways.up { k - self.edges() } else { k };
        if self.parent.is_some() && k == 0 {
            return Step::new(Action::RecvInto, parent, range);
        }
        let k = k - u32::from(self.parent.is_some());
        // the deepest subtree first; all of a server's are equal, and get it in member order
        let child = if matches!(self.shape, Shape::Star(_)) { k } else { self.children - 1 - k };
        Step::new(Action::Send, self.shape.child(child), range)
    }

    fn messages(&self) -> u64 {
        if self.extent.0 == self.extent.1 {
            return 0;
        }
        let up = u64::from(self.ways.up && self.parent.is_some());
        up + if self.ways.down { u64::from(self.children) } else { 0 }
    }

    fn elements_sent(&self) -> u64 {
        self.messages() * (self.extent.1 - self.extent.0)
    }
}
