//! Takes from a log of nccl-tests what the command does not say, and refuses what contradicts the command.

use std::path::Path;

use lockstep_experiment::THIS_MACHINE;
use lockstep_machines::nccl_log::{self, Asked, NcclLog};
use lockstep_topology::cluster::{CatalogueGpu, Cluster, DeviceKind, catalogue};
use lockstep_topology::placement::with_room;
use lockstep_topology::{Algorithm, InputError, PlacementRule, RECORD, read_text};

use super::flags::CollectiveFlags;

/// Reads the log at `path`, of whose tables that of the flags' collective and ranks counts; sets those where they are
/// not given.
///
/// # Errors
/// An unreadable log, and flags that contradict it.
pub(super) fn read(path: &Path, flags: &mut CollectiveFlags) -> Result<NcclLog, InputError> {
    let file = path.display().to_string();
    let text = read_text(path, RECORD)
        .map_err(|error| InputError::flag("beside", &file, error.with_cure("name what nccl-tests printed")))?;
    let asked = Asked { collective: flags.named()?, ranks: flags.ranks };
    let mut log = nccl_log::read(&file, &text, &asked)?;
    take_collective(&file, asked.collective, &mut log, flags)?;
    match (flags.ranks, log.ranks) {
        (Some(asked), Some(own)) if asked != own => {
            let message = format!("{file}:{} is of {own} ranks: leave --ranks out, or give {own}", log.line);
            return Err(InputError::flag("ranks", asked.to_string(), message));
        }
        (None, None) => {
            let message = format!("{file} does not list its ranks: give their number with --ranks");
            return Err(InputError::flag("ranks", "", message));
        }
        (asked, own) => flags.ranks = asked.or(own),
    }
    Ok(log)
}

fn take_collective(
    file: &str,
    asked: Option<String>,
    log: &mut NcclLog,
    flags: &mut CollectiveFlags,
) -> Result<(), InputError> {
    if let Some(name) = asked {
        if !log.is_of(&name) {
            let message = format!("{file}:{} is of {}: leave --collective out, or name that", log.line, log.names());
            return Err(InputError::flag("collective", name, message));
        }
        if let (Some((_, root)), [own]) = (name.split_once(':'), log.collectives.as_slice())
            && own.split_once(':').is_some_and(|(_, own)| own != root)
        {
            let message = format!("{file}:{} is of {own}: leave the root out, or name that", log.line);
            return Err(InputError::flag("collective", name, message));
        }
        return Ok(());
    }
    match log.collectives.as_slice() {
        [name] => flags.collective = Some(name.clone()),
        several => {
            let hint = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase().replace(['-', '_'], "");
            let plain = |name: &str| name.split(':').next().unwrap_or_default().replace('-', "");
            let by_file: Vec<_> = several
                .iter()
                .filter(|name| hint.contains(plain(name).trim_end_matches("allv")) || hint.contains(&plain(name)))
                .collect();
            let [name] = by_file.as_slice() else {
                let names = if several.is_empty() { "any collective".to_owned() } else { log.names() };
                let message = format!("{file}:{} can be of {names}: name it with --collective", log.line);
                return Err(InputError::flag("collective", "", message));
            };
            log.notes.push(format!("the log can be of {}: taken as {name} by the file's name", log.names()));
            flags.collective = Some((*name).clone());
        }
    }
    Ok(())
}

