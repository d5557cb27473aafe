//! Pads exchanges: rounds them up to equal parts, so that all members do the same and no block is an element longer
//! than others.

use std::ops::Range;

use lockstep_topology::Collective;

use crate::{Area, Buffer, Exchange, Op, Program};

/// Rounds up each exchange whose range may be followed by padding: no contiguous buffer or tensor extends
/// beyond its end.
pub(crate) fn pad(mut program: Program) -> Program {
    let (wholes, averages) = (wholes(&program), program.averages());
    for task in program.roles.iter_mut().flat_map(|role| &mut role.tasks) {
        if let Op::Exchange(exchange) = &mut task.op {
            let end = exchange.range.end;
            let goes_on =
                |(of, range): &(Buffer, Range<u64>)| *of == exchange.buffer && range.start < end && end < range.end;
            exchange.padded = pads(exchange, averages) && !wholes.iter().any(goes_on);
        }
    }
    program
}

/// Whether an exchange is of buffers numbered by parameters: buffers that programs declare for other uses hold
/// activations and samples.
fn pads(exchange: &Exchange, averages: bool) -> bool {
    let of_parameters = averages || !matches!(exchange.buffer, Buffer::Declared(_));
    match exchange.collective {
        Collective::AllReduce | Collective::AllReduceToLeaders => of_parameters,
        Collective::ReduceScatter | Collective::AllGather => !matches!(exchange.buffer, Buffer::Declared(_)),
        _ => false,
    }
}

/// The ranges of buffers that kernels, exchanges and copies need to be contiguous.
fn wholes(program: &Program) -> Vec<(Buffer, Range<u64>)> {
    let mut wholes = Vec::new();
    for chain in &program.chains {
        let parameters = || chain.iter().flat_map(|id| &program.model.node(*id).parameters).map(|p| &p.range);
        if let (Some(first), Some(last)) = (parameters().next(), parameters().next_back()) {
            let range = first.start..last.end;
            wholes.extend([program.weights_of_layers(), Buffer::Gradients].map(|buffer| (buffer, range.clone())));
        }
    }
    for task in program.roles.iter().flat_map(|role| &role.tasks) {
        match &task.op {
            Op::Exchange(exchange) => wholes.push((exchange.buffer, exchange.range.clone())),
            Op::Copy(copies) => {
                for copy in copies.values() {
                    let (read, written) = copy.extents();
                    for (area, extent) in [(copy.from, read), (copy.to, written)] {
                        if let Area::Buffer(buffer) = area {
                            wholes.push((buffer, 0..extent));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    wholes.sort_by_key(|(buffer, range)| (*buffer, range.start, range.end));
    wholes.dedup();
    wholes
}
