//! Registers algorithms: each has its own file, and its line in [`ENTRIES`].

mod binomial_tree;
mod collnet;
mod direct;
mod double_tree;
mod halving_doubling;
mod hierarchical;
mod k_ary_tree;
mod library_mpi;
mod library_nccl;
mod library_rccl;
mod multi_color;
mod nvls;
mod nvls_collnet;
mod nvls_tree;
mod pairwise;
mod parameter_server;
mod pat;
mod pipelined_chain;
mod recursive_doubling;
mod recursive_halving;
mod ring;
mod rings;
mod rooted;
mod swing;
mod trees;
mod zigzag;

/// The imports of all algorithms.
mod prelude {
    pub(super) use super::super::algorithm::{Algorithm, Call, Entry, Library, Parameter, Value};
    pub(super) use super::super::group::Group;
    pub(super) use super::super::lane::{Lane, Sent};
    pub(super) use super::super::lanes::Lanes;
    pub(super) use super::super::meaning::Collective;
    pub(super) use super::super::nccl::Method;
    pub(super) use super::super::phase::PipelinePhase;
    pub(super) use super::super::shard::{Cut, Split, of_node, piece, shard, shard_of};
    pub(super) use super::super::step::{Action, LaneStep};
    pub(super) use crate::symmetry::Permutations;
    pub(super) use crate::{Dtype, InputError};
}

use std::str::FromStr;

use super::algorithm::{Algorithm, Call, Entry, Parameter, Value};
use super::lanes::Lanes;
use super::nccl::Wire;
use crate::aliases::ours;
use crate::named::listed;
use crate::{InputError, nearest};

/// The algorithms, in the order in which they are listed.
static ENTRIES: &[&Entry] = &[
    &ring::ENTRY,
    &halving_doubling::ENTRY,
    &swing::ENTRY,
    &binomial_tree::ENTRY,
    &k_ary_tree::ENTRY,
    &pipelined_chain::ENTRY,
    &multi_color::ENTRY,
    &rings::ENTRY,
    &double_tree::ENTRY,
    &nvls::ENTRY,
    &nvls_tree::ENTRY,
    &nvls_collnet::ENTRY,
    &collnet::ENTRY,
    &parameter_server::ENTRY,
    &pairwise::ENTRY,
    &direct::ENTRY,
    &recursive_halving::ENTRY,
    &pat::ENTRY,
    &hierarchical::ENTRY,
    &library_mpi::ENTRY,
    &library_nccl::ENTRY,
    &library_rccl::ENTRY,
];

/// Binds the algorithm of `call` to its collective and members.
///
/// # Errors
/// An algorithm that cannot serve them, with the cure.
pub(super) fn lanes(call: &Call<'_>) -> Result<Box<dyn Lanes>, InputError> {
    if call.algorithm.serves(call.collective) {
        return (call.algorithm.entry.lanes)(call);
    }
    let serving = ENTRIES.iter().filter(|entry| (entry.serves)(call.collective)).map(|entry| entry.form());
    Err(call.refuse(format!("does not serve {}: use {}", call.collective.name(), listed(&serving.collect::<Vec<_>>()))))
}

impl Algorithm {
    /// Each algorithm of the registry, with the parameters of its example.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        ENTRIES.iter().filter_map(|entry| entry.form().parse().ok())
    }

    /// The written form of each algorithm, and its description in one line.
    pub fn forms() -> impl Iterator<Item = (String, &'static str)> {
        ENTRIES.iter().map(|entry| (entry.form(), entry.help))
    }
}

impl FromStr for Algorithm {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Algorithm, InputError> {
        let ours = ours("algorithm", text, ENTRIES.iter().map(|entry| entry.name));
        let text = &*ours.map_err(|message| refusal(text, message))?;
        let Some((entry, rest)) = entry(text) else { return Err(unknown(text)) };
        let values = values(entry, text, rest)?;
        Ok(Algorithm { entry, values })
    }
}

