//! Determines what copies between a host's memory and a GPU use, from pinned and from pageable memory.
//!
//! A GPU's copy engine reads and writes pinned memory itself. For pageable memory a core copies to or from a pinned
//! bounce buffer, which writes and reads the memory once more and is no faster than that core.

use super::{Cluster, DeviceId, DeviceKind, Route};
use crate::InputError;

/// The kind of memory on the host's side of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostBuffer {
    /// Locked in place, so that the GPU reaches it.
    Pinned,
    /// Ordinary memory.
    Pageable,
}

impl Cluster {
    /// The links that a copy between a CPU's memory and a GPU crosses, in either direction.
    ///
    /// # Errors
    /// As [`Cluster::route`], and unless exactly one of the two is a CPU.
    pub fn copy(&self, from: DeviceId, to: DeviceId, buffer: HostBuffer) -> Result<Route, InputError> {
        let mut links = self.route(from, to)?.links;
        let [from, to] = [from, to].map(|id| &self.devices[id.0 as usize]);
        let cpu = |device: &super::Device| matches!(device.kind, DeviceKind::Cpu(_));
        let (host, outward) = match (cpu(from), cpu(to)) {
            (true, false) => (from, true),
            (false, true) => (to, false),
            _ => {
                let value = format!("{} to {}", from.name, to.name);
                return Err(InputError::new(
                    &self.name,
                    value,
                    "must be a CPU and a GPU; between others there are routes",
                ));
            }
        };
        let (bounce, write, read) = (self.hosts[host.host.0 as usize].bounce, host.within[1], host.within[2]);
        let through: &[_] = if buffer == HostBuffer::Pageable { &[bounce, write, read] } else { &[] };
        if outward {
            links.splice(0..0, through.iter().copied().chain([read]));
        } else {
            links.push(write);
            links.extend(through);
        }
        Ok(self.crossing(links, from, to))
    }
}
