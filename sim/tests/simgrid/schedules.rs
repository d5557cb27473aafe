//! Compares ring, halving-doubling and all-to-all on stars, fat trees and tori with SimGrid: every rank ends at
//! the same time.
//!
//! SimGrid gets the steps that the lanes yield and knows no algorithm. Ranks are placed at random, begin at different
//! times in half of the cases, and add up what they receive in half of them.

use lockstep_sim::MessageCost;
use lockstep_topology::cluster::DeviceId;
use lockstep_topology::{Action, Algorithm, Cluster, Collective};

use crate::case::{Case, Latency, Step};
use crate::clusters::{self, Latencies, SHAPES, Shape};
use crate::judge;
use crate::random::Random;
use crate::world::{Exchange, Flat};

/// The tolerance of a rank's end, as a share of it.
const TOLERANCE: f64 = 0.01;
/// Bytes of an element.
const ELEMENT: u64 = 4;

/// What adds the latency, and whether messages are sent before their receive.
const MODES: [(Latency, bool); 4] =
    [(Latency::Native, false), (Latency::Native, true), (Latency::Paid, false), (Latency::Paid, true)];

/// One setting of a case.
struct Setting {
    name: String,
    shape: Shape,
    exchange: Exchange,
    ranks: u32,
    latency: Latency,
    eager: bool,
    costs: Flat,
    places: Vec<DeviceId>,
    seed: u64,
}

impl Setting {
    fn cluster(&self) -> Cluster {
        let latencies = if self.latency == Latency::Native { Latencies::Equal } else { Latencies::Random };
        clusters::shaped(self.shape, self.ranks, self.seed, latencies)
    }

    /// The steps of `rank` from its lane, with their costs.
    fn steps(&self, rank: u32) -> Vec<Step> {
        let schedule = self.exchange.schedule(self.ranks);
        assert_eq!(schedule.lanes(), 1, "{}: the judge plays one lane a rank", self.name);
        let skew = self.costs.skew.get(self.places[rank as usize].0 as usize).copied().unwrap_or(0.0);
        let mut steps = vec![Step::Compute { seconds: skew }];
        for step in schedule.lane(rank, 0) {
            let bytes = step.elements() * ELEMENT;
            let message = &self.costs.message;
            let per_byte = if step.action == Action::RecvSum { message.sum } else { message.copy };
            match step.action {
                Action::Send if step.peer == rank => {}
                Action::Send => steps.push(Step::Send { to: step.peer, bytes }),
                Action::RecvInto | Action::RecvSum => {
                    let seconds = message.overhead + per_byte * bytes as f64;
                    // A block that a rank keeps is copied and crosses no link.
                    if step.peer != rank {
                        steps.push(Step::Recv { from: step.peer });
                    }
                    steps.push(Step::Compute { seconds });
                }
            }
        }
        steps.retain(|step| !matches!(step, Step::Compute { seconds: 0.0 }));
        steps
    }
}

/// An all-to-all with blocks of equal or of random size, some of them empty.
fn all_to_all(ranks: u32, equal: bool, random: &mut Random) -> Exchange {
    let block = |random: &mut Random| if random.one_in(8) { 0 } else { random.log(1e3, 1e6) as u64 };
    let counts: Vec<u64> = (0..ranks * ranks).map(|_| if equal { 100_000 } else { block(random) }).collect();
    let elements = counts.iter().sum();
    Exchange { collective: Collective::AllToAllV { counts: counts.into() }, algorithm: Algorithm::pairwise(), elements }
}

fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut seed = 0;
    for shape in SHAPES {
        for ranks in [4, 7, 12, 16] {
            for algorithm in ["ring", "halving-doubling", "pairwise, equal", "pairwise, random"] {
                for (latency, eager) in MODES {
                    // Two messages between the same two ranks follow each other here; in SimGrid they share the wire.
                    // Only in an all-to-all are there never two.
                    if latency == Latency::Native && eager && !algorithm.starts_with("pairwise") {
                        continue;
                    }
                    seed += 1;
                    let mut random = Random::new(seed);
                    let exchange = match algorithm.split_once(", ") {
                        Some((_, blocks)) => all_to_all(ranks, blocks == "equal", &mut random),
                        None => Exchange {
                            collective: Collective::AllReduce,
                            algorithm: algorithm.parse().expect("an algorithm"),
                            elements: 1_000_003,
                        },
                    };
                    let message = match seed / 2 % 2 {
                        0 => MessageCost::default(),
                        _ => MessageCost { overhead: 3e-6, copy: 1e-10, sum: 4e-10, ..MessageCost::default() },
                    };
                    let message = MessageCost { eager_bytes: if eager { u64::MAX } else { 0 }, ..message };
                    let hosts = clusters::shaped(shape, ranks, seed, Latencies::Equal).devices().len() as u32;
                    let late = random.one_in(2);
                    let skew = if late { (0..hosts).map(|_| 1e-3 * random.unit()).collect() } else { Vec::new() };
                    let places = random.order(hosts).into_iter().take(ranks as usize).map(DeviceId).collect();
                    settings.push(Setting {
                        name: format!("{shape:?}/{ranks}/{algorithm}/{latency:?}/eager={eager}/seed={seed}")
                            .replace(' ', ""),
                        shape,
                        exchange,
                        ranks,
                        latency,
                        eager,
                        costs: Flat { skew, message },
                        places,
                        seed,
                    });
                }
            }
        }
    }
    settings
}

#[test]
fn every_rank_ends_at_the_time_of_simgrid() {
    let settings = settings();
    let platforms: Vec<Cluster> = settings.iter().map(Setting::cluster).collect();
    let mut cases = Vec::new();
    for (setting, cluster) in settings.iter().zip(&platforms) {
        let mut case = Case::new(setting.name.clone(), cluster, setting.latency, setting.eager);
        for rank in 0..setting.ranks {
            case.lane(rank, &setting.places, setting.steps(rank).into_iter());
        }
        cases.push(case);
    }
    let Some(verdicts) = judge::play("schedules", &cases) else { return };
    let mut worst = (0.0, String::new());
    for ((setting, cluster), verdict) in settings.iter().zip(&platforms).zip(&verdicts) {
        let ends = setting.exchange.ends(cluster, &setting.places, &setting.costs);
        assert_eq!(ends.len(), verdict.ranks.len(), "{}", setting.name);
        for (rank, (ours, theirs)) in ends.iter().zip(&verdict.ranks).enumerate() {
            let off = (ours - theirs).abs() / theirs;
            if off > worst.0 {
                worst = (off, format!("{}, rank {rank}: {ours} s instead of {theirs} s", setting.name));
            }
        }
    }
    println!("{} schedules, worst disagreement {:.2e}: {}", settings.len(), worst.0, worst.1);
    assert!(worst.0 <= TOLERANCE, "{:.3e}: {}", worst.0, worst.1);
}
