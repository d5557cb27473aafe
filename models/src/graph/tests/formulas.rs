//! Tests which layouts formulas with operations that are not linear may have.

use super::*;

/// Operations on the gradient alone and on gradient and weights, which give the weights.
fn formulas() -> Vec<(Formula, bool)> {
    let [w, g] = [Buffer::Parameters, Buffer::Gradients].map(Operand::Buffer);
    let new = || Formula::new("any");
    let one = Coefficient::ONE;
    vec![
        (new().scale(w, one, g), true),
        (new().add(w, g, one, g), true),
        (new().multiply(w, g, g), false),
        (new().divide(w, g, g), false),
        (new().square_root(w, g), false),
        (new().shift(w, g, one), false),
        // Through an intermediate result.
        (new().scale(Operand::Local(0), one, g).square_root(w, Operand::Local(0)), false),
    ]
}

/// What is not linear takes no parts of a sum, whatever it gives; complete, split and own tensors it takes.
#[test]
fn only_linear_operations_take_parts_of_sums() {
    let gives = |formula: &Formula, input: AxisLayout, output: AxisLayout| {
        let of = Elementwise::new(formula.clone(), 0..1);
        let work = NodeWork::Elementwise { of, stream: Stream::Compute };
        let rule = Rule { work: &work, axis: Axis::Data, operands: None };
        rule.allows(&[(Tensor::WeightGradient, input)], &[(Tensor::Weight, output)])
    };
    let (own, same, partial, split) = (AxisLayout::Own, AxisLayout::Replicated, AxisLayout::Partial, FEATURES);
    for (formula, is_linear) in formulas() {
        for output in [own, same, partial, split] {
            let allowed = is_linear && [own, partial].contains(&output);
            assert_eq!(gives(&formula, partial, output), allowed, "{formula:?} of parts gives {output}");
        }
        assert!(gives(&formula, same, same) && gives(&formula, split, split) && gives(&formula, own, own));
        assert!(!gives(&formula, same, partial) && !gives(&formula, own, same), "{formula:?}");
    }
}
