//! Maps a GPU's vendor and device of PCI Express to its model in the catalogue.
//!
//! The identities and what they are called are facts of the PCI ID Project (<https://pci-ids.ucw.cz>, whose file may be
//! distributed under the 3-clause BSD licence, Copyright Martin Mares and Albert Pool); which model each is, is ours.

/// NVIDIA's devices. Where one identity is several models, the first is the one with the most memory.
const NVIDIA: &[(u16, &[&str])] = &[
    (0x101e, &["k20x"]),
    (0x101f, &["k20"]),
    (0x1020, &["k20x"]),
    (0x1021, &["k20x"]),
    (0x1022, &["k20"]),
    (0x1023, &["k40"]),
    (0x1024, &["k40"]),
    (0x1028, &["k20"]),
    (0x102d, &["k80"]),
    (0x15f8, &["p100-pcie"]),
    (0x15f9, &["p100-sxm2"]),
    (0x17c2, &["titan-x-maxwell"]),
    (0x17fd, &["m40"]),
    (0x1b00, &["titan-x-pascal"]),
    (0x1b06, &["gtx-1080-ti"]),
    (0x1b38, &["p40"]),
    (0x1db1, &["v100-sxm2"]),
    (0x1db2, &["v100-sxm2"]),
    (0x1db4, &["v100-pcie"]),
    (0x1db5, &["v100-sxm2-32"]),
    (0x1db6, &["v100-pcie-32"]),
    (0x1db7, &["v100-sxm2-32"]),
    // The V100 of DGX-2, SXM3.
    (0x1db8, &["v100-sxm2-32"]),
    (0x1df5, &["v100-sxm2"]),
    (0x1df6, &["v100s-pcie-32"]),
    (0x1e02, &["titan-rtx"]),
    (0x1e04, &["rtx-2080-ti"]),
    (0x1e07, &["rtx-2080-ti"]),
    (0x1e30, &["quadro-rtx-8000", "quadro-rtx-6000"]),
    (0x1e36, &["quadro-rtx-6000"]),
    (0x1e78, &["quadro-rtx-8000", "quadro-rtx-6000"]),
    (0x1eb8, &["t4"]),
    (0x20b0, &["a100-40-sxm"]),
    (0x20b1, &["a100-40-pcie"]),
    (0x20b2, &["a100-80-sxm"]),
    (0x20b5, &["a100-80-pcie"]),
    (0x20b7, &["a30"]),
    (0x20f1, &["a100-40-pcie"]),
    (0x20f3, &["a800-80-sxm"]),
    (0x20f5, &["a800-80-pcie"]),
    (0x2204, &["rtx-3090"]),
    (0x2206, &["rtx-3080"]),
    (0x2230, &["rtx-a6000"]),
    (0x2231, &["rtx-a5000"]),
    (0x2235, &["a40"]),
    (0x2236, &["a10"]),
    (0x2237, &["a10g"]),
    (0x2321, &["h100-nvl"]),
    (0x2322, &["h800-pcie"]),
    (0x2324, &["h800-sxm"]),
    (0x2329, &["h20"]),
    (0x232c, &["h20-141"]),
    (0x2330, &["h100-sxm"]),
    (0x2331, &["h100-pcie"]),
    (0x2335, &["h200-sxm"]),
    (0x233b, &["h200-nvl"]),
    (0x2342, &["gh200"]),
    (0x2348, &["gh200-144"]),
    (0x2684, &["rtx-4090"]),
    (0x26b1, &["rtx-6000-ada"]),
    (0x26b5, &["l40"]),
    (0x26b9, &["l40s"]),
    (0x26ba, &["l20"]),
    (0x2704, &["rtx-4080"]),
    (0x27b8, &["l4"]),
    (0x2901, &["b200-sxm"]),
    (0x2941, &["gb200"]),
    (0x2b85, &["rtx-5090"]),
    (0x2bb1, &["rtx-pro-6000"]),
    (0x2bb5, &["rtx-pro-6000"]),
    (0x2c02, &["rtx-5080"]),
    (0x2e12, &["gb10"]),
    (0x3182, &["b300-sxm"]),
    (0x31c2, &["gb300"]),
    (0x31c3, &["gb300"]),
];

/// AMD's devices. One identity is the MI250 or the MI250X, whose compute units differ.
const AMD: &[(u16, &[&str])] = &[
    (0x66a0, &["mi60", "mi50"]),
    (0x66a1, &["mi50", "mi60"]),
    (0x7388, &["mi100"]),
    (0x738c, &["mi100"]),
    (0x738e, &["mi100"]),
    (0x7408, &["mi250x"]),
    (0x740c, &["mi250x", "mi250"]),
    (0x740f, &["mi210"]),
    (0x74a0, &["mi300a"]),
    (0x74a1, &["mi300x"]),
    (0x74a5, &["mi325x"]),
    (0x74a9, &["mi300x"]),
    (0x74b5, &["mi300x"]),
    (0x74b9, &["mi325x"]),
    (0x74bd, &["mi300x"]),
    (0x75a0, &["mi350x"]),
    (0x75a3, &["mi355x"]),
];

/// The makers of GPUs by their number as vendors of PCI devices.
pub(crate) const NVIDIA_VENDOR: u16 = 0x10de;
pub(crate) const AMD_VENDOR: u16 = 0x1002;

/// The models that a device may be, the likeliest first; none where it is not listed.
pub(crate) fn models(vendor: u16, device: u16) -> &'static [&'static str] {
    let table = match vendor {
        NVIDIA_VENDOR => NVIDIA,
        AMD_VENDOR => AMD,
        _ => return &[],
    };
    table.iter().find(|(known, _)| *known == device).map_or(&[], |(_, models)| models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_device_is_a_gpu_of_the_catalogue() {
        let gpus = lockstep_topology::cluster::catalogue().unwrap();
        for (device, models) in NVIDIA.iter().chain(AMD) {
            assert!(!models.is_empty());
            for model in *models {
                assert!(gpus.iter().any(|gpu| gpu.name == *model), "{device:#06x}: {model}");
            }
        }
        for table in [NVIDIA, AMD] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted, and none twice");
        }
        assert_eq!((models(0x10de, 0x2684), models(0x1002, 0x74a1)), (&["rtx-4090"][..], &["mi300x"][..]));
        assert!(models(0x10de, 0x1af1).is_empty() && models(0x15b3, 0x2684).is_empty());
    }
}
