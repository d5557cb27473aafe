//! `Algorithm`: names an algorithm as on the command line and in experiments: an entry of the registry and its
//! parameters.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::group::Group;
use super::lanes::Lanes;
use super::meaning::Collective;
use super::nccl::{Method, Request, Wire};
use crate::{Dtype, InputError};

/// How a collective is performed, with its parameters; read from and shown as text.
///
/// ```
/// use lockstep_topology::{Algorithm, Collective};
/// let algorithm: Algorithm = "hierarchical:multi-color:4".parse()?;
/// assert_eq!(algorithm.to_string(), "hierarchical:multi-color:4");
/// assert!(algorithm.by_nodes() && algorithm.serves(&Collective::AllReduce));
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
#[derive(Clone)]
pub struct Algorithm {
    pub(super) entry: &'static Entry,
    pub(super) values: Box<[Value]>,
}

/// The library that performs a collective, which is called instead of running our lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Library {
    /// The transport, on memory of the host, with one rank in each process.
    Transport,
    /// The devices of the group among themselves, on their own memory.
    Devices,
    /// One of devices that are predicted and do not run.
    Predicted,
}

/// The members that a switch joins: of an algorithm, the number of members with data, the number of the switch.
type Joins = fn(&Algorithm, u32, u32) -> Vec<u32>;

/// The registry's description of an algorithm, which is in the algorithm's file.
pub(super) struct Entry {
    /// Its name; for libraries `library:` and their name.
    pub(super) name: &'static str,
    /// The parameters after the name, each after a colon.
    pub(super) parameters: &'static [Parameter],
    /// What it does, in one line.
    pub(super) help: &'static str,
    /// Which collectives it serves.
    pub(super) serves: fn(&Collective) -> bool,
    /// Binds it to a collective that it serves and the members.
    pub(super) lanes: fn(&Call<'_>) -> Result<Box<dyn Lanes>, InputError>,
    /// The library that performs it, if one does.
    pub(super) library: Option<Library>,
    /// Whether it depends on the nodes of its members.
    pub(super) by_nodes: bool,
    /// Members besides those that have data, after them: dedicated servers, or switches that sum in the network.
    pub(super) servers: fn(&Algorithm) -> u32,
    /// The members that a switch joins, where its servers are switches and not ranks on devices.
    pub(super) joins: Option<Joins>,
}

impl Entry {
    /// The defaults of an entry.
    pub(super) const PLAIN: Entry = Entry {
        name: "",
        parameters: &[],
        help: "",
        serves: |_| false,
        lanes: |call| Err(call.refuse("has no lanes")),
        library: None,
        by_nodes: false,
        servers: |_| 0,
        joins: None,
    };

    /// Its name with an example of each parameter that it needs.
    pub(super) fn form(&self) -> String {
        let examples = self.parameters.iter().filter_map(Parameter::example);
        examples.fold(self.name.to_owned(), |form, example| format!("{form}:{example}"))
    }
}

/// A parameter of an algorithm.
pub(super) enum Parameter {
    /// A whole number of at least 1 and at most `most`, for the reason `because`.
    Count { what: &'static str, example: u32, most: u32, because: &'static str },
    /// A word that may be added.
    Flag { word: &'static str },
    /// Another algorithm, which has no such parameter itself.
    Algorithm { what: &'static str, example: &'static str },
    /// A version of NCCL and what it is forced to take; optional.
    Nccl,
    /// The protocol of messages, with the steps of this method; optional.
    Protocol(Method),
}

impl Parameter {
    /// How many rings or pairs of trees divide the buffer.
    pub(super) const CHANNELS: Parameter = Parameter::Count {
        what: "the number of channels",
        example: 4,
        most: 64,
        because: "more channels than NCCL can have",
    };

    /// An example of its text, where it is not optional.
    fn example(&self) -> Option<String> {
        match self {
            Parameter::Count { example, .. } => Some(example.to_string()),
            Parameter::Flag { .. } | Parameter::Nccl | Parameter::Protocol(_) => None,
            Parameter::Algorithm { example, .. } => Some((*example).to_owned()),
        }
    }

    /// What it is, for error messages.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Parameter::Count { what, .. } | Parameter::Algorithm { what, .. } => what,
            Parameter::Flag { word } => word,
            Parameter::Nccl => "a version and what is forced",
            Parameter::Protocol(_) => "a protocol",
        }
    }
}

