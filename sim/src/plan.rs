//! `Plan`: converts a program to the dense tables that the event loop reads, with its exchanges by group.
//!
//! Equal exchanges of two roles are matched, the n-th of its kind with the n-th; so if a role lacks one, the others
//! wait in exactly that one, and the deadlock can be named.

mod apart;
mod cursor;

use std::collections::BTreeMap;
use std::sync::Arc;

use lockstep_models::{AxisSet, Exchange, Loops, Members, Need, Op, Phase, Program, Role, Stream, TaskId};
use lockstep_topology::{Algorithm, Collective, Group, InputError, Schedule};

use crate::platform::Platform;
use crate::rccl;

pub(crate) use cursor::Cursor;

/// The tasks of a role in one iteration.
#[derive(Debug)]
pub(crate) struct RolePlan {
    /// Its simulated ranks, in ascending order.
    pub(crate) ranks: Vec<u32>,
    pub(crate) tasks: Vec<TaskPlan>,
    /// The tasks of each stream in program order.
    pub(crate) compute: Vec<Slot>,
    /// Whether its ranks claim batches.
    pub(crate) claims: bool,
    /// The parts of the compute stream that repeat, as their first and last slots, in ascending order.
    repeated: Vec<(u32, u32)>,
    pub(crate) exchange: Vec<Slot>,
    pub(crate) receive: Vec<Slot>,
    pub(crate) synchronisation: Vec<Slot>,
    /// Reads, decodes and uploads.
    pub(crate) input: [Vec<Slot>; Stream::INPUT.len()],
    /// Batches that are read ahead of their loads; if there are any, input tasks run beside anything that ranks do.
    pub(crate) reads_ahead: u32,
    /// Whether no exchange is in a `Repeat`.
    pub(crate) repeats_alone: bool,
    /// Iterations that may begin while the receives of earlier ones have not started: 1 where passes wait for them.
    pub(crate) receives_late: u32,
}

/// One task.
#[derive(Debug, Default)]
pub(crate) struct TaskPlan {
    pub(crate) name: String,
    /// How often it runs in an iteration.
    pub(crate) per_iteration: u32,
    /// Whether it computes a forward pass.
    pub(crate) forward: bool,
    /// For a load whose batch is uploaded: the task that does so.
    pub(crate) uploaded_by: Option<u32>,
    /// Whether the first repetition leaves it out.
    pub(crate) skips_first: bool,
    /// For an exchange: its groups; `None` for a task of the compute stream.
    pub(crate) groups: Option<ExchangeGroups>,
    pub(crate) needs: Vec<Need>,
    /// What it does not wait for where ranks share what they prepare: a load for its rank's own upload, a read for its
    /// rank's own load.
    pub(crate) of_pool: Option<u32>,
}

/// The steps of an exchange among `members`, as the platform's libraries take them.
fn schedule(
    program: &Program,
    exchange: &Exchange,
    members: &Members,
    platform: Option<&Platform<'_>>,
) -> Result<Schedule, InputError> {
    let schedule = program.schedule_among(exchange, members)?;
    let Some(platform) = platform else { return Ok(schedule) };
    rccl::along_links(platform, members.iter(), &exchange.algorithm, (schedule, exchange.chunk))
}

/// The groups of an exchange, with a number for each group of ranks that runs it.
#[derive(Debug, Clone)]
pub(crate) struct ExchangeGroups {
    /// The first group's.
    first: u32,
    /// By rank: the number of its group; `None` where there is one group.
    by_rank: Option<Arc<[u32]>>,
}

impl ExchangeGroups {
    /// The number of the group exchange of `rank`.
    pub(crate) fn of(&self, rank: u32) -> u32 {
        self.first + self.by_rank.as_ref().map_or(0, |groups| groups[rank as usize])
    }
}

/// A task's position in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) task: u32,
    /// At the end of a `Repeat`'s part of this stream: where the part begins, and how often it runs.
    pub(crate) repeat: Option<(u32, u32)>,
    /// At the beginning of such a part: whether a batch is claimed from the driver first.
    pub(crate) claims: bool,
    /// In the list of a pipeline's stage: its micro-batch.
    micro_batch: Option<u32>,
}

