//! Defines flags that several commands share: those of settings and those of a single collective.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use lockstep_sim::FoldRule;
use lockstep_topology::aliases::{of_key, ours};
use lockstep_topology::{Algorithm, Bytes, Cluster, Collective, ErrorPlace, InputError, library_of_gpus};

use super::axis_flags;
use lockstep_experiment::form::Style;
use lockstep_experiment::form::parse_chunk;
pub(super) use lockstep_experiment::form::{algorithm, parsed, positive};
use lockstep_experiment::setting::{Commands, Flag};
use lockstep_experiment::{AxisSizes, Batch, Experiment, TransportKind, default_note, settings};

/// The flags of all settings of a command.
#[derive(Debug, Clone)]
pub(super) struct SettingFlags<const COMMAND: Commands> {
    /// Keys with the given texts.
    given: Vec<(&'static str, Vec<String>)>,
    /// Sizes of the axes that have a flag of their own.
    axes: AxisSizes,
}

/// Whether a command takes a mesh.
fn has_mesh(command: Commands) -> bool {
    flags(command).any(|flag| flag.setting.key == "mesh")
}

fn flags(command: Commands) -> impl Iterator<Item = Flag> {
    settings().filter_map(move |setting| setting.flag(command))
}

/// Settings that are on unless a flag turns them off, with that flag's name.
fn denied(command: Commands) -> impl Iterator<Item = (Flag, String)> {
    let denied = |flag: &Flag| matches!(flag.how.style(), Style::Choice) && flag.setting.default == "true";
    flags(command).filter(denied).map(|flag| (flag, format!("no-{}", flag.setting.key.replace('_', "-"))))
}

impl<const COMMAND: Commands> SettingFlags<COMMAND> {
    /// The experiment in the file, or the default one, with the flags applied.
    ///
    /// # Errors
    /// See [`Experiment::load`]; an unknown recipe.
    pub(super) fn resolve(&self, file: Option<&Path>) -> Result<Experiment, InputError> {
        let mut experiment = file.map_or_else(|| Ok(Experiment::default()), Experiment::load)?;
        let (first, rest): (Vec<_>, Vec<_>) = flags(COMMAND).partition(|flag| flag.setting.first);
        for flag in first.iter().chain(&rest) {
            let given = self.given.iter().filter(|(key, _)| *key == flag.setting.key);
            for (_, texts) in given {
                let mut arms = std::mem::take(&mut experiment.arms);
                for of in arms.iter_mut().map(|arm| &mut arm.experiment).chain([&mut experiment]) {
                    flag.how.take(of, flag.setting, texts)?;
                    of.tell(flag.setting.key, texts.iter().map(String::as_str));
                    of.overridden(flag.setting.place_key());
                    of.overridden(flag.setting.key);
                }
                experiment.arms = arms;
            }
        }
        let mut arms = std::mem::take(&mut experiment.arms);
        for of in arms.iter_mut().map(|arm| &mut arm.experiment).chain([&mut experiment]) {
            self.axes.apply(of)?;
            self.take_batches(of)?;
        }
        experiment.arms = arms;
        experiment.share_settings();
        Ok(experiment.with_data())
    }

    /// Sets the samples of a micro-batch beside those of a step, where the command line gives both.
    fn take_batches(&self, experiment: &mut Experiment) -> Result<(), InputError> {
        let given = ["batch_per_rank", "global_batch"].map(|key| self.given.iter().find(|(other, _)| *other == key));
        let [Some(per_rank), Some((key, texts))] = given else { return Ok(()) };
        // A sweep has one list in the place of both: that of the steps.
        let sizes = per_rank.1.iter().flat_map(|text| text.split(',')).map(|text| text.trim().parse());
        let sizes: Vec<u32> = sizes.collect::<Result<_, _>>().unwrap_or_default();
        experiment.batch = Batch::Global(Vec::new());
        if let Some(flag) = flags(COMMAND).find(|flag| flag.setting.key == *key) {
            flag.how.take(experiment, flag.setting, texts)?;
        }
        let global = experiment.batch.global().to_vec();
        experiment.set_batches(&sizes, global)
    }
}

/// As on a command line, each preceded by a space.
impl<const COMMAND: Commands> Display for SettingFlags<COMMAND> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.given.iter().try_for_each(|(key, texts)| write!(f, " {} {}", ErrorPlace::Flag(key), texts.join(",")))?;
        self.axes.fmt(f)
    }
}

