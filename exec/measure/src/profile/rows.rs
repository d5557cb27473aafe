//! Converts a GPU's figures to rows, in the form of those of `calibrate`.

use lockstep_models::profile::{GpuEntry, Interval};

use crate::calibrate::{CalibrationRow, of_layers};

/// The figures of a GPU.
pub fn gpu_rows(gpu: &GpuEntry) -> Vec<CalibrationRow> {
    let mut rows = of_layers(&format!("{}: ", gpu.model), &gpu.compute, &gpu.update, &gpu.load);
    let mut row = |operation: String, size: Option<u64>, seconds: Interval, scale: f64, slowdown: f64| {
        let operation = format!("{}: {operation}", gpu.model);
        rows.push(CalibrationRow::of(operation, size, seconds, scale, slowdown));
    };
    for entry in &gpu.learners {
        let name = format!("step of {} x {}", entry.learners, entry.model);
        row(name, Some(u64::from(entry.samples)), entry.step, 1.0, entry.slowdown);
    }
    let Some(hardware) = &gpu.hardware else { return rows };
    row("launch".to_owned(), None, hardware.launch, 1.0, 1.0);
    row("mark, which no other figure holds".to_owned(), None, hardware.mark, 1.0, 1.0);
    for (name, copy) in hardware.copies() {
        row(format!("{name}, one element"), None, copy.latency, 1.0, 1.0);
        row(format!("{name}, per MiB"), None, copy.byte, f64::from(1u32 << 20), 1.0);
    }
    for entry in &hardware.nccl {
        row(format!("sum by NCCL on {}", entry.ranks), Some(entry.elements), entry.seconds, 1.0, 1.0);
    }
    if let Some(direct) = &hardware.direct {
        row("message from another device, one element".to_owned(), None, direct.latency, 1.0, 1.0);
        for (name, byte) in [("copied", direct.copy), ("added", direct.sum)] {
            row(format!("message from another device, {name}, per MiB"), None, byte, f64::from(1u32 << 20), 1.0);
        }
    }
    rows
}
