//! Tests channels on nodes: which rails bytes take between nodes, and how many leave a node.

use super::super::{Action, Algorithm, Collective, Group, Schedule, check};

/// Elements that each member sends to other nodes, and whether all of them stay on their rail.
fn outward(schedule: &Schedule, size: u32) -> (Vec<u64>, bool) {
    let (mut sent, mut aligned) = (vec![0; schedule.members() as usize], true);
    for member in 0..schedule.members() {
        for step in (0..schedule.lanes()).flat_map(|index| schedule.lane(member, index)) {
            if step.action == Action::Send && step.peer / size != member / size {
                sent[member as usize] += step.elements();
                aligned &= step.peer % size == member % size;
            }
        }
    }
    (sent, aligned)
}

fn on_nodes(algorithm: &str, nodes: u32, size: u32, elements: u64, chunk: u64) -> Schedule {
    let algorithm: Algorithm = algorithm.parse().expect("a known algorithm");
    let group = Group::nodes(&vec![size; nodes as usize]);
    Schedule::new(&Collective::AllReduce, &algorithm, &group, elements, chunk).expect("serves")
}

/// As many channels as members of a node: every member sends 2n(p − 1)/p through its own NIC, shared out evenly.
#[test]
fn rings_use_all_rails_equally_and_stay_on_them() {
    for (nodes, size) in [(2, 4), (4, 2), (4, 8), (6, 3)] {
        let p = u64::from(nodes * size);
        let n = p * u64::from(size) * 10;
        let schedule = on_nodes(&format!("rings:{size}"), nodes, size, n, 0);
        let (sent, aligned) = outward(&schedule, size);
        assert!(aligned, "{nodes} nodes of {size}");
        assert!(sent.iter().all(|own| *own == 2 * n * (p - 1) / p / u64::from(size)), "{sent:?}");
        assert!(check(&schedule).is_ok());
    }
    // An odd number of nodes changes rails once round.
    assert!(!outward(&on_nodes("rings:4", 3, 4, 480, 0), 4).1);
}

/// A node sends n on two nodes and 2n at most on more, whatever its size; rings 2n(p − 1)/p.
#[test]
fn double_trees_send_the_buffer_once_on_two_nodes_and_twice_on_more() {
    for (nodes, size, times) in [(2u32, 4u32, 1), (4, 4, 2), (8, 2, 2), (7, 3, 2), (16, 8, 2)] {
        let n = u64::from(size) * 2 * 30;
        let schedule = on_nodes(&format!("double-tree:{size}"), nodes, size, n, 5);
        let (sent, aligned) = outward(&schedule, size);
        assert!(aligned);
        let of_nodes: Vec<u64> = sent.chunks(size as usize).map(|node| node.iter().sum()).collect();
        assert_eq!(of_nodes.iter().copied().max(), Some(times * n), "{nodes} nodes of {size}: {of_nodes:?}");
        assert!(check(&schedule).is_ok());
    }
}

#[test]
fn more_channels_than_nccl_has_are_refused_with_the_most() {
    for name in ["rings:65", "double-tree:65"] {
        assert!(name.parse::<Algorithm>().unwrap_err().to_string().contains("at most 64"));
    }
    let empty = Group::nodes(&[2, 0, 2]);
    let algorithm: Algorithm = "double-tree:2".parse().unwrap();
    let refusal = Schedule::new(&Collective::AllReduce, &algorithm, &empty, 8, 0).unwrap_err();
    assert!(refusal.to_string().contains("every node needs a member"), "{refusal}");
}
