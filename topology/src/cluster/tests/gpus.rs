//! Tests that the catalogue of GPUs is complete, cited and plausible; and what a cluster file may override.

use crate::cluster::*;

/// The preset with its GPU table replaced.
fn cluster(gpu: &str) -> Result<Cluster, String> {
    let good = include_str!("../../../clusters/ethernet-gpu-8.toml");
    let (start, end) = (good.find("model = ").unwrap(), good.find("[[host.nic]]").unwrap());
    let text = format!("{}{gpu}\n\n{}", &good[..start], &good[end..]);
    Cluster::parse("c.toml", &text).map_err(|error| error.to_string())
}

fn gpu(cluster: &Cluster) -> (&GpuSpec, String) {
    let device = &cluster.devices()[1];
    let DeviceKind::Gpu(spec) = &device.kind else { panic!("a GPU") };
    (spec, device.provenance.to_string())
}

#[test]
fn the_catalogue_is_complete_and_every_figure_is_cited_or_marked() {
    let gpus = catalogue().unwrap();
    let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let expected = "k20 k20x k40 k80 m40 titan-x-maxwell titan-x-pascal gtx-1080-ti p40 p100-pcie p100-sxm2 \
                    v100-pcie v100-sxm2 v100-pcie-32 v100-sxm2-32 v100s-pcie-32 t4 rtx-2080-ti titan-rtx \
                    quadro-rtx-6000 quadro-rtx-8000 a100-40-pcie a100-80-pcie a100-40-sxm a100-80-sxm \
                    a800-80-pcie a800-80-sxm a30 a10 a10g a40 rtx-a5000 rtx-a6000 rtx-3080 rtx-3090 l4 l20 l40 \
                    l40s rtx-6000-ada rtx-4080 rtx-4090 h100-pcie h100-sxm h100-96-sxm h100-nvl h800-pcie h800-sxm h20 \
                    h20-141 h200-sxm h200-nvl gh200 gh200-144 b200-sxm b300-sxm gb200 gb300 gb10 rtx-5080 \
                    rtx-5090 rtx-pro-6000 mi50 mi60 mi100 mi210 mi250 mi250x mi300a mi300x mi325x mi350x \
                    mi355x";
    assert_eq!(names.join(" "), expected);
    for gpu in &gpus {
        assert_eq!(gpu.provenance.kind, Origin::Datasheet, "{}", gpu.name);
        for (figure, source) in &gpu.sources {
            assert!(!source.evidence.is_empty(), "{}: {figure}", gpu.name);
            assert_eq!(gpu.provenance_of(figure), source);
        }
        assert_eq!(gpu.provenance_of("memory"), &gpu.provenance);
        let spec = &gpu.spec;
        // A format of half the bits is at least as fast; from V100 on, tensor cores multiply halves four times as fast.
        let [double, single] =
            [PeakPrecision::Fp64, PeakPrecision::Fp32].map(|precision| spec.peak(precision).unwrap());
        assert!(double < single, "{}", gpu.name);
        if let Some(half) = spec.peak(PeakPrecision::Fp16) {
            assert!(half > 1.9 * single, "{}", gpu.name);
        }
        if let Some(quarter) = spec.peak(PeakPrecision::Fp8) {
            assert!((quarter / spec.peak(PeakPrecision::Fp16).unwrap() - 2.0).abs() < 0.03, "{}", gpu.name);
        }
        assert_eq!(spec.pcie.unwrap().count, 16);
        assert!(spec.pcie.unwrap().pcie().is_some());
        assert!(spec.nvlink.is_none_or(|nvlink| nvlink.nvlink().is_some()));
    }
}

