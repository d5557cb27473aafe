//! Finds the processes of the job on this machine, and the processors that each of them may use.

use super::wire::Wire;
use crate::pin::{Pins, Process, allowed};

/// The processes of this machine, as they reported when they joined.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// Number and processors of each, ascending by number.
    processes: Vec<(u32, Vec<usize>)>,
    /// The index of this process among them.
    own: usize,
}

impl Neighbours {
    /// Gathers from all processes; every one calls it.
    pub(super) fn ask(wire: &Wire) -> Neighbours {
        let machine = machine();
        let machines: [Vec<u32>; 2] = [wire.gather(machine as u32), wire.gather((machine >> 32) as u32)];
        let mine = words(&allowed());
        let most = wire.gather(mine.len() as u32).into_iter().max().unwrap_or(0);
        let all: Vec<Vec<u32>> =
            (0..most as usize).map(|word| wire.gather(mine.get(word).copied().unwrap_or(0))).collect();
        let same = |process: &usize| machines.iter().all(|of| of[*process] == of[wire.process() as usize]);
        let of = |process: usize| (process as u32, numbers(all.iter().map(|word| word[process])));
        let processes: Vec<_> = (0..wire.processes() as usize).filter(same).map(of).collect();
        let own = processes.iter().position(|(process, _)| *process == wire.process()).unwrap_or(0);
        Neighbours { processes, own }
    }

    /// The processors of this process's ranks, with rank r in process `hosts[r]` and `threads` threads per rank.
    pub(super) fn pins(&self, hosts: &[u32], threads: usize) -> Pins {
        let ranks = |process: &u32| hosts.iter().filter(|host| *host == process).count();
        let of = |(process, allowed): &(u32, Vec<usize>)| Process { allowed: allowed.clone(), ranks: ranks(process) };
        Pins::beside(&self.processes.iter().map(of).collect::<Vec<_>>(), self.own, threads)
    }
}

/// A number shared by the processes of one machine, containers included: drawn by its kernel at boot.
fn machine() -> u64 {
    let names = ["/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"];
    let name = names.iter().find_map(|name| std::fs::read(name).ok()).unwrap_or_default();
    // FNV-1a.
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A bit mask of these numbers.
fn words(numbers: &[usize]) -> Vec<u32> {
    let mut words = vec![0; numbers.last().map_or(0, |last| last / 32 + 1)];
    numbers.iter().for_each(|number| words[number / 32] |= 1 << (number % 32));
    words
}

fn numbers(words: impl Iterator<Item = u32>) -> Vec<usize> {
    let of_word =
        |(at, word): (usize, u32)| (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 32 * at + bit);
    words.enumerate().flat_map(of_word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_survive_a_message() {
        for mask in [vec![], vec![0], vec![31, 32], vec![3, 64, 200]] {
            assert_eq!(numbers(words(&mask).into_iter()), mask);
        }
        assert_eq!(machine(), machine());
    }
}