/// An exchange among all members of a group.
#[derive(Debug)]
pub(crate) struct GroupExchange {
    pub(crate) schedule: Schedule,
    pub(crate) window: u32,
    /// The ranks.
    pub(crate) members: Members,
    /// The algorithm.
    pub(crate) algorithm: Algorithm,
    /// Whether its members do nothing else while it is in flight, and there are no other ranks.
    pub(crate) apart: Option<Apart>,
}

impl GroupExchange {
    /// The member number of a rank that takes part.
    pub(crate) fn member(&self, rank: u32) -> u32 {
        self.members.member(rank).expect("ranks meet in their own groups")
    }
}

/// How an exchange that is apart from all other tasks starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// At the instant at which its rank has computed what it needs, or as the first task.
    AtOnce,
    /// At any time.
    Sometime,
}

/// The tasks of all ranks.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) roles: Vec<RolePlan>,
    pub(crate) group_exchanges: Vec<GroupExchange>,
}

impl TaskPlan {
    /// The number of a run, counted over iterations and repetitions.
    pub(crate) fn run(&self, iteration: u32, repetition: u32) -> u64 {
        u64::from(iteration) * u64::from(self.per_iteration) + u64::from(repetition)
    }
}

impl RolePlan {
    /// The part of the compute stream that repeats from `position` on: its slots, and how often it runs.
    pub(crate) fn repeated_from(&self, position: u32) -> Option<(&[Slot], u32)> {
        let at = self.repeated.binary_search_by_key(&position, |(first, _)| *first).ok()?;
        let slots = self.compute.get(position as usize..=self.repeated[at].1 as usize)?;
        slots.last()?.repeat.map(|(_, count)| (slots, count))
    }
}

impl Plan {
    /// The tables of `program`, of which the first `ranks` ranks are simulated, on a platform, if it is known.
    ///
    /// # Errors
    /// An algorithm that cannot serve its group.
    pub(crate) fn new(program: &Program, ranks: u32, platform: Option<&Platform<'_>>) -> Result<Plan, InputError> {
        let mut group_exchanges = Vec::new();
        // By the exchange's number in the program: the first of its group exchanges.
        let mut firsts: BTreeMap<u32, u32> = BTreeMap::new();
        let mut roles = Vec::new();
        let mut numbers: Vec<(AxisSet, Arc<[u32]>)> = Vec::new();
        let of_roles = program.exchange_numbers();
        for (role, of_role) in program.roles.iter().zip(&of_roles) {
            let mut exchange_groups = vec![None; role.tasks.len()];
            for (id, exchange) in role.exchanges() {
                let number = of_role[id].unwrap_or_default();
                let first = match firsts.get(&number) {
                    Some(first) => *first,
                    None => {
                        let first = group_exchanges.len() as u32;
                        let runs: Vec<bool> = of_roles.iter().map(|role| role.contains(&Some(number))).collect();
                        for group in 0..groups_of(program, exchange, ranks) {
                            let members = program.group(exchange, group);
                            // Groups of other roles may have their own exchanges along these axes.
                            let schedule = match runs[program.role_of(members.rank(0))] {
                                true => schedule(program, exchange, &members, platform)?,
                                false => {
                                    Schedule::new(&Collective::AllReduce, &Algorithm::direct(), &Group::flat(1), 0, 0)?
                                }
                            };
                            let window = Program::window(exchange, &schedule);
                            group_exchanges.push(GroupExchange {
                                schedule,
                                window,
                                members,
                                algorithm: exchange.algorithm.clone(),
                                apart: None,
                            });
                        }
                        firsts.insert(number, first);
                        first
                    }
                };
                let by_rank = match numbers.iter().find(|(axes, _)| *axes == exchange.axes) {
                    _ if groups_of(program, exchange, ranks) == 1 => None,
                    Some((_, groups)) => Some(Arc::clone(groups)),
                    None => {
                        let simulated = 0..ranks.min(program.ranks());
                        let groups: Arc<[u32]> = simulated.map(|rank| program.group_number(exchange, rank)).collect();
                        numbers.push((exchange.axes, Arc::clone(&groups)));
                        Some(groups)
                    }
                };
                exchange_groups[id] = Some(ExchangeGroups { first, by_rank });
            }
            roles.push(role_plan(role, ranks, &exchange_groups));
        }
        if let ([plan], [role]) = (roles.as_slice(), program.roles.as_slice()) {
            // Where several groups run it, others' exchanges are in flight meanwhile.
            for (task, _) in role.exchanges().filter(|(_, exchange)| program.group_count(exchange) == 1) {
                if let Some(ExchangeGroups { first, .. }) = plan.tasks[task].groups {
                    group_exchanges[first as usize].apart = apart::how(plan, task as u32);
                }
            }
        }
        Ok(Plan { roles, group_exchanges })
    }

