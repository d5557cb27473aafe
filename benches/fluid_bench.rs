//! Counts the events per second of the fluid solver, on three loads.
//!
//! Run with `cargo run --release -p lockstep-benches --bin fluid_bench`; a word after `--` chooses the loads that begin with it.
//!
//! `ring`: flows that share nothing, each restarted as it ends, as in a ring allreduce with jitter (an event is one start with its end).
//! `hosts`: 20,000 random flows at once over the up and down links of 432 hosts, one component, until the last ends.
//! `tree`: a random ring over a 2:1 tree, where most flows share the trunks.

use std::time::Instant;

use lockstep_sim::fluid::{ClassId, Finished, Fluid, ResourceId, System, Use};
use lockstep_topology::{InputError, Time};

/// A small generator (xorshift64*), so that every run is the same.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    /// 1 ± 1 %.
    fn jitter(&mut self) -> f64 {
        0.99 + 0.02 * self.below(1_000_000) as f64 * 1e-6
    }
}

const LINK: f64 = 12.5e9;

fn links(fluid: &mut System, count: usize, capacity: f64) -> Result<Vec<ResourceId>, InputError> {
    (0..count).map(|_| fluid.add_resource(capacity)).collect()
}

/// Runs one flow per class, restarting each `rounds` times with jittered work; returns completions.
fn relay(fluid: &mut System, classes: &[ClassId], rounds: u32, bytes: f64) -> Result<u64, InputError> {
    let mut random = Random(7);
    let mut left = vec![rounds; classes.len()];
    let mut finished: Vec<Finished> = Vec::new();
    let mut events = 0;
    for (token, class) in classes.iter().enumerate() {
        fluid.start(*class, bytes * random.jitter(), token as u64)?;
    }
    while let Some(next) = fluid.next_completion() {
        fluid.advance(next, &mut finished);
        for done in finished.drain(..) {
            events += 1;
            let rank = done.token as usize;
            left[rank] -= 1;
            if left[rank] > 0 {
                fluid.start(classes[rank], bytes * random.jitter(), done.token)?;
            }
        }
    }
    Ok(events)
}

fn ring(ranks: usize, rounds: u32) -> Result<u64, InputError> {
    let mut fluid = System::new();
    let (up, down) = (links(&mut fluid, ranks, LINK)?, links(&mut fluid, ranks, LINK)?);
    let flow = |rank: usize| [Use::one(up[rank]), Use::one(down[(rank + 1) % ranks])];
    let classes: Vec<ClassId> =
        (0..ranks).map(|rank| fluid.class(f64::INFINITY, &flow(rank))).collect::<Result<_, _>>()?;
    relay(&mut fluid, &classes, rounds, 1e5)
}

fn hosts(flows: usize, hosts: usize) -> Result<u64, InputError> {
    let mut fluid = System::new();
    let (up, down) = (links(&mut fluid, hosts, LINK)?, links(&mut fluid, hosts, LINK)?);
    let mut random = Random(11);
    for token in 0..flows {
        let from = random.below(hosts as u64) as usize;
        let to = (from + 1 + random.below(hosts as u64 - 1) as usize) % hosts;
        let bytes = 1e6 + random.below(100_000_000) as f64;
        fluid.start_once(f64::INFINITY, &[Use::one(up[from]), Use::one(down[to])], bytes, token as u64)?;
    }
    let mut finished = Vec::new();
    fluid.advance(Time::MAX, &mut finished);
    Ok(finished.len() as u64)
}

fn tree(ranks: usize, per_leaf: usize, rounds: u32) -> Result<u64, InputError> {
    let mut fluid = System::new();
    let leaves = ranks / per_leaf;
    let (up, down) = (links(&mut fluid, ranks, LINK)?, links(&mut fluid, ranks, LINK)?);
    let trunk = LINK * per_leaf as f64 / 2.0;
    let (rise, fall) = (links(&mut fluid, leaves, trunk)?, links(&mut fluid, leaves, trunk)?);
    let mut random = Random(13);
    let mut order: Vec<usize> = (0..ranks).collect();
    for place in (1..ranks).rev() {
        order.swap(place, random.below(place as u64 + 1) as usize);
    }
    let mut classes = Vec::new();
    for rank in 0..ranks {
        let (from, to) = (order[rank], order[(rank + 1) % ranks]);
        let mut uses = vec![Use::one(up[from]), Use::one(down[to])];
        if from / per_leaf != to / per_leaf {
            uses.extend([Use::one(rise[from / per_leaf]), Use::one(fall[to / per_leaf])]);
        }
        classes.push(fluid.class(f64::INFINITY, &uses)?);
    }
    relay(&mut fluid, &classes, rounds, 1e5)
}

fn main() -> Result<(), InputError> {
    let wanted = std::env::args().nth(1);
    let report = |name: &str, run: &dyn Fn() -> Result<u64, InputError>| -> Result<(), InputError> {
        if !wanted.as_ref().is_none_or(|wanted| name.starts_with(wanted.as_str())) {
            return Ok(());
        }
        let start = Instant::now();
        let events = run()?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{name:<44} {events:>9} events  {seconds:>7.3} s  {:>10.0} events/s", events as f64 / seconds);
        Ok(())
    };
    report("ring, 2 flows", &|| ring(2, 1_000_000))?;
    report("ring, 64 flows", &|| ring(64, 50_000))?;
    report("ring, 1,024 flows", &|| ring(1_024, 2_046))?;
    report("ring, 16,384 flows", &|| ring(16_384, 128))?;
    report("hosts, 2,000 flows over 432", &|| hosts(2_000, 432))?;
    report("hosts, 20,000 flows over 432", &|| hosts(20_000, 432))?;
    report("tree 2:1, 1,024 ranks in 32 leaves", &|| tree(1_024, 32, 20))
}
