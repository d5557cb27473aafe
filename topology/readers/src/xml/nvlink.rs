//! Reads `<nvlink>` and `<c2c>`: a GPU's links besides its slot.

use std::collections::BTreeMap;

use lockstep_topology::cluster::{CatalogueGpu, Lanes};
use lockstep_topology::{Bandwidth, InputError};

use super::Gpu;
use super::element::Element;
use crate::machine::{Machine, Rate};

/// NVLinks between GPUs `from` and `to`, and the first element that states them.
type Pairs<'a> = BTreeMap<(usize, usize), (u32, Element<'a>)>;

/// Adds the GPUs' NVLinks, at the rate of the model's generation, and their links to CPUs.
pub(super) fn read(gpus: &[Gpu<'_>], model: &CatalogueGpu, machine: &mut Machine) -> Result<(), InputError> {
    let mut pairs = Pairs::new();
    for (i, gpu) in gpus.iter().enumerate() {
        let (name, socket) = (format!("gpu{i}"), machine.socket(gpu.socket));
        let (mut to_switch, mut to_cpu, mut all) = (0, 0, 0);
        for link in gpu.element.children() {
            match link.name() {
                "c2c" => {
                    machine.link(&socket, &name, Rate::C2c(c2c(link)?), false);
                    continue;
                }
                "nvlink" => {}
                _ => return Err(link.error("is not a supported link: there are <nvlink> and <c2c>")),
            }
            let Some(count) = link.whole("count", 1..=1_024)? else {
                return Err(link.error("has no count: add how many NVLinks these are, as count=\"12\""));
            };
            let count = count as u32;
            all += count;
            match link.attribute("tclass").unwrap_or("") {
                class if class.starts_with("0x0680") && class != "0x068001" => to_switch += count,
                // A bridge of POWER9.
                "0x068001" | "0x060400" => to_cpu += count,
                class if class.starts_with("0x0302") || class.starts_with("0x0300") => {
                    let target = link.attribute("target").unwrap_or("").to_lowercase();
                    let Some(to) = gpus.iter().position(|gpu| gpu.bus_id == target && !target.is_empty()) else {
                        return Err(
                            link.error_in("target", "is the busid of no GPU here: dump it in a job that uses them all")
                        );
                    };
                    if to == i {
                        return Err(link.error_in("target", "is the GPU itself; name the other end"));
                    }
                    pairs.entry((i, to)).or_insert((0, link)).0 += count;
                }
                _ => {
                    return Err(link.error_in(
                        "tclass",
                        "is not a supported end: a GPU is 0x030200, NVSwitch 0x068000, a CPU 0x068001",
                    ));
                }
            }
        }
        let lanes = |count| links(model, gpu, all, count);
        if to_switch > 0 {
            let switch = machine.nvswitch();
            machine.link(switch, &name, Rate::NvLink(lanes(to_switch)?), false);
        }
        if to_cpu > 0 {
            machine.link(&socket, &name, Rate::NvLink(lanes(to_cpu)?), false);
        }
        if all > 0 {
            lanes(all)?;
        }
    }
    for ((from, to), (count, link)) in &pairs {
        if pairs.get(&(*to, *from)).map(|(back, _)| back) != Some(count) {
            let message =
                format!("says {count} from gpu{from} to gpu{to}, and its other end says another number: fix one");
            return Err(link.error(message));
        }
        if from < to {
            let rate = Rate::NvLink(links(model, &gpus[*from], *count, *count)?);
            machine.link(&format!("gpu{from}"), &format!("gpu{to}"), rate, false);
        }
    }
    Ok(())
}

/// `count` of the `all` NVLinks that a GPU has in the file, of the model's generation.
fn links(model: &CatalogueGpu, gpu: &Gpu<'_>, all: u32, count: u32) -> Result<Lanes, InputError> {
    let most = model.spec.nvlink.unwrap_or(Lanes { generation: 1, count: 0 });
    if all > most.count {
        let message =
            format!("has {all} NVLinks, but a {} has {}: name the right model of GPU", model.name, most.count);
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