    /// One exchange of `ranks` ranks by `algorithm`, and nothing else.
    pub(crate) fn of_collective(name: String, algorithm: &Algorithm, schedule: Schedule, window: u32) -> Plan {
        let ranks = schedule.members();
        let groups = Some(ExchangeGroups { first: 0, by_rank: None });
        let task = TaskPlan { name, per_iteration: 1, groups, ..TaskPlan::default() };
        let role = RolePlan {
            ranks: (0..ranks).collect(),
            tasks: vec![task],
            compute: Vec::new(),
            claims: false,
            repeated: Vec::new(),
            exchange: vec![Slot { task: 0, repeat: None, claims: false, micro_batch: None }],
            receive: Vec::new(),
            synchronisation: Vec::new(),
            input: Default::default(),
            reads_ahead: 0,
            repeats_alone: true,
            receives_late: 0,
        };
        let (algorithm, apart) = (algorithm.clone(), Some(Apart::AtOnce));
        Plan {
            roles: vec![role],
            group_exchanges: vec![GroupExchange {
                schedule,
                window,
                members: Members::range(0, ranks),
                algorithm,
                apart,
            }],
        }
    }

    /// Leaves out all but the first `ranks` of its only role: they represent the others.
    pub(crate) fn represent(&mut self, ranks: u32) {
        if let [role] = self.roles.as_mut_slice() {
            role.ranks.truncate(ranks as usize);
        }
    }

    /// How many ranks there are.
    pub(crate) fn ranks(&self) -> u32 {
        self.roles.iter().map(|role| role.ranks.len() as u32).sum()
    }
}

/// How many groups the first `ranks` ranks belong to; an exchange's groups are numbered by their first ranks.
fn groups_of(program: &Program, exchange: &Exchange, ranks: u32) -> u32 {
    if program.group_count(exchange) == 1 {
        return 1;
    }
    let simulated = (0..ranks.min(program.workers())).map(|rank| program.group_number(exchange, rank));
    simulated.max().map_or(1, |last| last + 1)
}

fn role_plan(role: &Role, simulated: u32, groups: &[Option<ExchangeGroups>]) -> RolePlan {
    let loops = role.loops();
    let task = |(id, task): (usize, &lockstep_models::Task)| {
        let forward = matches!(task.op, Op::Compute { phase: Phase::Forward, .. });
        TaskPlan {
            name: task.name.clone(),
            per_iteration: loops.runs_of(id),
            forward,
            uploaded_by: role.input_of(id).map(|[.., upload]| upload as u32),
            skips_first: task.op.skips_first(),
            groups: groups[id].clone(),
            needs: loops.needs(id),
            of_pool: match role.tasks[id].op {
                Op::Load { .. } => role.input_of(id).map(|[.., upload]| upload as u32),
                Op::Read { .. } => role.tasks[id].after.first().map(|after| after.task as u32),
                _ => None,
            },
        }
    };
    let receive = stream(role, &loops, Stream::Receive);
    let compute = stream(role, &loops, Stream::Compute);
    let repeated = (0..).zip(&compute).filter_map(|(last, slot)| slot.repeat.map(|(first, _)| (first, last)));
    let receives_late = receive.iter().all(|slot| role.is_awaited_next(slot.task as usize));
    RolePlan {
        receives_late: receives_late.into(),
        ranks: role.ranks.iter().take_while(|rank| *rank < simulated).collect(),
        tasks: role.tasks.iter().enumerate().map(task).collect(),
        claims: compute.iter().any(|slot| slot.claims),
        repeated: repeated.collect(),
        compute,
        reads_ahead: role.batches_ahead().unwrap_or(0),
        repeats_alone: !role.exchanges().any(|(id, _)| loops.loop_of(id).is_some()),
        exchange: stream(role, &loops, Stream::Exchange),
        receive,
        synchronisation: stream(role, &loops, Stream::Synchronisation),
        input: Stream::INPUT.map(|of| stream(role, &loops, of)),
    }
}

