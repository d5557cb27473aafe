//! Determines the interconnect between a host's sockets, by the CPU's architecture, vendor, family and model, as NCCL
//! assumes it (`topo.h`).

use lockstep_topology::Bandwidth;
use lockstep_topology::cluster::Lanes;

use crate::machine::Socket;
use crate::threads::Threads;

/// The socket of a CPU with `threads` hardware threads; family and model are those of x86's CPUID.
pub(crate) fn socket(arch: &str, vendor: &str, model: Option<u32>, threads: Threads) -> Socket {
    let (gb_per_s, maker) = match (arch, vendor, model) {
        ("x86_64", "AuthenticAMD", _) => (16.0, "AMD"),
        ("x86_64", "GenuineIntel", Some(0x8f..)) => (22.0, "Intel Sapphire Rapids and later"),
        ("x86_64", "GenuineIntel", Some(0x55..)) => (10.0, "Intel Skylake"),
        ("x86_64", "GenuineIntel", _) => (6.0, "Intel Broadwell"),
        ("ppc64" | "ppc64le", ..) => (32.0, "POWER9"),
        ("arm64" | "aarch64", ..) => (6.0, "ARM"),
        _ => (6.0, "an unknown CPU"),
    };
    Socket {
        threads,
        bridge: Bandwidth::new(f64::round(gb_per_s * 1e9)).expect("a positive rate"),
        maker,
        of_nccl: true,
    }
}

/// The socket of a CPU that the file does not name, of the time of GPUs with such lanes: one link between sockets, as
/// Intel's data sheets have it.
pub(crate) fn of_time(gpu: Lanes, threads: Threads) -> Socket {
    let (gb_per_s, maker) = match gpu.generation {
        0..=2 => (16.0, "one QPI link of 8 GT/s, the CPU being unknown"),
        3 => (20.8, "one UPI link of 10.4 GT/s, the CPU being unknown"),
        4 => (22.4, "one UPI link of 11.2 GT/s, the CPU being unknown"),
        _ => (32.0, "one UPI link of 16 GT/s, the CPU being unknown"),
    };
    Socket {
        threads,
        bridge: Bandwidth::new(f64::round(gb_per_s * 1e9)).expect("a positive rate"),
        maker,
        of_nccl: false,
    }
}
