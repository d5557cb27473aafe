//! Gathers the results of all ranks on rank 0, over the transport of the run.

use lockstep_models::{AccuracyMonitor, Periodic, PeriodicSpan, Span};
use lockstep_topology::{Rank, Time};

use crate::claims::{claims_of, claims_to_words};
use crate::exchange::ExchangeTraffic;
use crate::transport::{Transport, TransportError, control};
use crate::worker::Outcome;

/// The results of one rank.
pub(crate) struct RankResult {
    pub outcome: Outcome,
    /// Bound on the error of the rank's spans relative to rank 0's clock, in seconds.
    pub clock_residual_s: f64,
    pub values: Values,
}

/// What a rank ends with: batch norm statistics, own weights, and fingerprints of the model; a rank that does not train has
/// none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Values {
    pub statistics: Vec<f32>,
    /// A learner's weights, which no other rank has.
    pub weights: Vec<f32>,
    /// The reference model of its device, from the device's first learner.
    pub reference: Vec<f32>,
    /// Fingerprint of the parameters that all workers share; `None` for dedicated servers.
    pub fingerprint: Option<[u64; 4]>,
    /// Fingerprint of all of the rank's parameters, where other ranks hold other parts of the model.
    pub part_fingerprint: Option<[u64; 4]>,
}

/// All ranks' results in rank order, on rank 0; `None` elsewhere.
pub(crate) fn gather(end: &mut dyn Transport, own: RankResult) -> Result<Option<Vec<RankResult>>, TransportError> {
    if end.rank().0 != 0 {
        control::send_words(end, Rank(0), &encode(&own))?;
        return Ok(None);
    }
    let mut all = vec![own];
    for rank in 1..end.ranks() {
        all.push(decode(rank, &control::receive_words(end, Rank(rank))?));
    }
    Ok(Some(all))
}

/// Lists one after the other, each preceded by its length.
fn encode(rank_result: &RankResult) -> Vec<u64> {
    let outcome = &rank_result.outcome;
    let mut words = vec![rank_result.clock_residual_s.to_bits(), u64::from(outcome.moves), outcome.direct];
    let mut list = |of: Vec<u64>| {
        words.push(of.len() as u64);
        words.extend(of);
    };
    let of_span = |span: &Span| {
        let task = u64::from(span.rank) | u64::from(span.task) << 32;
        let time = u64::from(span.iteration) | u64::from(span.repetition) << 32;
        [task, time, span.ready.0, span.start.0, span.end.0]
    };
    list(outcome.spans.iter().flat_map(of_span).collect());
    list(outcome.periodic.iter().map(|run| run.kind as u64).collect());
    list(outcome.periodic.iter().flat_map(|run| of_span(&run.span)).collect());
    list(outcome.losses.iter().map(|loss| loss.to_bits()).collect());
    list(claims_to_words(&outcome.claims));
    for sent in [&outcome.sent, &outcome.periodic_sent] {
        list(sent.iter().flat_map(|traffic| [traffic.messages, traffic.bytes]).collect());
    }
    let values = &rank_result.values;
    for elements in [&values.statistics, &values.weights, &values.reference] {
        list(elements.iter().map(|value| u64::from(value.to_bits())).collect());
    }
    for fingerprint in [values.fingerprint, values.part_fingerprint] {
        list(fingerprint.map_or(Vec::new(), Vec::from));
    }
    words
}

fn decode(rank: u32, words: &[u64]) -> RankResult {
    let mut rest = &words[3..];
    let mut list = || {
        let (now, later) = rest[1..].split_at(rest[0] as usize);
        rest = later;
        now
    };
    let span = |w: &[u64]| Span {
        rank: w[0] as u32,
        task: (w[0] >> 32) as u32,
        iteration: w[1] as u32,
        repetition: (w[1] >> 32) as u32,
        ready: Time(w[2]),
        start: Time(w[3]),
        end: Time(w[4]),
    };
    let traffic = |w: &[u64]| ExchangeTraffic { messages: w[0], bytes: w[1] };
    let spans = list().chunks_exact(5).map(span).collect();
    let kinds = list().iter().map(|kind| Periodic::ALL[*kind as usize]);
    let periodic = kinds.zip(list().chunks_exact(5).map(span)).map(|(kind, span)| PeriodicSpan { kind, span });
    let outcome = Outcome {
        spans,
        periodic: periodic.collect(),
        losses: list().iter().map(|bits| f64::from_bits(*bits)).collect(),
        claims: claims_of(rank, list()).collect(),
        sent: list().chunks_exact(2).map(traffic).collect(),
        periodic_sent: list().chunks_exact(2).map(traffic).collect(),
        moves: words[1] == 1,
        direct: words[2],
        // Only rank 0's count, and rank 0's own results are not sent.
        evaluations: Vec::new(),
        restarts: Vec::new(),
        accuracy_monitor: AccuracyMonitor::default(),
        stopped: false,
    };
    let [statistics, weights, reference] =
        [(); 3].map(|()| list().iter().map(|bits| f32::from_bits(*bits as u32)).collect());
    let [fingerprint, part_fingerprint] = [(); 2].map(|()| list().try_into().ok());
    let clock_residual_s = f64::from_bits(words[0]);
    let values = Values { statistics, weights, reference, fingerprint, part_fingerprint };
    RankResult { outcome, clock_residual_s, values }
}

#[cfg(test)]
mod tests {
    use lockstep_models::Claim;

    use super::*;
    use crate::transport::memory;

    fn rank_result(rank: u32) -> RankResult {
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
            periodic: vec![PeriodicSpan { kind: Periodic::Evaluation, span }; 2 * rank as usize],
            losses: vec![0.1 * f64::from(rank), f64::NAN],
            claims: vec![Claim { iteration: 1 << 31, rank, micro_batch: 7, at: Time(u64::MAX) }; rank as usize],
            evaluations: Vec::new(),
            restarts: Vec::new(),
            accuracy_monitor: AccuracyMonitor::default(),
            moves: rank > 1,
            stopped: false,
            sent: vec![ExchangeTraffic { messages: 2, bytes: 1 << 50 }],
            periodic_sent: vec![ExchangeTraffic { messages: 3, bytes: 5 }],
            direct: u64::from(rank),
        };
        let fingerprint = (rank > 0).then_some([1, 2, 3, 4]);
        let part_fingerprint = (rank > 1).then_some([5, 6, 7, 8]);
        let (statistics, weights) = (vec![-0.0, f32::MIN_POSITIVE], vec![0.5; 3 * rank as usize]);
        let reference = vec![0.25; rank as usize % 2];
        let values = Values { statistics, weights, reference, fingerprint, part_fingerprint };
        RankResult { outcome, clock_residual_s: 1e-6, values }
    }

    #[test]
    fn gathered_results_equal_those_of_the_ranks() {
        let states = vec![0u32, 1, 2, 3];
        let all = memory::run(states, 0, |end, rank| gather(end, rank_result(*rank))).unwrap();
        let got = all[0].as_ref().unwrap();
        for (rank, result_of) in got.iter().enumerate() {
            assert_eq!(encode(result_of), encode(&rank_result(rank as u32)));
        }
        assert!(all[1..].iter().all(Option::is_none));
    }
}
