//! Compares the fast system with the slow one, and both with the certificate.
//!
//! A scenario is a list of actions with gaps of time between them; both systems play it and must give the same result.

mod by_hand;
mod slow;

pub(crate) use slow::SlowSystem;

use super::choice::Rule;
use super::work::Keeping;
use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000_000;

#[derive(Debug, Clone)]
enum Deed {
    Start {
        cap: f64,
        uses: Vec<(u32, f64)>,
        taps: Vec<(u32, f64)>,
        work: f64,
    },
    /// Cancel the n-th activity started so far (modulo their number).
    Cancel(usize),
    Capacity(u32, f64),
}

#[derive(Debug, Clone)]
struct Scenario {
    capacities: Vec<f64>,
    /// Bit i: whether resource i is a wire.
    wires: u32,
    /// Resources that only classes of the cell use.
    cell: Vec<u32>,
    /// Picoseconds to wait, then the action.
    deeds: Vec<(u64, Deed)>,
}

/// The end of an activity: when, and with how much left.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    time: Time,
    left: f64,
}

fn uses_of(uses: &[(u32, f64)]) -> Vec<Use> {
    uses.iter().map(|(resource, per_speed)| Use { resource: ResourceId(*resource), per_speed: *per_speed }).collect()
}

/// Plays a scenario to its end, checking certificate and conservation on the way; returns each activity's end.
fn play(fluid: &mut impl Fluid, scenario: &Scenario) -> Result<Vec<End>, String> {
    let mut capacities = scenario.capacities.clone();
    for (resource, capacity) in capacities.iter().enumerate() {
        match is_wire(scenario.wires, resource) {
            true => fluid.add_wire(*capacity).map_err(|error| error.to_string())?,
            false => fluid.add_resource(*capacity).map_err(|error| error.to_string())?,
        };
    }
    fluid.enclose(&scenario.cell.iter().map(|resource| ResourceId(*resource)).collect::<Vec<_>>());
    let (mut classes, mut ids, mut ends, mut works) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut served = vec![0.0; capacities.len()];
    let mut finished = Vec::new();
    let mut deeds = scenario.deeds.iter().peekable();
    let mut at = deeds.peek().map_or(Time::MAX, |deed| Time(deed.0));
    loop {
        certify(fluid, &capacities, scenario.wires, &classes)?;
        let loads: Vec<f64> = (0..capacities.len()).map(|r| fluid.load(ResourceId(r as u32))).collect();
        let before = fluid.now();
        let next = fluid.next_completion().unwrap_or(Time::MAX).min(at);
        if next == Time::MAX {
            break;
        }
        fluid.advance(next, &mut finished);
        for (served, load) in served.iter_mut().zip(loads) {
            *served += work_between(load, before, next);
        }
        for done in finished.drain(..) {
            ends[done.token as usize] = Some(End { time: done.time, left: 0.0 });
        }
        while let Some((_, deed)) = deeds.next_if(|_| at == next) {
            match deed {
                Deed::Start { cap, uses, taps, work } => {
                    let class =
                        fluid.tapping(*cap, &uses_of(uses), &uses_of(taps)).map_err(|error| error.to_string())?;
                    classes.push((class, *cap, uses_of(uses)));
                    works.push((*work, uses_of(&[uses.as_slice(), taps].concat())));
                    ids.push(fluid.start(class, *work, ids.len() as u64).map_err(|error| error.to_string())?);
                    ends.push(None);
                }
                Deed::Cancel(_) if ids.is_empty() => {}
                Deed::Cancel(n) => {
                    let n = n % ids.len();
                    if let Some(left) = fluid.cancel(ids[n]) {
                        ends[n] = Some(End { time: next, left });
                    }
                }
                Deed::Capacity(resource, capacity) => {
                    let resource = *resource as usize % capacities.len();
                    capacities[resource] = *capacity;
                    fluid.set_capacity(ResourceId(resource as u32), *capacity).map_err(|error| error.to_string())?;
                }
            }
            at = deeds.peek().map_or(Time::MAX, |deed| at + Time(deed.0));
        }
    }
    let ends: Vec<End> = ends.into_iter().collect::<Option<_>>().ok_or("an activity never ended")?;
    let mut owed = vec![0.0; capacities.len()];
    for (end, (work, uses)) in ends.iter().zip(works) {
        for used in uses {
            owed[used.resource.0 as usize] += (work - end.left) * used.per_speed;
        }
    }
    for (served, owed) in served.iter().zip(owed) {
        if (served - owed).abs() > 1e-9 * owed.max(1.0) {
            return Err(format!("served {served}, but the work done adds up to {owed}"));
        }
    }
    if fluid.active() > 0 {
        return Err(format!("{} activities still running", fluid.active()));
    }
    Ok(ends)
}

