//! Reads a PCI Express link as Linux prints it: `16.0 GT/s PCIe` and a number of lanes.

use lockstep_topology::cluster::Lanes;

/// NCCL's assumption where Linux does not know.
pub(crate) const UNKNOWN: Lanes = Lanes { generation: 3, count: 16 };

/// Generation and lanes, and whether one of them is what NCCL assumes where nothing is known (3.0, 16 lanes).
///
/// # Errors
/// Which of the two is wrong, and the cure.
pub(crate) fn lanes(speed: &str, width: &str) -> Result<(Lanes, bool), (&'static str, String)> {
    let gigatransfers = speed.split_once("GT/s").map(|(number, _)| number.trim());
    let generation = match gigatransfers {
        None if speed.trim().is_empty() || speed.trim().to_lowercase().starts_with("unknown") => None,
        None => return Err(("link_speed", "is not a speed: write it like \"16.0 GT/s PCIe\"".to_owned())),
        Some(number) => {
            let number: f64 = number.parse().unwrap_or(0.0);
            let known = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0].into_iter().zip(1..).find(|(speed, _)| *speed == number);
            let wrong = || "is not a speed of PCI Express: there are 2.5, 5, 8, 16, 32 and 64 GT/s".to_owned();
            Some(known.ok_or_else(|| ("link_speed", wrong()))?.1)
        }
    };
    let count = match width.trim() {
        // Linux reports 255 where a virtual machine hides the lanes, and NCCL 0 where Linux says nothing.
        "" | "0" | "255" => None,
        text => {
            let known = text.parse().ok().filter(|count| [1, 2, 4, 8, 12, 16, 32].contains(count));
            Some(known.ok_or_else(|| {
                (
                    "link_width",
                    "is not a number of lanes: 1, 2, 4, 8, 12, 16 or 32; leave it out where it is unknown".to_owned(),
                )
            })?)
        }
    };
    let lanes = Lanes { generation: generation.unwrap_or(UNKNOWN.generation), count: count.unwrap_or(UNKNOWN.count) };
    Ok((lanes, generation.is_none() || count.is_none()))
}
