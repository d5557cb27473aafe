//! `Setting`: a row of the table of settings, from which TOML keys, flags, sweep axes and the page of the docs follow.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use lockstep_topology::InputError;

use crate::experiment::{Choice, Experiment};
use crate::form::{Form, Items, Style};
use crate::identity::Identity;
use crate::trained::{Trained, Value};
use crate::unlike::Unlike;
use lockstep_topology::document::Entry;

/// A command that takes settings as flags; several are combined as bits.
pub type Commands = u8;
/// `sim predict`.
pub const PREDICT: Commands = 1;
/// `exec run`.
pub const RUN: Commands = 2;
/// `sim sweep`.
pub const SWEEP: Commands = 4;
/// `exec sweep`.
pub const TRAIN: Commands = 8;

/// Which side a setting affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    /// Predictions and runs.
    Both,
    /// Predictions alone.
    Prediction,
    /// Runs alone.
    Run,
}

/// Reads a setting from a flag and from TOML.
pub trait Reading: Sync {
    /// How the flag is written.
    fn style(&self) -> Style {
        Style::One
    }

    /// Whether values may begin with a hyphen, so that an error can say what is wrong with them.
    fn is_number(&self) -> bool {
        false
    }

    /// Refuses an invalid value of the flag.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    /// Takes all values of the flag, which [`Reading::check`] has passed.
    ///
    /// # Errors
    /// Values that contradict each other.
    fn take(&self, _: &mut Experiment, _: &SettingEntry, _: &[String]) -> Result<(), InputError> {
        Ok(())
    }

    /// Applies the value in a file.
    ///
    /// # Errors
    /// An invalid value, at its line.
    fn read(&self, experiment: &mut Experiment, setting: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError>;

    /// The list of an axis that is not given: the experiment's own value; empty where another key replaces it.
    fn own(&self, _: &Experiment) -> Vec<Choice> {
        Vec::new()
    }
}

/// A row of the table.
pub struct SettingEntry {
    /// Its key in a file; its flag has hyphens for underscores.
    pub key: &'static str,
    /// Its description, in a line.
    pub help: &'static str,
    /// The placeholder of its value in a flag's help.
    pub value: &'static str,
    /// Its default; empty: none.
    pub default: &'static str,
    /// How it is parsed.
    pub how: &'static dyn Reading,
    /// Commands that have it as a flag.
    pub flag_of: Commands,
    /// The table of the file that its key is in, if any.
    pub table: Option<&'static str>,
    /// Whether a file may set it.
    pub in_file: bool,
    /// Whether arms may differ in it.
    pub in_arms: bool,
    /// Whether it is applied before all others, which then replace its values.
    pub first: bool,
    /// The setting that it replaces: only one of the two may be given.
    pub instead_of: Option<&'static str>,
    /// Which side reads it.
    pub reads: ReadBy,
    /// What a comparison does where only one side would follow it.
    pub unlike: Unlike,
    /// Adds it to the identity of a sweep; does nothing where it decides no prediction, or is an axis.
    pub identify: fn(&Experiment, &mut Identity),
    /// Which trainings it distinguishes, and by which value.
    pub trained: Option<(Trained, Value)>,
    /// The list that a sweep takes for it.
    pub axis: Option<SweepAxis>,
}

impl SettingEntry {
    /// Whether it has one value, and a list of them in a sweep alone.
    pub fn takes_one(&self) -> bool {
        self.axis.is_some() && matches!(self.how.style(), Style::One)
    }
}

/// A setting as an axis of sweeps: a key of `[sweep]`, and a flag of `sim sweep`.
pub struct SweepAxis {
    /// Its description, in a line; empty: that of its setting.
    pub help: &'static str,
    /// The placeholder of its values in the flag's help.
    pub value: &'static str,
    /// How its list is parsed.
    pub how: &'static dyn Reading,
    /// Its place in the nesting of axes.
    pub nests: Nests,
    /// Whether it is about exchanges, which a single rank does not have.
    pub exchanges: bool,
}

/// The order in which points vary; equal axes nest in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nests {
    /// What is costly to change.
    Outside,
    /// All others.
    Between,
    /// What is compared side by side.
    Inside,
}

/// The defaults of an axis.
pub const AXIS: SweepAxis =
    SweepAxis { help: "", value: "N,…", how: &SettingTable(|_, _| Ok(())), nests: Nests::Between, exchanges: false };

/// The defaults of a row.
pub const ROW: SettingEntry = SettingEntry {
    key: "",
    help: "",
    value: "",
    default: "",
    how: &SettingTable(|_, _| Ok(())),
    flag_of: 0,
    table: None,
    in_file: true,
    in_arms: true,
    first: false,
    instead_of: None,
    reads: ReadBy::Both,
    unlike: Unlike::Never,
    identify: |_, _| (),
    trained: None,
    axis: None,
};

