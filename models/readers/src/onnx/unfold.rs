//! Recognises convolutions into which an export has folded their batch normalisation, and restores it.
//!
//! An export in eval mode multiplies the weights of a convolution by the factors of the normalisation behind it and leaves
//! its shifts as a bias. Such a network is not what trains: it takes less time and memory.

use std::collections::BTreeSet;

use lockstep_topology::InputError;

use super::Import;
use super::graph::Step;
use lockstep_models::{BatchNorm, Draft, Layer};

/// What the names of a convolution's weight and bias say of its bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    /// It is the module's own: `conv.weight` and `conv.bias`.
    Own,
    /// An export has made it: `onnx::Conv_193`, or `conv.weight_bias`.
    Folded,
    /// It is the module's own, and a normalisation is folded into it: the result is called as that of `batch_norm` is by
    /// PyTorch's exporter, which takes the first of several with `getitem`.
    Both,
    /// Nothing: the file's names have no such form.
    Unknown,
}

/// What the names of a weight and a bias say.
pub(super) fn bias_of(weight: &str, bias: &str) -> Bias {
    let module = weight.strip_suffix(".weight");
    match (module, module.and_then(|module| bias.strip_prefix(module))) {
        (Some(_), Some(".bias")) => Bias::Own,
        (Some(_), Some(_)) => Bias::Folded,
        _ if [weight, bias].iter().any(|name| name.starts_with("onnx::Conv_")) => Bias::Folded,
        _ => Bias::Unknown,
    }
}

/// Weights that are normalised themselves.
const WEIGHTS: &str = "weights are computed from others: this arithmetic is left out, and takes hardly any time";

/// Most tensors that are followed back from a weight.
const MOST_SOURCES: usize = 64;

/// The cure for a network that was exported to be deployed.
const CURE: &str =
    "export what trains, torch.onnx.export(…, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)";

