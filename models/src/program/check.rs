//! `Program::check`: verifies a program before it is simulated or executed, from indices to the meaning of
//! its exchanges.

mod alone;
mod formats;
mod proofs;

use lockstep_topology::{Collective, InputError, check as check_schedule};

use crate::{
    Area, Buffer, ByCoordinate, Copy, Elementwise, Exchange, Members, Op, Program, Role, Stream, Task, TaskId, pipeline,
};

pub use proofs::Proofs;

/// Groups up to this size are expanded and proved; larger ones run the same code with more members.
const PROVED_MEMBERS: u32 = 64;

impl Program {
    /// Refuses what could not run: indices out of range, waits that never end, exchanges on which the members disagree,
    /// algorithms that do not compute their collective.
    ///
    /// # Errors
    /// Names the role, the task and the reason.
    pub fn check(&self) -> Result<(), InputError> {
        self.check_beside(&Proofs::default())
    }

    /// The same, skipping schedules that `proofs` has, and adding new ones to it.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_beside(&self, proofs: &Proofs) -> Result<(), InputError> {
        self.check_ranks()?;
        self.roles.iter().try_for_each(|role| self.check_role(role).and_then(|()| self.check_formats(role)))?;
        self.check_pipeline()?;
        self.check_exchanges(proofs)
    }

    /// Each rank has one role, which either trains or serves.
    fn check_ranks(&self) -> Result<(), InputError> {
        let mut next = 0;
        let in_order = |role: &Role| {
            let follows = role.ranks.is_range() && role.ranks.first() == next;
            next += role.ranks.count();
            follows
        };
        if !self.roles.iter().all(in_order) {
            let mut taken = vec![false; self.ranks() as usize];
            for role in &self.roles {
                let free =
                    |rank: u32| taken.get_mut(rank as usize).is_some_and(|taken| !std::mem::replace(taken, true));
                if !role.ranks.iter().all(free) {
                    return Err(fault(role, "ranks", "roles must cover ranks 0, 1, 2 … without gap or overlap"));
                }
            }
        }
        let both = |role: &&Role| {
            let (first, last) = (role.ranks.first(), role.ranks.rank(role.ranks.count() - 1));
            first < self.workers() && last >= self.workers()
        };
        if self.ranks() < self.workers() {
            return Err(InputError::new(
                "program",
                "workers",
                "roles must hold exactly the ranks of the mesh, and dedicated servers behind them",
            ));
        }
        if let Some(role) =
            self.roles.iter().find(|role| role.ranks.count() == 0).or_else(|| self.roles.iter().find(both))
        {
            return Err(fault(role, "ranks", "a role needs ranks, all of which train or none"));
        }
        Ok(())
    }

    /// Checks that a pipeline's stages take all passes of all micro-batches, do not wait for each other in a cycle, and
    /// add gradients in order.
    fn check_pipeline(&self) -> Result<(), InputError> {
        let orders: Vec<_> = self.roles.iter().filter_map(Role::order).collect();
        let Some(first) = orders.first() else { return Ok(()) };
        let lists: Vec<_> = orders.iter().map(|order| order.steps.clone()).collect();
        let (passes, chunks) = first.passes();
        pipeline::check(&lists, &passes, chunks, first.micro_batches).map(|_| ())
    }

    fn check_role(&self, role: &Role) -> Result<(), InputError> {
        for (id, task) in role.tasks.iter().enumerate() {
            check_order(role, id)?;
            match &task.op {
                Op::Repeat { .. } | Op::Schedule(_) => self.check_bodies(role, id)?,
                Op::Load { samples, into: Some(buffer), .. } => self.check_load(role, &task.name, *samples, *buffer)?,
                Op::Compute { chain, .. } if *chain >= self.chains.len() => {
                    return Err(fault(role, &task.name, "runs a chain that does not exist"));
                }
                Op::Elementwise(of) => self.check_formula(role, task, of)?,
                Op::Squares(of) if of.range.start > of.range.end || self.elements(of.buffer) < of.range.end => {
                    return Err(fault(role, &task.name, "reads elements that its buffer does not have"));
                }
                Op::Exchange(exchange) => self.check_exchange(role, id, exchange)?,
                Op::Copy(copies) => self.check_copies(role, &task.name, copies)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// What is repeated lies within the role and repeats nothing itself.
    fn check_bodies(&self, role: &Role, id: TaskId) -> Result<(), InputError> {
        let task = &role.tasks[id];
        let wrong = |message| Err(fault(role, &task.name, message));
        let length = match &task.op {
            Op::Repeat { count, body, .. } if *count == 0 || *body == 0 || id + body >= role.tasks.len() => {
                return wrong("repeats nothing, or reaches past the end of its role");
            }
            Op::Repeat { body, .. } => *body,
            Op::Schedule(order) if id + order.tasks() >= role.tasks.len() => {
                return wrong("reaches past the end of its role");
            }
            Op::Schedule(order) => order.tasks(),
            _ => return Ok(()),
        };
        let body = &role.tasks[id + 1..=id + length];
        if body.iter().any(|task| matches!(task.op, Op::Repeat { .. } | Op::Schedule(_))) {
            return wrong("bodies do not nest");
        }
        match &task.op {
            Op::Repeat { claimed, .. } if *claimed != self.claims() => {
                wrong("claims batches that are assigned, or the other way round")
            }
            Op::Schedule(order) if order.micro_batches != self.accumulate => {
                wrong("has other micro-batches than the program")
            }
            _ => Ok(()),
        }
    }

    /// A formula changes only elements that its buffers have, and beside the compute stream none that passes use.
    fn check_formula(&self, role: &Role, task: &Task, of: &Elementwise) -> Result<(), InputError> {
        let buffers = of.formula.buffers();
        let short = |buffer: &Buffer| self.elements(*buffer) < of.range.end;
        if of.range.start > of.range.end || buffers.iter().any(short) {
            return Err(fault(role, &task.name, "changes elements that its buffers do not have"));
        }
        let of_passes = |buffer: &Buffer| !matches!(buffer, Buffer::Declared(_));
        if task.stream == Stream::Synchronisation && buffers.iter().any(of_passes) {
            return Err(fault(role, &task.name, "touches what passes use beside the compute stream"));
        }
        Ok(())
    }

    /// Samples that are loaded into a buffer must fit there.
    fn check_load(&self, role: &Role, name: &str, samples: u32, buffer: usize) -> Result<(), InputError> {
        let sample = self.model.sample();
        if self.dtype(Buffer::Declared(buffer)) != sample.dtype {
            return Err(fault(
                role,
                name,
                &format!("loads samples of {} into a buffer of another format", sample.dtype),
            ));
        }
        let needed = u64::from(samples) * sample.elements();
        if self.least_room(role, buffer) < needed {
            return Err(fault(role, name, "loads more samples than its buffer has room for"));
        }
        Ok(())
    }

    /// The fewest elements of a declared buffer that a rank of `role` holds.
    fn least_room(&self, role: &Role, index: usize) -> u64 {
        let all = Buffer::Declared(index);
        let rooted = |exchange: &Exchange| {
            let Exchange { collective, .. } = exchange;
            matches!(collective, Collective::Scatter { .. } | Collective::Gather { .. } | Collective::GatherV { .. })
        };
        // Only after scatters and gathers do ranks hold parts; without them each rank holds the whole.
        if !role.exchanges().any(|(_, exchange)| exchange.buffer == all && rooted(exchange)) {
            return self.elements(all);
        }
        let rooms = role.ranks.iter().map(|rank| self.held(index, rank));
        rooms.map(|room| room.end - room.start).min().unwrap_or(0)
    }

    fn check_copies(&self, role: &Role, name: &str, copies: &ByCoordinate<Copy>) -> Result<(), InputError> {
        let elements = |area| match area {
            Area::Buffer(Buffer::Declared(index)) => self.least_room(role, index),
            Area::Buffer(buffer) => self.elements(buffer),
            Area::Activation(id) | Area::Gradient(id) => match self.model.layers().get(id.index()) {
                Some(node) => node.output.elements() * u64::from(self.samples_in(role, id)),
                None => 0,
            },
        };
        if copies.axis().is_some_and(|axis| self.mesh.size(axis) as usize != copies.values().len()) {
            return Err(fault(role, name, "has other coordinates than the mesh"));
        }
        let areas = (copies.first().from, copies.first().to);
        if areas.0 == areas.1 {
            return Err(fault(role, name, "copies an area to itself"));
        }
        let all = (elements(areas.0), elements(areas.1));
        for copy in copies.values() {
            let ends = copy.extents();
            if (copy.from, copy.to) != areas {
                return Err(fault(role, name, "copies between other areas on other ranks"));
            }
            if ends.0 > all.0 || ends.1 > all.1 {
                return Err(fault(role, name, "copies elements that its areas do not have"));
            }
        }
        Ok(())
    }

    fn check_exchange(&self, role: &Role, id: TaskId, exchange: &Exchange) -> Result<(), InputError> {
        let task = &role.tasks[id];
        if !self.mesh.has_groups(exchange.axes) {
            return Err(fault(role, &task.name, "unequal nodes form no groups along these axes"));
        }
        // What learners deliver on their device needs no server.
        let serves = self.ranks() > self.workers() && !matches!(exchange.collective, Collective::Broadcast { .. });
        if serves && self.group_count(exchange) > 1 {
            let kind = exchange.algorithm.kind_of_servers();
            let message = format!("has {kind}, which serve one group, and not {}: use ring", task.name);
            return Err(InputError::flag("algorithm", exchange.algorithm.to_string(), message));
        }
        if self.ranks() > self.workers() && exchange.buffer == Buffer::Weights {
            let kind = exchange.algorithm.kind_of_servers();
            let message = format!("has {kind}, which have no place for what {} gathers: use ring", task.name);
            return Err(InputError::flag("algorithm", exchange.algorithm.to_string(), message));
        }
        if exchange.range.end + exchange.turns.end() > self.elements(exchange.buffer)
            || exchange.range.start > exchange.range.end
        {
            return Err(fault(role, &task.name, "exchanges elements that its buffer does not have"));
        }
        if let Some((low, high)) = exchange.between {
            let several = exchange.axes.iter().count() != 1 || self.ranks() > self.workers();
            let size = exchange.axes.iter().map(|axis| self.mesh.size(axis)).product::<u32>();
            if several || low >= high || high >= size {
                return Err(fault(role, &task.name, "an exchange of two is between two coordinates of one axis"));
            }
        }
        let shared_out = |other: &Exchange| other.axes == exchange.shared && other.range == exchange.range;
        let unlike = |other: &Exchange| shared_out(other) && other.padded != exchange.padded;
        if !exchange.shared.is_empty() && role.exchanges().any(|(_, other)| unlike(other)) {
            return Err(fault(
                role,
                &task.name,
                "is padded, and the exchange that makes its parts is not, or the reverse",
            ));
        }
        if !matches!(task.stream, Stream::Exchange | Stream::Receive) {
            return Err(fault(role, &task.name, "an exchange belongs on the exchange stream"));
        }
        // MPI's call blocks all else that its process has in flight; NCCL's must have the same order on all ranks.
        let library = exchange.algorithm.library().is_some();
        if library && !alone::is_alone(role, id, exchange) {
            return Err(fault(role, &task.name, "a library's collective runs alone: allow one exchange at a time"));
        }
        self.schedule(exchange, role.ranks.first()).map(|_| ())
    }

    /// All members of a group must run the same exchanges in the same order, and each must compute its collective.
    fn check_exchanges(&self, proofs: &Proofs) -> Result<(), InputError> {
        let mut along: Vec<&Exchange> = Vec::new();
        for (_, exchange) in self.roles.iter().flat_map(Role::exchanges) {
            if !along.iter().any(|other| (other.axes, other.between) == (exchange.axes, exchange.between)) {
                along.push(exchange);
            }
        }
        for exchange in along {
            self.check_groups(exchange, proofs)?;
        }
        Ok(())
    }

    /// Checks the groups along the axes of `exchange`.
    fn check_groups(&self, exchange: &Exchange, proofs: &Proofs) -> Result<(), InputError> {
        let along = |role| -> Vec<&Exchange> {
            let same = |other: &&Exchange| (other.axes, other.between) == (exchange.axes, exchange.between);
            Role::exchanges(role).map(|(_, other)| other).filter(same).collect()
        };
        let of_role: Vec<Vec<&Exchange>> = self.roles.iter().map(along).collect();
        // By group: the first role that has ranks in it.
        let mut first = vec![None; self.group_count(exchange) as usize];
        let mut leaders = Vec::new();
        for (number, role) in self.roles.iter().enumerate() {
            let mut equal_to = number;
            let all = exchange.between.is_none() && role.ranks.first() < self.workers();
            let takes_part = |rank: &u32| all || self.group_of(exchange, *rank).contains(*rank);
            for rank in role.ranks.iter().filter(takes_part) {
                let group = self.group_number(exchange, rank) as usize;
                let leader = *first[group].get_or_insert_with(|| {
                    leaders.push(rank);
                    number
                });
                if leader != equal_to && of_role[leader] != of_role[number] {
                    let reason = format!(
                        "does not meet the exchanges of role {} in their order: deadlock",
                        self.roles[leader].name
                    );
                    return Err(fault(role, "exchanges", &reason));
                }
                equal_to = leader;
            }
        }
        let mut proved = Vec::new();
        for rank in leaders {
            let (role, members) = (self.role_of(rank), self.group_of(exchange, rank));
            let list = &of_role[role];
            let by_nodes = list.iter().find(|exchange| exchange.algorithm.by_nodes()).or(list.first());
            let Some(by_nodes) = by_nodes.filter(|_| members.count() <= PROVED_MEMBERS) else { continue };
            // Parts may differ by an element between groups.
            let shared = list.iter().filter(|exchange| !exchange.shared.is_empty());
            let parts: Vec<u64> = shared.map(|exchange| self.elements_of(exchange, &members)).collect();
            let what = (role, self.nodes_of(by_nodes, &members), parts);
            if !proved.contains(&what) {
                self.prove(list, &members, proofs)?;
                proved.push(what);
            }
        }
        Ok(())
    }

    /// Proves that exchanges among `members` compute their collectives. The lanes of a library only state its cost and
    /// are not proved.
    fn prove(&self, exchanges: &[&Exchange], members: &Members, proofs: &Proofs) -> Result<(), InputError> {
        for exchange in exchanges.iter().filter(|exchange| exchange.algorithm.library().is_none()) {
            let Exchange { collective, algorithm, chunk, padded, .. } = exchange;
            let (group, elements) = (self.nodes_of(exchange, members), self.elements_of(exchange, members));
            let key = (collective.clone(), algorithm.clone(), group, elements, *chunk, *padded);
            proofs.once(key, || {
                let proved = check_schedule(&self.schedule_among(exchange, members)?);
                proved.map(|_| ()).map_err(|fault| {
                    InputError::flag("algorithm", exchange.algorithm.to_string(), format!("does not work: {fault}"))
                })
            })?;
        }
        Ok(())
    }
}

/// A task waits only for earlier tasks and is on the stream for its kind. Without forward references within an iteration
/// there is no cycle.
fn check_order(role: &Role, id: TaskId) -> Result<(), InputError> {
    let task = &role.tasks[id];
    let wrong = |message| Err(fault(role, &task.name, message));
    for after in &task.after {
        if after.task >= role.tasks.len() {
            return wrong("waits for a task that does not exist");
        }
        if after.lag == 0 && after.task >= id {
            return wrong("waits for a later task of the same iteration: it would never start");
        }
    }
    if task.op.input() != task.stream.input().map(|_| task.stream) {
        return wrong("reads, decodes or uploads on another stream than that for it");
    }
    if task.stream == Stream::Synchronisation && !matches!(task.op, Op::Elementwise(_)) {
        return wrong("only elementwise arithmetic runs beside the compute stream");
    }
    Ok(())
}

fn fault(role: &Role, value: &str, message: &str) -> InputError {
    InputError::new(format!("program, role {}", role.name), value, message)
}
