//! `Read`: what the flags of another framework are here, and what of them is not.

use lockstep_topology::{ErrorPlace, InputError};

/// What another framework's flags or file say, as ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// The framework.
    pub source: &'static str,
    /// Our flags without hyphens in front, each with its value, which is empty for switches.
    pub flags: Vec<(&'static str, String)>,
    /// What changes neither memory nor the time of a step.
    pub nothing: Vec<String>,
    /// What predictions do not count.
    pub not_counted: Vec<String>,
    /// What may change one of them and is not understood.
    pub not_read: Vec<String>,
}

impl Read {
    /// Sets a flag of ours; the last value counts.
    pub(crate) fn set(&mut self, flag: &'static str, value: impl Into<String>) {
        self.flags.retain(|(known, _)| *known != flag);
        self.flags.push((flag, value.into()));
    }

    /// The value of a flag of ours.
    pub fn get(&self, flag: &str) -> Option<&str> {
        self.flags.iter().find(|(known, _)| *known == flag).map(|(_, value)| value.as_str())
    }

    /// Sets a flag where the condition holds.
    pub(crate) fn set_if(&mut self, holds: bool, flag: &'static str, value: &str) {
        if holds {
            self.set(flag, value);
        }
    }

    /// Refuses what is not understood.
    ///
    /// # Errors
    /// All of it, with the cure.
    pub fn check(&self, place: &str) -> Result<(), InputError> {
        if self.not_read.is_empty() {
            return Ok(());
        }
        let (them, ignore) = (if self.not_read.len() == 1 { "it" } else { "them" }, ErrorPlace::Flag("ignore"));
        let message =
            format!("may change memory or time in ways that are not understood here: take {them} out, or add {ignore}");
        Err(InputError::new(place, self.not_read.join(", "), message))
    }

    /// The same for a prediction, whose ranks train by one of our strategies: what it does not count is apart, and what it lacks is
    /// among what is not understood.
    pub fn for_predictions(mut self) -> Read {
        let flags = std::mem::take(&mut self.flags);
        let value = |name: &str| flags.iter().find(|(flag, _)| *flag == name).map(|(_, value)| value.as_str());
        let tensor = value("tp").is_some_and(|of| of != "1");
        let sharded = value("strategy");
        for (flag, value) in &flags {
            match *flag {
                "strategy" | "sequence-parallel" | "stack" => {}
                "cp" | "ep" if value == "1" => {}
                "cp" | "ep" | "lora" | "quantize" | "offload-optimizer" => {
                    self.not_read.push(format!("--{flag} {value}").trim_end().to_owned());
                }
                "optimizer" if !["adamw", "sgd", "momentum"].contains(&value.as_str()) => {
                    self.not_read.push(format!("--{flag} {value}"));
                }
                "loss" | "attention" | "dropout" | "compile" | "half-gradients" | "cp-exchange" => {
                    self.not_counted.push(format!("--{flag} {value}").trim_end().to_owned());
                }
                "precision" if value == "bf16-true" => self.not_read.push(format!("--{flag} {value}")),
                _ => self.flags.push((flag, value.clone())),
            }
        }
        let split = if value("sequence-parallel").is_some() { "sequence-parallel" } else { "megatron" };
        let strategy = match (tensor, sharded) {
            (false, Some("ddp") | None) => "ssgd".to_owned(),
            (false, Some("megatron")) => "zero-1".to_owned(),
            (false, Some("fsdp")) => "zero-3".to_owned(),
            (false, Some(of)) => of.to_owned(),
            (true, Some("ddp") | None) => split.to_owned(),
            (true, Some("zero-1" | "megatron")) => format!("{split}:zero-1"),
            (true, Some(of)) => {
                self.not_read.push(format!("strategy {of} with tp"));
                split.to_owned()
            }
        };
        self.set("strategy", strategy);
        self
    }
}
