//! Tests placements and hostings: counts worked by hand, and properties over random clusters of hosts.

use super::*;
use crate::cluster::Cluster;
use proptest::prelude::*;

fn cluster(name: &str) -> Cluster {
    Cluster::load(name).unwrap()
}

fn hosts(placement: &Placement) -> Vec<u32> {
    placement.all().map(|rank| placement.host(rank).0).collect()
}

#[test]
fn pack_fills_hosts_in_turn_and_overloads_evenly() {
    let ethernet = cluster("ethernet-4");
    let packed = Placement::new(&ethernet, 33, &PlacementRule::Pack).unwrap();
    assert_eq!(packed.node_sizes(&packed.all().collect::<Vec<_>>()), [16, 16, 1]);
    // 100 ranks on 4 x 16 cores: one per core is 64, the other 36 go to 16, 16 and 4 cores.
    let over = Placement::new(&ethernet, 100, &PlacementRule::Pack).unwrap();
    assert_eq!(over.node_sizes(&over.all().collect::<Vec<_>>()), [32, 32, 20, 16]);
}

#[test]
fn scatter_assigns_hosts_in_turn() {
    let gpus = cluster("ethernet-gpu-8");
    let scattered = Placement::new(&gpus, 10, &PlacementRule::Scatter).unwrap();
    assert_eq!(hosts(&scattered), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
    let names: Vec<&str> = [0, 8].map(|rank| gpus.device(scattered.device(Rank(rank))).unwrap().name.as_str()).to_vec();
    assert_eq!(names, ["node0.gpu0", "node0.gpu1"]);
    let mut ordered: Vec<Rank> = scattered.all().collect();
    ordered.sort_by_key(|rank| scattered.host(*rank));
    assert_eq!(scattered.node_sizes(&ordered), [2, 2, 1, 1, 1, 1, 1, 1]);
}

/// Two of the four GPUs of each host; 3 + 3 + 1 on hosts of 16 cores; 70 of 64 + 64 are more than a rank a core.
#[test]
fn each_host_has_the_given_number() {
    let (gpus, ethernet) = (cluster("ethernet-gpu-8"), cluster("ethernet-4"));
    let pairs = Placement::new(&gpus, 8, &PlacementRule::PerHost(2)).unwrap();
    assert_eq!(hosts(&pairs), [0, 0, 1, 1, 2, 2, 3, 3]);
    let threes = Placement::new(&ethernet, 7, &PlacementRule::PerHost(3)).unwrap();
    assert_eq!(hosts(&threes), [0, 0, 0, 1, 1, 1, 2]);
    let many = Placement::new(&ethernet, 70, &PlacementRule::PerHost(40)).unwrap();
    assert_eq!(many.node_sizes(&many.all().collect::<Vec<_>>()), [40, 30]);
    let refused = Placement::new(&gpus, 17, &PlacementRule::PerHost(2)).unwrap_err().to_string();
    assert!(refused.contains("places for 16, 1 per GPU, and at most 2 on a host"), "{refused}");
}

#[test]
fn ranks_are_placed_on_gpus_if_present_unless_overridden() {
    let gpus = cluster("ethernet-gpu-8");
    let on_gpu = Placement::new(&gpus, 32, &PlacementRule::Pack).unwrap();
    assert!(on_gpu.all().all(|rank| on_gpu.ranks_on(on_gpu.device(rank)) == 1));
    let limits = Limits { on_cpus: true, ..Limits::default() };
    let on_cpu = Placement::within(&gpus, 40, &PlacementRule::Pack, limits).unwrap();
    assert_eq!(on_cpu.node_sizes(&on_cpu.all().collect::<Vec<_>>()), [32, 8]);
    let learners = Limits { ranks_per_gpu: 2, ..Limits::default() };
    let shared = Placement::within(&gpus, 64, &PlacementRule::Pack, learners).unwrap();
    assert_eq!(shared.ranks_on(shared.device(Rank(63))), 2);
}

#[test]
fn impossible_placements_are_refused_with_a_possible_one() {
    let (one, gpus) = (cluster("workstation"), cluster("ethernet-gpu-8"));
    let twice = vec![DeviceId(1), DeviceId(1)];
    let refused = [
        (
            Placement::new(&one, 65, &PlacementRule::Pack),
            "--ranks: 65: cluster workstation has places for 64, 4 per core",
        ),
        (
            Placement::new(&gpus, 33, &PlacementRule::Scatter),
            "--ranks: 33: cluster ethernet-gpu-8 has places for 32, 1 per GPU",
        ),
        (Placement::new(&one, 0, &PlacementRule::Pack), "--ranks: 0: must be at least 1"),
        (Placement::new(&one, u32::MAX, &PlacementRule::Pack), "--ranks: 4294967295: cluster workstation"),
        (Placement::new(&one, 2, &PlacementRule::Listed(vec![DeviceId(0)])), "--ranks: 2: 1 devices are listed"),
        (Placement::new(&one, 1, &PlacementRule::Listed(vec![DeviceId(9)])), "placement: device 9: no such device"),
        (Placement::new(&gpus, 2, &PlacementRule::Listed(twice)), "placement: node0.gpu0: takes 1 ranks at most"),
    ];
    for (result, start) in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[test]
fn processes_are_on_one_host() {
    let ethernet = cluster("ethernet-4");
    let placement = Placement::new(&ethernet, 8, &PlacementRule::Scatter).unwrap();
    let per_rank = Hosting::new(&placement, &HostingRule::PerRank).unwrap();
    assert_eq!((per_rank.processes(), per_rank.share(Rank(0), Rank(4))), (8, false));
    let per_host = Hosting::new(&placement, &HostingRule::PerHost).unwrap();
    assert_eq!((per_host.processes(), per_host.share(Rank(0), Rank(4))), (4, true));
    let listed = Hosting::new(&placement, &HostingRule::Listed(vec![7, 1, 2, 3, 7, 5, 2, 3])).unwrap();
    assert_eq!((listed.processes(), listed.ranks(0)), (5, [Rank(0), Rank(4)].as_slice()));
    for (rule, start) in [
        (HostingRule::Single, "hosting: process 0: rank 0 is on host 0 and rank 1 on host 1"),
        (HostingRule::Listed(vec![0]), "hosting: 1 processes listed: there are 8 ranks"),
    ] {
        let error = Hosting::new(&placement, &rule).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    let one = Placement::new(&cluster("workstation"), 4, &PlacementRule::Pack).unwrap();
    assert_eq!(Hosting::new(&one, &HostingRule::Single).unwrap().ranks(0).len(), 4);
}

/// A cluster whose hosts have these many cores, on one switch.
fn hosts_of(cores: &[u32]) -> Cluster {
    let mut text = String::from("name = \"random\"\n");
    for (i, cores) in cores.iter().enumerate() {
        text += &format!("[[host]]\nname = \"h{i}\"\n[host.cpu]\ncores = {cores}\nflops_per_core = \"1GFLOP/s\"\n");
        text += "memory_bandwidth = \"1GB/s\"\nmemory = \"1GiB\"\nmessage_latency = \"1us\"\n";
        text += "message_bandwidth = \"1GB/s\"\n";
    }
    text += "[[switch]]\nname = \"s\"\n[[link]]\nkind = \"ethernet\"\nbetween = [\"h*.cpu\", \"s\"]\n";
    text += "latency = \"1us\"\nbandwidth = \"1GB/s\"\n";
    Cluster::parse("random.toml", &text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every rule gives each core its n-th rank only when each has n - 1, and both rules the same ranks per host.
    #[test]
    fn cores_are_evenly_loaded(cores in prop::collection::vec(1u32..6, 1..6), share in 0.0..1.0f64) {
        let cluster = hosts_of(&cores);
        let most = cores.iter().sum::<u32>() * 4;
        let ranks = 1 + (share * f64::from(most - 1)) as u32;
        let level = ranks.div_ceil(cores.iter().sum());
        for rule in [PlacementRule::Pack, PlacementRule::Scatter] {
            let placement = Placement::new(&cluster, ranks, &rule).unwrap();
            prop_assert_eq!(placement.ranks(), ranks);
            let loads: Vec<u32> = cluster.devices().iter().map(|device| placement.ranks_on(device.id)).collect();
            for (load, cores) in loads.iter().zip(&cores) {
                prop_assert!((cores * (level - 1)..=cores * level).contains(load), "{} on {}", load, cores);
            }
        }
        let packed = hosts(&Placement::new(&cluster, ranks, &PlacementRule::Pack).unwrap());
        prop_assert!(packed.is_sorted(), "{:?}", packed);
        prop_assert!(Placement::new(&cluster, most + 1, &PlacementRule::Pack).is_err());
    }

    /// Ranks ascend over all processes, workers are equally many wherever there are any, and a process has its own
    /// server only where no equal division exists.
    #[test]
    fn processes_have_equally_many_workers(workers in 1u32..24, servers in 0u32..4, processes in 1u32..12) {
        let ranks = workers + servers;
        let Ok(found) = blocks(ranks, servers, processes) else {
            prop_assert!(ranks % processes != 0);
            return Ok(());
        };
        prop_assert_eq!((found.len(), found[0], *found.last().unwrap()), (ranks as usize, 0, processes - 1));
        prop_assert!(found.windows(2).all(|two| two[1] - two[0] <= 1));
        let count = |process: u32| found.iter().filter(|of| **of == process).count();
        let counts: Vec<usize> = (0..processes).map(count).collect();
        if ranks % processes != 0 {
            let (of_workers, of_servers) = counts.split_at((processes - servers) as usize);
            prop_assert!(of_workers.iter().all(|of| *of == of_workers[0]) && of_servers.iter().all(|of| *of == 1));
        } else {
            prop_assert!(counts.iter().all(|of| *of == counts[0]));
        }
    }
}
