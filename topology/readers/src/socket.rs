//! Determines the interconnect between a host's sockets, by the CPU's architecture, vendor, family and model, as NCCL
//! assumes it (`topo.h`).

use lockstep_topology::Bandwidth;

use crate::machine::Socket;

/// The socket of a CPU with `threads` hardware threads; family and model are those of x86's CPUID.
pub(crate) fn socket(arch: &str, vendor: &str, model: Option<u32>, threads: u32) -> Socket {
    let (gb_per_s, maker) = match (arch, vendor, model) {
        ("x86_64", "AuthenticAMD", _) => (16.0, "AMD"),
        ("x86_64", "GenuineIntel", Some(0x8f..)) => (22.0, "Intel Sapphire Rapids and later"),
        ("x86_64", "GenuineIntel", Some(0x55..)) => (10.0, "Intel Skylake"),
        ("x86_64", "GenuineIntel", _) => (6.0, "Intel Broadwell"),
        ("ppc64" | "ppc64le", ..) => (32.0, "POWER9"),
        ("arm64" | "aarch64", ..) => (6.0, "ARM"),
        _ => (6.0, "an unknown CPU"),
    };
    Socket { threads, bridge: Bandwidth::new(gb_per_s * 1e9).expect("a positive rate"), maker }
}

/// The socket of a CPU of which only the GPUs' PCI Express is known. Those with 4.0 and later came after Broadwell, whose
/// rate NCCL takes for an unknown one; four and eight A100 in pairs of two sockets reach about 20 GB/s there.
pub(crate) fn of_lanes(generation: u32, threads: u32) -> Socket {
    if generation < 4 {
        return socket("", "", None, threads);
    }
    let bridge = Bandwidth::new(22e9).expect("a positive rate");
    Socket { threads, bridge, maker: "Intel Sapphire Rapids, since PCI Express 4.0 came after its unknown CPU" }
}

/// Set bits of a mask as Linux prints it: hexadecimal words with commas.
pub(crate) fn threads_of_mask(mask: &str) -> Option<u32> {
    mask.chars().filter(|c| *c != ',').map(|c| c.to_digit(16).map(u32::count_ones)).sum()
}

/// Numbers in a list of ranges as nvidia-smi prints it: `0-15,64-79`.
pub(crate) fn threads_of_ranges(ranges: &str) -> Option<u32> {
    let mut all: u32 = 0;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        all = all.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(all)
}
