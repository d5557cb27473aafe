//! Unfolds `[[layer]]` lists and the blocks they use into one flat list of drafts with resolved inputs.
//!
//! A block is its own scope: its layers see only each other and `input`, the block's input. Inputs may name later
//! layers, so each scope is unfolded first and its references are resolved afterwards; a block's input may itself be
//! such a reference, hence the aliases.

use std::collections::{BTreeMap, BTreeSet};

use lockstep_topology::document::{Entry, Table, suggestion};
use lockstep_topology::{ErrorPlace, InputError};

use super::expression::{Arguments, parameters, size};
use super::kinds;
use lockstep_models::Draft;
use lockstep_models::Layer;

/// Most layers of a model; ResNet-1001 has some 3,700.
pub(super) const MAX_LAYERS: usize = 20_000;

/// The error message for more.
pub(super) fn too_many() -> String {
    format!("the model has more than {MAX_LAYERS} layers: use fewer, or repeat less")
}

/// Deepest nesting of blocks.
const MAX_DEPTH: usize = 16;

/// The source of a value: a layer, or a block's input.
#[derive(Debug, Clone, Copy)]
enum Target {
    Draft(usize),
    Alias(usize),
}

/// A template.
struct Block<'a> {
    layers: Vec<Table<'a>>,
    parameters: BTreeSet<String>,
}

/// The layers unfolded so far.
struct Unfolding<'a> {
    blocks: BTreeMap<&'a str, Block<'a>>,
    drafts: Vec<Draft>,
    inputs: Vec<Vec<Target>>,
    aliases: Vec<Target>,
}

/// The drafts or aliases whose inputs are still names.
enum Waiting {
    Draft(usize),
    Alias(usize),
}

/// The drafts of the model in `root`, its input layer first.
pub(super) fn unfold(
    root: &Table<'_>,
    input: Layer,
    place: ErrorPlace,
    sizes: &Arguments,
) -> Result<Vec<Draft>, InputError> {
    let mut blocks = BTreeMap::new();
    if let Some(entry) = root.get("block") {
        for block in entry.table()?.entries() {
            let table = block.table()?;
            table.allow("a block", &["layer"])?;
            let list = table.need("layer", "[{ kind = \"relu\" }], its layers")?;
            let mut names = BTreeSet::new();
            parameters(&list, &mut names);
            blocks.insert(block.key(), Block { layers: tables(&list)?, parameters: names });
        }
    }
    let layers = tables(&root.need("layer", "[{ kind = \"dense\" }, …], or write [[layer]] tables")?)?;
    let (name, (inits, multipliers)) = ("input".to_owned(), Default::default());
    let entry = Draft { name, layer: input, inputs: Vec::new(), inits, multipliers, loss_weight: 1.0, place };
    let mut unfolding = Unfolding { blocks, drafts: vec![entry], inputs: vec![Vec::new()], aliases: Vec::new() };
    unfolding.scope("", &layers, sizes, Target::Draft(0), &mut Vec::new())?;
    Ok(unfolding.resolved())
}

