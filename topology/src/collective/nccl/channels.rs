//! Counts the channels that a call runs on: fewer for small buffers, or the number that was requested.

use super::search::SearchResult;
use super::{Method, NcclMachine, NcclProtocol, Request};
use crate::InputError;

/// Channels of a call (`src/enqueue.cc`: one fewer while the bytes are fewer than channels × threads × threshold).
///
/// # Errors
/// More channels than the version has.
pub(super) fn channels(
    machine: &NcclMachine,
    found: &SearchResult,
    request: &Request,
    (method, protocol): (Method, NcclProtocol),
    bytes: u64,
) -> Result<u32, InputError> {
    if let Some(asked) = request.channels {
        let most = if request.version.minor < 25 { 32 } else { super::request::MOST_CHANNELS };
        if asked > most {
            let message = format!("NCCL {} has at most {most} channels: ask for fewer", request.version);
            return Err(InputError::new("", format!("{asked} channels"), message));
        }
        return Ok(asked);
    }
    if matches!(method, Method::Nvls | Method::NvlsTree) {
        return Ok(found.nvls_run);
    }
    if method == Method::Pairs {
        return Ok(found.run);
    }
    let threads: u64 = if protocol == NcclProtocol::Ll128 { 640 } else { 512 };
    let threshold: u64 = match (method, protocol) {
        (_, NcclProtocol::Simple) => 64,
        (Method::Ring, NcclProtocol::Ll) => 8 * u64::from(machine.ranks),
        _ => 8,
    };
    Ok((bytes / (threads * threshold)).clamp(1, found.run.into()) as u32)
}
