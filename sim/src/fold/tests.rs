//! Folded equals unfolded, to the picosecond, on everything that ships and on trees of switches.

use std::sync::Arc;

use lockstep_models::{Bucket, Job, Model, Program};
use lockstep_topology::{
    Algorithm, Bytes, Cluster, Collective, Group, Hosting, HostingRule, Placement, PlacementRule, Rank,
};

use crate::{CollectiveRun, CollectiveTime, FoldRule, Folding, NetworkModel, Options, Platform, Roofline};

/// Leaf switches of `hosts` hosts with `gpus` GPUs each, `leaves` of them on a pod's switch, `pods` pods on a core.
fn tree(gpus: u32, hosts: u32, leaves: u32, pods: u32) -> Cluster {
    let (all_leaves, all_hosts) = (leaves * pods, hosts * leaves * pods);
    let mut text = format!(
        r#"
        name = "tree"
        provenance = "assumed: a test"
        [[host]]
        name = "node"
        count = {all_hosts}
        [host.cpu]
        cores = 4
        flops_per_core = "100GFLOP/s"
        memory_bandwidth = "50GB/s"
        memory = "16GiB"
        message_latency = "1us"
        message_bandwidth = "8GB/s"
        [[host.gpu]]
        name = "gpu"
        count = {gpus}
        model = "a GPU"
        multiprocessors = 80
        peak_flops = "14TFLOP/s"
        memory_bandwidth = "900GB/s"
        memory = "16GiB"
        [[host.nic]]
        name = "eth0"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "gpu*"]
        latency = "700ns"
        bandwidth = "15GB/s"
        [[host.link]]
        kind = "pcie"
        between = ["cpu", "eth0"]
        latency = "500ns"
        bandwidth = "12GB/s"
        [[switch]]
        name = "leaf"
        count = {all_leaves}
        [[switch]]
        name = "pod"
        count = {pods}
        [[switch]]
        name = "core"
        "#
    );
    let mut link = |a: String, b: String, latency: u32, rate: f64| {
        text += &format!(
            "[[link]]\nkind = \"ethernet\"\nbetween = [\"{a}\", \"{b}\"]\nlatency = \"{latency}ns\"\nbandwidth = \"{rate}GB/s\"\n"
        );
    };
    for leaf in 0..all_leaves {
        let (first, last) = (leaf * hosts, (leaf + 1) * hosts - 1);
        link(format!("node[{first}-{last}].eth0"), format!("leaf{leaf}"), 2000, 3.0);
    }
    for pod in 0..pods {
        let (first, last) = (pod * leaves, (pod + 1) * leaves - 1);
        link(format!("leaf[{first}-{last}]"), format!("pod{pod}"), 700, 4.0);
    }
    link("pod*".into(), "core".into(), 900, 5.0);
    Cluster::parse("tree.toml", &text).expect("a cluster")
}

/// Ranks on a cluster.
struct Site {
    cluster: Cluster,
    placement: Placement,
    hosting: Hosting,
}

impl Site {
    fn new(cluster: Cluster, ranks: u32, rule: &HostingRule) -> Option<Site> {
        let placement = Placement::new(&cluster, ranks, &PlacementRule::Pack).ok()?;
        let hosting = Hosting::new(&placement, rule).ok()?;
        Some(Site { cluster, placement, hosting })
    }

    fn platform(&self, network: NetworkModel) -> Platform<'_> {
        let Site { cluster, placement, hosting } = self;
        Platform { cluster, placement, hosting, costs: &Roofline, network, conditions: crate::Conditions::none() }
    }

    fn nodes(&self) -> Vec<u32> {
        let ranks: Vec<Rank> = self.placement.all().collect();
        self.placement.node_sizes(&ranks)
    }

    fn collective(&self, collective: &Collective, algorithm: &str, elements: u64, chunk: u64) -> [CollectiveTime; 2] {
        let run = CollectiveRun {
            collective: collective.clone(),
            algorithm: algorithm.parse::<Algorithm>().expect("an algorithm"),
            group: Group::nodes(&self.nodes()),
            elements,
            chunk,
            window: 0,
            fold: FoldRule::Exact,
            long_way: false,
        };
        let time = |(fold, long_way)| {
            let run = CollectiveRun { fold, long_way, ..run.clone() };
            crate::simulate_collective(&run, &self.platform(NetworkModel::MaxMin)).expect("a collective that works")
        };
        [(FoldRule::Exact, false), (FoldRule::Never, true)].map(time)
    }
}