/// The entry that `text` names, and what follows the colon after the name.
fn entry(text: &str) -> Option<(&'static Entry, Option<&str>)> {
    ENTRIES.iter().find_map(|entry| {
        let rest = text.strip_prefix(entry.name)?;
        let versioned = matches!(entry.parameters, [Parameter::Nccl]);
        match rest {
            "" => Some((*entry, None)),
            // Its own parser begins with the separator.
            _ if versioned && rest.starts_with(['@', ':']) => Some((*entry, Some(rest))),
            _ => rest.strip_prefix(':').map(|rest| (*entry, Some(rest))),
        }
    })
}

/// The values of the parameters of `entry` in `rest`.
fn values(entry: &Entry, text: &str, mut rest: Option<&str>) -> Result<Box<[Value]>, InputError> {
    let mut values = Vec::new();
    for (index, parameter) in entry.parameters.iter().enumerate() {
        let missing = || refusal(text, format!("needs {}: write `{}`", parameter.what(), entry.form()));
        values.push(match *parameter {
            Parameter::Count { most, because, .. } => {
                let (count, after) = match rest.ok_or_else(missing)?.split_once(':') {
                    Some((count, after)) if index + 1 < entry.parameters.len() => (count, Some(after)),
                    _ => (rest.unwrap_or_default(), None),
                };
                rest = after;
                match count.parse() {
                    Ok(count) if count > most => return Err(refusal(text, format!("{because}: use at most {most}"))),
                    Ok(count) if count > 0 => Value::Count(count),
                    _ => return Err(refusal(text, format!("`{count}` must be a whole number of at least 1"))),
                }
            }
            Parameter::Flag { word } => match rest.take() {
                None => Value::Flag(""),
                Some(there) if there == word => Value::Flag(word),
                Some(_) => {
                    let before = entry.parameters[..index].last().map_or(entry.name, Parameter::what);
                    return Err(refusal(text, format!("only `:{word}` may follow {before}")));
                }
            },
            Parameter::Nccl => match rest.take().unwrap_or_default().parse() {
                Ok(request) => Value::Nccl(request),
                Err(message) => return Err(refusal(text, message)),
            },
            Parameter::Protocol(method) => Value::Protocol(match rest.take() {
                None => None,
                Some(word) => match word.parse() {
                    Ok(protocol) => Some(Wire { method, protocol, flow: 0 }),
                    Err(message) => return Err(refusal(text, message)),
                },
            }),
            Parameter::Algorithm { what, .. } => {
                let inner = rest.take().ok_or_else(missing)?;
                // Refused before the rest is read, which may nest as deep as the text is long.
                let nests =
                    |entry: &Entry| entry.parameters.iter().any(|one| matches!(one, Parameter::Algorithm { .. }));
                if self::entry(inner).is_some_and(|(entry, _)| nests(entry)) {
                    return Err(refusal(text, format!("there are two levels: name {what}")));
                }
                Value::Algorithm(inner.parse()?)
            }
        });
    }
    match rest {
        None => Ok(values.into()),
        Some(_) => Err(refusal(text, format!("`{}` takes no parameter", entry.name))),
    }
}

/// The error of a name that no entry has.
fn unknown(text: &str) -> InputError {
    let name = text.split(':').next().unwrap_or(text);
    let forms: Vec<String> = ENTRIES.iter().map(|entry| entry.form()).collect();
    let family = format!("{name}:");
    let members: Vec<String> = ENTRIES
        .iter()
        .filter(|entry| entry.name.starts_with(&family))
        .map(|entry| format!("`{}`", entry.name))
        .collect();
    if !members.is_empty() {
        return refusal(text, format!("unknown {name}: use {}", listed(&members)));
    }
    if text.contains(',') {
        return refusal(text, "is a list; name one algorithm here".to_owned());
    }
    let near = nearest(name, forms.iter().map(|form| form.split(':').next().unwrap_or(form)));
    let is_near = |form: &&String| near.is_empty() || near.iter().any(|name| form.starts_with(name));
    let shown: Vec<&str> = forms.iter().filter(is_near).map(String::as_str).collect();
    refusal(text, format!("unknown algorithm; did you mean {}?", shown.join(", ")))
}

