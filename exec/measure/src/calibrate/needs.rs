//! Lists the figures of a host that predicting a program needs (passes, updates and loads of its ranks), and which
//! roles of which programs must be timed for those that a profile lacks.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::check_buffers;
use lockstep_exec::device::cpu::{Threads, workspace_bytes};
use lockstep_models::memory::Memory;
use lockstep_models::profile::{
    CONTENTION, ComputeEntry, PROCESS_MESSAGES, Profile, THREAD_MESSAGES, cpu_chain_key, formula_key,
};
use lockstep_models::{Buffer, Elementwise, Gradients, Moments, Op, Phase, Program, Role};
use lockstep_topology::{Dtype, InputError};

/// One figure of a profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// A phase of a chain, identified by its key, at a number of samples.
    Compute(String, String, u32),
    /// An update of a number of parameters.
    Update(u64),
    /// Another operation on a number of parameters, by name.
    Formula(String, u64),
    /// A load of a number of elements.
    Load(u64),
}

/// A role of a program, one of whose ranks is timed task by task.
pub struct CalibrationSubject {
    /// The program.
    pub program: Program,
    /// Index of the role.
    pub role: usize,
    /// The data to load.
    pub data: Arc<Dataset>,
}

impl fmt::Display for Need {
    /// As a profile names disturbed figures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Compute(chain, phase, samples) => f.write_str(&ComputeEntry::name(chain, phase, *samples)),
            Need::Update(elements) => write!(f, "update of {elements} parameters"),
            Need::Formula(name, elements) => write!(f, "{name} of {elements} parameters"),
            Need::Load(elements) => write!(f, "load of {elements} elements"),
        }
    }
}

impl Need {
    /// The figure that a task needs; none if other ranks run it, or an update's figure covers it. Of a program of narrow
    /// [`formats`], only those that name them.
    pub(super) fn of(program: &Program, op: &Op) -> Option<Need> {
        let is_narrow = is_narrow(program);
        if let Some(key) = formula_key(program, op) {
            return (key.is_narrow || !is_narrow).then_some(Need::Formula(key.name, key.elements));
        }
        match op {
            _ if is_narrow => None,
            Op::Load { samples: 0, .. } | Op::Compute { samples: 0, .. } => None,
            Op::Load { samples, .. } => Some(Need::Load(u64::from(*samples) * program.model.input().elements())),
            Op::Compute { chain, phase, samples, .. } => {
                Some(Need::Compute(cpu_chain_key(program, *chain), phase.as_measured().name().to_owned(), *samples))
            }
            Op::Elementwise(Elementwise { range, shared, .. }) if op.update().is_some() => {
                Some(Need::of_update(&program.own_part(range, *shared, 0)))
            }
            _ => None,
        }
    }

    /// The figure of momentum SGD's step on a range of the parameters.
    pub(super) fn of_update(range: &Range<u64>) -> Need {
        Need::Update(range.end - range.start)
    }

    /// The figures that a role needs.
    pub(super) fn of_role(program: &Program, role: &Role) -> BTreeSet<Need> {
        let mut needs: BTreeSet<Need> = ops(program, role).filter_map(|op| Need::of(program, &op)).collect();
        // Formulas and copies move elements as fast as updates do; a profile has at least one update.
        let moves = |op: &Op| matches!(op, Op::Elementwise(_) | Op::Copy(_) | Op::Squares(_));
        let is_update = |op: &Op| matches!(Need::of(program, op), Some(Need::Update(_)));
        let own = largest_own(program, role);
        if !is_narrow(program)
            && !own.is_empty()
            && role.tasks.iter().any(|task| moves(&task.op) && !is_update(&task.op))
        {
            needs.insert(Need::of_update(&own));
        }
        needs
    }

    /// The figures in a profile.
    pub(super) fn all(profile: &Profile) -> impl Iterator<Item = Need> + '_ {
        let of_chain = |entry: &ComputeEntry| Need::Compute(entry.chain.clone(), entry.phase.clone(), entry.samples);
        let updates = profile.update.iter().map(|point| Need::Update(point.elements));
        let loads = profile.load.iter().map(|point| Need::Load(point.elements));
        let formulas = profile.formulas.iter().map(|of| Need::Formula(of.formula.clone(), of.elements));
        profile.compute.iter().map(of_chain).chain(updates).chain(formulas).chain(loads)
    }

    /// The undisturbed figures in a profile.
    fn known(profile: &Profile) -> BTreeSet<Need> {
        Need::all(profile)
            .filter(|need| profile.disturbed.is_empty() || !profile.disturbed.contains(&need.to_string()))
            .collect()
    }
}

