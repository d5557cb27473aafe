//! Checks that tasks take numbers of the formats with which they work: integers are moved and never added.

use lockstep_topology::{Dtype, InputError};

use super::fault;
use crate::{Area, Buffer, Op, Program, Role};

impl Program {
    /// Refuses arithmetic on integers, and copies between integers and other numbers.
    ///
    /// # Errors
    /// Names the role, the task and the buffer.
    pub(super) fn check_formats(&self, role: &Role) -> Result<(), InputError> {
        for task in &role.tasks {
            let buffers: Vec<Buffer> = match &task.op {
                Op::Elementwise(of) => of.formula.buffers(),
                Op::Exchange(exchange) if exchange.collective.sums() => vec![exchange.buffer],
                Op::Copy(copies) => {
                    let copy = copies.first();
                    let [from, to] = [copy.from, copy.to].map(|area| self.area_dtype(area));
                    let integers = from.is_integer() || to.is_integer();
                    if integers && (from != to || copy.add) {
                        let message = format!("copies or adds {from} to {to}: integers are copied as they are");
                        return Err(fault(role, &task.name, &message));
                    }
                    continue;
                }
                _ => continue,
            };
            if let Some(buffer) = buffers.into_iter().find(|buffer| self.dtype(*buffer).is_integer()) {
                let message = format!("computes with {}: declare its buffer of fp32", self.dtype(buffer));
                return Err(fault(role, &task.name, &message));
            }
        }
        Ok(())
    }

    /// The format of an area.
    fn area_dtype(&self, area: Area) -> Dtype {
        match area {
            Area::Buffer(buffer) => self.dtype(buffer),
            Area::Activation(id) if self.model.layers().get(id.index()).is_some_and(|node| node.layer.is_input()) => {
                self.model.sample().dtype
            }
            Area::Activation(_) | Area::Gradient(_) => self.precision.activation_dtype(),
        }
    }
}
