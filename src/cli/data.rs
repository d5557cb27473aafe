//! Runs `lockstep data pack`, `check`, `show`, `stats` and `generate`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::{Subcommand, ValueEnum};
use lockstep_data::format::{ENTRY, Encoding, IndexEntry};
use lockstep_data::generate::{Like, generate};
use lockstep_data::{Packed, Packing, SetPart, Source, TokenFile, pack};
use lockstep_measure::interrupt::on_interrupt;
use lockstep_report::failure::Failure;
use lockstep_report::log::print_line;
use lockstep_report::output::{Destination, check_writable};
use lockstep_report::progress::Estimate;
use lockstep_report::{CheckRow, Format, PackRow, Report, SampleGroupRow, SampleRow};
use lockstep_topology::{Bytes, InputError};

use super::data_tokens::{self, BAR};

/// What can be done with packed sets.
#[derive(Debug, Subcommand)]
pub(super) enum Data {
    /// Pack a set into one file with an index: image folders (JPEG, PNG), tar shards, IDX, CIFAR's binaries, Caffe's LMDB; or texts
    #[command(after_help = "Examples:
  lockstep data pack imagenet/train --out train.pack --short-side 256 --shuffle-seed 1
      images with a longer short side are resized and encoded as JPEG, the others are kept as they are
  lockstep data pack fashion-mnist --part held-out --out test.pack
  lockstep data pack --text one.txt two.txt.gz --out tokens.pack
      for models of tokens: each file a document, each byte a token
  lockstep data pack --text one.txt two.txt --tokenizer gpt2/tokenizer.json --out tokens.pack
      the same in tokens of a tokenizer, which the set keeps for --prompt and --generate
  Rerunning the command resumes a pack that was killed.")]
    Pack {
        /// A folder of class folders, of tar shards, of IDX files, of CIFAR's .bin files or with data.mdb; or a .tar file
        #[arg(required_unless_present = "text")]
        source: Option<PathBuf>,
        /// Texts instead, also .gz: each a document whose bytes are the tokens of a set for models of tokens, or with --tokenizer its tokens
        #[arg(
            long, value_name = "FILE", num_args = 1..,
            conflicts_with_all = ["source", "short_side", "part", "threads", "skip_bad", "shuffle_seed"]
        )]
        text: Vec<PathBuf>,
        /// With --text: Hugging Face's file of a BPE tokenizer, as those of gpt2, llama, mistral, gemma and qwen
        #[arg(long, value_name = "tokenizer.json", requires = "text", conflicts_with = "source")]
        tokenizer: Option<PathBuf>,
        /// The packed file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Pixels of the short side of images whose own is longer; without it all are kept as they are
        #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u16).range(1..=16_384))]
        short_side: Option<u16>,
        /// Which part of IDX and CIFAR sets, and of folders with train and val
        #[arg(long, value_enum, default_value = "train")]
        part: PartName,
        /// Threads that decode and encode; without it one for each core
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Leave out broken samples and list them, instead of refusing the first
        #[arg(long)]
        skip_bad: bool,
        /// Pack in a random order, which this number decides
        #[arg(long, value_name = "SEED")]
        shuffle_seed: Option<u64>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Verify the checksum of every sample in packed files
    #[command(after_help = "Example:
  lockstep data check train.pack test.pack")]
    Check {
        /// Packed files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Show the samples of a packed file: label, place, size; of texts the documents
    #[command(after_help = "Examples:
  lockstep data show train.pack
      the first ten
  lockstep data show train.pack 4711
      this one alone")]
    Show {
        /// A packed file
        file: PathBuf,
        /// The number of a sample, or of a document
        sample: Option<u64>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Count the samples of a packed file by class and by size; of texts the documents by length
    #[command(after_help = "Example:
  lockstep data stats train.pack --format csv")]
    Stats {
        /// A packed file
        file: PathBuf,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Generate a set in the shape of ImageNet, CIFAR-10 or MNIST, for benches and for trying things out
    #[command(after_help = "Example:
  lockstep data generate --shape imagenet --samples 2000 --classes 10 --seed 1 --out imagenet-like
      2,000 JPEG files of about 400 x 350 pixels and 110 kB in ten class folders")]
    Generate {
        /// What the set is like
        #[arg(long, value_enum)]
        shape: ShapeName,
        /// Samples to train on; cifar and mnist have a sixth as many held out besides
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
        samples: u32,
        /// Classes; without it as many as the set has
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        classes: Option<u32>,
        /// Seed: the same number gives the same set
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Threads; without it one for each core
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// A new folder
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// `--part`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum PartName {
    /// What is trained on
    Train,
    /// What is tested on
    HeldOut,
}

/// `--shape`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ShapeName {
    /// Folders of JPEG files
    Imagenet,
    /// Binaries of 3 x 32 x 32 bytes
    Cifar,
    /// IDX files of 28 x 28 bytes
    Mnist,
}

/// The given number of threads, else one per core.
fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
}

impl Data {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Data::Pack { source: None, text, tokenizer, out, format, .. } => {
                data_tokens::packed(&text, tokenizer.as_deref(), &out, format)
            }
            Data::Pack {
                source: Some(source),
                out,
                short_side,
                part,
                threads: asked,
                skip_bad,
                shuffle_seed,
                format,
                ..
            } => {
                let short_side = short_side.unwrap_or(0);
                let packing = Packing { out, short_side, threads: threads(asked), skip_bad, shuffle_seed };
                let part = if matches!(part, PartName::Train) { SetPart::Train } else { SetPart::HeldOut };
                packed(&source, part, &packing, format)
            }
            Data::Check { files, format } => {
                let rows: Result<Vec<CheckRow>, InputError> = files.iter().map(|file| checked(file)).collect();
                Report::new(rows?, Vec::new()).print(format)
            }
            Data::Show { file, sample, format } if TokenFile::is(&file) => data_tokens::shown(&file, sample, format),
            Data::Show { file, sample, format } => shown(&Packed::open(&file)?, sample, format),
            Data::Stats { file, format } if TokenFile::is(&file) => {
                Report::new(data_tokens::groups(&file)?, Vec::new()).print(format)
            }
            Data::Stats { file, format } => Report::new(groups(&Packed::open(&file)?), Vec::new()).print(format),
            Data::Generate { shape, samples, classes, seed, threads: asked, out } => {
                let like = match shape {
                    ShapeName::Imagenet => Like::Imagenet,
                    ShapeName::Cifar => Like::Cifar,
                    ShapeName::Mnist => Like::Mnist,
                };
                if !matches!(like, Like::Imagenet) && classes.is_some_and(|classes| classes > like.classes()) {
                    let message = format!("this shape has at most {}: ask for fewer", like.classes());
                    return Err(InputError::flag("classes", classes.unwrap_or(0).to_string(), message).into());
                }
                let classes = classes.unwrap_or(like.classes());
                let estimate = Estimate::new("generating");
                let done = AtomicUsize::new(0);
                let progress = |_| {
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    estimate.show(done as f64 / f64::from(samples), "");
                    true
                };
                let made = generate((like, classes), (samples as usize, seed), &out, threads(asked), progress);
                estimate.end();
                Ok(made?)
            }
        }
    }
}

