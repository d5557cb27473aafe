//! Raises Open MPI's eager limits: a piece over TCP needs no rendezvous.
//!
//! Two processes share one connection. Where both send by rendezvous, the answer to a request to send queues behind the
//! data of the other direction, and the two directions alternate: 1 MiB each way by double trees over 100 Mbit/s takes
//! 127 ms, and 90 ms by eager sends. The receiver may copy an unexpected message once more.

use lockstep_topology::cluster::Stack;

/// Open MPI's names of the limits: of eager messages, and of the data sent with a rendezvous request.
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
