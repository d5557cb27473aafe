//! Fuzzes the reader of logs of nccl-tests with cargo-fuzz.
#![no_main]

#[allow(dead_code)]
#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = readers::nccl_log(input);
});