/// Packs, and reports the result.
fn packed(source: &Path, part: SetPart, packing: &Packing, format: Format) -> Result<(), Failure> {
    // A pack is resumed and renamed, which pipes and devices do not support.
    let Destination::File(out) = check_writable("--out", &packing.out)? else {
        let message = "must be a file: a pack is resumed from the files beside it";
        return Err(InputError::flag("out", packing.out.display().to_string(), message).into());
    };
    on_interrupt(|| print_line("interrupted: rerunning the command resumes the pack"))?;
    let estimate = Estimate::new("packing");
    let list = estimate.beside(|| Source::open(source, part))?;
    let refused = |flag, value: String, message| Err(InputError::flag(flag, value, message).into());
    if part == SetPart::HeldOut && !list.has_parts() {
        return refused(
            "part",
            "held-out".to_owned(),
            "is of IDX and CIFAR sets and of folders train and val, and this is all one: leave it out",
        );
    }
    if packing.short_side > 0 && list.shape().is_some() {
        return refused(
            "short_side",
            packing.short_side.to_string(),
            "is of JPEG and PNG files, and these are none: leave it out",
        );
    }
    let progress = |done: usize| {
        estimate.show(done as f64 / list.len() as f64, "");
        true
    };
    let outcome = estimate.beside(|| pack(&list, &Packing { out, ..packing.clone() }, progress));
    estimate.end();
    let outcome = outcome?;
    outcome.skipped.iter().for_each(|skipped| print_line(&format!("left out: {}: {}", skipped.name, skipped.reason)));
    if outcome.damaged {
        print_line("the interrupted pack was damaged: what followed the damage was packed again");
    }
    let header = outcome.header;
    let row = PackRow {
        file: packing.out.display().to_string(),
        encoding: match (header.encoding, outcome.pngs) {
            (Encoding::Raw(_), _) => "raw",
            (_, 0) => "jpeg",
            (_, pngs) if pngs == header.samples => "png",
            _ => "jpeg and png",
        }
        .to_owned(),
        samples: header.samples,
        classes: header.classes,
        tokens: None,
        skipped: outcome.skipped.len() as u64,
        resumed: outcome.resumed as u64,
        bytes: header.index + header.samples * ENTRY as u64,
    };
    Report::new(vec![row], list.notes().to_vec()).print(format)
}

