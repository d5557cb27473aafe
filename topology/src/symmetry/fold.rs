//! `Fold`: combines the permutations that an algorithm, a cluster, a placement and a hosting have in common.
//!
//! The first [`Fold::representatives`] ranks represent all. A wire that k of their images share is k times as crowded
//! as its representatives show; [`Fold::link`] returns that number.

use std::sync::Arc;

use super::images::Images;
use super::levels::Levels;
use super::permutations::Permutations;
use crate::cluster::{Cluster, Device, DeviceId, LinkId};
use crate::{Hosting, Placement, Rank};

/// A common group of permutations of the ranks of a job.
#[derive(Debug, Clone)]
pub struct Fold {
    ranks: u32,
    group: Permutations,
    places: Motion,
}

/// How links and devices move with the ranks.
#[derive(Debug, Clone)]
enum Motion {
    /// As blocks of the cluster.
    Levels(Levels),
    /// As the routes of messages.
    Images(Arc<Images>),
}

impl Fold {
    /// The permutations of `group`, a group of permutations of all ranks, that are symmetries of the ranks' placement.
    ///
    /// # Errors
    /// Only the identity is left: the text says why.
    pub fn new(
        group: Permutations,
        cluster: &Cluster,
        placement: &Placement,
        hosting: &Hosting,
    ) -> Result<Fold, &'static str> {
        if group == Permutations::Identity {
            return Err("the algorithm treats members unlike, or cuts the buffer into unequal parts");
        }
        let levels = Levels::of(cluster, placement);
        if levels.sizes().is_empty() {
            return Err("ranks differ in their devices or in their places in the network");
        }
        let ranks = placement.ranks();
        let mut group = levels.allowed(group);
        // Processes are rarely divided other than by rank or host; where they are, whole ones must move.
        while group != Permutations::Identity && !keeps(group, ranks, hosting) {
            group = levels.allowed(group.of_blocks(2).common(group, ranks));
        }
        if group == Permutations::Identity {
            return Err("the algorithm and the network have no symmetry in common");
        }
        Ok(Fold { ranks, group, places: Motion::Levels(levels) })
    }

    /// `group` itself, if the routes by which its representatives send along `pairs` move with the ranks; where ranks
    /// are `fed` with samples by their hosts' first CPUs, those routes too.
    ///
    /// # Errors
    /// The text says why they do not.
    pub fn along_routes(
        group: Permutations,
        cluster: &Cluster,
        (placement, hosting): (&Placement, &Hosting),
        pairs: &[(u32, u32)],
        fed: bool,
    ) -> Result<Fold, &'static str> {
        let images = Images::of(group, cluster, (placement, hosting), (pairs, fed))?;
        Ok(Fold { ranks: placement.ranks(), group, places: Motion::Images(Arc::new(images)) })
    }

    /// The same with blocks larger by the least possible factor, if that leaves any permutation.
    pub fn coarser(&self) -> Option<Fold> {
        let Motion::Levels(levels) = &self.places else { return None };
        let (unit, order) = (self.representatives(), self.group.order(self.ranks));
        let factor = (2..order).find(|factor| order.is_multiple_of(*factor))?;
        let group = levels.allowed(self.group.of_blocks(factor));
        let smaller = group.unit(self.ranks) > unit && group != Permutations::Identity;
        smaller.then(|| Fold { group, ..self.clone() })
    }

    /// The permutations.
    #[inline]
    pub fn group(&self) -> Permutations {
        self.group
    }

    /// All ranks.
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of ranks, the first ones, that hold one of each orbit.
    #[inline]
    pub fn representatives(&self) -> u32 {
        self.group.unit(self.ranks)
    }

    /// The representative of a rank.
    #[inline]
    pub fn representative(&self, rank: u32) -> u32 {
        rank % self.representatives()
    }

    /// The rank that is to the representative of `rank` what `other` is to `rank`.
    #[inline]
    pub fn seen_from(&self, rank: u32, other: u32) -> u32 {
        self.group.back(self.ranks, rank / self.representatives(), other)
    }

    /// The representative of a link, and how many images of each representative's use it carries.
    pub fn link(&self, cluster: &Cluster, id: LinkId) -> (LinkId, u32) {
        let unit = self.representatives();
        match &self.places {
            Motion::Levels(levels) => {
                let (image, size) = levels.link(cluster, id, unit);
                (image, size.max(unit) / unit)
            }
            Motion::Images(images) => images.link(id),
        }
    }

    /// Whether the images of a link are known.
    pub fn knows(&self, id: LinkId) -> bool {
        if let Motion::Images(images) = &self.places { images.knows(id) } else { true }
    }

    /// The representative of a device, and how many images of each representative's use it carries.
    pub fn device(&self, cluster: &Cluster, device: &Device) -> (DeviceId, u32) {
        use crate::cluster::VertexKind;
        let levels = match &self.places {
            Motion::Levels(levels) => levels,
            Motion::Images(images) => return images.device(device.id),
        };
        let unit = self.representatives();
        let image = levels.canonical(device.vertex, unit);
        let crowd = levels.block(device.vertex).max(unit) / unit;
        match cluster.vertex(image).kind {
            VertexKind::Cpu(id) | VertexKind::Gpu(id) => (id, crowd),
            _ => (device.id, crowd),
        }
    }
}

/// Whether the generators of a group map processes to processes.
fn keeps(group: Permutations, ranks: u32, hosting: &Hosting) -> bool {
    if hosting.processes() == ranks || hosting.processes() == 1 {
        return true;
    }
    group.generators(ranks).into_iter().all(|to| {
        let mut image = vec![u32::MAX; hosting.processes() as usize];
        (0..ranks).all(|rank| {
            let there = hosting.process(Rank(group.image(ranks, to, rank)));
            let known = &mut image[hosting.process(Rank(rank)) as usize];
            let fits = *known == u32::MAX || *known == there;
            *known = there;
            fits
        })
    })
}
