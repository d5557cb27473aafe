//! `Written`: what a trained decoder is asked to write after a prompt.

use lockstep_data::{BYTES, Dataset, Spelling};
use lockstep_experiment::{Configuration, Experiment};
use lockstep_measure::run_failure::run_failure;
use lockstep_measure::training::MeasuredTraining;
use lockstep_report::Format;
use lockstep_report::failure::Failure;
use lockstep_report::log::print_information;
use lockstep_topology::InputError;

/// A prompt, and how many tokens follow it.
pub(super) struct Written {
    count: u32,
    prompt: Vec<u32>,
    spelling: Spelling,
}

impl Written {
    /// What models write after `prompt`; without one after the start of a line, or after token 0 where tokens stand for nothing. They
    /// stand for what those of the data stand for; where that is nothing, 256 tokens are bytes.
    ///
    /// # Errors
    /// A device that computes nothing, models of other samples than tokens, data that cannot be opened, and a text where tokens stand
    /// for nothing.
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
        let spelling = match Dataset::spelling(&experiment.data)? {
            Spelling::Numbers if tokens == BYTES => Spelling::Bytes,
            known => known,
        };
        if prompt == Some("") {
            return Err(InputError::flag("prompt", "", "is empty: give a text, or leave it out"));
        }
        let prompt = match (spelling.encode(prompt.unwrap_or("\n")), prompt) {
            (Some(tokens), _) => tokens,
            (None, None) => vec![0],
            (None, Some(text)) => {
                let message = format!(
                    "the tokens of the data {} are no bytes and of no known tokenizer: leave it out, or pack texts with a tokenizer \
                     (lockstep data pack --text FILE --tokenizer FILE)",
                    experiment.data
                );
                return Err(InputError::flag("prompt", text, message));
            }
        };
        Ok(Written { count, prompt, spelling })
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
        let all: Vec<u32> = self.prompt.iter().chain(&tokens).copied().collect();
        let numbers = || tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        Ok(self.spelling.decode(&all).map_or_else(numbers, |text| format!("{text:?}")))
    }
}
