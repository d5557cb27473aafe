//! Aligns the clocks of several processes with rank 0's by ping-pong before and after a run (Cristian 1989).

use std::time::Instant;

use lockstep_topology::{Rank, Time};

use crate::transport::{Transport, TransportError, control};

const PING: u32 = 3;
const PONG: u32 = 4;
const OFFSET: u32 = 5;
const ROUNDS: u32 = 40;

/// The offset of a rank's clock from rank 0's, with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offset {
    /// To be added to the rank's clock, in nanoseconds.
    nanos: i64,
    /// Half the fastest round trip, in nanoseconds: the uncertainty of the offset.
    within: u64,
}

/// Measures the offset of this rank's clock; every rank calls it at the same point.
pub(crate) fn offset(end: &mut dyn Transport, clock: Instant) -> Result<Offset, TransportError> {
    let now = || clock.elapsed().as_nanos() as u64;
    if end.rank().0 > 0 {
        for _ in 0..ROUNDS {
            control::receive(end, Rank(0), PING)?;
            control::send(end, Rank(0), PONG, now())?;
        }
        let nanos = control::receive(end, Rank(0), OFFSET)? as i64;
        let within = control::receive(end, Rank(0), OFFSET)?;
        return Ok(Offset { nanos, within });
    }
    for rank in 1..end.ranks() {
        let mut best = Offset { nanos: 0, within: u64::MAX };
        for _ in 0..ROUNDS {
            let sent = now();
            control::send(end, Rank(rank), PING, 0)?;
            let theirs = control::receive(end, Rank(rank), PONG)?;
            let got = now();
            // The other clock was read halfway, give or take half the round trip.
            let within = (got - sent) / 2;
            if within < best.within {
                best = Offset { nanos: (sent + within) as i64 - theirs as i64, within };
            }
        }
        control::send(end, Rank(rank), OFFSET, best.nanos as u64)?;
        control::send(end, Rank(rank), OFFSET, best.within)?;
    }
    Ok(Offset::default())
}

/// Moves times onto rank 0's clock; returns the residual in seconds: the difference of the two offsets plus their
/// uncertainty.
pub(crate) fn align<'a>(times: impl Iterator<Item = &'a mut Time>, before: Offset, after: Offset) -> f64 {
    let shift = (before.nanos + after.nanos) / 2;
    for time in times {
        *time = Time((time.0 as i64).saturating_add(shift.saturating_mul(1_000)).max(0) as u64);
    }
    let drift = before.nanos.abs_diff(after.nanos) / 2;
    (drift + before.within.max(after.within)) as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::memory;
    use std::time::Duration;

    #[test]
    fn a_late_clock_is_found() {
        let zero = Instant::now();
        // Rank 1's clock starts 50 ms later, so it shows 50 ms less.
        let clocks = vec![zero, zero + Duration::from_millis(50)];
        std::thread::sleep(Duration::from_millis(60));
        let offsets = memory::run(clocks, 0, |end, clock| offset(end, *clock)).unwrap();
        let error = offsets[1].nanos.abs_diff(50_000_000);
        assert!(error <= offsets[1].within, "{:?}", offsets[1]);
        assert_eq!(offsets[0], Offset::default());
    }

    #[test]
    fn times_move_by_the_mean_offset() {
        let mut times = [Time(0), Time(2_000)];
        let residual = align(times.iter_mut(), Offset { nanos: 4, within: 1 }, Offset { nanos: 6, within: 3 });
        assert_eq!(times, [Time(5_000), Time(7_000)]);
        assert!((residual - 4e-9).abs() < 1e-15);
    }
}