fn is_wire(wires: u32, resource: usize) -> bool {
    wires >> resource & 1 == 1
}

/// Each activity runs at its cap or uses a full resource on which none consumes more, or a full wire on which none is
/// faster; nothing is overloaded.
fn certify(
    fluid: &mut impl Fluid,
    capacities: &[f64],
    wires: u32,
    classes: &[(ClassId, f64, Vec<Use>)],
) -> Result<(), String> {
    let near = 1e-9;
    let weight = |used: &Use| if is_wire(wires, used.resource.0 as usize) { 1.0 } else { used.per_speed };
    let speeds: Vec<f64> = classes.iter().map(|class| fluid.speed(class.0)).collect();
    let mut full = Vec::new();
    let mut most = vec![0.0_f64; capacities.len()];
    for (resource, capacity) in capacities.iter().enumerate() {
        let load = fluid.load(ResourceId(resource as u32));
        if load > capacity * (1.0 + near) {
            return Err(format!("resource {resource}: load {load} of {capacity}"));
        }
        full.push(load >= capacity * (1.0 - near));
    }
    for ((_, _, uses), speed) in classes.iter().zip(&speeds) {
        for used in uses {
            let most = &mut most[used.resource.0 as usize];
            *most = most.max(speed * weight(used));
        }
    }
    for ((class, cap, uses), speed) in classes.iter().zip(&speeds) {
        let held = |used: &Use| {
            let resource = used.resource.0 as usize;
            full[resource] && speed * weight(used) >= most[resource] * (1.0 - near)
        };
        if *speed > 0.0 && speed * (1.0 + near) < *cap && !uses.iter().any(held) {
            return Err(format!("{class:?} runs at {speed} of {cap} and nothing holds it"));
        }
    }
    Ok(())
}

