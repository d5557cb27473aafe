//! Decides which of a rank's tensors interleave samples, so that the kernels on both sides need not transpose
//! them.

use lockstep_models::{Area, LayerId, Op, Program, Role};

use super::chain::{Chain, Work};
use super::layout::side_by_side;
use super::{Fit, Layout};

/// The layouts that a chain accepts for its tensors.
struct Demand {
    inputs: Vec<LayerId>,
    output: LayerId,
    fit: Fit,
}

/// Sets the layouts of all kernels, made for these numbers of samples: interleaved wherever every kernel that touches a
/// tensor supports it.
///
/// Everything stays in planes where a batch is not whole groups of side-by-side samples, and in roles that copy rows of activations between
/// samples.
pub(super) fn lay(program: &Program, role: &Role, samples: impl Iterator<Item = usize>, chains: &mut [Chain]) {
    let moves = |area: &Area| !matches!(area, Area::Buffer(_));
    let whole = |group: &usize| {
        role.tasks.iter().all(|task| match &task.op {
            Op::Copy(copies) => ![copies.first().from, copies.first().to].iter().any(moves),
            Op::Compute { samples, .. } | Op::Load { samples, .. } => (*samples as usize).is_multiple_of(*group),
            _ => true,
        })
    };
    let mut groups = samples.filter(|samples| *samples > 0).map(side_by_side);
    let group = groups.next().flatten().filter(|group| groups.all(|other| other == Some(*group)));
    let best = group.filter(whole).map_or(Layout::Planes, Layout::SideBySide);
    let mut found = vec![best; program.model.layers().len()];
    // The samples are loaded in planes.
    found[0] = Layout::Planes;
    let demand = |chain: &Chain| {
        let fit = match &chain.work {
            Work::Kernel(kernel) => kernel.head.fit(),
            Work::Loss(..) | Work::LinearLoss(..) => Fit::Planes,
            Work::Elsewhere => Fit::Free,
        };
        Demand { inputs: chain.inputs.clone(), output: chain.output, fit }
    };
    unify(&mut found, &chains.iter().map(demand).collect::<Vec<_>>());
    for Chain { work, inputs, output, .. } in chains {
        if let (Work::Kernel(kernel), Some(input)) = (work, inputs.first()) {
            kernel.head.lay(found[input.index()], found[output.index()]);
        }
    }
}

/// Spreads planes to wherever a chain requires them, until all requirements hold.
fn unify(found: &mut [Layout], chains: &[Demand]) {
    loop {
        let before = found.to_vec();
        for Demand { inputs, output, fit } in chains {
            let all = || inputs.iter().chain([output]);
            let mixed = all().any(|id| found[id.index()] == Layout::Planes);
            match fit {
                Fit::Free => {}
                Fit::Planes => all().for_each(|id| found[id.index()] = Layout::Planes),
                Fit::Alike if mixed => all().for_each(|id| found[id.index()] = Layout::Planes),
                Fit::Alike => {}
                Fit::PlanesBehind => found[output.index()] = Layout::Planes,
            }
        }
        if before == found {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// input → free → alike → alike, which joins a branch, → planes behind → planes; planes required by one chain
    /// spread through chains that need equal layouts, and stop at the next free one.
    #[test]
    fn planes_spread_as_far_as_they_must() {
        let id = LayerId;
        let demand = |inputs: &[LayerId], output, fit| Demand { inputs: inputs.to_vec(), output: id(output), fit };
        let (first, pair, branch) = ([id(1)], [id(2), id(3)], [id(1)]);
        let (fourth, fifth, source) = ([id(4)], [id(5)], [id(0)]);
        let chains = |branch_fit, behind| {
            vec![
                demand(&source, 1, Fit::Free),
                demand(&first, 2, Fit::Alike),
                demand(&branch, 3, branch_fit),
                demand(&pair, 4, Fit::Alike),
                demand(&fourth, 5, behind),
                demand(&fifth, 6, Fit::Planes),
            ]
        };
        let (p, s) = (Layout::Planes, Layout::SideBySide(8));
        for (branch_fit, behind, expected) in [
            (Fit::Free, Fit::PlanesBehind, [p, s, s, s, s, p, p]),
            (Fit::Free, Fit::Free, [p, s, s, s, s, p, p]),
            (Fit::Free, Fit::Planes, [p, p, p, p, p, p, p]),
            (Fit::Planes, Fit::PlanesBehind, [p, p, p, p, p, p, p]),
        ] {
            let mut found = vec![s; 7];
            found[0] = p;
            unify(&mut found, &chains(branch_fit, behind));
            assert_eq!(found, expected, "{branch_fit:?}, {behind:?}");
        }
    }
}
