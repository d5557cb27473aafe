//! `Pattern`: an expression of ONNX operators, such as `Mul(x, Sigmoid(x))`, found in a graph.
//!
//! A small letter is a tensor, the same wherever it occurs: `x` any tensor, `e` a number, `w` and `b` constants; `g=` before
//! an operator calls its result g. A number is a constant of about that value. The operands of Add and Mul match in both
//! orders.

use std::collections::BTreeMap;

use super::constant::Constant;
use super::graph::Step;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Pattern {
    Op(&'static str, Vec<Pattern>),
    /// An operator whose result is remembered under a letter.
    Named(char, Box<Pattern>),
    Number(f64),
    Tensor(char),
}

/// The graph in which a pattern is looked for.
pub(super) trait Lookup<'a> {
    /// The step that makes a tensor.
    fn maker(&self, tensor: &str) -> Option<&Step<'a>>;

    /// The constant of that name.
    fn constant_of(&self, tensor: &str) -> Option<&Constant>;
}

/// The tensors that a pattern's letters stand for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Found(pub(super) BTreeMap<char, String>);

/// What an operator takes.
enum Operand {
    Tensor(String),
    Number(f64),
}

impl Pattern {
    /// The expression that a text of the table states.
    ///
    /// # Panics
    /// On a mistake in the table, which a test would find.
    pub(super) fn parse(text: &'static str) -> Pattern {
        let (pattern, rest) = Pattern::parsed(text);
        assert!(rest.is_empty(), "{text}: {rest}");
        pattern
    }

    fn parsed(text: &'static str) -> (Pattern, &'static str) {
        let text = text.trim_start();
        let end = text.find(['(', ',', ')']).unwrap_or(text.len());
        let (name, mut rest) = (text[..end].trim(), &text[end..]);
        if let Some((letter, _)) = name.split_once('=') {
            let (pattern, rest) = Pattern::parsed(&text[letter.len() + 1..]);
            return (Pattern::Named(letter.chars().next().unwrap_or('x'), Box::new(pattern)), rest);
        }
        if !rest.starts_with('(') {
            let leaf = name.parse().map(Pattern::Number);
            return (leaf.unwrap_or_else(|_| Pattern::Tensor(name.chars().next().unwrap_or('x'))), rest);
        }
        let mut operands = Vec::new();
        while !rest.starts_with(')') {
            let (operand, after) = Pattern::parsed(&rest[1..]);
            operands.push(operand);
            rest = after;
        }
        (Pattern::Op(name, operands), &rest[1..])
    }

    /// The operator at its root.
    pub(super) fn root(&self) -> &'static str {
        if let Pattern::Op(name, _) = self { name } else { "" }
    }

    /// Its tensors, if `step` is its root.
    pub(super) fn find<'a>(&self, step: &Step<'a>, graph: &dyn Lookup<'a>) -> Option<Found> {
        let Pattern::Op(name, operands) = self else { return None };
        if step.op != *name || !matches!(step.domain, "" | "ai.onnx") {
            return None;
        }
        let given = operands_of(step);
        if given.len() < operands.len() {
            return None;
        }
        let fit = |order: &[usize]| {
            let mut found = Found::default();
            let mut pairs = operands.iter().zip(order);
            pairs.all(|(pattern, at)| pattern.fits(&given[*at], graph, &mut found)).then_some(found)
        };
        let order: Vec<usize> = (0..operands.len()).collect();
        fit(&order).or_else(|| (matches!(*name, "Add" | "Mul") && operands.len() == 2).then(|| fit(&[1, 0])).flatten())
    }

    fn fits<'a>(&self, operand: &Operand, graph: &dyn Lookup<'a>, found: &mut Found) -> bool {
        let number = |name: &str| graph.constant_of(name).and_then(Constant::scalar);
        match (self, operand) {
            (Pattern::Number(wanted), Operand::Number(given)) => near(*given, *wanted),
            (Pattern::Number(wanted), Operand::Tensor(name)) => number(name).is_some_and(|given| near(given, *wanted)),
            (Pattern::Tensor(letter), Operand::Tensor(name)) => {
                let name = plain(name, graph);
                let suits = match letter {
                    'e' => number(&name).is_some(),
                    'w' | 'b' => graph.constant_of(&name).is_some(),
                    _ => graph.constant_of(&name).is_none(),
                };
                suits && found.0.entry(*letter).or_insert_with(|| name.clone()) == &name
            }
            (Pattern::Named(letter, pattern), Operand::Tensor(tensor)) => {
                let name = plain(tensor, graph);
                pattern.fits(operand, graph, found) && found.0.entry(*letter).or_insert_with(|| name.clone()) == &name
            }
            (Pattern::Op(..), Operand::Tensor(name)) => {
                let Some(step) = graph.maker(&plain(name, graph)) else { return false };
                let Some(inner) = self.find(step, graph) else { return false };
                inner.0.into_iter().all(|(letter, name)| found.0.entry(letter).or_insert_with(|| name.clone()) == &name)
            }
            _ => false,
        }
    }
}

