//! `Hosting`: assigns each rank a process.
//!
//! Ranks of one process pass messages through its memory, others through MPI; so a process must be on one host.

use super::{Placement, Rank};
use crate::InputError;
use crate::cluster::HostId;
use std::collections::BTreeMap;

/// The process of each rank where consecutive ranks share one, equally many in each. Where they do not divide, but the
/// workers divide among the other processes, each of the `servers`, which are the last ranks, has a process of its own.
///
/// # Errors
/// Why it does not divide, with a cure.
///
/// ```
/// # use lockstep_topology::blocks;
/// assert_eq!(blocks(6, 0, 2).unwrap(), [0, 0, 0, 1, 1, 1]);
/// assert_eq!(blocks(5, 1, 3).unwrap(), [0, 0, 1, 1, 2]);
/// assert!(blocks(4, 0, 3).unwrap_err().contains("mpirun -n 4"));
/// ```
pub fn blocks(ranks: u32, servers: u32, processes: u32) -> Result<Vec<u32>, String> {
    if processes > 0 && ranks.is_multiple_of(processes) {
        let each = ranks / processes;
        return Ok((0..ranks).map(|rank| rank / each).collect());
    }
    let (workers, others) = (ranks - servers, processes.saturating_sub(servers));
    if servers == 0 || others == 0 || !workers.is_multiple_of(others) {
        return Err(format!(
            "mpirun started {processes} processes, among which {ranks} ranks do not divide: use mpirun -n {ranks}, or a \
             number that divides {ranks}"
        ));
    }
    let each = workers / others;
    Ok((0..workers).map(|rank| rank / each).chain(others..processes).collect())
}

/// How ranks are grouped into processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostingRule {
    /// A process for each rank.
    PerRank,
    /// A process for each host, with a thread for each of its ranks.
    PerHost,
    /// One process for all.
    Single,
    /// The process of each rank.
    Listed(Vec<u32>),
}

/// Rank → process, many to one; processes count from 0 in the order of their first ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosting {
    process: Vec<u32>,
    ranks: Vec<Vec<Rank>>,
}

impl Hosting {
    /// The processes of the ranks of `placement`.
    ///
    /// # Errors
    /// When ranks of one process are on different hosts, or a list does not name a process for each rank.
    ///
    /// ```
    /// # use lockstep_topology::{Cluster, Hosting, HostingRule, Placement, PlacementRule, Rank};
    /// let cluster = Cluster::load("ethernet-4").unwrap();
    /// let placement = Placement::new(&cluster, 8, &PlacementRule::Scatter).unwrap();
    /// let hosting = Hosting::new(&placement, &HostingRule::PerHost).unwrap();
    /// assert_eq!(hosting.ranks(1), [Rank(1), Rank(5)]);
    /// ```
    pub fn new(placement: &Placement, rule: &HostingRule) -> Result<Hosting, InputError> {
        let key = |rank: Rank| match rule {
            HostingRule::PerRank => rank.0,
            HostingRule::PerHost => placement.host(rank).0,
            HostingRule::Single => 0,
            HostingRule::Listed(list) => list[rank.0 as usize],
        };
        if let HostingRule::Listed(list) = rule
            && list.len() != placement.ranks() as usize
        {
            let message = format!("there are {} ranks; list a process for each", placement.ranks());
            return Err(InputError::new("hosting", format!("{} processes listed", list.len()), message));
        }
        let mut number: BTreeMap<u32, u32> = BTreeMap::new();
        let mut hosting = Hosting { process: Vec::new(), ranks: Vec::new() };
        for rank in placement.all() {
            let next = number.len() as u32;
            let process = *number.entry(key(rank)).or_insert(next);
            if process == next && hosting.ranks.len() == next as usize {
                hosting.ranks.push(Vec::new());
            }
            let first = hosting.ranks[process as usize].first().copied().unwrap_or(rank);
            check(placement, process, first, rank)?;
            hosting.ranks[process as usize].push(rank);
            hosting.process.push(process);
        }
        Ok(hosting)
    }

    /// How many processes there are.
    pub fn processes(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The process of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn process(&self, rank: Rank) -> u32 {
        self.process[rank.0 as usize]
    }

    /// The ranks of a process, ascending.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn ranks(&self, process: u32) -> &[Rank] {
        &self.ranks[process as usize]
    }

    /// Whether two ranks share an address space.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn share(&self, one: Rank, other: Rank) -> bool {
        self.process(one) == self.process(other)
    }
}

/// Refuses a process over two hosts.
fn check(placement: &Placement, process: u32, first: Rank, rank: Rank) -> Result<(), InputError> {
    let (HostId(one), HostId(other)) = (placement.host(first), placement.host(rank));
    if one == other {
        return Ok(());
    }
    let value = format!("process {process}");
    let message = format!(
        "rank {} is on host {one} and rank {} on host {other}; use a process per host or per rank",
        first.0, rank.0
    );
    Err(InputError::new("hosting", value, message))
}