impl<const COMMAND: Commands> Args for SettingFlags<COMMAND> {
    fn augment_args(command: Command) -> Command {
        let command = flags(COMMAND).fold(command, |command, flag| command.arg(argument(flag)));
        let command = if has_mesh(COMMAND) { axis_flags::augment(command) } else { command };
        denied(COMMAND).fold(command, |command, (flag, name)| {
            let help = format!("The same as --{}=false", flag.setting.key.replace('_', "-"));
            let argument = Arg::new(name.clone()).long(name).help(help).action(ArgAction::SetTrue);
            command.arg(argument.conflicts_with(flag.setting.key))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingFlags::<COMMAND>::augment_args(command)
    }
}

impl<const COMMAND: Commands> FromArgMatches for SettingFlags<COMMAND> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingFlags<COMMAND>, Error> {
        let texts = |flag: Flag| {
            let key = flag.setting.key;
            (matches.value_source(key) == Some(ValueSource::CommandLine)).then(|| match flag.how.style() {
                Style::Switch => (key, Vec::new()),
                _ => (key, matches.get_many::<String>(key).into_iter().flatten().cloned().collect()),
            })
        };
        let no = |(flag, name): (Flag, String)| {
            matches.get_flag(&name).then(|| (flag.setting.key, vec!["false".to_owned()]))
        };
        let given = flags(COMMAND).filter_map(texts).chain(denied(COMMAND).filter_map(no)).collect();
        let axes = if has_mesh(COMMAND) { axis_flags::sizes(matches) } else { AxisSizes::default() };
        Ok(SettingFlags { given, axes })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = SettingFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Of settings that only sweeps take lists of.
const ONE_VALUE: &str = "it has one value here, and a list of them in lockstep sim sweep";

/// Of settings that are lists.
const LISTED: &str = "several are written with commas, as in 8,16,32";

/// The clap argument of a flag; values are checked during parsing.
fn argument(flag: Flag) -> Arg {
    let (setting, how) = (flag.setting, flag.how);
    let mut argument = Arg::new(setting.key).long(setting.key.replace('_', "-")).help(flag.help);
    argument = argument.aliases(of_key(setting.key));
    if setting.table.is_some() || setting.first || setting.key == "optimizer" {
        argument = argument.help_heading("Optimizer");
    }
    if let Some(other) = setting.instead_of.filter(|_| setting.key != "global_batch") {
        argument = argument.conflicts_with(other);
    }
    let check = move |text: &str| how.check(text).map(|()| text.to_owned());
    let check_one = move |text: &str| {
        let says_more = text.contains(',') && setting.takes_one();
        check(text).map_err(|wrong| if says_more { format!("{wrong}; {ONE_VALUE}") } else { wrong })
    };
    let check_item = move |text: &str| {
        let is_range = how.is_number() && (text.contains("..") || text.trim().contains(['-', ' ', ';', 'x', '/']));
        check(text).map_err(|wrong| if is_range { format!("{wrong}; {LISTED}") } else { wrong })
    };
    let argument = match how.style() {
        Style::Switch => return argument.action(ArgAction::SetTrue),
        Style::Choice => {
            argument.value_parser(["true", "false"]).num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        Style::One => argument.value_parser(check_one),
        Style::List => argument.value_parser(check_item).value_delimiter(','),
        Style::Repeated => argument.value_parser(check).action(ArgAction::Append),
    };
    argument.value_name(flag.value).allow_hyphen_values(how.is_number())
}

/// Whether ranks that symmetry makes equal are simulated once.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FoldFlags {
    /// Simulate every rank, also those that symmetry makes equal to others
    #[arg(long)]
    no_fold: bool,
    /// Round exchanges up to equal parts, so that ranks fold: of training steps the same as --pad
    #[arg(long, conflicts_with = "no_fold")]
    pub(super) fold_padded: bool,
}

impl FoldFlags {
    /// Rounds the experiment's exchanges up if asked.
    ///
    /// # Errors
    /// A flag that says the opposite.
    pub(super) fn pad(self, experiment: &mut Experiment) -> Result<(), InputError> {
        let is_flag = matches!(experiment.places.get("pad"), Some(ErrorPlace::Flag(_)));
        if self.fold_padded && is_flag && !experiment.pad {
            return Err(InputError::flag("pad", "false", "says the opposite of --fold-padded: keep one of the two"));
        }
        experiment.pad |= self.fold_padded;
        Ok(())
    }

    /// The rule selected by the flags.
    pub(super) fn rule(self) -> FoldRule {
        if self.no_fold { FoldRule::Never } else { FoldRule::Exact }
    }
}

/// A collective, its algorithms, its members and its sizes.
#[derive(Debug, Clone, Args)]
pub struct CollectiveFlags {
    /// allreduce, reduce-scatter, allgather, broadcast, broadcast:ROOT, reduce, reduce:ROOT, scatter:ROOT,
    /// gather:ROOT, alltoallv (equal blocks) [default: allreduce]
    #[arg(long, value_name = "NAME")]
    pub collective: Option<String>,
    /// Of the registry; rows follow in the given order. None: the default
    #[arg(long = "algorithm", value_parser = algorithm, value_delimiter = ',', value_name = "A,…")]
    #[arg(help = algorithms(|(form, _)| form, ", "), long_help = algorithms(|(form, help)| format!("{form}: {help}"), "\n"))]
    pub algorithms: Vec<Algorithm>,
    /// Members of the group
    #[arg(long, value_parser = positive, value_name = "N", allow_hyphen_values = true, aliases = of_key("ranks"))]
    #[arg(required = true)]
    pub ranks: Option<u32>,
    /// Sizes of the buffer, e.g. 4KiB,1MiB,100MiB; 8..1GiB is 8 bytes and every double of it up to 1GiB; K, M and G alone are
    /// powers of 1024, as in nccl-tests
    #[arg(long, value_delimiter = ',', value_parser = sizes, value_name = "SIZE,…", default_value = "1MiB")]
    bytes: Vec<Sizes>,
    /// Bytes per lane; else the algorithm's own choice
    #[arg(long, value_parser = parse_chunk, value_name = "SIZE")]
    pub chunk: Option<Bytes>,
    /// Transport between ranks: threads (memory) or mpi
    #[arg(long, value_parser = parsed::<TransportKind>, value_name = "KIND", default_value = "threads")]
    pub transport: TransportKind,
}

impl CollectiveFlags {
    /// The buffer's sizes, in the given order.
    pub fn sizes(&self) -> Vec<Bytes> {
        self.bytes.iter().flat_map(|sizes| sizes.0.iter().copied()).collect()
    }

    /// Where no algorithm is given, the library between the GPUs of `cluster`, if it serves the collective and nothing
    /// is given that only lockstep's own algorithms read; else a ring. Returns a note on the library.
    ///
    /// # Errors
    /// An unknown collective.
    pub fn default_algorithm(&mut self, cluster: Option<&Cluster>) -> Result<Option<String>, InputError> {
        if !self.algorithms.is_empty() {
            return Ok(None);
        }
        let collective = self.collective(1)?;
        let serves = |library: &Algorithm| self.chunk.is_none() && library.serves(&collective);
        let library = cluster.and_then(library_of_gpus).filter(serves);
        self.algorithms = vec![library.clone().unwrap_or_else(Algorithm::ring)];
        let flag = ErrorPlace::Flag("algorithm");
        Ok(library.map(|library| default_note(&library, &flag)))
    }

    /// Refuses a number of bytes per lane where libraries divide all buffers themselves.
    ///
    /// # Errors
    /// Such a number, with the cure.
    pub fn check_chunk(&self) -> Result<(), InputError> {
        let own = |algorithm: &Algorithm| algorithm.library().is_none();
        match self.chunk {
            Some(chunk) if !self.algorithms.is_empty() && !self.algorithms.iter().any(own) => {
                let message = "is of lockstep's own algorithms, and a library divides its buffers itself: use e.g. ring, or leave \
                               it out";
                Err(InputError::flag("chunk", chunk.to_string(), message))
            }
            _ => Ok(()),
        }
    }

    /// Members: as given, or as a log lists them.
    pub fn members(&self) -> u32 {
        self.ranks.unwrap_or(1)
    }

    /// The name of the collective, if one is given.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(&self) -> Result<Option<String>, InputError> {
        let located = |error: InputError| error.at(ErrorPlace::Flag("collective"));
        let Some(given) = &self.collective else { return Ok(None) };
        let wrong = |wrong: String| located(InputError::new("", "", wrong));
        let name = ours("collective", given, ["alltoallv"]).map_err(wrong)?;
        if name == "alltoallv" {
            return Ok(Some(name.into_owned()));
        }
        given.parse::<Collective>().map(|collective| Some(collective.to_string())).map_err(located)
    }

    /// The collective itself, over `elements` elements; an alltoallv has equal blocks.
    ///
    /// # Errors
    /// An unknown name, or too many members for a table of counts.
    pub fn collective(&self, elements: u64) -> Result<Collective, InputError> {
        /// The most members for a table of counts per pair.
        const MOST: u32 = 8192;
        let Some(name) = self.named()? else { return Ok(Collective::AllReduce) };
        if name != "alltoallv" {
            return name.parse().map_err(|error: InputError| error.at(ErrorPlace::Flag("collective")));
        }
        if self.members() > MOST {
            let message = format!("an alltoallv has a count per pair: use at most {MOST} ranks");
            return Err(InputError::flag("ranks", self.members().to_string(), message));
        }
        let ranks = u64::from(self.members());
        let counts = vec![elements / ranks; (ranks * ranks) as usize];
        Ok(Collective::AllToAllV { counts: counts.into() })
    }
}

/// A size, or all sizes of a range.
#[derive(Debug, Clone)]
struct Sizes(Vec<Bytes>);

/// Reads `1MiB`, or `8..1GiB` by doubling.
fn sizes(text: &str) -> Result<Sizes, String> {
    let Some((first, last)) = text.split_once("..") else { return buffer(text).map(|size| Sizes(vec![size])) };
    let (first, last) = (buffer(first)?, buffer(last)?);
    if first > last {
        return Err(format!("{text:?}: write the smaller size first"));
    }
    let doubles = std::iter::successors(Some(first), |size| size.0.checked_mul(2).map(Bytes));
    Ok(Sizes(doubles.take_while(|size| *size <= last).collect()))
}

/// The size of a buffer.
fn buffer(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>()? {
        Bytes(0..4) => Err(format!("{text:?}: a buffer has at least one element: 4B or more")),
        bytes => Ok(bytes),
    }
}

/// The algorithms of the registry, formatted by `show`.
fn algorithms(show: impl Fn((String, &'static str)) -> String, between: &str) -> String {
    Algorithm::forms().map(show).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_sizes_double_up_to_their_end() {
        let read = |text: &str| sizes(text).map(|sizes| sizes.0.iter().map(|size| size.0).collect::<Vec<_>>());
        assert_eq!(read("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(read("5..19B"), Ok(vec![5, 10]));
        assert_eq!(read("1KiB..1KiB"), Ok(vec![1024]));
        assert_eq!(read("8..1GiB").map(|sizes| sizes.len()), Ok(28));
        for text in ["64..8", "..8", "8..", "0..8", "8..16..32", "8-16"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