/// The value of a [`Parameter`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// A number.
    Count(u32),
    /// The word, or an empty text where it is omitted.
    Flag(&'static str),
    /// An algorithm.
    Algorithm(Algorithm),
    /// The request to NCCL.
    Nccl(Request),
    /// A protocol of messages; `None` where it is omitted.
    Protocol(Option<Wire>),
    /// The members in the order of each channel, and the number of its flow.
    Orders(Arc<[(Vec<u32>, u32)]>),
}

/// The task of an algorithm.
pub(super) struct Call<'a> {
    /// The algorithm, for its parameters and for errors.
    pub(super) algorithm: &'a Algorithm,
    /// A collective that it serves.
    pub(super) collective: &'a Collective,
    /// At least one member.
    pub(super) group: &'a Group,
    /// Elements of the buffer.
    pub(super) elements: u64,
    /// Their format.
    pub(super) dtype: Dtype,
    /// Whether `hierarchical` calls it for the leaders of nodes, with lanes that each sum a range of the buffer.
    pub(super) nested: bool,
}

impl Call<'_> {
    /// Number of members.
    pub(super) fn members(&self) -> u32 {
        self.group.members()
    }

    /// An error about the algorithm.
    pub(super) fn refuse(&self, cure: impl Into<String>) -> InputError {
        InputError::new("", self.algorithm.to_string(), cure)
    }

    /// The root, 0 for a collective that has none.
    ///
    /// # Errors
    /// A root that is no member.
    pub(super) fn root(&self) -> Result<u32, InputError> {
        let (root, members) = (self.collective.root().unwrap_or(0), self.members());
        if root < members {
            return Ok(root);
        }
        let cure = format!("there are {members} members: use a root from 0 to {}", members - 1);
        Err(InputError::new("", self.collective.to_string(), cure))
    }
}

impl Algorithm {
    /// The algorithm of an entry with a value for each parameter.
    pub(super) fn new(entry: &'static Entry, values: impl Into<Box<[Value]>>) -> Algorithm {
        Algorithm { entry, values: values.into() }
    }

    /// Whether it serves a collective, for some members at least.
    pub fn serves(&self, collective: &Collective) -> bool {
        (self.entry.serves)(collective)
    }

    /// The library that performs it instead of our lanes, if one does.
    pub fn library(&self) -> Option<Library> {
        self.entry.library
    }

    /// Whether `exec` performs it by a call that returns when its part of the exchange has ended, and so occupies the
    /// rank's thread.
    pub fn blocks(&self) -> bool {
        self.library() == Some(Library::Transport)
    }

    /// The request to NCCL, where it performs the collective.
    ///
    /// ```
    /// use lockstep_topology::Algorithm;
    /// let nccl: Algorithm = "library:nccl@2.20:ring".parse()?;
    /// assert_eq!(nccl.nccl().map(|request| request.version.minor), Some(20));
    /// # Ok::<(), lockstep_topology::InputError>(())
    /// ```
    pub fn nccl(&self) -> Option<Request> {
        self.values.iter().find_map(|value| if let Value::Nccl(request) = value { Some(*request) } else { None })
    }

    /// The protocol of NCCL with which its messages are predicted, where one is named; execution ignores it.
    ///
    /// ```
    /// use lockstep_topology::{Algorithm, nccl::NcclProtocol};
    /// let rings: Algorithm = "rings:8:ll128".parse()?;
    /// assert_eq!(rings.wire().map(|wire| wire.protocol), Some(NcclProtocol::Ll128));
    /// assert_eq!("rings:8".parse::<Algorithm>()?.wire(), None);
    /// # Ok::<(), lockstep_topology::InputError>(())
    /// ```
    pub fn wire(&self) -> Option<Wire> {
        self.values.iter().find_map(|value| if let Value::Protocol(wire) = value { *wire } else { None })
    }

    /// Whether it depends on the nodes of its members.
    pub fn by_nodes(&self) -> bool {
        self.entry.by_nodes
    }

    /// Members that it needs besides those that have data: dedicated servers, or switches that add. They come last and
    /// get no result.
    pub fn servers(&self) -> u32 {
        (self.entry.servers)(self)
    }

    /// How many of its servers are switches: all or none.
    ///
    /// ```
    /// use lockstep_topology::Algorithm;
    /// let [nvls, server] = ["nvls-tree:4", "parameter-server:4:dedicated"].map(|name| name.parse::<Algorithm>().unwrap());
    /// assert_eq!((nvls.servers(), nvls.switches()), (4, 4));
    /// assert_eq!((server.servers(), server.switches()), (4, 0));
    /// ```
    pub fn switches(&self) -> u32 {
        if self.entry.joins.is_some() { self.servers() } else { 0 }
    }

