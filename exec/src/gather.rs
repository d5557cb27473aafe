//! What the ranks of a run leave comes together on rank 0, over the same wires as everything else.

use lockstep_models::{Judge, Span};
use lockstep_topology::{Rank, Time};

use crate::exchange::Traffic;
use crate::transport::{Transport, TransportError, control};
use crate::worker::Outcome;

const LENGTH: u32 = 1;
const CONTENT: u32 = 2;

/// What one rank leaves: its outcome, its batch norm statistics, its own weights, and a fingerprint of the model.
pub(crate) struct Legacy {
    pub outcome: Outcome,
    pub statistics: Vec<f32>,
    /// Of a learner, whose weights nobody else has.
    pub weights: Vec<f32>,
    /// The reference model of its device, from the device's first learner.
    pub reference: Vec<f32>,
    /// `None` for ranks that only serve.
    pub fingerprint: Option<[u64; 4]>,
    /// How far the rank's spans may be off rank 0's clock, in seconds.
    pub clock_residual_s: f64,
}

/// All ranks' legacies in rank order, on rank 0; nothing elsewhere.
pub(crate) fn gather(end: &mut dyn Transport, own: Legacy) -> Result<Option<Vec<Legacy>>, TransportError> {
    if end.rank().0 != 0 {
        let words = encode(&own);
        control::send(end, Rank(0), LENGTH, words.len() as u64)?;
        send(end, &words)?;
        return Ok(None);
    }
    let mut all = vec![own];
    for rank in 1..end.ranks() {
        let length = control::receive(end, Rank(rank), LENGTH)? as usize;
        all.push(decode(&receive(end, Rank(rank), length)?));
    }
    Ok(Some(all))
}

/// Words travel as bit patterns of fp32 elements; copying does not change them.
fn send(end: &mut dyn Transport, words: &[u64]) -> Result<(), TransportError> {
    let halves = words.iter().flat_map(|word| [f32::from_bits(*word as u32), f32::from_bits((word >> 32) as u32)]);
    control::send_elements(end, Rank(0), CONTENT, halves.collect())
}

fn receive(end: &mut dyn Transport, from: Rank, words: usize) -> Result<Vec<u64>, TransportError> {
    let halves = control::receive_elements(end, from, CONTENT, 2 * words)?;
    Ok(halves.chunks_exact(2).map(|two| u64::from(two[0].to_bits()) | u64::from(two[1].to_bits()) << 32).collect())
}

fn encode(legacy: &Legacy) -> Vec<u64> {
    let outcome = &legacy.outcome;
    let mut words = vec![
        outcome.spans.len() as u64,
        outcome.losses.len() as u64,
        outcome.sent.len() as u64,
        legacy.statistics.len() as u64,
        u64::from(legacy.fingerprint.is_some()),
        legacy.clock_residual_s.to_bits(),
        legacy.weights.len() as u64,
        u64::from(outcome.moves),
        legacy.reference.len() as u64,
        outcome.direct,
    ];
    for span in &outcome.spans {
        words.push(u64::from(span.rank) | u64::from(span.task) << 32);
        words.push(u64::from(span.iteration) | u64::from(span.repetition) << 32);
        words.extend([span.ready.0, span.start.0, span.end.0]);
    }
    words.extend(outcome.losses.iter().map(|loss| loss.to_bits()));
    words.extend(outcome.sent.iter().flat_map(|traffic| [traffic.messages, traffic.bytes]));
    words.extend(legacy.statistics.iter().map(|value| u64::from(value.to_bits())));
    words.extend(legacy.weights.iter().chain(&legacy.reference).map(|value| u64::from(value.to_bits())));
    words.extend(legacy.fingerprint.unwrap_or_default());
    words
}

fn decode(words: &[u64]) -> Legacy {
    let (spans, losses, sent, statistics) =
        (words[0] as usize, words[1] as usize, words[2] as usize, words[3] as usize);
    let mut rest = &words[10..];
    let mut take = |count: usize| {
        let (now, later) = rest.split_at(count);
        rest = later;
        now
    };
    let spans = take(spans * 5).chunks_exact(5).map(|w| Span {
        rank: w[0] as u32,
        task: (w[0] >> 32) as u32,
        iteration: w[1] as u32,
        repetition: (w[1] >> 32) as u32,
        ready: Time(w[2]),
        start: Time(w[3]),
        end: Time(w[4]),
    });
    let outcome = Outcome {
        spans: spans.collect(),
        losses: take(losses).iter().map(|bits| f64::from_bits(*bits)).collect(),
        // Only rank 0's count, and its own legacy does not travel.
        evaluations: Vec::new(),
        restarts: Vec::new(),
        judge: Judge::default(),
        moves: words[7] == 1,
        stopped: false,
        sent: take(sent * 2).chunks_exact(2).map(|w| Traffic { messages: w[0], bytes: w[1] }).collect(),
        direct: words[9],
    };
    let mut elements = |count| take(count).iter().map(|bits| f32::from_bits(*bits as u32)).collect();
    let (statistics, weights) = (elements(statistics), elements(words[6] as usize));
    let reference = elements(words[8] as usize);
    let print = take(4);
    let fingerprint = (words[4] == 1).then(|| [print[0], print[1], print[2], print[3]]);
    Legacy { outcome, statistics, weights, reference, fingerprint, clock_residual_s: f64::from_bits(words[5]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::memory;

    fn legacy(rank: u32) -> Legacy {
        let span = Span {
            rank,
            task: 3,
            iteration: 7,
            repetition: 1,
            ready: Time(5),
            start: Time(u64::from(rank) << 40),
            end: Time(u64::MAX),
        };
        let outcome = Outcome {
            spans: vec![span; rank as usize],
            losses: vec![0.1 * f64::from(rank), f64::NAN],
            evaluations: Vec::new(),
            restarts: Vec::new(),
            judge: Judge::default(),
            moves: rank > 1,
            stopped: false,
            sent: vec![Traffic { messages: 2, bytes: 1 << 50 }],
            direct: u64::from(rank),
        };
        let fingerprint = (rank > 0).then_some([1, 2, 3, 4]);
        let (statistics, weights) = (vec![-0.0, f32::MIN_POSITIVE], vec![0.5; 3 * rank as usize]);
        let reference = vec![0.25; rank as usize % 2];
        Legacy { outcome, statistics, weights, reference, fingerprint, clock_residual_s: 1e-6 }
    }

    #[test]
    fn what_arrives_is_what_was_left() {
        let states = vec![0u32, 1, 2, 3];
        let all = memory::run(states, 0, |end, rank| gather(end, legacy(*rank))).unwrap();
        let got = all[0].as_ref().unwrap();
        for (rank, legacy_of) in got.iter().enumerate() {
            assert_eq!(encode(legacy_of), encode(&legacy(rank as u32)));
        }
        assert!(all[1..].iter().all(Option::is_none));
    }
}
