//! `Rate`: converts a direction's rate between the byte counts of the cluster file, programs and the kernel's shaper.

use lockstep_topology::Bandwidth;
use lockstep_topology::cluster::Link;
use serde::{Deserialize, Serialize};

/// Bytes of a full frame that the shaper counts: an MTU of 1,500 with its Ethernet header.
const FRAME: f64 = 1_514.0;
/// Bytes of payload in it: 20 of IPv4's header, 20 of TCP's and 12 of its timestamp are none (RFC 791, 9293, 7323).
const PAYLOAD: f64 = 1_448.0;
/// The most that a late timer catches up on, in seconds of the rate, where a cluster file gives no burst: timers of a
/// busy machine are up to that late.
const BURST_S: f64 = 2e-3;
/// The factor over the rate when catching up: a phase of an exchange after a pause would otherwise take no time.
const PEAK: f64 = 1.1;
/// Seconds of the longest packet that the kernel hands to the shaper, which passes at once after a pause; a timer may
/// be late by as much without a loss of rate.
const PACKET_S: f64 = 134e-6;
/// Its limits in bytes: shorter packets take more of the cores' time, with longer ones a small burst halves the rate.
const PACKET_BYTES: (f64, f64) = (8_192.0, 16_384.0);

/// The rate of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// On the wire, headers and gaps included, as in cluster files.
    pub line_bit_per_s: f64,
    /// The share of it that is payload, by the link's protocol.
    pub efficiency: f64,
    /// Microseconds for which packets may wait in the shaper's queue; longer ones are dropped.
    #[serde(default = "usual_queue_us")]
    pub queue_us: u64,
    /// What passes faster after a pause, by the cluster file.
    #[serde(default)]
    pub burst: Option<RateBurst>,
}

/// What passes faster than the rate after a pause, in proportion to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateBurst {
    /// Seconds of the rate.
    pub burst_s: f64,
    /// The rate of these bytes over the rate.
    pub peak: f64,
    /// Seconds of the rate that pass at once.
    pub at_once_s: f64,
}

/// The queue where a cluster file gives none: a switch with small buffers.
pub(crate) const fn usual_queue_us() -> u64 {
    10_000
}

impl Rate {
    /// That of a link, times `scale`.
    pub fn of(link: &Link, scale: f64) -> Rate {
        let queue_us = match link.protocol.transmit_queue.as_secs_f64() {
            0.0 => usual_queue_us(),
            seconds => ((1e6 * seconds).round() as u64).max(1),
        };
        let line_bit_per_s = link.bandwidth.bytes_per_s() * 8.0 * scale;
        let payload_bytes_s = link.payload().bytes_per_s();
        let burst = link.protocol.burst.map(|burst| RateBurst {
            burst_s: burst.bytes.0 as f64 / payload_bytes_s,
            peak: burst.peak,
            at_once_s: burst.at_once.0 as f64 / payload_bytes_s,
        });
        Rate { line_bit_per_s, efficiency: link.protocol.efficiency, queue_us, burst }
    }

    /// The same protocol at another line rate.
    pub fn at(self, line: Bandwidth) -> Rate {
        Rate { line_bit_per_s: line.bytes_per_s() * 8.0, ..self }
    }

    /// The rate of a simulated message, and of one TCP stream in the lab.
    pub fn payload_bit_per_s(self) -> f64 {
        self.line_bit_per_s * self.efficiency
    }

    /// The shaper's rate: it counts frames without preamble, checksum and gap; the payload is the link's for any
    /// protocol. payload x 1514 / 1448; for TCP over Ethernet this is line x 1514 / 1538.
    pub fn shaped_bit_per_s(self) -> u64 {
        (self.payload_bit_per_s() * FRAME / PAYLOAD).round() as u64
    }

    /// Bytes that the shaper counts in that time.
    fn bytes_in(self, seconds: f64) -> f64 {
        self.shaped_bit_per_s() as f64 / 8.0 * seconds
    }

    /// The longest packet that the shaper gets.
    pub fn packet_bytes(self) -> u64 {
        self.bytes_in(PACKET_S).clamp(PACKET_BYTES.0, PACKET_BYTES.1).round() as u64
    }

    /// The longest packet with the headers of its frames.
    fn packet_in_frames(self) -> f64 {
        self.packet_bytes() as f64 * FRAME / PAYLOAD + FRAME
    }

    /// Bytes that pass at once after a pause: those of the cluster file, at least a packet; else a packet and what a late
    /// timer catches up on.
    pub fn at_once_bytes(self) -> u64 {
        let packet = self.packet_in_frames();
        let bytes = match self.burst {
            Some(burst) => self.bytes_in(burst.at_once_s).max(packet),
            None => packet + self.bytes_in(PACKET_S),
        };
        bytes.round() as u64
    }

    /// Bytes that may pass at the peak rate after a pause.
    pub fn burst_bytes(self) -> u64 {
        let seconds = self.burst.map_or(BURST_S, |burst| burst.burst_s);
        (self.bytes_in(seconds).round() as u64).max(self.at_once_bytes())
    }

    /// The rate of catching up.
    pub fn peak_bit_per_s(self) -> u64 {
        (self.shaped_bit_per_s() as f64 * self.burst.map_or(PEAK, |burst| burst.peak)).round() as u64
    }

    /// The keys of a link with which predictions know this shaper's burst.
    pub fn burst_keys(self) -> String {
        let payload = |frames: u64| (frames as f64 * PAYLOAD / FRAME).round();
        let (burst, at_once) = (payload(self.burst_bytes()), payload(self.at_once_bytes()));
        // In kbit/s, which no file states more exactly.
        let peak = (self.line_bit_per_s * self.burst.map_or(PEAK, |burst| burst.peak) * 1e-3).round() / 1e3;
        format!("burst = \"{burst}B\", burst_bandwidth = \"{peak}Mbit/s\", burst_at_once = \"{at_once}B\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shaped_rate_allows_for_uncounted_ethernet_framing() {
        let rate = Rate { line_bit_per_s: 1e9, efficiency: 1_448.0 / 1_538.0, queue_us: usual_queue_us(), burst: None };
        assert_eq!(rate.shaped_bit_per_s(), (1e9 * 1_514.0_f64 / 1_538.0).round() as u64);
        assert_eq!(rate.burst_bytes(), (2e6 * 1_514.0_f64 / 1_538.0 / 8.0).round() as u64);
        let slow = rate.at("100Mbit/s".parse().unwrap());
        assert_eq!((rate.packet_bytes(), slow.packet_bytes(), slow.at_once_bytes()), (16_384, 8_192, 11_728));
        let keys = "burst = \"23537B\", burst_bandwidth = \"110Mbit/s\", burst_at_once = \"11217B\"";
        assert_eq!(slow.burst_keys(), keys);
        assert_eq!(rate.at("1Mbit/s".parse().unwrap()).burst_bytes(), 10_096);
        assert!((slow.payload_bit_per_s() - 94.15e6).abs() < 1e4);
    }
}