/// Both runs of a collective say the same; whether the first was folded.
fn same([folded, whole]: [CollectiveTime; 2], what: &str) -> bool {
    assert_eq!(whole.folding, Folding::Off);
    assert!(folded.time.0.abs_diff(whole.time.0) <= 1, "{what}: {} folded, {} unfolded", folded.time, whole.time);
    assert_eq!(folded.traffic, whole.traffic, "{what}");
    let shares = |time: &CollectiveTime| time.utilisation.first().map_or(0.0, |busiest| busiest.share);
    assert!((shares(&folded) - shares(&whole)).abs() < 1e-9, "{what}: {:?}", folded.utilisation.first());
    matches!(folded.folding, Folding::Folded { .. })
}

const ALGORITHMS: [&str; 9] = [
    "ring",
    "halving-doubling",
    "binomial-tree",
    "pipelined-chain",
    "multi-color:2",
    "parameter-server:1",
    "hierarchical:ring",
    "hierarchical:halving-doubling",
    "library:mpi",
];

/// Every algorithm on `site`; those that folded.
fn every_algorithm(site: &Site, elements: u64, chunk: u64, what: &str) -> Vec<&'static str> {
    let folds = |algorithm: &&str| {
        let what = format!("{algorithm} of {elements} among {} on {what}", site.placement.ranks());
        same(site.collective(&Collective::AllReduce, algorithm, elements, chunk), &what)
    };
    ALGORITHMS.into_iter().filter(folds).collect()
}

#[test]
fn collectives_on_every_preset() {
    for (name, _) in Cluster::presets() {
        for rule in [HostingRule::PerRank, HostingRule::PerHost] {
            for (ranks, elements, chunk) in
                [(2, 64, 0), (8, 1 << 18, 0), (12, 3 << 14, 3 << 12), (16, 1 << 20, 1 << 18), (32, 1000, 0)]
            {
                let Some(site) = Site::new(Cluster::load(name).expect("a preset"), ranks, &rule) else { continue };
                every_algorithm(&site, elements, chunk, name);
            }
        }
    }
}

/// As many hosts of a preset as `ranks` take; `None` where it has a size of its own.
fn sized(name: &str, ranks: u32) -> Option<Site> {
    let all = Cluster::load(name).expect("a preset");
    let on_host = all.devices().iter().filter(|device| device.host == all.hosts()[0].id).count() as u32;
    let each = if on_host > 1 { on_host - 1 } else { 16 };
    let cluster = Cluster::load(&format!("{name}:{}", ranks / each)).ok()?;
    Site::new(cluster, ranks, &HostingRule::PerHost)
}

#[test]
fn presets_of_any_size() {
    let mut folded = Vec::new();
    for (name, _) in Cluster::presets() {
        for (ranks, algorithm, elements, chunk) in [
            (128, "ring", 128 << 10, 0),
            (128, "halving-doubling", 128 << 10, 0),
            (1024, "hierarchical:halving-doubling", 1 << 12, 1 << 11),
        ] {
            let Some(site) = sized(name, ranks) else { continue };
            let what = format!("{algorithm} among {ranks} on {name}");
            if same(site.collective(&Collective::AllReduce, algorithm, elements, chunk), &what) {
                folded.push(what);
            }
        }
    }
    for preset in ["dgx-h100", "p2.8xlarge", "ethernet-gpu-8"] {
        assert!(folded.contains(&format!("ring among 128 on {preset}")), "{folded:#?}");
    }
    let site = sized("ethernet-gpu-8", 2048).expect("places");
    for algorithm in ["halving-doubling", "hierarchical:halving-doubling"] {
        assert!(same(site.collective(&Collective::AllReduce, algorithm, 1 << 12, 1 << 11), algorithm), "{algorithm}");
    }
}

#[test]
fn collectives_on_trees() {
    let folding = |cluster: Cluster, ranks, elements, chunk| {
        let site = Site::new(cluster, ranks, &HostingRule::PerRank).expect("places");
        every_algorithm(&site, elements, chunk, "a tree")
    };
    let all = ["ring", "halving-doubling", "hierarchical:ring", "hierarchical:halving-doubling", "library:mpi"];
    assert_eq!(folding(tree(4, 2, 2, 2), 32, 1 << 16, 1 << 14), all);
    assert_eq!(folding(tree(2, 4, 2, 1), 16, 1 << 20, 0), all);
    assert_eq!(folding(tree(1, 2, 2, 4), 16, 1 << 10, 0), all);
    // Three pods rotate and do not XOR; the library's ring rotates too.
    assert_eq!(folding(tree(2, 2, 2, 3), 24, 24 << 9, 24 << 8), ["ring", "hierarchical:ring", "library:mpi"]);
    // Unequal shards: nothing folds but recursive doubling, which has none.
    assert_eq!(folding(tree(2, 2, 2, 2), 16, 1001, 0), ["library:mpi"]);
}

