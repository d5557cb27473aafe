//! Models slow start: a connection begins with a small window, which grows by every byte that is acknowledged.
//!
//! So it doubles each round trip for as long as the window limits the bytes (RFC 5681 §3.1). A message is cut where its
//! window doubles: the first W bytes flow at W a round trip, the next 2W at twice that, until the window allows more
//! than the route's rate; a smaller fair share on the way slows the growth down, as fewer acknowledgements do.

use std::collections::BTreeMap;

use lockstep_topology::Time;

use super::Carrier;

/// A connection that has been quiet for longer restarts: the least retransmission timeout (RFC 5681 §4.1;
/// Linux's 200 ms).
const IDLE: Time = Time(200_000_000_000);

/// The growing windows of the connections of one route.
#[derive(Debug)]
pub(crate) struct Ramp {
    /// The first window in bytes.
    first: u64,
    /// The carrier of the bytes of each doubling; beyond the last, the window is no limit.
    carriers: Vec<Carrier>,
}

/// The state of one connection.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Bytes since it started.
    sent: u64,
    /// Bytes of the message in flight that have not begun to flow.
    left: u64,
    /// When its last bytes arrived.
    last: Time,
}

/// All connections that start slowly, by sender and receiver.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    open: BTreeMap<(u32, u32), Window>,
}

impl Ramp {
    /// From `first` bytes a round trip, doubling below `rate` bytes per second; `None` where the first window
    /// is no limit.
    ///
    /// `carrier` gives what carries at most a number of bytes per second.
    pub(super) fn new<E>(
        first: u64,
        round_trip_s: f64,
        rate: f64,
        mut carrier: impl FnMut(f64) -> Result<Carrier, E>,
    ) -> Result<Option<Ramp>, E> {
        let mut carriers = Vec::new();
        let mut cap = first as f64 / round_trip_s;
        while cap < rate && carriers.len() < 60 {
            carriers.push(carrier(cap)?);
            cap *= 2.0;
        }
        Ok((!carriers.is_empty()).then_some(Ramp { first, carriers }))
    }
}

impl Windows {
    /// The carrier of the next bytes of a message of `bytes`, and their number; `carrier` once the window is no limit.
    pub(crate) fn piece(
        &mut self,
        connection: (u32, u32),
        ramp: &Ramp,
        carrier: Carrier,
        bytes: u64,
        now: Time,
    ) -> (Carrier, u64) {
        let window = self.open.entry(connection).or_default();
        if window.left == 0 {
            window.left = bytes;
            if now.since(window.last) > IDLE {
                window.sent = 0;
            }
        }
        // After W(2ᵏ − 1) bytes the window is 2ᵏ·W.
        let doublings = (window.sent / ramp.first).saturating_add(1).ilog2();
        let (carrier, piece) = match ramp.carriers.get(doublings as usize) {
            Some(carrier) => {
                let until = ramp.first.saturating_mul((1 << (doublings + 1)) - 1);
                (*carrier, window.left.min(until - window.sent))
            }
            // It does not grow any further.
            None => return (carrier, std::mem::take(&mut window.left)),
        };
        window.left -= piece;
        window.sent = window.sent.saturating_add(piece);
        (carrier, piece)
    }

    /// Bytes that each connection counts, and how long before `now` the last of them arrived; between messages.
    pub(crate) fn states(&self, now: Time) -> Vec<(u64, Time)> {
        self.open.values().map(|window| (window.sent, now - window.last)).collect()
    }

    /// Bytes that flowed have arrived; returns whether others of the same message have yet to flow.
    pub(crate) fn flowed(&mut self, connection: (u32, u32), now: Time) -> bool {
        let Some(window) = self.open.get_mut(&connection) else { return false };
        window.last = now;
        window.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_double_until_the_rate_is_reached() {
        // 10 bytes a second at first, 50 at most: 10, 20 and 40 a second are below it.
        let ramp = Ramp::new(10, 1.0, 50.0, |cap| Ok::<_, ()>(Carrier::Alone(cap))).unwrap().expect("a ramp");
        assert_eq!(ramp.carriers, [10.0, 20.0, 40.0].map(Carrier::Alone));
        let (mut windows, full) = (Windows::default(), Carrier::Alone(50.0));
        let mut piece = |bytes, now| windows.piece((0, 1), &ramp, full, bytes, now);
        assert_eq!(piece(100, Time(1)), (Carrier::Alone(10.0), 10));
        assert_eq!(piece(100, Time(1)), (Carrier::Alone(20.0), 20));
        assert_eq!(piece(100, Time(1)), (Carrier::Alone(40.0), 40));
        assert_eq!(piece(100, Time(1)), (full, 30));
        assert_eq!(piece(7, Time(1)), (full, 7));
        // Another connection starts separately; one that was quiet for long restarts.
        assert_eq!(windows.piece((1, 0), &ramp, full, 5, Time(1)), (Carrier::Alone(10.0), 5));
        assert_eq!(windows.piece((1, 0), &ramp, full, 8, Time(1)), (Carrier::Alone(10.0), 5));
        assert!(windows.flowed((1, 0), Time(2)));
        assert_eq!(windows.piece((1, 0), &ramp, full, 8, Time(2)), (Carrier::Alone(20.0), 3));
        assert!(!windows.flowed((1, 0), Time(3)) && !windows.flowed((5, 6), Time(3)));
        assert_eq!(windows.piece((1, 0), &ramp, full, 8, Time(3) + IDLE), (Carrier::Alone(20.0), 8));
        assert!(!windows.flowed((1, 0), Time(4)));
        assert_eq!(windows.piece((1, 0), &ramp, full, 8, Time(5) + IDLE), (Carrier::Alone(10.0), 8));
    }

    #[test]
    fn a_first_window_beyond_the_rate_needs_no_slow_start() {
        let none = Ramp::new(10, 1.0, 10.0, |cap| Ok::<_, ()>(Carrier::Alone(cap))).unwrap();
        assert!(none.is_none());
    }
}
