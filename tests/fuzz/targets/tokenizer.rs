//! Fuzzes the reader of tokenizers with cargo-fuzz.
#![no_main]

#[allow(dead_code)]
#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = readers::tokenizer(input);
});
