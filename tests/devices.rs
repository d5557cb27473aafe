//! Tests `exec devices` on any machine, with a GPU or without.

use serde_json::Value;

use crate::commands::{folder, lockstep, rows};

/// On any machine: the CPU is listed, each of NVIDIA's libraries is found or reported with the places searched, and
/// GPUs are not offered for training without them.
#[test]
fn devices_are_listed_or_the_reason_is_given() {
    let folder = folder("devices");
    let rows = rows(&folder, "check", &["exec", "devices", "--cuda-libraries", "."]);
    let text = |row: &Value, column: &str| row[column].as_str().expect("text").to_owned();
    assert_eq!((text(&rows[0], "check").as_str(), text(&rows[0], "status").as_str()), ("cpu", "ok"));
    for library in ["driver", "NVRTC", "cuBLAS", "cuBLASLt", "cuDNN", "NCCL"] {
        let of = |row: &&Value| text(row, "check") == format!("cuda {library}");
        let row = rows.iter().find(of).unwrap_or_else(|| panic!("no row of {library}"));
        if text(row, "status") == "missing" {
            assert!(text(row, "found").starts_with("no lib") && !text(row, "cure").is_empty(), "{row}");
        }
    }
    let last = rows.last().expect("rows");
    assert_eq!((text(last, "check").as_str(), text(last, "status").as_str()), ("--device cuda", "missing"));

    let output = lockstep(&folder, &["exec", "devices", "--cuda-libraries", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.starts_with("--cuda-libraries: nowhere: is not a folder"), "{error}");
}