/// Whether gradients or moments are not of fp32.
fn is_narrow(program: &Program) -> bool {
    [Buffer::Gradients, Buffer::State(0)].into_iter().any(|buffer| program.dtype(buffer) != Dtype::F32)
}

/// The programs whose figures a prediction of `program` takes: keys of passes say nothing of gradients and moments, so their
/// figures are of those in fp32. Only the operations that name other formats are timed in these.
fn formats(program: &Program) -> Vec<Program> {
    let wide = Program { gradients: Gradients::F32, moments: Moments::F32, ..program.clone() };
    std::iter::once(wide).chain(is_narrow(program).then(|| program.clone())).collect()
}

/// The longest range of parameters whose optimizer state a rank of a role has: a pipeline stage has some of the
/// parameters, and a rank that shares out state (ZeRO) has the state of some.
pub(super) fn largest_own(program: &Program, role: &Role) -> Range<u64> {
    program.updated(role, role.ranks.first()).into_iter().max_by_key(|own| own.end - own.start).unwrap_or(0..0)
}

/// The figures that all roles of a program need.
fn needs_of(program: &Program) -> impl Iterator<Item = Need> + '_ {
    program.roles.iter().flat_map(|role| Need::of_role(program, role))
}

/// The operations of a role's tasks, and those with which evaluations find losses that training finds in backward passes.
pub(super) fn ops<'a>(program: &'a Program, role: &'a Role) -> impl Iterator<Item = Op> + 'a {
    let own = role.tasks.iter().map(|task| task.op.clone());
    let evaluations = role.tasks.iter().filter_map(|task| match task.op {
        Op::Compute { chain, phase: Phase::Forward, samples, pass } => {
            let phase = program.evaluation_phase(chain);
            (phase != Phase::Forward).then_some(Op::Compute { chain, phase, samples, pass })
        }
        _ => None,
    });
    own.chain(evaluations)
}

/// The figures of a profile on which predictions of `program` rest and which could not be measured undisturbed.
pub fn disturbed(program: &Program, profile: &Profile) -> Vec<String> {
    if profile.disturbed.is_empty() {
        return Vec::new();
    }
    let mut names: BTreeSet<String> = formats(program).iter().flat_map(needs_of).map(|need| need.to_string()).collect();
    if program.workers() > 1 {
        names.extend([THREAD_MESSAGES, PROCESS_MESSAGES, CONTENTION].map(str::to_owned));
    }
    profile.disturbed.iter().filter(|name| names.contains(*name)).cloned().collect()
}

/// The roles to time so that all of `programs` can be predicted, given `profile`; each adds at least one figure that
/// those before it do not.
pub fn missing(programs: Vec<(Program, Arc<Dataset>)>, profile: Option<&Profile>) -> Vec<CalibrationSubject> {
    let mut known = profile.map(Need::known).unwrap_or_default();
    let mut subjects = Vec::new();
    let formats = programs.iter().flat_map(|(program, data)| formats(program).into_iter().map(move |of| (of, data)));
    for (program, data) in formats {
        for role in 0..program.roles.len() {
            let needs = Need::of_role(&program, &program.roles[role]);
            if !needs.is_subset(&known) {
                known.extend(needs);
                subjects.push(CalibrationSubject { program: program.clone(), role, data: data.clone() });
            }
        }
    }
    subjects
}