impl<'a> Import<'_, 'a> {
    /// Remembers what is known of the bias of a convolution.
    pub(super) fn remember_bias(&mut self, step: &Step<'a>, draft: usize) {
        let of_norm = step.outputs.first().is_some_and(|output| output.starts_with("getitem"));
        let bias = match (step.input(1), step.input(2)) {
            (Some(weight), Some(bias)) => Some(bias_of(weight, bias)),
            _ => None,
        };
        match bias {
            Some(Bias::Own) if of_norm => self.biases.push((draft, Bias::Both)),
            None if of_norm => self.biases.push((draft, Bias::Folded)),
            Some(bias) => self.biases.push((draft, bias)),
            None => {}
        }
    }

    /// Notes weights that are no numbers to train as they are.
    pub(super) fn check_weight(&mut self, step: &Step<'a>) {
        let maker = step.input(1).and_then(|name| self.source(name)).map(|at| self.steps[at].op);
        match maker {
            Some("DequantizeLinear") => self.note(&format!(
                "weights are whole numbers with a factor, as an export to be deployed has them: training holds them as real \
                 numbers, which are read; {CURE}"
            )),
            Some("Constant") => self.note(&format!(
                "weights are constants of the graph, as an export to be deployed has them: they are read as weights that train, \
                 and batch normalisation may be folded into them; {CURE}"
            )),
            // Weights that are normalised themselves (Qiao et al. 2019) have factors of their own.
            Some("BatchNormalization" | "Mul" | "Div" | "Sub" | "Add" | "InstanceNormalization") => {
                let all = step.input(1).map_or(0, |name| self.learned_for(name));
                let own = step.input(1).and_then(|name| self.constant_of_input(name)).map_or(0, |of| of.elements() as u64);
                self.left_out.beside_weights += all.saturating_sub(own);
                self.note(WEIGHTS);
            }
            _ => {}
        }
    }

    /// The step that computes a tensor, behind those that only rearrange it.
    fn source(&self, name: &str) -> Option<usize> {
        let mut at = *self.makers.get(name)?;
        for _ in 0..16 {
            let step = &self.steps[at];
            if !matches!(step.op, "Reshape" | "Identity" | "Cast" | "Transpose" | "Squeeze" | "Unsqueeze" | "Flatten") {
                break;
            }
            match step.input(0).and_then(|name| self.makers.get(name)) {
                Some(before) => at = *before,
                None => break,
            }
        }
        Some(at)
    }

    /// The elements of all initializers of real numbers from which a tensor is computed, but for those that the exporter
    /// made itself and calls val_1, val_2 and so on.
    fn learned_for(&self, name: &str) -> u64 {
        let mut open: Vec<&str> = vec![name];
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut all = 0u64;
        while let Some(name) = open.pop() {
            if !seen.insert(name) || seen.len() > MOST_SOURCES {
                continue;
            }
            match self.makers.get(name) {
                Some(at) => open.extend(self.steps[*at].inputs.iter().map(String::as_str)),
                None => {
                    let learned = self.constant_of_input(name).filter(|of| of.learned && !name.starts_with("val_"));
                    all = all.saturating_add(learned.map_or(0, |of| of.elements() as u64));
                }
            }
        }
        all
    }

    /// Notes the file's parameters that no layer has.
    pub(super) fn note_left_out(&mut self) {
        if self.left_out.beside_weights > 0 {
            let count = self.left_out.beside_weights;
            self.note(&format!(
                "{count} parameters from which weights are computed, beside as many as they have, are left out"
            ));
        }
        match self.left_out.numbers.len() {
            0 => {}
            1 => self.note("a single number that training may change is taken as a constant"),
            count => self.note(&format!("{count} single numbers that training may change are taken as constants")),
        }
    }

    /// The convolutions into which a normalisation is folded, by index, and whether names say so.
    fn folded(&self, drafts: &[Option<&Layer>]) -> (Vec<usize>, bool) {
        let of = |wanted: Bias| {
            let used = self.biases.iter().filter(|(draft, bias)| *bias == wanted && drafts[*draft].is_some());
            used.map(|(draft, _)| *draft).collect::<Vec<_>>()
        };
        let by_name = [of(Bias::Folded), of(Bias::Both)].concat();
        if !by_name.is_empty() {
            return (by_name, true);
        }
        let layers = || drafts.iter().flatten();
        let convolutions = layers().filter(|layer| matches!(layer, Layer::Conv2d(_))).count();
        let is_norm = |layer: &&&Layer| {
            matches!(layer, Layer::BatchNorm(_) | Layer::LayerNorm(_) | Layer::LocalResponseNorm(_) | Layer::Scale(_))
        };
        let unknown = of(Bias::Unknown);
        let all = unknown.len() == convolutions && layers().filter(is_norm).count() == 0 && !self.is_biased(drafts);
        (if all { unknown } else { Vec::new() }, false)
    }

    /// Whether its convolutions are those of a known network that has biases and no normalisation.
    fn is_biased(&self, drafts: &[Option<&Layer>]) -> bool {
        let matrices = |layers: &mut dyn Iterator<Item = &Layer>| {
            let sizes = layers.filter_map(|layer| match layer {
                Layer::Conv2d(conv) => Some((conv.out_channels, conv.kernel, conv.groups, conv.bias)),
                _ => None,
            });
            let mut sizes: Vec<_> = sizes.collect();
            sizes.sort_unstable();
            sizes
        };
        let own = matrices(&mut drafts.iter().flatten().copied());
        let biased = (self.biased)();
        biased.iter().any(|model| matrices(&mut model.layers().iter().map(|node| &node.layer)) == own)
    }

    /// Notes that normalisation is folded away, or restores it behind its convolutions where `unfold` asks for it.
    ///
    /// # Errors
    /// Nothing to restore.
    pub(super) fn unfolded(
        &mut self,
        drafts: Vec<Draft>,
        places: &[Option<usize>],
        unfold: bool,
    ) -> Result<Vec<Draft>, InputError> {
        let layers: Vec<Option<&Layer>> = places.iter().map(|place| place.map(|at| &drafts[at].layer)).collect();
        let (found, by_name) = self.folded(&layers);
        let convolutions = layers.iter().flatten().filter(|layer| matches!(layer, Layer::Conv2d(_))).count();
        let count = found.len();
        let file = self.file;
        if !unfold {
            if by_name {
                self.note(&format!(
                    "batch normalisation is folded into {count} of {convolutions} convolutions, as the names of their weights, \
                     biases or results show: training would take longer and more memory; {CURE}, or write {file}:unfold, or ask \
                     for the setting unfold, to restore it"
                ));
            } else if count > 1 || (count == 1 && convolutions == 1) {
                self.note(&format!(
                    "all {convolutions} convolutions have biases and there is no normalisation: if it was folded away in an \
                     export in eval mode, training would take longer and more memory; {CURE}, or write {file}:unfold, or ask for \
                     the setting unfold, to restore it"
                ));
            }
            return Ok(drafts);
        }
        if found.is_empty() {
            let message = "no batch normalisation is folded away, as far as names and layers show: leave unfold out";
            return Err(InputError::new(file, "unfold", message));
        }
        self.note(&format!("batch normalisation is restored behind {count} of {convolutions} convolutions"));
        let place = |draft: &usize| places[*draft];
        let restored: Vec<usize> = found.iter().filter_map(place).collect();
        let both = self.biases.iter().filter(|(_, bias)| *bias == Bias::Both).map(|(draft, _)| draft);
        let biased: Vec<usize> = both.filter_map(place).collect();
        Ok(restore(drafts, &restored, &biased))
    }
}

/// The layers with a batch normalisation behind each of `convolutions` in place of its bias, or beside it for the `biased`.
fn restore(drafts: Vec<Draft>, convolutions: &[usize], biased: &[usize]) -> Vec<Draft> {
    let mut places = vec![0; drafts.len()];
    let mut all: Vec<Draft> = Vec::with_capacity(drafts.len() + convolutions.len());
    for (index, mut draft) in drafts.into_iter().enumerate() {
        draft.inputs.iter_mut().for_each(|input| *input = places[*input]);
        places[index] = all.len();
        let plain = convolutions.contains(&index).then(|| draft.layer.rule().without_bias()).flatten();
        let Some((plain, _)) = plain else {
            all.push(draft);
            continue;
        };
        let layer = if biased.contains(&index) { draft.layer.clone() } else { plain };
        let norm = Draft {
            name: format!("{}.norm", draft.name),
            layer: Layer::BatchNorm(BatchNorm { epsilon: 1e-5, momentum: 0.9 }),
            inputs: vec![all.len()],
            ..draft.clone()
        };
        all.push(Draft { layer, ..draft });
        places[index] = all.len();
        all.push(norm);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_whose_a_bias_is() {
        for (weight, bias, wanted) in [
            ("conv1.weight", "conv1.bias", Bias::Own),
            ("conv1.weight", "conv1.weight_bias", Bias::Folded),
            ("onnx::Conv_193", "onnx::Conv_194", Bias::Folded),
            ("features.8.weight", "features.3.bias", Bias::Unknown),
            ("cw", "cb", Bias::Unknown),
        ] {
            assert_eq!(bias_of(weight, bias), wanted, "{weight} {bias}");
        }
    }
}