    /// The members that each of its switches joins, of `contributors` members with data; empty where it has
    /// no switches.
    ///
    /// ```
    /// use lockstep_topology::Algorithm;
    /// let joined = |name: &str| name.parse::<Algorithm>().unwrap().joined(6);
    /// assert_eq!(joined("nvls-tree:2"), [[0, 1, 2], [3, 4, 5]]);
    /// assert_eq!(joined("collnet:2:3"), [[0, 3], [1, 4], [2, 5]]);
    /// assert!(joined("ring").is_empty());
    /// ```
    pub fn joined(&self, contributors: u32) -> Vec<Vec<u32>> {
        let Some(joins) = self.entry.joins else { return Vec::new() };
        (0..self.servers()).map(|switch| joins(self, contributors, switch)).collect()
    }

    /// The kind of its servers, in words: `dedicated servers`, or `switches that add`.
    pub fn kind_of_servers(&self) -> &'static str {
        if self.entry.joins.is_some() { "switches that add" } else { "dedicated servers" }
    }

    /// Which ranks take the role of its switches where none adds, after `ranks` ranks with data; `None` where it has
    /// no switches.
    ///
    /// ```
    /// use lockstep_topology::Algorithm;
    /// let nvls: Algorithm = "nvls".parse().unwrap();
    /// assert_eq!(nvls.played(4).as_deref(), Some("rank 4 acts as the switch of nvls: this machine has none that adds"));
    /// ```
    pub fn played(&self, ranks: u32) -> Option<String> {
        match self.switches() {
            0 => None,
            1 => Some(format!("rank {ranks} acts as the switch of {self}: this machine has none that adds")),
            several => {
                let last = ranks.saturating_add(several - 1);
                Some(format!("ranks {ranks} to {last} act as the switches of {self}: this machine has none that add"))
            }
        }
    }

    /// How its execution differs from a cluster: which ranks take the role of switches, and that messages have
    /// no protocol.
    ///
    /// ```
    /// use lockstep_topology::Algorithm;
    /// let rings: Algorithm = "rings:2:ll".parse().unwrap();
    /// assert_eq!(rings.executed(4), ["rings:2:ll: the executor sends plain messages; only predictions use the protocol ll"]);
    /// ```
    pub fn executed(&self, ranks: u32) -> Vec<String> {
        let bare = self.wire().map(|Wire { protocol, .. }| {
            format!("{self}: the executor sends plain messages; only predictions use the protocol {protocol}")
        });
        self.played(ranks).into_iter().chain(bare).collect()
    }

    /// The same without optional words.
    pub(super) fn without_words(&self) -> Algorithm {
        let plain = |value: &Value| if let Value::Flag(_) = value { Value::Flag("") } else { value.clone() };
        Algorithm::new(self.entry, self.values.iter().map(plain).collect::<Vec<_>>())
    }

    /// The number at `parameter`.
    pub(super) fn count(&self, parameter: usize) -> u32 {
        if let Some(Value::Count(count)) = self.values.get(parameter) { *count } else { 1 }
    }

    /// Whether the word at `parameter` is there.
    pub(super) fn flag(&self, parameter: usize) -> bool {
        matches!(self.values.get(parameter), Some(Value::Flag(word)) if !word.is_empty())
    }

    /// The algorithm among its parameters.
    pub(super) fn inner(&self) -> Option<&Algorithm> {
        self.values.iter().find_map(|value| if let Value::Algorithm(inner) = value { Some(inner) } else { None })
    }
}

impl PartialEq for Algorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        self.entry.name == other.entry.name && self.values == other.values
    }
}

impl Eq for Algorithm {}

impl Hash for Algorithm {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.entry.name, &self.values).hash(state);
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name)?;
        self.values.iter().try_for_each(|value| match value {
            Value::Count(count) => write!(f, ":{count}"),
            Value::Flag("") => Ok(()),
            Value::Flag(word) => write!(f, ":{word}"),
            Value::Algorithm(inner) => write!(f, ":{inner}"),
            Value::Nccl(request) => write!(f, "{request}"),
            Value::Protocol(None) => Ok(()),
            Value::Orders(orders) => write!(f, ":{}", orders.len()),
            Value::Protocol(Some(Wire { protocol, .. })) => write!(f, ":{protocol}"),
        })
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}
