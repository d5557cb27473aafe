//! Reads and writes FLOP/s as text: the one unit of cluster files that is neither a time, a size nor a bandwidth.

const SCALES: [(&str, f64); 5] = [("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];

/// Reads `15.7TFLOP/s`, `40GFLOP/s` (decimal prefixes).
///
/// # Errors
/// What is wrong with the text, without repeating it.
///
/// ```
/// # use lockstep_topology::cluster::parse_flops;
/// assert_eq!(parse_flops("40 GFLOP/s"), Ok(40e9));
/// assert!(parse_flops("-1TFLOP/s").is_err());
/// ```
pub fn parse_flops(text: &str) -> Result<f64, String> {
    let wrong = || "is not a rate of computing; write it like 40GFLOP/s or 15.7TFLOP/s".to_string();
    let rest = text.trim().strip_suffix("FLOP/s").ok_or_else(wrong)?.trim();
    let scaled = SCALES.into_iter().find_map(|(prefix, scale)| Some((rest.strip_suffix(prefix)?, scale)));
    let (number, scale) = scaled.unwrap_or((rest, 1.0));
    let rate = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("must be positive".into()) }
}

/// Writes `15.7 TFLOP/s`.
pub fn show_flops(flops_per_s: f64) -> String {
    let fitting = SCALES.into_iter().find(|(_, scale)| flops_per_s >= *scale);
    let (prefix, scale) = fitting.unwrap_or(("", 1.0));
    let mantissa = (flops_per_s / scale * 1e3).round() / 1e3;
    format!("{mantissa} {prefix}FLOP/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_round_trip() {
        for rate in [3.0, 40e9, 15.7e12, 1.979e15, 999.0] {
            let read = parse_flops(&show_flops(rate)).unwrap();
            assert!((read / rate - 1.0).abs() < 1e-12, "{rate}");
        }
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in ["", "FLOP/s", "0GFLOP/s", "NaNGFLOP/s", "infFLOP/s", "40G", "40GFLOPS", "xTFLOP/s"] {
            assert!(parse_flops(text).is_err(), "{text}");
        }
    }
}