/// Refuses measurements that exceed this host's memory: a rank on each of `cores` cores with separate memory for each
/// tensor, one subject after the other.
///
/// # Errors
/// The first batch that does not fit, with the estimate and the memory left.
pub fn check_memory(subjects: &[CalibrationSubject], cores: usize) -> Result<(), InputError> {
    for CalibrationSubject { program, role, .. } in subjects {
        let workspace = workspace_bytes(program, &Threads::one()) as u128;
        let each = u128::from(Memory::of_role(program, *role, 1)?.total_unplanned()) + workspace;
        let batch = program.batch_per_rank.to_string();
        check_buffers("batch_per_rank", &batch, cores as u64, each, "measure smaller batches")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lockstep_models::profile::Interval;
    use lockstep_models::{Job, Precision, UpdateRule};

    use super::super::samples::Figure;
    use super::super::{kept, layers};
    use super::*;
    use crate::calibrate::tests::empty;
    use crate::host::Cores;

    /// What runs again takes the figures of its forward passes.
    #[test]
    fn recomputation_needs_no_figures_of_its_own() {
        let model = Arc::new(lockstep_readers::load_model("resnet-32").unwrap());
        let plain = Job::new(model, 1, 4);
        let again = Job { recompute: "full".parse().unwrap(), ..plain.clone() };
        let [plain, again] = [plain, again].map(|job| job.program().unwrap());
        assert!(again.roles[0].tasks.len() > plain.roles[0].tasks.len());
        assert_eq!(Need::of_role(&again, &again.roles[0]), Need::of_role(&plain, &plain.roles[0]));
    }

    /// Evaluations find the loss of an output layer by themselves, so that their time is a figure too.
    #[test]
    fn evaluations_of_output_layers_have_figures() {
        let model = Arc::new(lockstep_readers::load_model("gpt2-char:layers=1").unwrap());
        let program = Job::new(model, 1, 4).program().unwrap();
        let needs = Need::of_role(&program, &program.roles[0]);
        let evaluation = program.evaluation(8, 0).unwrap();
        let wanted: Vec<Need> =
            evaluation.roles[0].tasks.iter().filter_map(|task| Need::of(&evaluation, &task.op)).collect();
        assert!(wanted.iter().any(|need| matches!(need, Need::Compute(_, phase, _) if phase == "evaluate")));
        let missing: Vec<&Need> = wanted.iter().filter(|need| !needs.contains(need)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Strategies, and whether three ranks do what two do not: parts of other sizes, or losses of more samples.
    const STRATEGIES: [(&str, bool); 13] = [
        ("ssgd", false),
        ("zero-2", true),
        ("sequence-parallel", true),
        ("all-to-all", true),
        ("model-parallel", true),
        ("megatron", true),
        ("hybrid:a", true),
        ("hybrid:b", true),
        ("hybrid:c", true),
        ("hybrid:b:variable-batch", true),
        ("first-device-table", true),
        ("sma", false),
        ("local-sgd", false),
    ];

    fn program(strategy: &str, ranks: u32, fuse: bool) -> Program {
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
        let strategy = strategy.parse().expect("a strategy");
        Job { strategy, fuse, ..Job::new(model, ranks, 6) }.program().expect("a program")
    }

    fn lay_over(profile: &mut Profile, figures: layers::Layers) {
        let layers::Layers { compute, update, formulas, load, .. } = figures;
        kept::lay_over(profile, Profile { compute, update, formulas, load, ..empty() });
    }

    fn data(program: &Program) -> Arc<Dataset> {
        Arc::new(Dataset::load("synthetic:40", program.whole_model()).expect("data").0)
    }

    /// Every task of every strategy runs alone, in any order, and no figure is missing once they are timed.
    #[test]
    fn every_task_of_a_strategy_can_be_timed() {
        for (strategy, depends) in STRATEGIES {
            for fuse in [true, false] {
                let program = program(strategy, 2, fuse);
                let data = data(&program);
                let subjects = missing(vec![(program.clone(), data.clone()), (program.clone(), data.clone())], None);
                assert_eq!(subjects.len(), 1, "{strategy}: ranks that compute alike are timed once");
                let mut profile = empty();
                for subject in &subjects {
                    let turns = layers::turns(subject, 1);
                    let timed = turns.once(&Cores::of(1));
                    let figure = Figure { seconds: Interval::exact(1e-3), slowdown: 1.0, disturbed: false };
                    let figures = layers::read(subject, vec![figure; turns.operations()]);
                    assert!(timed > 0 && timed == turns.operations(), "{strategy}");
                    let [compute, update, load] = [figures.compute.len(), figures.update.len(), figures.load.len()];
                    assert!(compute > 0 && compute + update + load == turns.operations(), "{strategy}");
                    lay_over(&mut profile, figures);
                }
                assert!(missing(vec![(program.clone(), data.clone())], Some(&profile)).is_empty(), "{strategy}");
                // Chains that are cut differently are different figures, and so are parts of three ranks.
                let more = |other: Program| missing(vec![(other, data.clone())], Some(&profile)).len();
                assert!(more(self::program(strategy, 2, !fuse)) > 0, "{strategy}");
                assert_eq!(more(self::program(strategy, 3, fuse)) > 0, depends, "{strategy}");
            }
        }
    }

    /// Steps on gradients or moments in bf16 are timed in programs of their own, beside those in fp32 that time everything
    /// else: what fp32 has been timed for needs no more than such steps.
    #[test]
    fn steps_in_narrow_formats_are_timed_apart() {
        let figure = Figure { seconds: Interval::exact(1e-3), slowdown: 1.0, disturbed: false };
        let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
        for (rule, strategy) in UpdateRule::ALL.into_iter().flat_map(|rule| ["ssgd", "zero-2"].map(|of| (rule, of))) {
            let of = |gradients, moments| {
                let (strategy, clips, precision) = (strategy.parse().expect("a strategy"), true, Precision::Bf16);
                let job = Job { strategy, rule, clips, precision, gradients, moments, ..Job::new(model.clone(), 2, 6) };
                let program = job.program().expect("a program");
                let data = data(&program);
                (program, data)
            };
            let mut profile = empty();
            let mut timed = |of: (Program, Arc<Dataset>)| {
                let subjects = missing(vec![of], Some(&profile));
                let mut names = Vec::new();
                for subject in &subjects {
                    let turns = layers::turns(subject, 1);
                    assert_eq!(turns.once(&Cores::of(1)), turns.operations());
                    let read = layers::read(subject, vec![figure; turns.operations()]);
                    let others = read.compute.len() + read.update.len() + read.load.len();
                    names
                        .push((others > 0, read.formulas.iter().map(|of| of.formula.clone()).collect::<BTreeSet<_>>()));
                    lay_over(&mut profile, read);
                }
                names
            };
            let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
            let step = |formats: &str| format!("{rule} with {formats}");
            let plain: Vec<&str> =
                [(rule != UpdateRule::Sgd).then(|| rule.name()), Some("squares")].into_iter().flatten().collect();
            // Both at once: all of fp32, and the step.
            let both = timed(of(Gradients::F32, Moments::Bf16));
            assert_eq!(both, [(true, set(&plain)), (false, set(&[&step("moments in bf16")]))], "{strategy}");
            assert!(timed(of(Gradients::F32, Moments::F32)).is_empty(), "{strategy}");
            let half = timed(of(Gradients::Half, Moments::F32));
            // With zero-2 ranks keep sums of the gradients that are to be clipped, in fp32.
            let wanted = set(&[&step("gradients in bf16"), "squares with gradients in bf16"]);
            assert_eq!(half, if strategy == "ssgd" { vec![(false, wanted)] } else { Vec::new() }, "{strategy}");
        }
    }

    /// Optimizers' steps and sums of squares are figures of their own, which no other program's stand in for.
    #[test]
    fn steps_of_other_optimizers_are_timed_apart() {
        let figure = Figure { seconds: Interval::exact(1e-3), slowdown: 1.0, disturbed: false };
        for (strategy, rule, clips) in ["ssgd", "zero-1", "zero-2", "megatron"].into_iter().flat_map(|strategy| {
            UpdateRule::ALL.into_iter().flat_map(move |rule| [false, true].map(move |clips| (strategy, rule, clips)))
        }) {
            let model = Arc::new(lockstep_readers::load_model("lenet").expect("in the zoo"));
            let of = |rule, clips| {
                let strategy = strategy.parse().expect("a strategy");
                Job { strategy, rule, clips, ..Job::new(model.clone(), 2, 6) }.program().expect("a program")
            };
            let program = of(rule, clips);
            let data = data(&program);
            let subjects = missing(vec![(program.clone(), data.clone())], None);
            let [subject] = &subjects[..] else { panic!("{} subjects", subjects.len()) };
            let turns = layers::turns(subject, 1);
            assert_eq!(turns.once(&Cores::of(1)), turns.operations());
            let mut profile = empty();
            lay_over(&mut profile, layers::read(subject, vec![figure; turns.operations()]));
            let mut names: Vec<&str> = profile.formulas.iter().map(|entry| entry.formula.as_str()).collect();
            names.dedup();
            let wanted = [(rule != UpdateRule::Sgd).then(|| rule.name()), clips.then_some("squares")];
            assert_eq!(names, wanted.into_iter().flatten().collect::<Vec<_>>());
            assert!(!profile.update.is_empty(), "a profile has momentum SGD's step");
            for other in UpdateRule::ALL {
                let is_missing = !missing(vec![(of(other, clips), data.clone())], Some(&profile)).is_empty();
                assert_eq!(is_missing, other != rule && other != UpdateRule::Sgd, "{strategy}: {rule} for {other}");
            }
        }
    }
}
