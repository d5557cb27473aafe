//! Tests small systems whose shares and ends follow from arithmetic, and edge cases: nothing to do, no end, bad input.

use super::*;

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
fn shares_by_hand() {
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
        // Uplinks of 10 and 10 join a trunk of 12. The first uplink fills first, with 10/3 for each of its three flows
        // (two of them cross the trunk, one of these capped at 5); the second's flow gets 12 - 2 x 10/3 = 16/3.
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
        // A cycle: each is the larger consumer on its own resource, x + 0.5 y = 1 = 0.5 x + y.
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

/// On a wire bytes take turns: 2·x + 1·x = 1 where one flow costs twice as much a byte.
#[test]
fn wires_share_by_hand() -> Result<(), InputError> {
    fn of(mut fluid: impl Fluid) -> Result<[f64; 2], InputError> {
        let [wire, core] = [fluid.add_wire(1.0)?, fluid.add_resource(0.5)?];
        let costly = Use { resource: wire, per_speed: 2.0 };
        let [costly, plain, both] = [
            fluid.class(f64::INFINITY, &[costly])?,
            fluid.class(f64::INFINITY, &[Use::one(wire)])?,
            // Held by the core, at a tenth: the others share 0.9.
            fluid.class(f64::INFINITY, &[Use::one(wire), Use { resource: core, per_speed: 5.0 }])?,
        ];
        fluid.start(costly, 1.0, 0)?;
        fluid.start(plain, 1.0, 1)?;
        assert!((fluid.speed(costly) - 1.0 / 3.0).abs() < 1e-12 && fluid.speed(plain) == fluid.speed(costly));
        fluid.start(both, 1.0, 2)?;
        assert!((fluid.speed(both) - 0.1).abs() < 1e-12);
        Ok([fluid.speed(costly), fluid.speed(plain)])
    }
    for speeds in [of(System::new())?, of(SlowSystem::new())?] {
        assert!(speeds.iter().all(|speed| (speed - 0.3).abs() < 1e-12), "{speeds:?}");
    }
    Ok(())
}

#[test]
fn staggered_flows_end_at_the_computed_times() {
    // Flow n starts at second n with 4 units on a link of 1 unit/s, n = 0, 1, 2. After 1 s the first has 3 left; two
    // share for 1 s: 2.5, 3.5; three share: the first needs 7.5 s more and ends at 9.5, when the others have 1.0 and
    // 1.5; two share: the second ends at 11.5, the third has 0.5 and ends at 12.
    let deeds = |gap| (gap, Deed::Start { cap: f64::INFINITY, uses: vec![(0, 1.0)], taps: vec![], work: 4.0 });
    let scenario = Scenario {
        capacities: vec![1.0],
        wires: 0,
        cell: Vec::new(),
        deeds: vec![deeds(0), deeds(SECOND), deeds(SECOND)],
    };
    let ends = play(&mut System::new(), &scenario).expect("a sound run");
    let times: Vec<f64> = ends.iter().map(|end| end.time.as_secs_f64()).collect();
    assert_eq!(times, [9.5, 11.5, 12.0]);
}

#[test]
fn empty_work_ends_at_once_in_order_of_start() -> Result<(), InputError> {
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
fn an_event_affects_only_its_component() -> Result<(), InputError> {
    // Ten pairs of hosts over a core that cannot fill: each flow is a component by itself.
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
    assert!(fluid.work.found.groups.len() <= 1);
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

#[test]
fn taps_by_hand() {
    fn of(mut fluid: impl Fluid) {
        let [link, memory] = [10.0, 100.0].map(|capacity| fluid.add_resource(capacity).expect("valid"));
        let tap = |per_speed| [Use { resource: memory, per_speed }];
        let transfer = fluid.tapping(f64::INFINITY, &[Use::one(link)], &tap(2.0)).expect("valid");
        let streaming = fluid.class(f64::INFINITY, &[Use::one(memory)]).expect("valid");
        let modest = fluid.class(30.0, &[Use::one(memory)]).expect("valid");
        fluid.start(streaming, 200.0, 0).expect("valid");
        assert_eq!(fluid.speed(streaming), 100.0);
        // A transfer at 10 takes 20 of the memory, whatever else runs; two share their link and take as much.
        fluid.start(transfer, 10.0, 1).expect("valid");
        assert_eq!((fluid.speed(transfer), fluid.speed(streaming), fluid.load(memory)), (10.0, 80.0, 100.0));
        fluid.start(transfer, 5.0, 2).expect("valid");
        assert_eq!((fluid.speed(transfer), fluid.speed(streaming)), (5.0, 80.0));
        fluid.start(modest, f64::INFINITY, 3).expect("valid");
        assert_eq!((fluid.speed(modest), fluid.speed(streaming)), (30.0, 50.0));
        // 5 units at 5 take a second, the other 5 at 10 half of one: 50 · 1.5 of the 200 are done, 125 are left at 70.
        let mut finished = Vec::new();
        fluid.advance(Time(3 * SECOND / 2), &mut finished);
        assert_eq!(
            finished.iter().map(|done| (done.token, done.time.0)).collect::<Vec<_>>(),
            [(2, SECOND), (1, 3 * SECOND / 2)]
        );
        assert_eq!((fluid.speed(streaming), fluid.load(memory)), (70.0, 100.0));
        assert_eq!(fluid.next_completion(), Some(Time(3 * SECOND / 2 + (125.0 / 70.0 * 1e12_f64).round() as u64)));
        // More than the capacity: a sixteenth stays.
        let greedy = fluid.tapping(9.0, &[Use::one(link)], &tap(50.0)).expect("valid");
        fluid.start(greedy, f64::INFINITY, 4).expect("valid");
        assert_eq!(fluid.speed(streaming) + fluid.speed(modest), 100.0 / 16.0);
        // Classes that tap may not share what is tapped, in whichever order.
        assert!(fluid.tapping(1.0, &[Use::one(memory)], &[Use::one(memory)]).is_err());
        assert!(fluid.tapping(1.0, &[Use::one(memory)], &[Use::one(link)]).is_err());
        let other = fluid.add_resource(1.0).expect("valid");
        assert!(fluid.tapping(1.0, &[Use::one(other)], &[Use::one(link)]).is_err());
        assert!(fluid.tapping(1.0, &[Use::one(memory)], &[Use::one(other)]).is_err());
    }
    of(System::new());
    of(SlowSystem::new());
}