fn scenarios(per_speed: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Scenario> {
    let cap = prop_oneof![Just(f64::INFINITY), 0.05..3.0, Just(0.5)];
    let uses = prop::collection::vec((0u32..6, per_speed), 1..4);
    let work = prop_oneof![4 => 0.5..50.0, 2 => Just(3.0), 1 => Just(0.0)];
    let start = (cap, uses, work).prop_map(|(cap, uses, work)| Deed::Start { cap, uses, taps: Vec::new(), work });
    let deed = prop_oneof![
        8 => start,
        1 => (0usize..40).prop_map(Deed::Cancel),
        1 => (0u32..6, 0.5..10.0).prop_map(|(resource, capacity)| Deed::Capacity(resource, capacity)),
    ];
    let gap = prop_oneof![Just(0), Just(SECOND), 0..3 * SECOND];
    let capacity = prop_oneof![0.5..10.0, Just(1.0), Just(1e3)];
    let wires = prop_oneof![Just(0), Just(0b11_1111)];
    (prop::collection::vec(capacity, 6), wires, prop::collection::vec((gap, deed), 1..40))
        .prop_map(|(capacities, wires, deeds)| Scenario { capacities, wires, cell: Vec::new(), deeds: cumulate(deeds) })
}

/// Transfers over links 0 to 2 that tap memories 3 to 5, each the one of its link; kernels that use these, which
/// may be a cell.
fn tapped_scenarios() -> impl Strategy<Value = Scenario> {
    let cap = prop_oneof![Just(f64::INFINITY), 0.05..3.0];
    let transfer = (cap.clone(), prop::collection::vec((0u32..3, Just(1.0)), 1..3), 0.5..20.0f64);
    let transfer = transfer.prop_map(|(cap, uses, work)| {
        let taps = uses.iter().map(|(link, _)| (link + 3, 0.01 * f64::from(link + 1))).collect();
        Deed::Start { cap, uses, taps, work }
    });
    let kernel = (cap, prop::collection::vec((3u32..6, 0.1..3.0), 1..3), 0.5..20.0f64);
    let kernel = kernel.prop_map(|(cap, uses, work)| Deed::Start { cap, uses, taps: Vec::new(), work });
    let capacity = (0u32..6, 0.7..2.0).prop_map(|(resource, capacity)| Deed::Capacity(resource, capacity));
    let deed = prop_oneof![4 => transfer, 4 => kernel, 1 => (0usize..40).prop_map(Deed::Cancel), 1 => capacity];
    let gap = prop_oneof![Just(0), Just(SECOND), 0..3 * SECOND];
    let cell = prop_oneof![Just(Vec::new()), Just(vec![3, 4, 5])];
    (prop::collection::vec(0.7..2.0, 6), cell, prop::collection::vec((gap, deed), 1..40))
        .prop_map(|(capacities, cell, deeds)| Scenario { capacities, wires: 0b111, cell, deeds: cumulate(deeds) })
}

/// Flows over two or three of thirty links in a row, most of them at once: a change reaches few of many
/// connected classes.
fn long_scenarios() -> impl Strategy<Value = Scenario> {
    let cap = prop_oneof![3 => Just(f64::INFINITY), 1 => 0.05..1.0];
    let start = (cap, 0u32..28, 2u32..4, 0.5..20.0f64).prop_map(|(cap, first, links, work)| {
        let uses = (first..first + links).map(|link| (link, 1.0)).collect();
        Deed::Start { cap, uses, taps: Vec::new(), work }
    });
    let deed = prop_oneof![
        12 => start,
        1 => (0usize..90).prop_map(Deed::Cancel),
        1 => (0u32..30, 0.5..4.0).prop_map(|(resource, capacity)| Deed::Capacity(resource, capacity)),
    ];
    let gap = prop_oneof![6 => Just(0), 1 => 0..SECOND];
    let capacity = prop_oneof![2 => Just(1.0), 1 => 0.5..4.0];
    (prop::collection::vec(capacity, 30), prop::collection::vec((gap, deed), 30..90))
        .prop_map(|(capacities, deeds)| Scenario { capacities, wires: u32::MAX, cell: Vec::new(), deeds })
}

/// Uses listed once per resource: the helper's own sums then agree with the system's.
fn cumulate(mut deeds: Vec<(u64, Deed)>) -> Vec<(u64, Deed)> {
    for (_, deed) in &mut deeds {
        if let Deed::Start { uses, taps, .. } = deed {
            for uses in [uses, taps] {
                uses.sort_by_key(|used| used.0);
                uses.dedup_by_key(|used| used.0);
            }
        }
    }
    deeds
}

fn same_story(scenario: &Scenario) -> Result<(), TestCaseError> {
    let fast = play(&mut System::new(), scenario).map_err(|error| TestCaseError::fail(format!("fast: {error}")))?;
    let slow = play(&mut SlowSystem::new(), scenario).map_err(|error| TestCaseError::fail(format!("slow: {error}")))?;
    for (token, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
        let apart = fast.time.0.abs_diff(slow.time.0) as f64;
        prop_assert!(apart <= 4.0 + 1e-9 * slow.time.0 as f64, "{token}: {fast:?}, {slow:?}");
        prop_assert!((fast.left - slow.left).abs() <= 1e-9 * slow.left.max(1.0), "{token}: {fast:?}, {slow:?}");
    }
    let again = play(&mut System::new(), scenario).ok();
    prop_assert_eq!(again.as_ref(), Some(&fast));
    // Even small components are kept, and repaired or not: rounding aside, nothing changes.
    for rule in [Rule::Cost, Rule::Repair, Rule::Solve] {
        let mut keeper = System::new();
        (keeper.work.keeping, keeper.work.choice.rule) = (Keeping { large: 2, stretch: 5 }, rule);
        let kept = play(&mut keeper, scenario).map_err(|error| TestCaseError::fail(format!("{rule:?}: {error}")))?;
        for (token, (fast, kept)) in fast.iter().zip(&kept).enumerate() {
            let apart = fast.time.0.abs_diff(kept.time.0) as f64;
            prop_assert!(apart <= 4.0 + 1e-9 * fast.time.0 as f64, "{token}, {rule:?}: {fast:?}, {kept:?}");
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn fast_and_slow_solver_agree_for_flows(scenario in scenarios(Just(1.0))) {
        same_story(&scenario)?;
    }

    #[test]
    fn fast_and_slow_solver_agree_for_any_use(scenario in scenarios(prop_oneof![Just(1.0), 0.1..10.0])) {
        same_story(&scenario)?;
    }

    #[test]
    fn fast_and_slow_solver_agree_where_a_change_affects_few(scenario in long_scenarios()) {
        same_story(&scenario)?;
    }

    #[test]
    fn fast_and_slow_solver_agree_for_taps(scenario in tapped_scenarios()) {
        same_story(&scenario)?;
    }

    /// Everything is in a few classes, so groups have many members.
    #[test]
    fn fast_and_slow_solver_agree_for_large_groups(
        works in prop::collection::vec((0u64..2 * SECOND, 0u32..3, 1u32..8), 1..60),
        caps in prop::collection::vec(prop_oneof![Just(f64::INFINITY), 0.1..1.0], 3),
        cell in prop_oneof![Just(Vec::new()), Just(vec![0, 1])],
    ) {
        let routes = [vec![(0, 1.0)], vec![(0, 1.0), (1, 1.0)], vec![(1, 2.0)]];
        let deeds = works.iter().map(|(gap, route, work)| {
            let (uses, cap) = (routes[*route as usize].clone(), caps[*route as usize]);
            (*gap, Deed::Start { cap, uses, taps: Vec::new(), work: f64::from(*work) })
        });
        same_story(&Scenario { capacities: vec![2.0, 1.0], wires: 0, cell, deeds: deeds.collect() })?;
    }
}
