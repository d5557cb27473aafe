//! Waits for threads to let go of the numbers of a set that are to be changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::number::Number;

/// The longest wait for threads that have made their last sample and not yet let go of the set.
const LET_GO: Duration = Duration::from_secs(10);

/// The values of a set, to be changed. Threads that prepare batches have made all that were wanted of them, and let go
/// of them within microseconds: no copy is made for their sake.
pub(super) fn changed<T: Number>(values: &mut Arc<Vec<T>>) -> &mut Vec<T> {
    let begun = Instant::now();
    while Arc::get_mut(values).is_none() && begun.elapsed() < LET_GO {
        std::thread::yield_now();
    }
    Arc::make_mut(values)
}