#[test]
fn other_collectives() {
    let site = Site::new(tree(2, 2, 2, 2), 16, &HostingRule::PerRank).expect("places");
    for (collective, algorithm) in [
        (Collective::ReduceScatter, "ring"),
        (Collective::AllGather, "ring"),
        (Collective::AllToAllV { counts: vec![3000; 256].into() }, "pairwise"),
    ] {
        assert!(same(site.collective(&collective, algorithm, 48000, 0), algorithm), "{algorithm}");
    }
    assert!(!same(site.collective(&Collective::Broadcast { root: 0 }, "binomial-tree", 48000, 0), "broadcast"));
}

/// A perceptron of 32·64 and 65·32 parameters: up to 32 ranks have equal shards.
const EVEN: &str = r#"
name = "even"
source = "a test"
input = [1, 1, 31]
layer = [
    { name = "hidden", kind = "dense", out_features = 64 },
    { kind = "relu" },
    { name = "scores", kind = "dense", out_features = 32 },
    { name = "loss", kind = "softmax_cross_entropy" },
]
"#;

/// Its job on `site`.
fn program(site: &Site, algorithm: &str, bucket: Bucket, chunk: u64, accumulate: u32) -> Program {
    let job = Job {
        algorithm: algorithm.parse().expect("an algorithm"),
        bucket,
        chunk: Some(Bytes(chunk)),
        accumulate,
        node_sizes: Some(site.nodes()),
        concurrent_exchanges: if algorithm.starts_with("library") { 1 } else { 2 },
        ..Job::new(Arc::new(Model::parse("even.toml", EVEN).expect("a model")), site.placement.ranks(), 8)
    };
    job.program().expect("a program")
}

#[test]
fn programs_are_equal_task_by_task() {
    let mut folded = 0;
    for (cluster, ranks) in [
        (tree(2, 2, 2, 2), 16),
        (Cluster::load("ethernet-4").expect("a preset"), 32),
        (Cluster::load("ethernet-gpu-8").expect("a preset"), 8),
        (Cluster::load("workstation").expect("a preset"), 2),
    ] {
        let site = Site::new(cluster, ranks, &HostingRule::PerHost).expect("places");
        for (algorithm, bucket) in ALGORITHMS.iter().flat_map(|a| [(a, Bucket::Layer), (a, Bucket::Whole)]) {
            let program = program(&site, algorithm, bucket, 64 << 10, 2);
            let run = |fold: FoldRule| {
                let options = Options { warm_up: 1, counted: 2, fold, ..Options::default() };
                crate::simulate(&program, &site.platform(NetworkModel::MaxMin), options.driver(), &options)
                    .expect("a prediction")
            };
            let (one, other) = (run(FoldRule::Exact), run(FoldRule::Never));
            let key = |span: &&lockstep_models::Span| (span.rank, span.iteration, span.repetition, span.task);
            let [mut a, mut b] = [&one, &other].map(|p| p.timeline.spans.iter().collect::<Vec<_>>());
            a.sort_by_key(key);
            b.sort_by_key(key);
            assert_eq!(a.len(), b.len());
            for (x, y) in a.into_iter().zip(b) {
                assert_eq!(key(&x), key(&y));
                for (s, t) in [(x.ready, y.ready), (x.start, y.start), (x.end, y.end)] {
                    assert!(s.0.abs_diff(t.0) <= 1, "{algorithm} {bucket} on {}: {x:?} {y:?}", site.cluster.name());
                }
            }
            assert_eq!(one.traffic, other.traffic);
            folded += u32::from(matches!(one.folding, Folding::Folded { .. }));
            assert_eq!(one.notes.len(), other.notes.len() + 1, "the output says how it folded");
        }
    }
    // Five of nine algorithms, but one node alone has no leaders to permute.
    assert_eq!(folded, 36, "of 72 programs");
}

#[test]
fn padding_rounds_up_and_says_so() {
    let site = Site::new(tree(2, 2, 2, 2), 16, &HostingRule::PerRank).expect("places");
    let run = |elements, fold| {
        let algorithm = Algorithm::Ring;
        let group = Group::flat(16);
        let collective = Collective::AllReduce;
        let run = CollectiveRun { collective, algorithm, group, elements, chunk: 0, window: 0, fold, long_way: false };
        crate::simulate_collective(&run, &site.platform(NetworkModel::MaxMin)).expect("a collective that works")
    };
    let (padded, even) = (run(1001, FoldRule::Padded), run(1008, FoldRule::Never));
    assert_eq!((padded.time, &padded.traffic), (even.time, &even.traffic));
    assert!(padded.folding.to_string().contains("rounded up by 0.70 %"), "{}", padded.folding);
    assert!(matches!(run(1001, FoldRule::Exact).folding, Folding::Refused(_)));
}
