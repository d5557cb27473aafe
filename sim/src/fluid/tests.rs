//! The fast system against the slow one, both against the certificate and against closed forms.
//!
//! A scenario is a list of deeds with gaps of time between them; both systems play it and must tell the same story.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000_000;

#[derive(Debug, Clone)]
enum Deed {
    Start {
        cap: f64,
        uses: Vec<(u32, f64)>,
        work: f64,
    },
    /// Cancel the n-th activity started so far (modulo their number).
    Cancel(usize),
    Capacity(u32, f64),
}

#[derive(Debug, Clone)]
struct Scenario {
    capacities: Vec<f64>,
    /// Picoseconds to wait, then what to do.
    deeds: Vec<(u64, Deed)>,
}

/// How an activity ended: when, and with how much left.
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
    for capacity in &capacities {
        fluid.add_resource(*capacity).map_err(|error| error.to_string())?;
    }
    let (mut classes, mut ids, mut ends, mut works) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut served = vec![0.0; capacities.len()];
    let mut finished = Vec::new();
    let mut deeds = scenario.deeds.iter().peekable();
    let mut at = deeds.peek().map_or(Time::MAX, |deed| Time(deed.0));
    loop {
        certify(fluid, &capacities, &classes)?;
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
                Deed::Start { cap, uses, work } => {
                    let class = fluid.class(*cap, &uses_of(uses)).map_err(|error| error.to_string())?;
                    classes.push((class, *cap, uses_of(uses)));
                    works.push((*work, classes.len() - 1));
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
    for (end, (work, class)) in ends.iter().zip(works) {
        for used in &classes[class].2 {
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

/// Each activity runs at its cap or uses a full resource on which none consumes more; nothing is overloaded.
fn certify(fluid: &mut impl Fluid, capacities: &[f64], classes: &[(ClassId, f64, Vec<Use>)]) -> Result<(), String> {
    let near = 1e-9;
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
            *most = most.max(speed * used.per_speed);
        }
    }
    for ((class, cap, uses), speed) in classes.iter().zip(&speeds) {
        let held = |used: &Use| {
            let resource = used.resource.0 as usize;
            full[resource] && speed * used.per_speed >= most[resource] * (1.0 - near)
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
    let start = (cap, uses, work).prop_map(|(cap, uses, work)| Deed::Start { cap, uses, work });
    let deed = prop_oneof![
        8 => start,
        1 => (0usize..40).prop_map(Deed::Cancel),
        1 => (0u32..6, 0.5..10.0).prop_map(|(resource, capacity)| Deed::Capacity(resource, capacity)),
    ];
    let gap = prop_oneof![Just(0), Just(SECOND), 0..3 * SECOND];
    let capacity = prop_oneof![0.5..10.0, Just(1.0), Just(1e3)];
    (prop::collection::vec(capacity, 6), prop::collection::vec((gap, deed), 1..40))
        .prop_map(|(capacities, deeds)| Scenario { capacities, deeds: cumulate(deeds) })
}

/// Uses listed once per resource: the helper's own sums then agree with the system's.
fn cumulate(mut deeds: Vec<(u64, Deed)>) -> Vec<(u64, Deed)> {
    for (_, deed) in &mut deeds {
        if let Deed::Start { uses, .. } = deed {
            uses.sort_by_key(|used| used.0);
            uses.dedup_by_key(|used| used.0);
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
    // Even small components are kept: rounding aside, nothing changes.
    let mut keeper = System::new();
    keeper.work.large = 2;
    let kept = play(&mut keeper, scenario).map_err(|error| TestCaseError::fail(format!("kept: {error}")))?;
    for (token, (fast, kept)) in fast.iter().zip(&kept).enumerate() {
        let apart = fast.time.0.abs_diff(kept.time.0) as f64;
        prop_assert!(apart <= 4.0 + 1e-9 * fast.time.0 as f64, "{token}: {fast:?}, {kept:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn fast_is_slow_for_flows(scenario in scenarios(Just(1.0))) {
        same_story(&scenario)?;
    }

    #[test]
    fn fast_is_slow_for_any_use(scenario in scenarios(prop_oneof![Just(1.0), 0.1..10.0])) {
        same_story(&scenario)?;
    }

    /// Every progress is in a few classes, so groups have many members.
    #[test]
    fn fast_is_slow_for_crowds(
        works in prop::collection::vec((0u64..2 * SECOND, 0u32..3, 1u32..8), 1..60),
        caps in prop::collection::vec(prop_oneof![Just(f64::INFINITY), 0.1..1.0], 3),
    ) {
        let routes = [vec![(0, 1.0)], vec![(0, 1.0), (1, 1.0)], vec![(1, 2.0)]];
        let deeds = works.iter().map(|(gap, route, work)| {
            let (uses, cap) = (routes[*route as usize].clone(), caps[*route as usize]);
            (*gap, Deed::Start { cap, uses, work: f64::from(*work) })
        });
        same_story(&Scenario { capacities: vec![2.0, 1.0], deeds: deeds.collect() })?;
    }
}

/// Speeds of one activity per entry (cap, uses), all running at once, in both systems.
fn speeds(capacities: &[f64], activities: &[(f64, &[(u32, f64)])]) -> Vec<f64> {
    fn of(mut fluid: impl Fluid, capacities: &[f64], activities: &[(f64, &[(u32, f64)])]) -> Vec<f64> {
        capacities.iter().for_each(|capacity| assert!(fluid.add_resource(*capacity).is_ok()));
        let start = |(cap, uses): &(f64, &[(u32, f64)])| {
            let class = fluid.class(*cap, &uses_of(uses)).expect("a valid class");
            fluid.start(class, 1.0, 0).expect("valid work");
            class
        };
        let classes: Vec<ClassId> = activities.iter().map(start).collect();
        classes.into_iter().map(|class| fluid.speed(class)).collect()
    }
    let (fast, slow) = (of(System::new(), capacities, activities), of(SlowSystem::new(), capacities, activities));
    fast.iter().zip(&slow).for_each(|(fast, slow)| assert!((fast / slow - 1.0).abs() < 1e-12, "{fast} {slow}"));
    fast
}

#[test]
fn shares_worked_by_hand() {
    const ONE: &[(u32, f64)] = &[(0, 1.0)];
    const FREE: f64 = f64::INFINITY;
    type Activities = &'static [(f64, &'static [(u32, f64)])];
    let table: &[(&str, &[f64], Activities, &[f64])] = &[
        ("equal flows on a link", &[12.0], &[(FREE, ONE); 4], &[3.0; 4]),
        ("four ranks on two cores", &[2.0], &[(1.0, ONE); 4], &[0.5; 4]),
        ("eight ranks on two cores", &[2.0], &[(1.0, ONE); 8], &[0.25; 8]),
        ("one rank on two cores is held by itself", &[2.0], &[(1.0, &[(0, 1.0)])], &[1.0]),
        // Half of the resource each.
        ("uneven use", &[1.0], &[(FREE, &[(0, 0.5)]), (FREE, &[(0, 1.0)])], &[1.0, 0.5]),
        // The first takes 0.4 x 0.5 = 0.2 and leaves 0.8.
        ("a capped one leaves the rest", &[1.0], &[(0.4, &[(0, 0.5)]), (FREE, &[(0, 1.0)])], &[0.4, 0.8]),
        // Two hosts' uplinks of 10 meet in a trunk of 12: the three flows get 4 each, the local one on the first uplink
        // what is left of it: 10 - 2 x 4 = 2? No: it fills first, 10 / 3 for each of its three, and the trunk's third
        // flow gets 12 - 2 x 10/3 = 16/3.
        (
            "dumbbell",
            &[10.0, 10.0, 12.0],
            &[
                (FREE, &[(0, 1.0), (2, 1.0)]),
                (FREE, &[(0, 1.0)]),
                (5.0, &[(0, 1.0), (2, 1.0)]),
                (FREE, &[(1, 1.0), (2, 1.0)]),
            ],
            &[10.0 / 3.0, 10.0 / 3.0, 10.0 / 3.0, 16.0 / 3.0],
        ),
        // The long flow shares each of the links; the narrow one (1) decides for it, the others take the rest.
        (
            "parking lot",
            &[2.0, 1.0, 4.0],
            &[(FREE, &[(0, 1.0), (1, 1.0), (2, 1.0)]), (FREE, &[(0, 1.0)]), (FREE, &[(1, 1.0)]), (FREE, &[(2, 1.0)])],
            &[0.5, 1.5, 0.5, 3.5],
        ),
        // A knot: each is the larger consumer on its own resource, x + 0.5 y = 1 = 0.5 x + y.
        ("knot", &[1.0, 1.0], &[(FREE, &[(0, 1.0), (1, 0.5)]), (FREE, &[(0, 0.5), (1, 1.0)])], &[2.0 / 3.0; 2]),
        // Each the larger on the other's: x + 3 y = 1, 3 x + y = 1.
        ("crossed knot", &[1.0, 1.0], &[(FREE, &[(0, 1.0), (1, 3.0)]), (FREE, &[(0, 3.0), (1, 1.0)])], &[0.25; 2]),
    ];
    for (name, capacities, activities, want) in table {
        let got = speeds(capacities, activities);
        for (got, want) in got.iter().zip(*want) {
            assert!((got / want - 1.0).abs() < 1e-12, "{name}: {got} for {want}");
        }
    }
}

#[test]
fn staggered_flows_end_when_the_arithmetic_says() {
    // Flow n starts at second n with 4 units on a link of 1 unit/s, n = 0, 1, 2. After 1 s the first has 3 left; two
    // share for 1 s: 2.5, 3.5; three share: the first needs 7.5 s more and ends at 9.5, when the others have 1.0 and
    // 1.5; two share: the second ends at 11.5, the third has 0.5 and ends at 12.
    let deeds = |gap| (gap, Deed::Start { cap: f64::INFINITY, uses: vec![(0, 1.0)], work: 4.0 });
    let scenario = Scenario { capacities: vec![1.0], deeds: vec![deeds(0), deeds(SECOND), deeds(SECOND)] };
    let ends = play(&mut System::new(), &scenario).expect("a sound run");
    let times: Vec<f64> = ends.iter().map(|end| end.time.as_secs_f64()).collect();
    assert_eq!(times, [9.5, 11.5, 12.0]);
}

#[test]
fn nothing_to_do_ends_at_once_and_in_order_of_start() -> Result<(), InputError> {
    let mut fluid = System::new();
    let link = fluid.add_resource(1.0)?;
    let mut finished = Vec::new();
    fluid.advance(Time(5), &mut finished);
    fluid.start_once(f64::INFINITY, &[], 1e9, 1)?;
    fluid.start_once(1.0, &[Use::one(link)], 0.0, 2)?;
    fluid.start_once(1.0, &[Use::one(link)], 1e-13, 3)?;
    fluid.start_once(1.0, &[Use::one(link)], 0.0, 4)?;
    assert_eq!(fluid.next_completion(), Some(Time(5)));
    fluid.advance(Time(5), &mut finished);
    assert_eq!(
        finished.iter().map(|done| (done.time, done.token)).collect::<Vec<_>>(),
        [1, 2, 3, 4].map(|n| (Time(5), n))
    );
    assert_eq!((fluid.active(), fluid.next_completion()), (0, None));
    // Endless work never ends by itself, and what ends beyond the clock does not end.
    let endless = fluid.start_once(1.0, &[Use::one(link)], f64::INFINITY, 5)?;
    fluid.start_once(1.0, &[], 1e30, 6)?;
    assert_eq!((fluid.next_completion(), fluid.active()), (None, 2));
    assert_eq!((fluid.cancel(endless), fluid.cancel(endless)), (Some(f64::INFINITY), None));
    Ok(())
}

#[test]
fn an_event_touches_its_component_only() -> Result<(), InputError> {
    // Ten pairs of hosts over a core that cannot fill: each flow is a component of its own.
    let mut fluid = System::new();
    let core = fluid.add_resource(100.0)?;
    let mut first = None;
    for pair in 0..10 {
        let (up, down) = (fluid.add_resource(1.0)?, fluid.add_resource(1.0)?);
        let id = fluid.start_once(f64::INFINITY, &[Use::one(up), Use::one(core), Use::one(down)], 1e3, pair)?;
        first = first.or(Some(id));
    }
    assert_eq!(fluid.load(core), 10.0);
    first.and_then(|id| fluid.cancel(id));
    fluid.start_once(f64::INFINITY, &[Use::one(ResourceId(1)), Use::one(core)], 1.0, 10)?;
    assert_eq!(fluid.load(core), 10.0);
    assert_eq!(fluid.work.found.groups.len(), 1);
    // A narrower core binds them all together.
    fluid.set_capacity(core, 5.0)?;
    assert!((fluid.load(core) - 5.0).abs() < 1e-12);
    assert_eq!(fluid.work.found.groups.len(), 10);
    Ok(())
}

#[test]
fn classes_are_recycled() -> Result<(), InputError> {
    let mut fluid = System::new();
    for _ in 0..100 {
        fluid.add_resource(1.0)?;
    }
    let mut finished = Vec::new();
    for n in 0..2_000u32 {
        let uses = [n % 100, n * 7 % 100, n * 13 % 100].map(|resource| Use::one(ResourceId(resource)));
        fluid.start_once(1.0 + f64::from(n), &uses[..1 + n as usize % 3], 1.0, u64::from(n))?;
        if let Some(next) = fluid.next_completion().filter(|_| fluid.active() >= 8) {
            fluid.advance(next, &mut finished);
        }
    }
    assert_eq!(finished.len() + fluid.active(), 2_000);
    assert!(fluid.classes.groups.len() < 20 && fluid.classes.links.len() < 60);
    Ok(())
}

#[test]
fn bad_input_is_refused_with_the_cure() {
    let mut fluid = System::new();
    for capacity in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = fluid.add_resource(capacity).expect_err("not a capacity");
        assert!(error.to_string().contains("must be positive"), "{error}");
    }
    let link = fluid.add_resource(1.0).expect("a capacity");
    for cap in [0.0, -1.0, f64::NAN] {
        assert!(fluid.class(cap, &[]).is_err());
    }
    for per_speed in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(fluid.class(1.0, &[Use { resource: link, per_speed }]).is_err());
    }
    assert!(fluid.class(1.0, &[Use::one(ResourceId(1))]).is_err_and(|error| error.to_string().contains("resource 1")));
    let class = fluid.class(1.0, &[Use::one(link), Use { resource: link, per_speed: 1.0 }]).expect("uses add up");
    assert!(fluid.start(class, f64::NAN, 0).is_err() && fluid.start(class, -1.0, 0).is_err());
    assert!(fluid.start(class, 1.0, 0).is_ok());
    assert_eq!(fluid.speed(class), 0.5);
}