impl<'a> Unfolding<'a> {
    /// Unfolds a list of layers whose names begin with `prefix` and returns the last one's output.
    fn scope(
        &mut self,
        prefix: &str,
        layers: &[Table<'a>],
        arguments: &Arguments,
        entry: Target,
        open: &mut Vec<&'a str>,
    ) -> Result<Target, InputError> {
        let mut names: BTreeMap<String, (Target, ErrorPlace)> = BTreeMap::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut waiting: Vec<(Waiting, Vec<Entry<'a>>)> = Vec::new();
        let mut absent: BTreeSet<String> = BTreeSet::new();
        let mut previous = entry;
        for table in layers {
            let (kind, block) = (table.get("kind"), table.get("block"));
            let what = match (&kind, &block) {
                (Some(what), None) | (None, Some(what)) => what,
                (None, None) => return Err(table.error("a layer needs a kind, e.g. kind = \"relu\", or a block")),
                (Some(kind), Some(_)) => return Err(kind.error("a layer has a kind or a block, not both")),
            };
            let count = counts.entry(what.text()?).or_default();
            *count += 1;
            let name = match table.get("name") {
                Some(entry) => check_name(&entry)?.to_owned(),
                None => format!("{}{count}", what.text()?),
            };
            if let Some(when) = table.get("when")
                && size(&when, arguments)? == 0
            {
                absent.insert(name);
                continue;
            }
            let full = format!("{prefix}{name}");
            let inputs = table.get("inputs").map(|entry| reference_list(&entry)).transpose()?;
            if kind.is_some() {
                let (layer, inits) = kinds::layer(table, what, arguments)?;
                if self.drafts.len() >= MAX_LAYERS {
                    return Err(table.error(too_many()));
                }
                let index = self.drafts.len();
                let (loss_weight, place) = (kinds::loss_weight(table)?, table.spot().error("").place);
                let (none, multipliers) = Default::default();
                self.drafts.push(Draft { name: full, layer, inputs: none, inits, multipliers, loss_weight, place });
                self.inputs.push(vec![previous]);
                waiting.extend(inputs.map(|inputs| (Waiting::Draft(index), inputs)));
                previous = Target::Draft(index);
            } else {
                let alias = self.aliases.len();
                self.aliases.push(previous);
                if let Some(inputs) = inputs {
                    if inputs.len() != 1 {
                        return Err(table.error(format!("block \"{full}\" has {} inputs: it takes one", inputs.len())));
                    }
                    waiting.push((Waiting::Alias(alias), inputs));
                }
                previous = self.instances(&full, table, what, arguments, Target::Alias(alias), open)?;
            }
            let place = table.spot().error("").place;
            if let Some((_, first)) = names.insert(name.clone(), (previous, place)) {
                let message = format!("the name \"{name}\" is taken by the layer at {first}: give it another name");
                return Err(table.get("name").unwrap_or_else(|| what.clone()).error(message));
            }
        }
        self.look_up(entry, &names, &absent, waiting)?;
        Ok(previous)
    }

    /// Unfolds the block that `table` uses, with its repetitions, and returns the last one's output.
    fn instances(
        &mut self,
        full: &str,
        table: &Table<'a>,
        what: &Entry<'a>,
        outer: &Arguments,
        entry: Target,
        open: &mut Vec<&'a str>,
    ) -> Result<Target, InputError> {
        let wanted = what.text()?;
        let Some((block, template)) = self.blocks.get_key_value(wanted) else {
            let cure = suggestion(wanted, self.blocks.keys().copied());
            return Err(what.error(format!("there is no block \"{wanted}\": {cure}")));
        };
        let block = *block;
        if open.contains(&block) {
            return Err(what.error(format!("block \"{block}\" contains itself ({} → {block})", open.join(" → "))));
        }
        if open.len() >= MAX_DEPTH {
            return Err(what.error(format!("more than {MAX_DEPTH} blocks inside one another: flatten them")));
        }
        let mut keys = vec!["name", "block", "inputs", "when", "repeat"];
        keys.extend(template.parameters.iter().map(String::as_str));
        table.allow(&format!("block \"{block}\""), &keys)?;
        let mut arguments = Arguments::new();
        for name in &template.parameters {
            let value = table.need(name, &format!("1, which block \"{block}\" uses"))?;
            arguments.insert(name.clone(), size(&value, outer)?);
        }
        let layers = template.layers.clone();
        let repeat = table.get("repeat").map(|entry| (size(&entry, outer), entry));
        let (count, numbered) = match repeat {
            None => (1, false),
            Some((count, entry)) => match count? {
                0 => return Err(entry.error("repeat must be at least 1")),
                count => (count, true),
            },
        };
        open.push(block);
        let mut previous = entry;
        for number in 1..=count {
            let prefix = if numbered { format!("{full}.{number}.") } else { format!("{full}.") };
            previous = self.scope(&prefix, &layers, &arguments, previous, open)?;
        }
        open.pop();
        Ok(previous)
    }

    /// Resolves the names that layers of one scope gave as inputs.
    fn look_up(
        &mut self,
        entry: Target,
        names: &BTreeMap<String, (Target, ErrorPlace)>,
        absent: &BTreeSet<String>,
        waiting: Vec<(Waiting, Vec<Entry<'a>>)>,
    ) -> Result<(), InputError> {
        for (who, references) in waiting {
            let mut targets = Vec::with_capacity(references.len());
            for reference in references {
                let name = reference.text()?;
                let target = if name == "input" { Some(entry) } else { names.get(name).map(|(target, _)| *target) };
                targets.push(target.ok_or_else(|| {
                    if absent.contains(name) {
                        return reference.error(format!("\"{name}\" is switched off by its when: use another layer"));
                    }
                    let known = names.keys().map(String::as_str).chain(["input"]);
                    let cure = suggestion(name, known);
                    reference.error(format!("there is no layer \"{name}\" here: {cure}"))
                })?);
            }
            match who {
                Waiting::Draft(index) => self.inputs[index] = targets,
                Waiting::Alias(index) => self.aliases[index] = targets[0],
            }
        }
        Ok(())
    }

    /// The drafts with the indices of their inputs.
    fn resolved(mut self) -> Vec<Draft> {
        for (draft, inputs) in self.drafts.iter_mut().zip(&self.inputs) {
            draft.inputs = inputs.iter().map(|target| follow(&self.aliases, *target)).collect();
        }
        self.drafts
    }
}

/// The draft that a target refers to. An alias leads to a layer or to the enclosing block's input, so the loop ends.
fn follow(aliases: &[Target], mut target: Target) -> usize {
    loop {
        match target {
            Target::Draft(index) => return index,
            Target::Alias(index) => target = aliases[index],
        }
    }
}

/// Letters, digits, `_` and `-`; the dot separates blocks, and `input` is taken.
fn check_name<'a>(entry: &Entry<'a>) -> Result<&'a str, InputError> {
    let name = entry.text()?;
    if name == "input" {
        return Err(entry.error("\"input\" is the name of what enters the model or block: choose another"));
    }
    if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-') {
        return Err(entry.error("a name consists of letters, digits, _ and -"));
    }
    Ok(name)
}

/// A list of tables with at least one.
fn tables<'a>(entry: &Entry<'a>) -> Result<Vec<Table<'a>>, InputError> {
    let items = entry.list().ok_or_else(|| entry.error("must be a list of tables, e.g. [[layer]]"))?;
    if items.is_empty() {
        return Err(entry.error(format!("{} must not be empty", entry.key())));
    }
    items.iter().map(Entry::table).collect()
}

/// The names in `inputs`; a single one may be written without brackets.
fn reference_list<'a>(entry: &Entry<'a>) -> Result<Vec<Entry<'a>>, InputError> {
    let items = entry.list().unwrap_or_else(|| vec![entry.clone()]);
    if items.is_empty() {
        return Err(entry.error("inputs must not be empty: leave the key out to take the layer before"));
    }
    items.iter().try_for_each(|item| item.text().map(|_| ()))?;
    Ok(items)
}
