//! Rounds figures for tables.

/// Digits that a rounded figure keeps.
const DIGITS: i32 = 4;

/// Four significant digits, never an exponent, whole numbers from 1000 on; `0` below half of the last of twelve places.
pub(super) fn rounded(value: f64) -> String {
    /// Decimal places at most.
    const PLACES: i32 = 12;
    if value.abs() < 0.5 * 10f64.powi(-PLACES) {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let places = (DIGITS - 1 - magnitude).clamp(0, PLACES) as usize;
    format!("{value:.places$}")
}
