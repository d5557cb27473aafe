//! Lets Open MPI send a piece over TCP without a handshake.
//!
//! Two processes share one connection. Where both send, the answer to a request to send waits behind the data of the
//! other direction, and the two directions take turns: 1 MiB each way by double trees over 100 Mbit/s takes 127 ms,
//! and 90 ms without handshakes. The receiver may hold a message that it has not asked for yet once more.

use lockstep_topology::cluster::Stack;

/// The limits, by the names that Open MPI reads: of messages without a handshake, and of what goes with a request.
const LIMITS: [&str; 2] = ["OMPI_MCA_btl_tcp_eager_limit", "OMPI_MCA_btl_tcp_rndv_eager_limit"];

/// Raises the limits for this process to those of [`Stack::Tcp`], except where the environment sets them. Other
/// libraries do not read them.
///
/// # Safety
/// No other thread reads the environment through C meanwhile.
pub(super) unsafe fn raise_limits() {
    for limit in LIMITS {
        if std::env::var_os(limit).is_none() {
            // SAFETY: as promised; Rust's own readers of the environment wait for each other.
            unsafe { std::env::set_var(limit, Stack::Tcp.defaults().eager.0.to_string()) };
        }
    }
}
