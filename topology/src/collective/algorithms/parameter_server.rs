//! Runs parameter servers: each owns a shard, sums all members' parts of it in member order and sends the sum back.
//!
//! Iandola 2016 §6.1 (one dedicated server, Eq. 3: p·n in and p·n out of it) and its pools of servers. Dedicated
//! servers are the last members; they contribute nothing and their buffer is scratch. Otherwise the first members
//! serve: their own contribution comes first in the sum, then the others' in member order. Two rounds, whatever the
//! number of members.

use super::prelude::*;
use super::trees::{TreePosition, Trees, Ways};

pub(super) static ENTRY: Entry = Entry {
    name: "parameter-server",
    parameters: &[
        Parameter::Count { what: "the number of servers", example: 1, most: u32::MAX, because: "" },
        Parameter::Flag { word: "dedicated" },
    ],
    help: "servers own shards, sum them and send them back",
    serves: |collective| *collective == Collective::AllReduce,
    lanes: |call| {
        let (members, dedicated) = (call.members(), call.algorithm.servers());
        // A single leader exchanges nothing, whatever number of servers there would be among several.
        let servers = if call.nested && members == 1 { 1 } else { call.algorithm.count(0) };
        let most = members - u32::from(dedicated > 0);
        if servers > most {
            let workers = if dedicated > 0 { ", one of which must be a worker" } else { "" };
            let cure = if most == 0 { "no dedicated server".to_owned() } else { format!("at most {most}") };
            return Err(call.refuse(format!(
                "{servers} servers among {members} members{workers}: use {cure} and at least 1, or more members"
            )));
        }
        let contributors = members - dedicated;
        let place = move |member, tree| {
            let server = if dedicated > 0 { contributors + tree } else { tree };
            let star = Star { centre: member == server, server, contributors, dedicated: dedicated > 0 };
            (star.centre || member < contributors).then_some(star)
        };
        Ok(Box::new(Trees {
            members,
            trees: servers,
            depth: u32::from(members > 1),
            is_pipelined: false,
            in_turn: 0,
            ways: Ways::of(call.collective),
            per_flow: u32::MAX,
            place,
        }))
    },
    servers: |algorithm| if algorithm.flag(1) { algorithm.count(0) } else { 0 },
    ..Entry::PLAIN
};

/// A member's position in the star around one server.
#[derive(Debug)]
struct Star {
    /// Whether this member is the server.
    centre: bool,
    server: u32,
    /// Members that contribute: all, or those before the dedicated servers.
    contributors: u32,
    dedicated: bool,
}

impl TreePosition for Star {
    fn parent(&self) -> Option<u32> {
        (!self.centre).then_some(self.server)
    }

    fn children(&self) -> u32 {
        match (self.centre, self.dedicated) {
            (false, _) => 0,
            (true, true) => self.contributors,
            (true, false) => self.contributors - 1,
        }
    }

    /// Workers in member order, the server itself left out.
    fn child(&self, index: u32) -> u32 {
        if self.dedicated || index < self.server { index } else { index + 1 }
    }

    /// All subtrees are equal, and get the sum in member order.
    fn served(&self, index: u32) -> u32 {
        self.child(index)
    }

    fn contributes(&self) -> bool {
        !(self.dedicated && self.centre)
    }
}
