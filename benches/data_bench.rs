//! Times packing a set of JPEG files with one thread, and plainly decoding, resizing and encoding the same files in
//! memory.
//!
//! Run with `cargo run --release -p lockstep-benches --bin data_bench`; numbers after `--` are the images and the repetitions.

use std::error::Error;
use std::time::Instant;

use lockstep_data::generate::jpeg;
use lockstep_data::{Packing, SetPart, Source, keep_jpeg, pack};

const SHORT_SIDE: u16 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (images, repetitions): (u64, u32) = (numbers.next().unwrap_or(200), numbers.next().unwrap_or(5) as u32);
    let folder = std::env::temp_dir().join(format!("lockstep-data-bench-{}", std::process::id()));
    let class = folder.join("in/class");
    std::fs::create_dir_all(&class)?;
    let mut files = Vec::new();
    for number in 0..images {
        let file = jpeg(1, number, 0)?;
        std::fs::write(class.join(format!("{number:06}.jpg")), &file)?;
        files.push(file);
    }
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{images} images of {} bytes in the mean", bytes / files.len());
    let out = folder.join("out.pack");
    let packing = Packing { out, short_side: SHORT_SIDE, threads: 1, skip_bad: false, shuffle_seed: None };
    let (mut plain, mut packed) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..repetitions {
        let begun = Instant::now();
        for file in &files {
            std::hint::black_box(keep_jpeg(file, SHORT_SIDE)?);
        }
        plain = plain.min(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        pack(&Source::open(&folder.join("in"), SetPart::Train)?, &packing, |_| true)?;
        packed = packed.min(begun.elapsed().as_secs_f64());
    }
    std::fs::remove_dir_all(&folder)?;
    let rate = |seconds: f64| images as f64 / seconds;
    println!("plain {:.0} images/s, packed {:.0} images/s, ratio {:.3}", rate(plain), rate(packed), plain / packed);
    Ok(())
}