/// The cluster to predict for: the one that was asked for, whose GPUs must not be others than the log's, else a preset
/// with them. Adds a note.
///
/// # Errors
/// Other GPUs, or GPUs of which no preset has any.
pub(super) fn cluster(asked: Option<&str>, log: &mut NcclLog, ranks: u32) -> Result<String, InputError> {
    let Some(product) = log.gpu.clone() else {
        let message = "the log does not list its GPUs: name the cluster (lockstep clusters list), or this-machine";
        return asked.map(str::to_owned).ok_or_else(|| InputError::flag("cluster", "", message));
    };
    let known = catalogue_name(&product)?;
    if let Some(asked) = asked {
        match known {
            _ if asked == THIS_MACHINE => {
                log.notes.push(format!("the log's GPUs are {product}, and ranks on this machine's CPU are predicted"));
            }
            Some(known) => check_gpu(asked, &known, &product, log)?,
            None => {
                let model = gpus_of(&Cluster::load(asked)?).0.unwrap_or_else(|| "no GPU".to_owned());
                log.notes
                    .push(format!("the log's GPUs are {product}, which the catalogue lacks, the cluster's {model}"));
            }
        }
        return Ok(asked.to_owned());
    }
    let each = log.ranks_per_host.unwrap_or(1);
    let mut fitting: Vec<(u32, &str)> = Vec::new();
    for (name, _) in Cluster::presets() {
        let cluster = Cluster::load(name)?;
        let (model, most) = gpus_of(&cluster);
        if known.is_some() && model == known && most >= each {
            fitting.push((most, name));
        }
    }
    let rank = |(most, name): &(u32, &str)| (*most != each, *most, !name.starts_with("dgx"), name.to_string());
    fitting.sort_by_key(rank);
    let Some((_, name)) = fitting.first() else {
        let gpu = known.map_or_else(String::new, |known| format!(" and --gpu {known}"));
        let message = format!(
            "no preset has GPUs called {product}, which the log lists: describe the machine, e.g. with lockstep clusters \
             import of its topology{gpu}, and name that file, or a preset that is near, with --cluster"
        );
        return Err(InputError::flag("cluster", "", message));
    };
    let hosts = ranks.div_ceil(each);
    let name = if hosts > 1 { format!("{name}:{hosts}") } else { (*name).to_owned() };
    let others: Vec<&str> = fitting.iter().skip(1).map(|(_, name)| *name).collect();
    let others = if others.is_empty() { String::new() } else { format!(" (so have {})", others.join(", ")) };
    let between = if hosts > 1 { ", and a network that the log does not name" } else { "" };
    log.notes.push(format!("--cluster is not given: {name} has the log's GPUs, {product}{others}{between}"));
    Ok(name)
}