/// Verifies every checksum of a file.
fn checked(file: &Path) -> Result<CheckRow, InputError> {
    if TokenFile::is(file) {
        return data_tokens::checked(file);
    }
    let packed = Packed::open(file)?;
    let samples = packed.entries().len();
    let estimate = Estimate::new("checking");
    let mut bad = Vec::new();
    for sample in 0..samples {
        estimate.show(sample as f64 / samples as f64, "");
        bad.extend(packed.checked(sample).err());
    }
    estimate.end();
    // All damaged samples are reported; the first is the error.
    bad.iter().skip(1).for_each(|error| print_line(&error.to_string()));
    if let Some(first) = bad.into_iter().next() {
        return Err(first);
    }
    if !packed.is_dense() {
        let message = "bytes between the samples or behind the header are not as they were written: pack it again";
        return Err(InputError::new(file.display().to_string(), "", message));
    }
    let bytes = Bytes(packed.header().index + (samples * ENTRY) as u64);
    let found = format!("{samples} samples of {} classes, {bytes}", packed.header().classes);
    Ok(CheckRow::ok(file.display().to_string(), found))
}

/// One sample, or the first ten.
fn shown(packed: &Packed, sample: Option<u64>, format: Format) -> Result<(), Failure> {
    let samples = packed.entries().len();
    let range = match sample {
        None => 0..samples.min(10),
        Some(sample) if sample < samples as u64 => sample as usize..sample as usize + 1,
        Some(sample) => {
            let message = format!("there are {samples} samples: name one from 0 to {}", samples - 1);
            return Err(InputError::new("SAMPLE", sample.to_string(), message).into());
        }
    };
    let row = |number: usize| {
        let entry = &packed.entries()[number];
        SampleRow {
            sample: number as u64,
            label: entry.label,
            offset: entry.offset,
            bytes: u64::from(entry.length),
            width: entry.width,
            height: entry.height,
            checksum: format!("{:08x}", entry.checksum),
        }
    };
    Report::new(range.map(row).collect(), Vec::new()).print(format)
}

/// Counts all samples, those of each class, and those of each size: a histogram in powers of two.
fn groups(packed: &Packed) -> Vec<SampleGroupRow> {
    let entries = packed.entries();
    let group = |group: String, of: &dyn Fn(&IndexEntry) -> bool, bar: bool| {
        let (mut samples, mut sums) = (0u64, [0.0; 3]);
        for entry in entries.iter().filter(|entry| of(entry)) {
            samples += 1;
            let figures = [f64::from(entry.length), f64::from(entry.width), f64::from(entry.height)];
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
        let share = samples as f64 / entries.len() as f64;
        let [mean_bytes, mean_width, mean_height] =
            sums.map(|sum| if samples == 0 { 0.0 } else { sum / samples as f64 });
        let bar = if bar { "#".repeat((share * BAR).round() as usize) } else { String::new() };
        SampleGroupRow { group, samples, share, mean_bytes, mean_width, mean_height, bar }
    };
    let mut labels: Vec<u32> = entries.iter().map(|entry| entry.label).collect();
    let mut powers: Vec<u32> = entries.iter().map(|entry| entry.length.ilog2()).collect();
    [&mut labels, &mut powers].into_iter().for_each(|list| {
        list.sort_unstable();
        list.dedup();
    });
    let mut rows = vec![group("all".to_owned(), &|_| true, false)];
    rows.extend(labels.iter().map(|label| group(format!("class {label}"), &|entry| entry.label == *label, false)));
    rows.extend(powers.iter().map(|power| {
        let name = format!("{} to {}", Bytes(1 << power), Bytes(2 << power));
        group(name, &|entry| entry.length.ilog2() == *power, true)
    }));
    rows
}
