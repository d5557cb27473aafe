//! Reads `<nvlink>`, `<xgmi>` and `<c2c>`: a GPU's links besides its slot.

use std::collections::BTreeMap;

use lockstep_topology::cluster::{CatalogueGpu, Lanes};
use lockstep_topology::{Bandwidth, InputError};

use super::Gpu;
use super::element::Element;
use crate::gpu;
use crate::machine::{Machine, Rate};

/// Links between GPUs `from` and `to`, and the first element that states them.
type Pairs<'a> = BTreeMap<(usize, usize), (u32, Element<'a>)>;

/// The links of all GPUs besides those to CPUs and switches.
#[derive(Default)]
struct Found<'a> {
    nvlinks: Pairs<'a>,
    fabric: Pairs<'a>,
    to_itself: u32,
    to_absent: u32,
}

/// Where a link leads.
enum End {
    Switch,
    Cpu,
    Gpu(usize),
    /// To the GPU itself, as virtual machines have it.
    Itself,
    /// To a GPU that the file has not.
    Absent,
}

/// Adds the GPUs' links to each other, at the rate of the model's generation, and their links to CPUs.
pub(super) fn read(gpus: &[Gpu<'_>], model: &CatalogueGpu, machine: &mut Machine) -> Result<(), InputError> {
    if gpus.iter().all(Gpu::is_bare) {
        assume(gpus.len(), model, machine);
        return Ok(());
    }
    let mut found = Found::default();
    for i in (0..gpus.len()).filter(|i| !gpus[*i].is_bare()) {
        read_gpu(i, gpus, model, machine, &mut found)?;
    }
    let Found { nvlinks, fabric, to_itself, to_absent } = found;
    for (count, what) in [
        (to_itself, "links of GPUs lead to themselves, as virtual machines write them"),
        (to_absent, "links lead to GPUs that the file has not"),
    ] {
        if count > 0 {
            let cure = "left out; nvidia-smi topo -m shows which GPUs NVLinks join";
            machine.notes.push(format!("{count} {what}: {cure}"));
        }
    }
    check_ends(&nvlinks)?;
    check_ends(&fabric)?;
    for ((from, to), (count, _)) in nvlinks.iter().filter(|((from, to), _)| from < to) {
        let lanes = lanes(model, &gpus[*from], *count, *count)?;
        machine.nvlink(&format!("gpu{from}"), &format!("gpu{to}"), model, lanes, false);
    }
    for ((from, to), (count, link)) in fabric.iter().filter(|((from, to), _)| from < to) {
        let Some(rate) = gpu::xgmi(&model.name) else {
            let message =
                format!("is not a link of a {}: name a model of AMD by the setting gpu, such as mi300x", model.name);
            return Err(link.error(message));
        };
        let all = Bandwidth::new(rate.bytes_per_s() * f64::from(*count)).expect("positive factors");
        machine.link(&format!("gpu{from}"), &format!("gpu{to}"), Rate::Xgmi(all), false);
    }
    Ok(())
}

/// Adds the links of GPU `i` to CPUs and switches, and finds those to other GPUs.
fn read_gpu<'a>(
    i: usize,
    gpus: &[Gpu<'a>],
    model: &CatalogueGpu,
    machine: &mut Machine,
    found: &mut Found<'a>,
) -> Result<(), InputError> {
    let gpu = &gpus[i];
    let (name, socket) = (format!("gpu{i}"), machine.socket(gpu.socket));
    let (mut to_switch, mut to_cpu, mut all) = (0, 0, 0);
    for link in gpu.element.children() {
        let pairs = match link.name() {
            "c2c" => {
                machine.link(&socket, &name, Rate::C2c(c2c(link)?), false);
                continue;
            }
            "nvlink" => &mut found.nvlinks,
            "xgmi" => &mut found.fabric,
            _ => return Err(link.error("is not a supported link: there are <nvlink>, <xgmi> and <c2c>")),
        };
        let Some(count) = link.whole("count", 1..=1_024)? else {
            return Err(link.error("has no count: add how many links these are, as count=\"12\""));
        };
        let count = count as u32;
        let end = end(link, i, gpus)?;
        match end {
            End::Switch => to_switch += count,
            End::Cpu => to_cpu += count,
            End::Gpu(to) => pairs.entry((i, to)).or_insert((0, link)).0 += count,
            End::Itself => found.to_itself += count,
            End::Absent => found.to_absent += count,
        }
        if link.name() == "nvlink" && !matches!(end, End::Itself) {
            all += count;
        }
    }
    let lanes = |count| lanes(model, gpu, all, count);
    if to_switch > 0 {
        let switch = machine.nvswitch();
        machine.nvlink(switch, &name, model, lanes(to_switch)?, false);
    }
    if to_cpu > 0 {
        machine.nvlink(&socket, &name, model, lanes(to_cpu)?, false);
    }
    if all > 0 {
        lanes(all)?;
    }
    Ok(())
}

/// Adds the links that boards of the model have, where a vendor's file leaves them to the driver.
fn assume(gpus: usize, model: &CatalogueGpu, machine: &mut Machine) {
    if gpus < 2 {
        return;
    }
    let is_full = ["mi300x", "mi325x", "mi350x", "mi355x"].contains(&model.name.as_str()) && gpus <= 8;
    if let (Some(rate), true) = (gpu::xgmi(&model.name), is_full) {
        for one in 0..gpus {
            (0..one)
                .for_each(|other| machine.link(&format!("gpu{other}"), &format!("gpu{one}"), Rate::Xgmi(rate), true));
        }
        machine
            .notes
            .push("links between GPUs are not in it: each two are joined by one, as AMD's boards are".to_owned());
    } else if let (Some(lanes), true) = (model.spec.nvlink, gpu::has_switch(model)) {
        let switch = machine.nvswitch();
        (0..gpus).for_each(|gpu| machine.nvlink(switch, &format!("gpu{gpu}"), model, lanes, true));
        let message = format!(
            "NVLinks are not in it: all {} of each GPU lead to NVSwitch, as on NVIDIA's boards of {}",
            lanes.count, model.name
        );
        machine.notes.push(message);
    }
}

/// Where a link of GPU `from` leads, by the class of its end, or by its bus.
fn end(link: Element<'_>, from: usize, gpus: &[Gpu<'_>]) -> Result<End, InputError> {
    let target = link.attribute("target").unwrap_or("").to_lowercase();
    let to = gpus.iter().position(|gpu| gpu.bus_id == target && !target.is_empty());
    let is_gpu = |class: &str| ["0x03", "0x1200"].iter().any(|of| class.starts_with(of));
    Ok(match link.attribute("tclass").unwrap_or("") {
        class if class.starts_with("0x0680") && class != "0x068001" => End::Switch,
        // A bridge of POWER9.
        "0x068001" | "0x060400" => End::Cpu,
        class if is_gpu(class) || (class.is_empty() && to.is_some()) || link.name() == "xgmi" => match to {
            Some(to) if to == from => End::Itself,
            Some(to) => End::Gpu(to),
            None => End::Absent,
        },
        // NCCL's name of a switch that it does not see.
        "" if target.starts_with("fffffff") => End::Switch,
        _ => {
            return Err(
                link.error_in("tclass", "is not a supported end: a GPU is 0x030200, NVSwitch 0x068000, a CPU 0x068001")
            );
        }
    })
}