/// The slots of one stream of a role.
fn stream(role: &Role, loops: &Loops<'_>, stream: Stream) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut part: Option<(TaskId, usize)> = None;
    let is_of = |id: &TaskId| {
        role.tasks[*id].stream == stream && !matches!(role.tasks[*id].op, Op::Repeat { .. } | Op::Schedule(_))
    };
    let mut scheduled = 0;
    for (id, task) in role.tasks.iter().enumerate() {
        if let Op::Schedule(order) = &task.op {
            scheduled = id + 1 + order.tasks();
            for step in &order.steps {
                let tasks = order.tasks_of(step).map(|task| id + 1 + task).filter(is_of);
                let slot =
                    |task| Slot { task: task as u32, repeat: None, claims: false, micro_batch: Some(step.micro_batch) };
                slots.extend(tasks.map(slot));
            }
        }
        if id < scheduled || !is_of(&id) {
            continue;
        }
        let repeat = loops.loop_of(id);
        let first = match (repeat, part) {
            (Some((repeat, _)), Some((open, first))) if open == repeat => first,
            _ => slots.len(),
        };
        part = repeat.map(|(repeat, _)| (repeat, first));
        if repeat.is_some() && first < slots.len() {
            // Only the last slot of a part leads back.
            slots.last_mut().expect("the part has begun").repeat = None;
        }
        let opens = repeat.filter(|_| first == slots.len()).map(|(repeat, _)| &role.tasks[repeat].op);
        let claims = stream == Stream::Compute && matches!(opens, Some(Op::Repeat { claimed: true, .. }));
        let repeat = repeat.map(|(_, count)| (first as u32, count));
        slots.push(Slot { task: id as u32, repeat, claims, micro_batch: None });
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(slots: &[Slot], runs: usize) -> Vec<(u32, u32, u32)> {
        let mut cursor = Cursor::default();
        let mut seen = Vec::new();
        for _ in 0..runs {
            seen.push((cursor.iteration, cursor.repetition, cursor.task(slots).expect("not empty")));
            cursor.step(slots);
        }
        seen
    }

    #[test]
    fn a_cursor_follows_a_list_of_micro_batches() {
        // Forward 0, forward 1, backward 0, backward 1, then a separate task.
        let slot = |task, micro_batch| Slot { task, repeat: None, claims: false, micro_batch };
        let slots = [slot(1, Some(0)), slot(1, Some(1)), slot(2, Some(0)), slot(2, Some(1)), slot(3, None)];
        let expected = [(0, 0, 1), (0, 1, 1), (0, 0, 2), (0, 1, 2), (0, 0, 3), (1, 0, 1), (1, 1, 1)];
        assert_eq!(walk(&slots, 7), expected);
    }

    #[test]
    fn a_cursor_repeats_bodies_and_iterations() {
        // task 0, then twice (tasks 2, 3), then task 4; task 1 is the Repeat itself.
        let slot = |task, repeat| Slot { task, repeat, claims: false, micro_batch: None };
        let slots = [slot(0, None), slot(2, None), slot(3, Some((1, 2))), slot(4, None)];
        let expected = [(0, 0, 0), (0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3), (0, 0, 4), (1, 0, 0), (1, 0, 2)];
        assert_eq!(walk(&slots, 8), expected);
    }
}
