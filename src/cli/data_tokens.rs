//! Packs texts, and checks, shows and counts packed token sets, for `lockstep data`.

use std::path::{Path, PathBuf};

use lockstep_data::{Spelling, TokenFile, TokenHeader, Tokenizer, pack_texts};
use lockstep_report::failure::Failure;
use lockstep_report::output::{Destination, check_writable};
use lockstep_report::progress::Estimate;
use lockstep_report::{CheckRow, DocumentRow, Format, PackRow, Report, SampleGroupRow};
use lockstep_topology::{Bytes, InputError};

/// Characters of a full bar.
pub(super) const BAR: f64 = 40.0;

/// Characters that show how a document begins.
const BEGINNING: usize = 40;

/// Packs the texts `files` with a tokenizer or as bytes, and reports the result.
pub(super) fn packed(files: &[PathBuf], tokenizer: Option<&Path>, out: &Path, format: Format) -> Result<(), Failure> {
    let Destination::File(out) = check_writable("--out", out)? else {
        let message = "must be a file: a set is read at any place";
        return Err(InputError::flag("out", out.display().to_string(), message).into());
    };
    let tokenizer = tokenizer.map(Tokenizer::open).transpose()?;
    let estimate = Estimate::new("packing");
    let header =
        pack_texts(files, tokenizer.as_ref(), &out, |done| estimate.show(done as f64 / files.len() as f64, ""));
    estimate.end();
    let header = header?;
    let row = PackRow {
        file: out.display().to_string(),
        encoding: encoding(&header).to_owned(),
        samples: header.documents,
        classes: header.vocabulary,
        tokens: Some(header.tokens),
        skipped: 0,
        resumed: 0,
        bytes: header.bytes().unwrap_or(u64::MAX),
    };
    Report::new(vec![row], tokenizer.iter().map(account).collect()).print(format)
}

/// Which tokens a tokenizer makes of documents.
fn account(tokenizer: &Tokenizer) -> String {
    let end = match tokenizer.end() {
        Some((name, token)) => format!("each document ends with {name}, its token {token}"),
        None => format!(
            "documents end with no token of their own, because it has none of {} as a special token",
            Tokenizer::ENDS.join(", ")
        ),
    };
    format!("the set has the tokenizer (SHA-256 {}): {end}", tokenizer.sha256())
}

/// The format of a set's tokens.
fn encoding(header: &TokenHeader) -> &'static str {
    if header.width() == 2 { "u16" } else { "u32" }
}

/// Verifies all blocks of a file.
pub(super) fn checked(file: &Path) -> Result<CheckRow, InputError> {
    let set = TokenFile::open(file)?;
    let header = *set.header();
    set.verify(0..header.tokens)?;
    let (tokens, vocabulary, documents) = (header.tokens, header.vocabulary, header.documents);
    let bytes = Bytes(header.bytes().unwrap_or(u64::MAX));
    let tokenizer =
        set.tokenizer()?.map_or_else(String::new, |own| format!(", tokenizer with SHA-256 {}", own.sha256()));
    let found = format!(
        "{tokens} tokens ({}) of a vocabulary of {vocabulary}, {documents} documents, {bytes}{tokenizer}",
        encoding(&header)
    );
    Ok(CheckRow::ok(file.display().to_string(), found))
}

/// The first and the number of tokens of each document.
fn lengths(set: &TokenFile) -> Vec<(u64, u64)> {
    let mut borders = set.documents().to_vec();
    borders.push(set.header().tokens);
    borders.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
}

/// One document, or the first ten.
pub(super) fn shown(file: &Path, document: Option<u64>, format: Format) -> Result<(), Failure> {
    let set = TokenFile::open(file)?;
    let all = lengths(&set);
    let range = match document {
        None => 0..all.len().min(10),
        Some(one) if one < all.len() as u64 => one as usize..one as usize + 1,
        Some(one) => {
            let message = format!("there are {} documents: name one from 0 to {}", all.len(), all.len() - 1);
            return Err(InputError::new("SAMPLE", one.to_string(), message).into());
        }
    };
    let spelling = Spelling::of(&set)?;
    let row = |number: usize| -> Result<DocumentRow, InputError> {
        let (first, tokens) = all[number];
        let mut beginning = vec![0; (tokens as usize).min(BEGINNING)];
        set.verify(first..first + beginning.len() as u64)?;
        set.copy(first, &mut beginning);
        let numbers = || beginning.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let begins = spelling
            .decode(&beginning)
            .map_or_else(numbers, |text| text.chars().take(BEGINNING).collect::<String>().escape_debug().to_string());
        Ok(DocumentRow { document: number as u64, first, tokens, begins })
    };
    Report::new(range.map(row).collect::<Result<Vec<_>, _>>()?, Vec::new()).print(format)
}

/// Counts all documents, and those of each length: a histogram in powers of two.
pub(super) fn groups(file: &Path) -> Result<Vec<SampleGroupRow>, InputError> {
    let set = TokenFile::open(file)?;
    let (all, width) = (lengths(&set), set.header().width());
    let group = |group: String, of: &dyn Fn(u64) -> bool, bar: bool| {
        let own: Vec<u64> = all.iter().map(|(_, tokens)| *tokens).filter(|tokens| of(*tokens)).collect();
        let share = own.len() as f64 / all.len() as f64;
        let mean = own.iter().sum::<u64>() as f64 / own.len().max(1) as f64;
        let bar = if bar { "#".repeat((share * BAR).round() as usize) } else { String::new() };
        let (mean_width, mean_height) = (mean, 1.0);
        let mean_bytes = mean * width as f64;
        SampleGroupRow { group, samples: own.len() as u64, share, mean_bytes, mean_width, mean_height, bar }
    };
    let mut powers: Vec<u32> = all.iter().map(|(_, tokens)| tokens.ilog2()).collect();
    powers.sort_unstable();
    powers.dedup();
    let mut rows = vec![group("all".to_owned(), &|_| true, false)];
    rows.extend(powers.into_iter().map(|power| {
        let name = format!("{} to {} tokens", 1u64 << power, (2u64 << power) - 1);
        group(name, &|tokens| tokens.ilog2() == power, true)
    }));
    Ok(rows)
}