/// Refuses links whose two ends state different numbers.
fn check_ends(pairs: &Pairs<'_>) -> Result<(), InputError> {
    for ((from, to), (count, link)) in pairs {
        let back = pairs.get(&(*to, *from));
        if back.map(|(back, _)| back) != Some(count) {
            let other = back.map_or("its other end has none".to_owned(), |(back, other)| {
                format!("its other end, in line {}, says {back}", other.line())
            });
            let message = format!("says {count} from gpu{from} to gpu{to}, and {other}: correct one of them");
            return Err(link.error(message));
        }
    }
    Ok(())
}

/// `count` of the `all` NVLinks that a GPU has in the file, of the model's generation.
fn lanes(model: &CatalogueGpu, gpu: &Gpu<'_>, all: u32, count: u32) -> Result<Lanes, InputError> {
    let most = model.spec.nvlink.unwrap_or(Lanes { generation: 1, count: 0 });
    if all > most.count {
        let message =
            format!("has {all} NVLinks, but a {} has {}: {}", model.name, most.count, gpu::with_nvlinks(all)?);
        return Err(gpu.element.error(message));
    }
    Ok(Lanes { generation: most.generation, count })
}

/// The rate of NVLink-C2C in each direction: `count` links of `bw` MB/s.
fn c2c(link: Element<'_>) -> Result<Bandwidth, InputError> {
    let [count, rate] = [("count", 1_024), ("bw", 10_000_000)].map(|(key, most)| link.whole(key, 1..=most));
    match (count?, rate?) {
        (Some(count), Some(rate)) => Ok(Bandwidth::new((count * rate) as f64 * 1e6).expect("positive factors")),
        _ => Err(link.error("needs a count, and a bw in MB/s of each")),
    }
}
