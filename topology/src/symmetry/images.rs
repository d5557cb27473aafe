//! `Images`: finds how links and devices are permuted when ranks are, by following the routes of messages.
//!
//! Where ranks are permuted, the n-th link of the route between two ranks takes the place of the n-th link of the route
//! between their images. If that is one-to-one over all routes that are used, and links that take each other's place
//! are equal, then what happens on the one happens on the other. How switches are wired, and how routes are chosen,
//! does not matter.

use super::permutations::Permutations;
use crate::cluster::{Cluster, Device, DeviceId, DeviceKind, Link, LinkId, Route};
use crate::{Hosting, Placement, Rank};

/// The representative of each link and device, and the number of images that use it at once.
#[derive(Debug, Clone)]
pub(super) struct Images {
    /// By link: its representative, and the images of a use that it carries; `None` for one that no route takes.
    links: Vec<Option<(LinkId, u32)>>,
    /// The same by device, of those that have ranks.
    devices: Vec<Option<(DeviceId, u32)>>,
}

impl Images {
    /// How the links move with the ranks under `group`, whose representatives send along `pairs` and, where they are
    /// `fed`, get their samples from the first CPU of their hosts.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn of(
        group: Permutations,
        cluster: &Cluster,
        (placement, hosting): (&Placement, &Hosting),
        (pairs, fed): (&[(u32, u32)], bool),
    ) -> Result<Images, &'static str> {
        let ranks = placement.ranks();
        let (unit, order) = (group.unit(ranks), group.order(ranks));
        let device = |rank: u32| placement.device(Rank(rank));
        let route = |pair: &(u32, u32), to: u32| {
            let [from, into] = [pair.0, pair.1].map(|rank| group.image(ranks, to, rank));
            if hosting.share(Rank(from), Rank(into)) != hosting.share(Rank(pair.0), Rank(pair.1)) {
                return None;
            }
            cluster.route(device(from), device(into)).ok()
        };
        let feeder = |rank: u32| cluster.hosts()[placement.host(Rank(rank)).0 as usize].devices[0];
        let feeds = |rank: u32, to: u32| {
            let rank = group.image(ranks, to, rank);
            cluster.route(feeder(rank), device(rank)).ok()
        };
        // A CPU feeds its own ranks without a link.
        let fed: Vec<u32> = (0..unit).filter(|rank| fed && feeder(*rank) != device(*rank)).collect();
        let of_pairs = pairs.iter().map(|pair| (0..order).map(|to| route(pair, to)).collect());
        let of_feeds = fed.iter().map(|rank| (0..order).map(|to| feeds(*rank, to)).collect());
        let links = link_orbits(group, ranks, cluster, of_pairs.chain(of_feeds))?;
        let feeder: Option<&dyn Fn(u32) -> DeviceId> = if fed.is_empty() { None } else { Some(&feeder) };
        let devices = device_orbits(group, cluster, placement, feeder)?;
        let images = Images {
            links: links.representatives(order, LinkId).ok_or("links have unequal numbers of images")?,
            devices: devices.representatives(order, DeviceId).ok_or("devices have unequal numbers of images")?,
        };
        if !images.keep_wires(cluster) {
            return Err("links of one wire stand for links of several");
        }
        let serves = pairs.iter().filter_map(|pair| route(pair, 0)).all(|route| images.serves(cluster, &route));
        // Samples from a CPU do not queue at a port.
        let crosses_once = |rank: &u32| feeds(*rank, 0).is_some_and(|route| images.crosses_once(cluster, &route));
        if serves && fed.iter().all(crosses_once) {
            Ok(images)
        } else {
            Err("a route crosses two images of one wire, or shares its port with them")
        }
    }

    /// Whether links of one wire, like both directions of a half-duplex one, have representatives on one wire that
    /// carry as much.
    fn keep_wires(&self, cluster: &Cluster) -> bool {
        let mut of_wire = vec![None; cluster.wires() as usize];
        let mut known = (0..).zip(&self.links).filter_map(|(link, image)| image.map(|image| (LinkId(link), image)));
        known.all(|(link, (image, uses))| {
            let found = (cluster.link(image).wire, uses);
            *of_wire[cluster.link(link).wire.0 as usize].get_or_insert(found) == found
        })
    }

    /// Whether a route crosses no two images of one wire, and has its ports for itself.
    fn serves(&self, cluster: &Cluster, route: &Route) -> bool {
        let ports = [route.transport.sender, route.transport.receiver];
        self.crosses_once(cluster, route) && ports.iter().all(|port| self.link(*port).1 == 1)
    }

    /// Whether a route crosses no two images of one wire.
    fn crosses_once(&self, cluster: &Cluster, route: &Route) -> bool {
        let mut wires: Vec<u32> = route.links.iter().map(|id| cluster.link(*id).wire.0).collect();
        wires.sort_unstable();
        wires.dedup();
        let mut images: Vec<u32> = route.links.iter().map(|id| cluster.link(self.link(*id).0).wire.0).collect();
        images.sort_unstable();
        images.dedup();
        wires.len() == images.len()
    }

    /// Whether some route takes a link.
    pub(super) fn knows(&self, id: LinkId) -> bool {
        self.links[id.0 as usize].is_some()
    }

    /// The representative of a link, and how many images of a use it carries.
    pub(super) fn link(&self, id: LinkId) -> (LinkId, u32) {
        self.links[id.0 as usize].unwrap_or((id, 1))
    }

    /// The representative of a device, and how many images of a use it has.
    pub(super) fn device(&self, id: DeviceId) -> (DeviceId, u32) {
        self.devices[id.0 as usize].unwrap_or((id, 1))
    }
}

