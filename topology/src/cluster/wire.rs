//! `Wire`: describes a wire between two vertices before its links are created.

use std::sync::Arc;

use super::{Duplex, LinkKind, Protocol, Provenance};
use crate::{Bandwidth, Time};

/// The wire between two vertices.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) kind: LinkKind,
    pub(super) latency: Time,
    pub(super) bandwidth: Bandwidth,
    pub(super) duplex: Duplex,
    pub(super) protocol: Arc<Protocol>,
    pub(super) provenance: Arc<Provenance>,
}
