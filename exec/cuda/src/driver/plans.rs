//! Caches plans of cuDNN and cuBLASLt: algorithms chosen within limits when a command is first prepared.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;

use lockstep_exec::device::DeviceError;

use super::status::refused;

/// What libraries may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceLimits {
    /// Most bytes of an algorithm's workspace, unless every algorithm needs more.
    pub workspace: u64,
    /// Whether only deterministic algorithms are allowed.
    pub repeatable: bool,
}

impl Default for WorkspaceLimits {
    /// 256 MiB, and the same bits each time.
    fn default() -> WorkspaceLimits {
        WorkspaceLimits { workspace: 256 << 20, repeatable: true }
    }
}

impl WorkspaceLimits {
    /// No algorithm for `of` is within them.
    pub(super) fn exceeded(self, call: &str, of: &dyn Debug) -> DeviceError {
        refused(call, format!("no algorithm for {of:?} with a workspace of at most {} bytes", self.workspace))
    }
}

/// The plans of a library by what they are for.
#[derive(Debug)]
pub(super) struct Plans<K, P>(HashMap<K, P>);

impl<K: Copy + Debug + Eq + Hash, P> Plans<K, P> {
    pub(super) fn new() -> Plans<K, P> {
        Plans(HashMap::new())
    }

    /// The plan for `key`, which `make` makes if there is none yet.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn prepare(&mut self, key: K, make: impl FnOnce() -> Result<P, DeviceError>) -> Result<&P, DeviceError> {
        Ok(match self.0.entry(key) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert(make()?),
        })
    }

    /// The plan for `key`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn get(&mut self, key: K) -> Result<&mut P, DeviceError> {
        self.0.get_mut(&key).ok_or_else(|| refused(&format!("{key:?}"), "it was not prepared".to_owned()))
    }
}