/// The links that take each other's place, where each of `routes` is a route and its images under all permutations.
///
/// # Errors
/// Routes that differ, or that meet where their images do not.
fn link_orbits(
    group: Permutations,
    ranks: u32,
    cluster: &Cluster,
    routes: impl Iterator<Item = Option<Vec<Route>>>,
) -> Result<Orbits, &'static str> {
    let unit = group.unit(ranks);
    let mut links = Orbits::new(cluster.links().len());
    let wires = cluster.wires() as usize;
    let maps = |generator| (generator, [OneToOne::new(cluster.links().len()), OneToOne::new(wires)]);
    let mut moves: Vec<(u32, [OneToOne; 2])> = group.generators(ranks).into_iter().map(maps).collect();
    for all in routes {
        let all = all.ok_or("processes do not move with the ranks")?;
        for other in &all[1..] {
            if !alike(cluster, &all[0], other) {
                return Err("routes of ranks that are equal otherwise differ");
            }
            all[0].links.iter().zip(&other.links).for_each(|(one, other)| links.join(one.0, other.0));
        }
        for (generator, [of_links, of_wires]) in &mut moves {
            for (to, from) in (0..).zip(&all) {
                let image = &all[(group.image(ranks, *generator, to * unit) / unit) as usize];
                let moved = |(one, other): (&LinkId, &LinkId)| {
                    let wire = |id: LinkId| cluster.link(id).wire.0;
                    of_links.pair(one.0, other.0) && of_wires.pair(wire(*one), wire(*other))
                };
                if !from.links.iter().zip(&image.links).all(moved) {
                    return Err("routes of ranks that are equal otherwise meet on other links");
                }
            }
        }
    }
    Ok(links)
}

/// The devices of ranks that take each other's place, and, if ranks are fed, those of their `feeder`s.
///
/// # Errors
/// Hosts or devices that do not move with the ranks, or differ.
fn device_orbits(
    group: Permutations,
    cluster: &Cluster,
    placement: &Placement,
    feeder: Option<&dyn Fn(u32) -> DeviceId>,
) -> Result<Orbits, &'static str> {
    let ranks = placement.ranks();
    let mut devices = Orbits::new(cluster.devices().len());
    for generator in group.generators(ranks) {
        let (mut of_devices, mut of_hosts) =
            (OneToOne::new(cluster.devices().len()), OneToOne::new(cluster.hosts().len()));
        for rank in 0..ranks {
            let image = group.image(ranks, generator, rank);
            let host = |rank: u32| placement.host(Rank(rank)).0;
            let [one, other] = [rank, image].map(|rank| placement.device(Rank(rank)));
            if !of_devices.pair(one.0, other.0) || !of_hosts.pair(host(rank), host(image)) {
                return Err("hosts do not move with the ranks");
            }
            if !same_kind(&cluster.devices()[one.0 as usize], &cluster.devices()[other.0 as usize]) {
                return Err("ranks differ in their devices");
            }
            devices.join(one.0, other.0);
            if let Some(feeder) = feeder {
                devices.join(feeder(rank).0, feeder(image).0);
            }
        }
    }
    Ok(devices)
}