#[test]
fn a_model_of_the_catalogue_is_enough_and_keys_override() {
    let h100 = cluster("model = \"h100-sxm\"").unwrap();
    let (spec, source) = gpu(&h100);
    assert_eq!((spec.multiprocessors, spec.peak_flops_s, spec.peak(PeakPrecision::Fp8)), (132, 67e12, Some(1979e12)));
    assert_eq!(spec.nvlink.unwrap().to_string(), "4.0 x18");
    assert!(source.starts_with("datasheet: NVIDIA H100") && source.contains("multiprocessors datasheet"), "{source}");
    let slower = cluster("model = \"h100-sxm\"\nmemory_bandwidth = \"3TB/s\"\nmultiprocessors = 120").unwrap();
    let (spec, source) = gpu(&slower);
    assert_eq!((spec.memory_bandwidth.bytes_per_s(), spec.multiprocessors), (3e12, 120));
    assert!(
        source.starts_with("assumed: multiprocessors, memory_bandwidth as the cluster file says; else datasheet: "),
        "{source}"
    );
    let own = cluster("model = \"h100-sxm\"\nprovenance = \"measured: nvidia-smi\"").unwrap();
    assert_eq!(gpu(&own).1, "measured: nvidia-smi");
}

#[test]
fn unknown_models_and_invalid_figures_are_named() {
    for (table, expected) in [
        ("model = \"h100-smx\"", "c.toml:21: model = \"h100-smx\": is not in the catalogue (did you mean h100-sxm"),
        (
            "model = \"abacus 9000\"",
            "c.toml:21: model = \"abacus 9000\": is not in the catalogue (lockstep clusters gpus",
        ),
        (
            "model = \"abacus\"\nmultiprocessors = 3",
            "c.toml:18: [[host.gpu]]: lacks the key peak_flops: add peak_flops = \"15.7TFLOP/s\"",
        ),
        ("model = \"k20\"\npeak_fp16 = \"0TFLOP/s\"", "c.toml:22: peak_fp16 = \"0TFLOP/s\": must be positive"),
        ("model = \"k20\"\nnvlink = \"4\"", "c.toml:22: nvlink = \"4\": must be a generation and a number of lanes"),
        (
            "model = \"k20\"\npeak_fp4 = \"1TFLOP/s\"",
            "c.toml:22: peak_fp4 = \"1TFLOP/s\": [[host.gpu]] has no key peak_fp4: did you mean",
        ),
    ] {
        let error = cluster(table).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
}

#[test]
fn links_get_their_rate_from_generation_and_lanes() {
    let good = include_str!("../../../clusters/ethernet-gpu-8.toml");
    let old = "bandwidth = \"7.88GB/s\"\nprovenance = \"datasheet: PCI Express 3.0, 8 lanes (bandwidth; the latency is \
               assumed)\"";
    assert!(good.contains(old));
    let with = |keys: &str| Cluster::parse("c.toml", &good.replace(old, keys)).map_err(|error| error.to_string());
    let cluster = with("pcie = \"4.0 x8\"").unwrap();
    let link = cluster.links().iter().find(|link| link.bandwidth.bytes_per_s().round() == 15_753_846_154.0).unwrap();
    assert_eq!(link.kind, LinkKind::Pcie);
    assert_eq!(link.provenance.to_string(), "datasheet: PCI Express 4.0, 8 lanes (bandwidth); latency assumed");
    for (keys, expected) in [
        ("pcie = \"4.0 x8\"\nbandwidth = \"1GB/s\"", "c.toml:38: [[host.link]]: has more than one of bandwidth, pcie"),
        ("pcie = \"9.0 x8\"", "c.toml:42: pcie = \"9.0 x8\": is not a generation of PCI Express; there are 1.0 to 6.0"),
        ("nvlink = \"2.0 x2\"", "c.toml:39: kind = \"pcie\": is nvlink by the key that gives its rate"),
        ("", "c.toml:38: [[host.link]]: lacks the key bandwidth: add bandwidth = \"10Gbit/s\""),
    ] {
        let error = with(keys).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "\n     got {error}\nexpected {expected}");
    }
}

/// A profile names GPUs as the driver does; no name is of two kinds, and the maker's may be missing.
#[test]
fn profiles_name_gpus_as_the_driver_does() {
    let gpus = catalogue().unwrap();
    for gpu in &gpus {
        let Some(name) = &gpu.spec.driver_name else { continue };
        let same: Vec<&str> =
            gpus.iter().filter(|other| other.spec.is_model(name)).map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(same, [gpu.name.as_str()], "{name}");
    }
    let spec = |name: &str| &gpus.iter().find(|gpu| gpu.name == name).unwrap().spec;
    assert!(spec("a100-40-sxm").is_model("A100-SXM4-40GB"));
    assert!(!spec("h100-pcie").is_model("NVIDIA H100 80GB HBM3"));
}
