//! Tests measured curves: all are read and predicted, and bad files are refused with line and cure.

use super::*;

#[test]
fn every_curve_is_read_and_predicted() {
    let systems: Vec<MeasuredSystem> =
        MeasuredSystem::names().map(|name| MeasuredSystem::load(name).expect(name)).collect();
    let all = curves(&systems).expect("predictions");
    assert_eq!(all.rows.len(), 17);
    assert!(all.points.iter().all(|point| point.predicted_time_us > 0.0 && point.log_error.is_finite()));
    let page = curves_page(&systems, &all);
    assert_eq!(page.matches("<svg").count(), systems.len());
    for picture in page.split("<svg").skip(1) {
        assert_eq!(lockstep_report::svg::rules::faults(&format!("<svg{picture}")), [""; 0]);
    }
    // Agreed bounds on all: medians of curves, and from 16 MiB.
    let medians = || all.rows.iter().map(|row| row.median_log_error);
    assert!(medians().all(|error| error <= 0.25), "{:?}", all.rows);
    assert!(medians().filter(|error| *error <= 0.12).count() > all.rows.len() / 2, "{:?}", all.rows);
}

#[test]
fn bus_bandwidths_are_converted_to_times() {
    let text = "name = \"x\"\nsource = \"y\"\ncluster = \"dgx-a100\"\nranks = 8\ntransport = \"mpi\"\nalgorithm = \"ring\"\n\
                [[curve]]\nname = \"a\"\ncollective = \"allreduce\"\nbusbw = [[1000000, 175.0]]\n";
    let system = MeasuredSystem::parse("x.toml", text).unwrap();
    // 1 MB · 2 · 7/8 over 175 GB/s.
    assert_eq!(system.curves[0].points, [CurvePoint { ranks: 8, bytes: 1_000_000, micros: 10.0 }]);
    for (from, to, cure) in [
        ("[[1000000, 175.0]]", "[[1000000, 0.0]]", "positive"),
        ("[[1000000, 175.0]]", "[[1000000]]", "pair"),
        ("ranks = 8\n", "", "lacks the key ranks"),
        ("busbw", "bandwidth", "has no key bandwidth"),
        ("\"mpi\"", "\"tcp\"", "threads or mpi"),
    ] {
        let refusal = MeasuredSystem::parse("x.toml", &text.replace(from, to)).unwrap_err().to_string();
        assert!(refusal.contains("x.toml:") && refusal.contains(cure), "{refusal}");
    }
}