/// An error about the algorithm `text`.
fn refusal(text: &str, message: String) -> InputError {
    InputError::new("", text, message)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::meaning::Collective;
    use super::*;

    /// Every algorithm with `counts` for each of its numbers, with and without its words; inside of others with
    /// `nested`. Combinations that are refused for any members are left out.
    pub(in super::super) fn with(counts: &[u32], nested: &[u32]) -> Vec<Algorithm> {
        let forms = |entry: &Entry, counts: &[u32], inner: &[String]| -> Vec<String> {
            entry.parameters.iter().fold(vec![entry.name.to_owned()], |forms, parameter| {
                let ends: Vec<String> = match parameter {
                    Parameter::Count { .. } => counts.iter().map(|count| format!(":{count}")).collect(),
                    Parameter::Flag { word } => vec![String::new(), format!(":{word}")],
                    Parameter::Protocol(_) => vec![String::new()],
                    Parameter::Nccl => ["", "@2.20", ":tree:ll128:8"].map(str::to_owned).into(),
                    Parameter::Algorithm { .. } => inner.iter().map(|inner| format!(":{inner}")).collect(),
                };
                forms.iter().flat_map(|form| ends.iter().map(move |end| format!("{form}{end}"))).collect()
            })
        };
        let parsed =
            |form: &String| -> Algorithm { form.parse().unwrap_or_else(|refusal| panic!("{form}: {refusal}")) };
        let mut inner: Vec<String> = ENTRIES.iter().flat_map(|entry| forms(entry, nested, &[])).collect();
        inner.retain(|form| {
            let one = parsed(form);
            one.library().is_none() && one.servers() == 0 && !one.by_nodes() && one.serves(&Collective::AllReduce)
        });
        ENTRIES.iter().flat_map(|entry| forms(entry, counts, &inner)).map(|form| parsed(&form)).collect()
    }

    #[test]
    fn every_form_reads_back_as_written() {
        let more = [
            "rings:4:ll128",
            "double-tree:2:simple",
            "parameter-server:2:dedicated",
            "hierarchical:halving-doubling",
            "hierarchical:multi-color:2",
        ];
        for form in Algorithm::forms().map(|(form, _)| form).chain(more.map(str::to_owned)) {
            assert_eq!(form.parse::<Algorithm>().map(|a| a.to_string()), Ok(form));
        }
        let all: Vec<String> = with(&[1, 7], &[3]).iter().map(Algorithm::to_string).collect();
        for form in ["tree:1", "tree:7", "parameter-server:7:dedicated", "hierarchical:parameter-server:3"] {
            assert!(all.iter().any(|one| one == form), "{form} is not among {all:?}");
        }
    }

    #[test]
    fn a_wrong_name_is_refused_with_a_cure() {
        for (text, cure) in [
            ("rinng", "ring"),
            ("ring:2", "takes no parameter"),
            ("multi-color", "multi-color:4"),
            ("multi-color:0", "at least 1"),
            ("multi-color:4097", "at most 4096"),
            ("parameter-server", "parameter-server:1"),
            ("parameter-server:-1", "at least 1"),
            ("parameter-server:1:shared", "only `:dedicated` may follow the number of servers"),
            ("tree:2:3", "at least 1"),
            ("rings:4:ll127", "ll128"),
            ("rings:4:ll:2", "ll128"),
            ("rings:ll", "at least 1"),
            ("nvls:ll", "takes no parameter"),
            ("nvls-tree:0", "at least 1"),
            ("hierarchical", "hierarchical:ring"),
            ("hierarchical:hierarchical:ring", "two levels"),
            ("hierarchical:bogus-algorithm", "ring"),
            ("library:gloo", "library:nccl"),
            ("library:mpi:2", "takes no parameter"),
            ("library:nccl:rinng", "nvls-tree"),
            ("library:nccl@3.1", "2.7 to 2.30"),
            ("library:nccl@2.27:ring:ll:65", "at most 64"),
            ("library:nccl:ll:ring", "in this order"),
            ("library:nccl:nvls:ll", "leave the protocol out"),
            ("", "ring"),
        ] {
            let refusal = text.parse::<Algorithm>().expect_err(text);
            assert!(refusal.to_string().contains(cure), "{text}: {refusal}");
        }
        // At any depth, and with anything innermost.
        assert!("hierarchical:".repeat(1 << 20).parse::<Algorithm>().is_err());
    }
}
