//! Lists the figures of a host that predicting a program needs (passes, updates and loads of its ranks), and which
//! roles of which programs must be timed for those that a profile lacks.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use lockstep_data::Dataset;
use lockstep_exec::check_buffers;
use lockstep_exec::device::cpu::{Threads, workspace_bytes};
use lockstep_models::memory::Memory;
use lockstep_models::profile::{CONTENTION, ComputeEntry, PROCESS_MESSAGES, Profile, THREAD_MESSAGES, chain_key};
use lockstep_models::{Elementwise, Op, Program, Role};
use lockstep_topology::InputError;

/// One figure of a profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// A phase of a chain, identified by its key, at a number of samples.
    Compute(String, String, u32),
    /// An update of a number of parameters.
    Update(u64),
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
            Need::Load(elements) => write!(f, "load of {elements} elements"),
        }
    }
}

impl Need {
    /// The figure that a task needs; none if other ranks run it, or another figure covers it.
    pub(super) fn of(program: &Program, op: &Op) -> Option<Need> {
        match op {
            Op::Load { samples: 0, .. } | Op::Compute { samples: 0, .. } => None,
            Op::Load { samples, .. } => Some(Need::Load(u64::from(*samples) * program.model.input().elements())),
            Op::Compute { chain, phase, samples, .. } => {
                Some(Need::Compute(chain_key(program, *chain), phase.name().to_owned(), *samples))
            }
            Op::Elementwise(Elementwise { range, shared, .. }) if op.update().is_some() => {
                let part = program.own_part(range, *shared, 0);
                Some(Need::Update(part.end - part.start))
            }
            // Formulas and copies move elements as fast as updates do.
            Op::Elementwise(_) | Op::Copy(_) => Some(Need::Update(program.model.parameter_elements())),
            _ => None,
        }
    }

    /// The figures that a role needs.
    pub(super) fn of_role(program: &Program, role: &Role) -> BTreeSet<Need> {
        role.tasks.iter().filter_map(|task| Need::of(program, &task.op)).collect()
    }

    /// The figures in a profile.
    pub(super) fn all(profile: &Profile) -> impl Iterator<Item = Need> + '_ {
        let of_chain = |entry: &ComputeEntry| Need::Compute(entry.chain.clone(), entry.phase.clone(), entry.samples);
        let updates = profile.update.iter().map(|point| Need::Update(point.elements));
        let loads = profile.load.iter().map(|point| Need::Load(point.elements));
        profile.compute.iter().map(of_chain).chain(updates).chain(loads)
    }

    /// The undisturbed figures in a profile.
    fn known(profile: &Profile) -> BTreeSet<Need> {
        Need::all(profile)
            .filter(|need| profile.disturbed.is_empty() || !profile.disturbed.contains(&need.to_string()))
            .collect()
    }
}

/// The figures of a profile on which predictions of `program` rest and which could not be measured undisturbed.
pub fn disturbed(program: &Program, profile: &Profile) -> Vec<String> {
    if profile.disturbed.is_empty() {
        return Vec::new();
    }
    let mut names: BTreeSet<String> =
        program.roles.iter().flat_map(|role| Need::of_role(program, role)).map(|need| need.to_string()).collect();
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
    for (program, data) in programs {
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
    use lockstep_models::Job;
    use lockstep_models::profile::Interval;

    use super::super::samples::Figure;
    use super::super::{kept, layers};
    use super::*;
    use crate::calibrate::tests::empty;
    use crate::host::Cores;

    /// Strategies, and whether three ranks do what two do not: parts of other sizes, or losses of more samples.
    const STRATEGIES: [(&str, bool); 10] = [
        ("ssgd", false),
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
                    let layers::Layers { compute, update, load, .. } = figures;
                    kept::lay_over(&mut profile, Profile { compute, update, load, ..empty() });
                }
                assert!(missing(vec![(program.clone(), data.clone())], Some(&profile)).is_empty(), "{strategy}");
                // Chains that are cut differently are different figures, and so are parts of three ranks.
                let more = |other: Program| missing(vec![(other, data.clone())], Some(&profile)).len();
                assert!(more(self::program(strategy, 2, !fuse)) > 0, "{strategy}");
                assert_eq!(more(self::program(strategy, 3, fuse)) > 0, depends, "{strategy}");
            }
        }
    }
}