/// The tensor behind operators that change nothing.
fn plain<'a>(name: &str, graph: &dyn Lookup<'a>) -> String {
    let mut name = name.to_owned();
    for _ in 0..16 {
        match graph.maker(&name) {
            Some(step) if matches!(step.op, "Identity" | "Cast") && step.input(0).is_some() => {
                name = step.inputs[0].clone();
            }
            _ => break,
        }
    }
    name
}

fn near(given: f64, wanted: f64) -> bool {
    (given - wanted).abs() <= 1e-3 * wanted.abs()
}

/// Inputs, and numbers that older versions of an operator have as attributes.
fn operands_of(step: &Step<'_>) -> Vec<Operand> {
    let mut operands: Vec<Operand> = step.inputs.iter().map(|name| Operand::Tensor(name.clone())).collect();
    let attributes: &[(&str, f32)] = match step.op {
        "Clip" if operands.len() == 1 => &[("min", f32::MIN), ("max", f32::MAX)],
        "HardSigmoid" => &[("alpha", 0.2), ("beta", 0.5)],
        _ => &[],
    };
    operands.extend(attributes.iter().map(|(name, default)| Operand::Number(step.float(name, *default).into())));
    operands
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small(Vec<Step<'static>>, BTreeMap<String, Constant>);

    impl<'a> Lookup<'a> for Small {
        fn maker(&self, tensor: &str) -> Option<&Step<'a>> {
            self.0.iter().find(|step| step.outputs[0] == tensor)
        }

        fn constant_of(&self, tensor: &str) -> Option<&Constant> {
            self.1.get(tensor)
        }
    }

    fn step(op: &'static str, inputs: &[&str], output: &str) -> Step<'static> {
        let inputs = inputs.iter().map(|name| (*name).to_owned()).collect();
        Step { op, inputs, outputs: vec![output.to_owned()], ..Step::default() }
    }

    #[test]
    fn operands_match_in_both_orders_and_by_value() {
        let three = Constant { numbers: Some(vec![3.0]), ..Constant::default() };
        let graph = Small(
            vec![step("Sigmoid", &["v"], "s"), step("Identity", &["v"], "i"), step("Mul", &["s", "i"], "y")],
            [("c".to_owned(), three)].into(),
        );
        let silu = Pattern::parse("Mul(x, Sigmoid(x))");
        assert_eq!(silu.find(&graph.0[2], &graph).unwrap().0[&'x'], "v");
        assert_eq!(silu.find(&step("Mul", &["s", "w"], "y"), &graph), None);
        assert_eq!(silu.find(&step("Div", &["s", "v"], "y"), &graph), None);
        let shifted = step("Add", &["c", "v"], "y");
        assert!(Pattern::parse("Add(x, 3)").find(&shifted, &graph).is_some());
        assert!(Pattern::parse("Add(x, e)").find(&shifted, &graph).is_some());
        assert_eq!(Pattern::parse("Add(x, 6)").find(&shifted, &graph), None);
    }
}