/// Refuses a cluster whose GPUs are of another kind than `known`.
fn check_gpu(asked: &str, known: &str, product: &str, log: &mut NcclLog) -> Result<(), InputError> {
    let (model, _) = gpus_of(&Cluster::load(asked)?);
    let family = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
    let is_known = |name: &str| catalogue().is_ok_and(|all| all.iter().any(|gpu| gpu.name == name));
    match model {
        None => {
            let message = format!("has no GPUs, and the log's ranks are {product}: name a cluster with such GPUs");
            Err(InputError::flag("cluster", asked, message))
        }
        Some(model) if is_known(&model) && family(&model) != family(known) => {
            let message = format!("has {model}, and the log's ranks are {product}: name a cluster with {known}");
            Err(InputError::flag("cluster", asked, message))
        }
        Some(model) if model != known => {
            log.notes.push(format!("the log's GPUs are {product} ({known}), the cluster's {model}"));
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

/// The model of a cluster's GPUs, and the most that a host has.
fn gpus_of(cluster: &Cluster) -> (Option<String>, u32) {
    let mut counts = std::collections::BTreeMap::<_, u32>::new();
    let mut model = None;
    for device in cluster.devices() {
        if let DeviceKind::Gpu(gpu) = &device.kind {
            *counts.entry(device.host).or_default() += 1;
            model.get_or_insert_with(|| gpu.model.clone());
        }
    }
    (model, counts.values().copied().max().unwrap_or(0))
}

/// The catalogue's name of a product as a driver names it: `a100-40-sxm` of `NVIDIA A100-SXM4-40GB`.
fn catalogue_name(product: &str) -> Result<Option<String>, InputError> {
    let all = catalogue()?;
    if let Some(gpu) = all.iter().find(|gpu| gpu.spec.driver_name.as_deref() == Some(product)) {
        return Ok(Some(gpu.name.clone()));
    }
    let lower = product.to_ascii_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |of: &str| words.iter().any(|word| word.starts_with(of));
    let is_sxm = !has("pcie") && !has("nvl") && !has("dgxs");
    let matched = |gpu: &CatalogueGpu| {
        let mut parts = gpu.name.split('-');
        let family = parts.next().is_some_and(|family| words.contains(&family));
        let fits = family
            && parts.clone().all(|part| match part {
                "pcie" => has("pcie"),
                part if part.starts_with("sxm") => is_sxm,
                size => words.contains(&format!("{size}gb").as_str()),
            });
        fits.then(|| parts.count())
    };
    // Of several, the one that says most.
    let best = all.iter().filter_map(|gpu| Some((matched(gpu)?, gpu))).max_by_key(|(parts, _)| *parts);
    Ok(best.map(|(_, gpu)| gpu.name.clone()))
}

/// Where ranks are: `asked` of them on each host at most, else as many as the log lists, else as many as fit.
///
/// # Errors
/// A log that lists other numbers than `asked`.
pub(super) fn placement(
    log: Option<&NcclLog>,
    asked: Option<u32>,
    on_this_machine: bool,
) -> Result<PlacementRule, InputError> {
    let listed = log.and_then(|log| log.ranks_per_host.filter(|_| log.is_listed && !on_this_machine));
    match (asked, listed) {
        (Some(asked), Some(own)) if asked != own => {
            let message = format!("the log has {own} ranks on each host: leave it out, or give {own}");
            Err(InputError::flag("ranks_per_node", asked.to_string(), message))
        }
        _ => Ok(asked.or(listed).map_or(PlacementRule::Pack, PlacementRule::PerHost)),
    }
}

/// A refusal of too few places, with the cluster that has enough, or with the log's ranks on a host.
pub(super) fn too_small(
    error: InputError,
    cluster: &str,
    ranks: u32,
    log: Option<&NcclLog>,
    rule: &PlacementRule,
) -> InputError {
    if let Some(each) = log.and_then(|log| log.ranks_per_host)
        && error.place == lockstep_topology::ErrorPlace::Flag("ranks_per_node")
    {
        let message =
            format!("the log has {each} ranks on each host; {}, or name a cluster with larger hosts", error.message);
        return InputError::flag("cluster", cluster, message);
    }
    match with_room(cluster, ranks).filter(|_| *rule == PlacementRule::Pack) {
        Some(larger) => InputError { message: format!("{}: write cluster {larger}", error.message), ..error },
        None => error,
    }
}

/// The version of NCCL that the log states, for a library without one.
pub(super) fn with_version(algorithm: Algorithm, log: &mut NcclLog) -> Result<Algorithm, InputError> {
    let (Some((major, minor)), true) = (log.version, algorithm.nccl().is_some()) else { return Ok(algorithm) };
    let text = algorithm.to_string();
    if let Some((_, asked)) = text.split_once('@') {
        let asked = asked.split(':').next().unwrap_or_default();
        let own = format!("{major}.{minor}");
        if asked != own {
            let message =
                format!("is of version {asked}, and the log is of {own}: leave the version out, or give @{own}");
            return Err(InputError::flag("algorithm", &text, message));
        }
        return Ok(algorithm);
    }
    let versioned = text.replacen("library:nccl", &format!("library:nccl@{major}.{minor}"), 1);
    match versioned.parse::<Algorithm>() {
        Ok(versioned) => {
            log.notes.push(format!("the log is of NCCL {major}.{minor}: its choices are predicted"));
            Ok(versioned)
        }
        Err(_) => {
            log.notes.push(format!(
                "the log is of NCCL {major}.{minor}, of which no choices are known: predicted as {text}"
            ));
            Ok(algorithm)
        }
    }
}