/// A setting as the flag of one command.
#[derive(Clone, Copy)]
pub struct Flag {
    /// The setting.
    pub setting: &'static SettingEntry,
    /// Its description, in a line.
    pub help: &'static str,
    /// The placeholder of its value.
    pub value: &'static str,
    /// How it is parsed.
    pub how: &'static dyn Reading,
}

impl SettingEntry {
    /// Its flag of `command`, which takes the list where that is a sweep.
    pub fn flag(&'static self, command: Commands) -> Option<Flag> {
        match &self.axis {
            Some(axis) if command == SWEEP => {
                let help = if axis.help.is_empty() { self.help } else { axis.help };
                Some(Flag { setting: self, help, value: axis.value, how: axis.how })
            }
            _ if self.flag_of & command == 0 => None,
            _ => Some(Flag { setting: self, help: self.help, value: self.value, how: self.how }),
        }
    }

    /// The key whose line errors about it name.
    pub fn place_key(&self) -> &'static str {
        self.table.unwrap_or(self.key)
    }
}

/// One value, and the function that sets it.
pub struct One<T: 'static>(pub Form<T>, pub fn(&mut Experiment, T));

impl<T> Reading for One<T> {
    fn style(&self) -> Style {
        self.0.style
    }

    fn is_number(&self) -> bool {
        self.0.is_number
    }

    fn check(&self, text: &str) -> Result<(), String> {
        (self.0.text)(text).map(drop)
    }

    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        let value = (self.0.text)(texts.first().map_or("true", String::as_str));
        (self.1)(experiment, value.map_err(|wrong| InputError::new("", "", wrong))?);
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.1)(experiment, (self.0.entry)(entry)?);
        Ok(())
    }
}

/// One value or a list, and the function that sets them: a flag's without repetitions, a file's refused for them.
pub struct Each<T: 'static>(pub Form<T>, pub fn(&mut Experiment, Vec<T>));

impl<T: PartialEq + Debug> Reading for Each<T> {
    fn style(&self) -> Style {
        Style::List
    }

    fn is_number(&self) -> bool {
        self.0.is_number
    }

    fn check(&self, text: &str) -> Result<(), String> {
        (self.0.text)(text).map(drop)
    }

    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        (self.1)(experiment, self.0.of_texts(texts)?);
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.1)(experiment, self.0.of_entry(entry)?);
        Ok(())
    }
}

/// The list of an axis: its items, the experiment's own value, and the function that sets one value.
pub struct List<T: 'static, I = Form<T>> {
    /// How items are parsed.
    pub items: I,
    /// The experiment's own value; empty where another key replaces it.
    pub own: fn(&Experiment) -> Vec<T>,
    /// Sets a value in an experiment.
    pub set: fn(&mut Experiment, T),
    /// The spelling of a value in identities.
    pub spell: fn(&T) -> String,
}

/// A list of values that identities spell by `Display`.
pub const fn list<T: Display, I>(items: I, own: fn(&Experiment) -> Vec<T>, set: fn(&mut Experiment, T)) -> List<T, I> {
    List { items, own, set, spell: T::to_string }
}

impl<T: Clone + PartialEq + Debug + Send + Sync, I: Items<T>> List<T, I> {
    fn choices(&self, values: Vec<T>) -> Vec<Choice> {
        let set = self.set;
        let choice = |value: T| Choice {
            text: (self.spell)(&value),
            set: Arc::new(move |experiment| set(experiment, value.clone())),
        };
        values.into_iter().map(choice).collect()
    }

    fn put(&self, experiment: &mut Experiment, setting: &SettingEntry, values: Vec<T>) {
        let slot = setting.instead_of.unwrap_or(setting.key);
        experiment.sweep.lists.insert(slot, (setting.key, self.choices(values)));
    }
}

impl<T: Clone + PartialEq + Debug + Send + Sync, I: Items<T>> Reading for List<T, I> {
    fn style(&self) -> Style {
        Style::List
    }

    fn is_number(&self) -> bool {
        self.items.is_number()
    }

    fn check(&self, text: &str) -> Result<(), String> {
        self.items.text(text).map(drop)
    }

    fn take(&self, experiment: &mut Experiment, setting: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        self.put(experiment, setting, self.items.of_texts(texts)?);
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, setting: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        self.put(experiment, setting, self.items.of_entry(entry)?);
        Ok(())
    }

    fn own(&self, experiment: &Experiment) -> Vec<Choice> {
        self.choices((self.own)(experiment))
    }
}

/// A table, or anything else that only files have.
pub struct SettingTable(pub fn(&mut Experiment, &Entry<'_>) -> Result<(), InputError>);

impl Reading for SettingTable {
    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.0)(experiment, entry)
    }
}
