//! `Program::check`: what must hold before a program is simulated or executed, from indices to the meaning of its exchanges.

use lockstep_topology::{InputError, check as check_schedule};

use crate::{Area, AveragingRule, Buffer, Copy, Exchange, Op, Program, Role, Stream, TaskId};

/// Groups up to this size are expanded and proved; larger ones use the same code with more members.
const PROVED_MEMBERS: u32 = 64;

impl Program {
    /// Refuses what could not run: indices out of range, waits that never end, exchanges on which the members disagree,
    /// algorithms that do not compute their collective.
    ///
    /// # Errors
    /// Names the role, the task and the reason.
    pub fn check(&self) -> Result<(), InputError> {
        let mut next = 0;
        for role in &self.roles {
            if role.ranks.first != next || role.ranks.count == 0 {
                return Err(fault(role, "ranks", "roles must cover ranks 0, 1, 2 … without gap or overlap"));
            }
            next += role.ranks.count;
            self.check_role(role)?;
        }
        let mut ends = self.roles.iter().map(|role| role.ranks.first + role.ranks.count);
        if !ends.any(|end| end == self.workers) {
            return Err(InputError::new("program", "workers", "the first roles must hold exactly the workers"));
        }
        self.check_exchanges()
    }

    fn check_role(&self, role: &Role) -> Result<(), InputError> {
        for (id, task) in role.tasks.iter().enumerate() {
            for after in &task.after {
                if after.task >= role.tasks.len() {
                    return Err(fault(role, &task.name, "waits for a task that does not exist"));
                }
                // Forward references within an iteration are how a cycle would arise.
                if after.lag == 0 && after.task >= id {
                    return Err(fault(
                        role,
                        &task.name,
                        "waits for a later task of the same iteration: it would never start",
                    ));
                }
            }
            match &task.op {
                Op::Repeat { count, body, claimed } => {
                    if *count == 0 || id + body >= role.tasks.len() || *body == 0 {
                        return Err(fault(role, &task.name, "repeats nothing, or reaches past the end of its role"));
                    }
                    let body = &role.tasks[id + 1..=id + body];
                    if body.iter().any(|task| matches!(task.op, Op::Repeat { .. })) {
                        return Err(fault(role, &task.name, "bodies do not nest"));
                    }
                    if *claimed != self.claims() {
                        return Err(fault(
                            role,
                            &task.name,
                            "claims batches that are assigned, or the other way round",
                        ));
                    }
                }
                Op::Load { samples, into: Some(buffer), .. } => self.check_load(role, &task.name, *samples, *buffer)?,
                Op::Compute { chain, .. } if *chain >= self.chains.len() => {
                    return Err(fault(role, &task.name, "runs a chain that does not exist"));
                }
                Op::Update { range } if range.end > self.model.parameter_elements() || range.start >= range.end => {
                    return Err(fault(role, &task.name, "updates parameters that do not exist"));
                }
                Op::Averaging { rule, range }
                    if range.end > self.model.parameter_elements()
                        || range.is_empty() && *rule != AveragingRule::Reference =>
                {
                    return Err(fault(role, &task.name, "averages parameters that do not exist"));
                }
                Op::Averaging { rule, .. } if rule.is_global() != (task.stream == Stream::Synchronisation) => {
                    return Err(fault(role, &task.name, "only what is shared is updated beside the compute stream"));
                }
                Op::Averaging { .. } if self.averaging.is_none() => {
                    return Err(fault(role, &task.name, "averages models where all ranks train one"));
                }
                Op::Exchange(exchange) => self.check_exchange(role, id, exchange)?,
                Op::Copy(copy) => self.check_copy(role, &task.name, copy)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Samples that come into a buffer must find room there.
    fn check_load(&self, role: &Role, name: &str, samples: u32, buffer: usize) -> Result<(), InputError> {
        let needed = u64::from(samples) * self.model.input().elements();
        let short = |rank: u32| {
            let held = self.held(buffer, rank);
            held.end - held.start < needed
        };
        if role.ranks.iter().any(short) {
            return Err(fault(role, name, "loads more samples than its buffer has room for"));
        }
        Ok(())
    }

    fn check_copy(&self, role: &Role, name: &str, copy: &Copy) -> Result<(), InputError> {
        let elements = |area| match area {
            Area::Buffer(Buffer::Declared(index)) => {
                let held = role.ranks.iter().map(|rank| self.held(index, rank));
                held.map(|held| held.end - held.start).min().unwrap_or(0)
            }
            Area::Buffer(buffer) => self.elements(buffer),
            Area::Activation(id) | Area::Gradient(id) => match self.model.layers().get(id.index()) {
                Some(node) => node.output.elements() * u64::from(self.samples_in(role, id)),
                None => 0,
            },
        };
        let (from, to) = copy.extents();
        if copy.from == copy.to {
            return Err(fault(role, name, "copies an area to itself"));
        }
        if from > elements(copy.from) || to > elements(copy.to) {
            return Err(fault(role, name, "copies elements that its areas do not have"));
        }
        Ok(())
    }

    fn check_exchange(&self, role: &Role, id: TaskId, exchange: &Exchange) -> Result<(), InputError> {
        let task = &role.tasks[id];
        let Some(group) = self.groups.get(exchange.group) else {
            return Err(fault(role, &task.name, "meets a group that does not exist"));
        };
        if exchange.range.end > self.elements(exchange.buffer) || exchange.range.start > exchange.range.end {
            return Err(fault(role, &task.name, "exchanges elements that its buffer does not have"));
        }
        if task.stream != Stream::Exchange {
            return Err(fault(role, &task.name, "an exchange belongs on the exchange stream"));
        }
        if group.shape.members() != group.ranks.count {
            return Err(fault(role, &task.name, "its group counts other members than ranks"));
        }
        // MPI's call stalls whatever else its process has in flight, and NCCL's must come in the same order everywhere.
        let library = exchange.algorithm.library().is_some();
        if library && !self.alone(role, id) {
            return Err(fault(role, &task.name, "a library's collective runs alone: one exchange at a time, please"));
        }
        self.schedule(exchange).map(|_| ())
    }

    /// Whether each exchange of the role waits for the one before it, so that never two are in flight.
    fn alone(&self, role: &Role, id: TaskId) -> bool {
        let before: Vec<TaskId> = role.exchanges().map(|(id, _)| id).collect();
        let position = before.iter().position(|other| *other == id).unwrap_or(0);
        let (earlier, lag) = if position == 0 { (before[before.len() - 1], 1) } else { (before[position - 1], 0) };
        role.tasks[id].after.iter().any(|after| after.task == earlier && after.lag == lag)
    }

    /// All members of a group must meet in the same exchanges in the same order, and each must compute its collective.
    fn check_exchanges(&self) -> Result<(), InputError> {
        for (index, group) in self.groups.iter().enumerate() {
            let members: Vec<&Role> = self
                .roles
                .iter()
                .filter(|role| role.ranks.iter().next().is_some_and(|rank| group.ranks.contains(rank)))
                .collect();
            let of = |role: &Role| -> Vec<Exchange> {
                role.exchanges().filter(|(_, e)| e.group == index).map(|(_, e)| e.clone()).collect()
            };
            let Some((first, others)) = members.split_first() else { continue };
            let expected = of(first);
            for role in others {
                if of(role) != expected {
                    let reason = format!("does not meet the exchanges of role {} in their order: deadlock", first.name);
                    return Err(fault(role, "exchanges", &reason));
                }
            }
            if group.ranks.count > PROVED_MEMBERS {
                continue;
            }
            let mut proved: Vec<(u64, &Exchange)> = Vec::new();
            // A library's collective is its own affair; its lanes only say what it costs.
            for exchange in expected.iter().filter(|exchange| exchange.algorithm.library().is_none()) {
                let elements = exchange.range.end - exchange.range.start;
                let seen = proved.iter().any(|(n, e)| {
                    *n == elements
                        && e.collective == exchange.collective
                        && e.algorithm == exchange.algorithm
                        && e.chunk == exchange.chunk
                });
                if !seen {
                    check_schedule(&self.schedule(exchange)?).map_err(|fault| {
                        InputError::flag("algorithm", exchange.algorithm.to_string(), format!("does not work: {fault}"))
                    })?;
                    proved.push((elements, exchange));
                }
            }
        }
        Ok(())
    }
}

fn fault(role: &Role, value: &str, message: &str) -> InputError {
    InputError::new(format!("program, role {}", role.name), value, message)
}
