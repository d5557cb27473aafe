//! Reports what NCCL's model chooses: for a collective, and for the exchanges of a program.

use std::collections::BTreeMap;

use lockstep_models::{Program, TaskId};
use lockstep_topology::InputError;
use lockstep_topology::nccl::{NcclAnswer, Request};

use crate::collective::CollectiveRun;
use crate::engine::seconds_of;
use crate::nccl;
use crate::plan::Plan;
use crate::platform::Platform;

/// NCCL's choice for a run, e.g. `NCCL 2.27 takes Tree/LL128, 16 channels`; `None` for other algorithms, and where its
/// figures for the devices are not known.
///
/// # Errors
/// As [`simulate_collective`](crate::simulate_collective).
pub fn nccl_choice(run: &CollectiveRun, platform: &Platform<'_>) -> Result<Option<String>, InputError> {
    let Some(request) = run.algorithm.nccl() else { return Ok(None) };
    platform.check(run.group.members())?;
    let bytes = run.bytes();
    let answer = nccl::library(platform, 0..run.group.members(), &request, &run.collective, bytes)?;
    Ok(answer.map(|answer| in_words(&request, &answer)))
}

/// NCCL's choice for each exchange whose time is from its model, by role and task; of an exchange of several groups, for
/// the group of the role's first rank.
///
/// # Errors
/// As [`simulate`](crate::simulate).
pub fn nccl_choices(
    program: &Program,
    platform: &Platform<'_>,
) -> Result<BTreeMap<(usize, TaskId), String>, InputError> {
    let mut choices = BTreeMap::new();
    let mut exchanges = program.roles.iter().flat_map(|role| role.exchanges());
    if !exchanges.any(|(_, exchange)| exchange.algorithm.nccl().is_some()) {
        return Ok(choices);
    }
    let plan = Plan::new(program, program.ranks(), Some(platform))?;
    for (number, role) in plan.roles.iter().enumerate() {
        let Some(first) = role.ranks.first() else { continue };
        for (task, planned) in role.tasks.iter().enumerate() {
            let Some(groups) = &planned.groups else { continue };
            let exchange = &plan.group_exchanges[groups.of(*first) as usize];
            let Some(request) = exchange.algorithm.nccl() else { continue };
            if let Some((_, Some(answer))) = seconds_of(platform, exchange)? {
                choices.insert((number, task), in_words(&request, &answer));
            }
        }
    }
    Ok(choices)
}

fn in_words(request: &Request, answer: &NcclAnswer) -> String {
    format!("NCCL {} takes {}", request.version, answer.choice)
}
