//! Finds how many hosts of a cluster have places for a number of ranks, for errors that say what to write.

use super::{Placement, PlacementRule};
use crate::cluster::{Cluster, order_parts};

/// The order of the cluster in `asked` with as many hosts as `ranks` ranks need, as in `dgx-h100:8`; `None` where its file
/// cannot have that many, as with several kinds of hosts.
///
/// ```
/// # use lockstep_topology::placement::with_room;
/// assert_eq!(with_room("dgx-h100", 64), Some("dgx-h100:8".to_owned()));
/// assert_eq!(with_room("dgx-a100:2@infiniband-hdr", 17), Some("dgx-a100:3@infiniband-hdr".to_owned()));
/// ```
pub fn with_room(asked: &str, ranks: u32) -> Option<String> {
    let (name, network) = order_parts(asked)?;
    let of = |hosts: u32| format!("{name}:{hosts}{network}");
    let fits = |hosts: u32, ranks: u32| {
        let cluster = Cluster::load(&of(hosts)).ok()?;
        Placement::new(&cluster, ranks, &PlacementRule::Pack).ok()
    };
    // Places of a host: twice as many, until they do not fit.
    let each = (0..12).map(|power| 1u32 << power).take_while(|ranks| fits(1, *ranks).is_some()).last()?;
    let hosts = ranks.div_ceil(each);
    fits(hosts, ranks).map(|_| of(hosts))
}
