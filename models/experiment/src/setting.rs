//! `Setting`: a row of the table of settings, from which TOML keys, flags, sweep axes and the page of the docs follow.

use lockstep_topology::InputError;

use super::Experiment;
use super::alike::Unlike;
use super::form::Form;
use super::read::each;
use lockstep_topology::document::Entry;

/// A command that takes settings as flags; several are added up.
pub type Commands = u8;
/// `sim predict`.
pub const PREDICT: Commands = 1;
/// `exec run`.
pub const RUN: Commands = 2;
/// `sim sweep`.
pub const SWEEP: Commands = 4;

/// What a setting decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Predictions and runs.
    Both,
    /// Predictions alone.
    Prediction,
    /// Runs alone.
    Run,
}

/// How the values of a flag are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One value.
    One,
    /// Values with commas between them.
    List,
    /// The flag may be given several times.
    Repeated,
    /// No value: the flag says yes.
    Switch,
    /// `true` or `false` behind an equals sign, or nothing, which is `true`.
    Choice,
}

/// How a setting is read, from a flag and from TOML.
pub trait Reading: Sync {
    /// How the flag is written.
    fn style(&self) -> Style;
    /// Whether values may begin with a hyphen, so that an error can say what is wrong with them.
    fn is_number(&self) -> bool;
    /// Refuses one value of the flag that cannot be.
    fn check(&self, text: &str) -> Result<(), String>;
    /// Takes all values of the flag, which [`Reading::check`] has passed.
    fn take(&self, experiment: &mut Experiment, texts: &[String]) -> Result<(), InputError>;
    /// Takes what a file says.
    fn read(&self, experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError>;
}

/// A row of the table.
pub struct Setting {
    /// Its key in a file; its flag has hyphens for underscores.
    pub key: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// What is written for its value in a flag's help.
    pub value: &'static str,
    /// What holds without it; empty: nothing does.
    pub default: &'static str,
    /// How it is read.
    pub how: &'static dyn Reading,
    /// Commands that have it as a flag.
    pub flag_of: Commands,
    /// The table of the file that its key is in, if it is in one.
    pub table: Option<&'static str>,
    /// Whether a file may give it.
    pub in_file: bool,
    /// Whether arms may differ in it.
    pub in_arms: bool,
    /// Whether it is taken before all others, which then replace what it says.
    pub first: bool,
    /// The setting that it takes the place of: only one of the two is given.
    pub instead_of: Option<&'static str>,
    /// Which side reads it.
    pub reads: Reads,
    /// What a comparison does where only one side would follow it.
    pub unlike: Unlike,
    /// Its spelling in the identity of a sweep; `None` where it decides no prediction, or is an axis.
    pub canonical: fn(&Experiment) -> Option<String>,
    /// The lists that a sweep takes of it.
    pub axis: Option<Axis>,
}

/// A setting as an axis of sweeps: a key of `[sweep]`, and a flag of `sim sweep`.
pub struct Axis {
    /// What it is, in a line; empty: what its setting says.
    pub help: &'static str,
    /// What is written for its values in the flag's help.
    pub value: &'static str,
    /// How its list is read.
    pub how: &'static dyn Reading,
}

/// What rows are where they do not say otherwise.
pub(super) const ROW: Setting = Setting {
    key: "",
    help: "",
    value: "",
    default: "",
    how: &Table(|_, _| Ok(())),
    flag_of: 0,
    table: None,
    in_file: true,
    in_arms: true,
    first: false,
    instead_of: None,
    reads: Reads::Both,
    unlike: Unlike::Never,
    canonical: |_| None,
    axis: None,
};

/// A setting as the flag of one command.
#[derive(Clone, Copy)]
pub struct Flag {
    /// The setting.
    pub setting: &'static Setting,
    /// What it is, in a line.
    pub help: &'static str,
    /// What is written for its value.
    pub value: &'static str,
    /// How it is read.
    pub how: &'static dyn Reading,
}

impl Setting {
    /// Its flag of `command`, which has the list where it is a sweep.
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

/// One value, and where it goes.
pub(super) struct One<T: 'static>(pub Form<T>, pub fn(&mut Experiment, T));

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

    fn take(&self, experiment: &mut Experiment, texts: &[String]) -> Result<(), InputError> {
        let value = (self.0.text)(texts.first().map_or("true", String::as_str));
        (self.1)(experiment, value.map_err(|wrong| InputError::new("", "", wrong))?);
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.1)(experiment, (self.0.entry)(entry)?);
        Ok(())
    }
}

/// One value or a list, and where they go: a flag's without what comes twice, a file's refused for it.
pub(super) struct Each<T: 'static>(pub Form<T>, pub fn(&mut Experiment, Vec<T>));

impl<T: PartialEq> Reading for Each<T> {
    fn style(&self) -> Style {
        Style::List
    }

    fn is_number(&self) -> bool {
        self.0.is_number
    }

    fn check(&self, text: &str) -> Result<(), String> {
        (self.0.text)(text).map(drop)
    }

    fn take(&self, experiment: &mut Experiment, texts: &[String]) -> Result<(), InputError> {
        let mut kept: Vec<T> = Vec::new();
        for text in texts {
            let value = (self.0.text)(text).map_err(|wrong| InputError::new("", "", wrong))?;
            if !kept.contains(&value) {
                kept.push(value);
            }
        }
        (self.1)(experiment, kept);
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.1)(experiment, each(entry, self.0.entry)?);
        Ok(())
    }
}

/// A table, or anything else that only files have.
pub(super) struct Table(pub fn(&mut Experiment, &Entry<'_>) -> Result<(), InputError>);

impl Reading for Table {
    fn style(&self) -> Style {
        Style::One
    }

    fn is_number(&self) -> bool {
        false
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn take(&self, _: &mut Experiment, _: &[String]) -> Result<(), InputError> {
        Ok(())
    }

    fn read(&self, experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.0)(experiment, entry)
    }
}

/// A flag and a key that are spelt in different ways.
pub(super) struct Apart {
    pub style: Style,
    pub check: fn(&str) -> Result<(), String>,
    pub take: fn(&mut Experiment, &[String]) -> Result<(), InputError>,
    pub read: fn(&mut Experiment, &Entry<'_>) -> Result<(), InputError>,
}

impl Reading for Apart {
    fn style(&self) -> Style {
        self.style
    }

    fn is_number(&self) -> bool {
        self.style == Style::List
    }

    fn check(&self, text: &str) -> Result<(), String> {
        (self.check)(text)
    }

    fn take(&self, experiment: &mut Experiment, texts: &[String]) -> Result<(), InputError> {
        (self.take)(experiment, texts)
    }

    fn read(&self, experiment: &mut Experiment, entry: &Entry<'_>) -> Result<(), InputError> {
        (self.read)(experiment, entry)
    }
}
