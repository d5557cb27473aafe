//! `Written`: what a trained decoder is asked to write after a prompt.

use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::run_failure::run_failure;
use lockstep_measure::training::MeasuredTraining;
use lockstep_report::Format;
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_topology::InputError;

/// Tokens of a model whose tokens are bytes.
const BYTES: u32 = 256;

/// A prompt, and how many tokens follow it.
pub(super) struct Written {
    count: u32,
    prompt: Vec<u32>,
    is_text: bool,
}

impl Written {
    /// What models write after `prompt`; without one after the start of a line, or after token 0 where tokens are no bytes.
    ///
    /// # Errors
    /// A device that computes nothing, models of other samples than tokens, and a text where tokens are no bytes.
    pub(super) fn new(
        count: u32,
        prompt: Option<&str>,
        (experiment, configurations): (&Experiment, &[Configuration]),
    ) -> Result<Written, InputError> {
        if !experiment.device.learns() {
            let message = "needs a device that computes, and null does not: use cpu";
            return Err(InputError::flag("generate", count.to_string(), message));
        }
        let model = &configurations[0].job.model;
        let Some(tokens) = model.tokens() else {
            let message = format!("{} reads no tokens: give a decoder, e.g. gpt2-char", model.name());
            return Err(InputError::flag("generate", count.to_string(), message));
        };
        let is_text = tokens == BYTES;
        let prompt = match prompt {
            Some("") => return Err(InputError::flag("prompt", "", "is empty: give a text, or leave it out")),
            Some(text) if !is_text => {
                let message = format!("the tokens of {} are no bytes: leave it out", model.name());
                return Err(InputError::flag("prompt", text, message));
            }
            Some(text) => text.bytes().map(u32::from).collect(),
            None if is_text => vec![u32::from(b'\n')],
            None => vec![0],
        };
        Ok(Written { count, prompt, is_text })
    }

    /// A note of what a trained model writes, which a table of values alone has no place for. What is trained stays, whatever it
    /// writes.
    pub(super) fn note(&self, label: &str, measured: &mut MeasuredTraining, format: Format) -> String {
        let text = self.by(measured).unwrap_or_else(|failure| format!("nothing: {failure}"));
        let note = format!("{label} writes: {text}");
        if format == Format::Csv {
            print_information(&note);
        }
        note
    }

    /// What a trained model writes: the prompt with the text after it, or numbers of tokens.
    ///
    /// # Errors
    /// Those of its device.
    fn by(&self, measured: &mut MeasuredTraining) -> Result<String, Failure> {
        let seed = measured.seed;
        let tokens = measured.run.generate(&self.prompt, self.count as usize, seed).map_err(run_failure)?;
        if !self.is_text {
            return Ok(tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        }
        let bytes: Vec<u8> = self.prompt.iter().chain(&tokens).map(|token| *token as u8).collect();
        Ok(format!("{:?}", String::from_utf8_lossy(&bytes)))
    }
}
