//! `Read`: what the flags of another framework are here, and what of them is not.

use lockstep_topology::InputError;

/// What another framework's flags or file say, as ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// The framework.
    pub source: &'static str,
    /// Our flags without hyphens in front, each with its value, which is empty for switches.
    pub flags: Vec<(&'static str, String)>,
    /// Flags that stand because the framework has them where nothing is stated, as of its newest version.
    pub defaults: Vec<&'static str>,
    /// What changes neither memory nor the time of a step.
    pub nothing: Vec<String>,
    /// What is switched off and not known, so that it is taken as if it were not there.
    pub assumed: Vec<String>,
    /// What changes memory or time by what is not counted here.
    pub not_counted: Vec<String>,
    /// What describes a model in whose place another is named.
    pub replaced: Vec<String>,
    /// What may change one of them and is not understood.
    pub not_read: Vec<String>,
}

impl Read {
    /// Sets a flag of ours; the last value counts.
    pub(crate) fn set(&mut self, flag: &'static str, value: impl Into<String>) {
        self.flags.retain(|(known, _)| *known != flag);
        self.flags.push((flag, value.into()));
    }

    /// Sets a flag that nothing has set to what the framework has where nothing is stated.
    pub(crate) fn by_default(&mut self, flag: &'static str, value: &str) {
        if self.get(flag).is_none() {
            self.assume(flag, value);
        }
    }

    /// Sets a flag to what the framework has where nothing is stated, whatever it was before.
    pub(crate) fn assume(&mut self, flag: &'static str, value: &str) {
        self.set(flag, value);
        self.defaults.push(flag);
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

    /// Refuses what is not understood; `ignore` says how to leave it out.
    ///
    /// # Errors
    /// All of it, with the cure.
    pub fn check(&self, place: &str, ignore: &str) -> Result<(), InputError> {
        if self.not_read.is_empty() {
            return Ok(());
        }
        let them = if self.not_read.len() == 1 { "it" } else { "them" };
        let message =
            format!("may change memory or time in ways that are not understood here: take {them} out, or {ignore}");
        Err(InputError::new(place, self.not_read.join(", "), message))
    }

    /// What to say of it, a line each; the command names the flags that stand.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let assumed = self.flags.iter().filter(|(flag, _)| self.defaults.contains(flag));
        let defaults: Vec<String> = assumed.map(|(flag, value)| format!("{flag} {value}")).collect();
        let lists = [
            ("by default, as of its newest version", &defaults),
            ("without effect on memory and time", &self.nothing),
            ("off, and taken as without effect", &self.assumed),
            ("not counted", &self.not_counted),
            ("replaced by the model that is named", &self.replaced),
            ("not understood, ignored", &self.not_read),
        ];
        let lines = lists.map(|(what, of)| (!of.is_empty()).then(|| format!("{what}: {}", of.join(", "))));
        lines.into_iter().flatten()
    }

    /// The same for a prediction, whose ranks train by one of our strategies: what it does not count is apart, and what it lacks is
    /// among what is not understood.
    pub fn for_predictions(mut self) -> Read {
        let all = Read { flags: std::mem::take(&mut self.flags), ..Read::default() };
        for (flag, value) in &all.flags {
            let place = || format!("{flag} {value}").trim_end().to_owned();
            match (*flag, value.as_str()) {
                ("strategy" | "sequence-parallel" | "stack", _) | ("tp" | "pp" | "cp" | "ep", "1") => {}
                ("optimizer", "momentum") => self.set("optimizer", "sgd"),
                ("no-transpose-cache" | "defer-head-gradients" | "reduce-bucket-size", _)
                | ("stage3-prefetch-bucket-size" | "stage3-max-live-parameters", _) => self.not_counted.push(place()),
                ("half-gradients", _) => self.set("gradients", "half"),
                ("loss" | "attention" | "dropout" | "compile" | "cp-exchange", _) => self.not_counted.push(place()),
                ("cp" | "ep" | "lora" | "quantize" | "offload-optimizer", _)
                | ("optimizer", "adamw8bit" | "adamw-bf16")
                | ("precision", "bf16-true") => self.not_read.push(place()),
                _ => self.set(flag, value.clone()),
            }
        }
        let split = if all.get("sequence-parallel").is_some() { "sequence-parallel" } else { "megatron" };
        let strategy = match (all.get("tp").is_some_and(|of| of != "1"), all.get("strategy")) {
            (false, Some("ddp") | None) => "ssgd".to_owned(),
            (false, Some("fsdp")) => "zero-3".to_owned(),
            (false, Some(of)) => of.to_owned(),
            (true, Some("ddp") | None) => split.to_owned(),
            (true, Some("zero-1")) => format!("{split}:zero-1"),
            (true, Some(of)) => {
                self.not_read.push(format!("strategy {of} with tp"));
                split.to_owned()
            }
        };
        self.set("strategy", strategy);
        self
    }
}
