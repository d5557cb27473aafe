//! A lane: the steps of one member, one after the other, without allocation.

use super::hierarchical::InNode;
use super::kernel::Kernel;
use super::step::Step;

/// The steps of one lane on one member, in order; the meaning of lanes stands at the head of the module.
#[derive(Debug, Clone)]
pub struct Lane {
    at: u32,
    end: u32,
    kernel: Kernel,
    node: Option<InNode>,
}

impl Lane {
    /// A lane of `kernel`, inside a node if there is one.
    pub(super) fn new(kernel: Kernel, node: Option<InNode>) -> Lane {
        let around = node.as_ref().map_or(0, |node| node.ups() + node.downs());
        Lane { at: 0, end: kernel.steps().len() + around, kernel, node }
    }

    /// Step `k`, perhaps an empty one.
    fn step(&self, k: u32) -> Step {
        let Some(node) = &self.node else { return self.kernel.step(k) };
        let (ups, down) = (node.ups(), self.end - node.downs());
        if k < ups {
            node.up(k)
        } else if k >= down {
            node.down(k - down)
        } else {
            let step = self.kernel.step(k - ups);
            Step { peer: node.starts[step.peer as usize], ..step }
        }
    }

    /// Closed form: messages that this lane sends.
    pub(super) fn messages(&self) -> u64 {
        self.kernel.steps().messages() + self.node.as_ref().map_or(0, InNode::messages)
    }

    /// Closed form: elements that this lane sends.
    pub(super) fn elements_sent(&self) -> u64 {
        self.kernel.steps().elements_sent() + self.node.as_ref().map_or(0, InNode::elements_sent)
    }
}

impl Iterator for Lane {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.at < self.end {
            let step = self.step(self.at);
            self.at += 1;
            if step.start < step.end {
                return Some(step);
            }
        }
        None
    }
}