/// Whether messages behave equally on two routes.
fn alike(cluster: &Cluster, one: &Route, other: &Route) -> bool {
    let what = |link: &Link| {
        let half = link.reverse != link.id && cluster.link(link.reverse).wire == link.wire;
        (link.kind, link.latency, link.bandwidth.bytes_per_s().to_bits(), link.sharing, half)
    };
    let same = |(one, other): (&LinkId, &LinkId)| {
        let (one, other) = (cluster.link(*one), cluster.link(*other));
        what(one) == what(other)
            && (std::sync::Arc::ptr_eq(&one.protocol, &other.protocol) || one.protocol == other.protocol)
    };
    let rate = |route: &Route| (route.bandwidth.bytes_per_s().to_bits(), route.transport.rate.bytes_per_s().to_bits());
    one.links.len() == other.links.len()
        && one.latency == other.latency
        && rate(one) == rate(other)
        && one.links.iter().zip(&other.links).all(same)
}

fn same_kind(one: &Device, other: &Device) -> bool {
    match (&one.kind, &other.kind) {
        (DeviceKind::Gpu(a), DeviceKind::Gpu(b)) if std::sync::Arc::ptr_eq(a, b) => true,
        (a, b) => a == b,
    }
}

/// A one-to-one mapping of numbers.
struct OneToOne {
    to: Vec<u32>,
    from: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl OneToOne {
    fn new(count: usize) -> OneToOne {
        OneToOne { to: vec![NOWHERE; count], from: vec![NOWHERE; count] }
    }

    /// Maps `one` to `other`; false where another number is mapped to it.
    fn pair(&mut self, one: u32, other: u32) -> bool {
        let (to, from) = (&mut self.to[one as usize], &mut self.from[other as usize]);
        if *to == NOWHERE && *from == NOWHERE {
            (*to, *from) = (other, one);
        }
        *to == other && *from == one
    }
}

/// Sets of numbers, joined step by step.
struct Orbits {
    parent: Vec<u32>,
    used: Vec<bool>,
}

impl Orbits {
    fn new(count: usize) -> Orbits {
        Orbits { parent: (0..count as u32).collect(), used: vec![false; count] }
    }

    fn root(&mut self, of: u32) -> u32 {
        let mut at = of;
        while self.parent[at as usize] != at {
            let above = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = above;
            at = above;
        }
        at
    }

    /// The smaller root becomes that of both.
    fn join(&mut self, one: u32, other: u32) {
        let (a, b) = (self.root(one), self.root(other));
        self.parent[a.max(b) as usize] = a.min(b);
        (self.used[one as usize], self.used[other as usize]) = (true, true);
    }

    /// By number: the least of its set, and how often each of the set is counted where a set is counted `order` times;
    /// `None` where that is no whole number.
    fn representatives<T>(mut self, order: u32, of: impl Fn(u32) -> T) -> Option<Vec<Option<(T, u32)>>> {
        let roots: Vec<u32> = (0..self.parent.len() as u32).map(|number| self.root(number)).collect();
        let mut sizes = vec![0u32; roots.len()];
        let used = |number: usize| self.used[number];
        (0..roots.len()).filter(|number| used(*number)).for_each(|number| sizes[roots[number] as usize] += 1);
        let each = |number: usize| match used(number) {
            true => {
                let size = sizes[roots[number] as usize];
                order.is_multiple_of(size).then(|| Some((of(roots[number]), order / size)))
            }
            false => Some(None),
        };
        (0..roots.len()).map(each).collect()
    }
}
