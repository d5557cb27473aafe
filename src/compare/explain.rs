//! Finds which kinds of tasks account for most of the difference between the two timelines of a configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::Compared;

/// Kinds by the size of their difference, largest first, as one line. All figures are medians over steps, as in the table: `wait` is its
/// exposed communication.
pub(super) fn explain(compared: &Compared) -> String {
    let (predicted, measured) = (compared.predicted_by_kind(), compared.measured_by_kind());
    let kinds: BTreeSet<&str> = predicted.keys().chain(measured.keys()).copied().collect();
    let of = |map: &BTreeMap<&'static str, f64>, kind: &str| map.get(kind).copied().unwrap_or(0.0) * 1e3;
    let mut parts: Vec<(f64, String)> = kinds
        .into_iter()
        .map(|kind| {
            let (p, m) = (of(&predicted, kind), of(&measured, kind));
            (p - m, format!("{kind} {:+.3} ms ({p:.3} predicted, {m:.3} measured)", p - m))
        })
        .collect();
    parts.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    let most: Vec<String> = parts.into_iter().take(4).map(|(_, text)| text).collect();
    format!("{}: {}", compared.configuration.label(), most.join("; "))
}
