//! Compares the account with published runs: a CSV file of flags, the rank, and what it took.

use std::path::Path;

use clap::Parser;
use lockstep_report::{MemoryBesideRow, Report};
use lockstep_stack::GIB;
use lockstep_topology::{ErrorPlace, InputError, RECORD, read_text};

use super::layout_flags::LayoutFlags;

/// The columns of such a file; lines that begin with # say where the figures come from.
const HEADER: &str = "rank,allocated,reserved,ran,flags";

/// A line's flags.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    flags: LayoutFlags,
}

/// The report on the runs in `file`.
pub(super) fn report(file: &Path) -> Result<Report<MemoryBesideRow>, InputError> {
    let name = file.display().to_string();
    let text = read_text(file, RECORD)
        .map_err(|error| InputError::new("--beside", name.as_str(), error.with_cure("name a .csv of runs")))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    let mut rows = Vec::new();
    for (number, line) in lines {
        let place = || ErrorPlace::line(&name, number + 1);
        if rows.is_empty() && line.trim() == HEADER {
            continue;
        }
        rows.push(row(line).map_err(|(value, message)| InputError::new(place(), value, message))?);
    }
    let mut notes = summary(&rows);
    notes.extend(common(&mut rows));
    Ok(Report::new(rows, notes))
}

/// Takes the flags that all runs have out of their rows, and says which they are.
fn common(rows: &mut [MemoryBesideRow]) -> Option<String> {
    let all: Vec<Vec<String>> = rows.iter().map(|row| settings(&row.flags)).collect();
    let (first, rest) = all.split_first()?;
    let shared: Vec<&String> = first.iter().filter(|one| rest.iter().all(|of| of.contains(one))).collect();
    if rest.is_empty() || shared.is_empty() {
        return None;
    }
    for (row, of) in rows.iter_mut().zip(&all) {
        row.flags = of.iter().filter(|one| !shared.contains(one)).cloned().collect::<Vec<_>>().join(" ");
    }
    Some(format!("all runs: {}", shared.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" ")))
}

/// Flags, each with its value.
fn settings(flags: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in flags.split_whitespace() {
        match all.last_mut().filter(|_| !word.starts_with("--")) {
            Some(last) => *last += &format!(" {word}"),
            None => all.push(word.to_owned()),
        }
    }
    all
}

/// The row of a line; an error is a value and what is wrong.
fn row(line: &str) -> Result<MemoryBesideRow, (String, String)> {
    let cells: Vec<&str> = line.splitn(5, ',').map(str::trim).collect();
    let [rank, allocated, reserved, ran, flags] = cells[..] else {
        return Err((line.to_owned(), format!("must have the columns {HEADER}")));
    };
    let flags = flags.trim_matches('"');
    let measured_allocated_gib = gib(allocated)?;
    let measured_reserved_gib = gib(reserved)?;
    let ran = match ran {
        "" => None,
        "yes" => Some(true),
        "no" => Some(false),
        _ => return Err((ran.to_owned(), "must be yes, no or empty".to_owned())),
    };
    let words = std::iter::once("memory").chain(flags.split_whitespace());
    let parsed = Line::try_parse_from(words).map_err(|error| {
        let message = error.render().to_string();
        (flags.to_owned(), message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    let wrong = |error: InputError| (flags.to_owned(), error.to_string());
    let question = parsed.flags.question().map_err(wrong)?;
    let account = question.account().map_err(wrong)?;
    let of = match rank {
        "first" => account.ranks.first(),
        "last" => account.ranks.last(),
        "worst" => account.worst(),
        _ => return Err((rank.to_owned(), "must be first, last or worst".to_owned())),
    };
    let (allocated_gib, reserved_gib) = of.map_or((0.0, 0.0), |rank| (rank.allocated_gib(), rank.reserved_gib()));
    let error = |measured: Option<f64>, of: f64| measured.map(|measured| 100.0 * (of / measured - 1.0));
    Ok(MemoryBesideRow {
        flags: flags.to_owned(),
        rank: rank.to_owned(),
        measured_allocated_gib,
        allocated_gib,
        allocated_error_pct: error(measured_allocated_gib, allocated_gib),
        measured_reserved_gib,
        reserved_gib,
        reserved_error_pct: error(measured_reserved_gib, reserved_gib),
        ran,
        fits: account.fits(question.gpus.board),
    })
}

/// A size as published: `68149MiB`, `66.6GiB`, `21.3GB`, or nothing.
fn gib(text: &str) -> Result<Option<f64>, (String, String)> {
    if text.is_empty() {
        return Ok(None);
    }
    let units = [("MiB", (1u64 << 20) as f64), ("GiB", GIB), ("GB", 1e9)];
    let found =
        units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.trim().parse::<f64>().ok()?, bytes)));
    match found {
        Some((size, bytes)) if size > 0.0 && size.is_finite() => Ok(Some(size * bytes / GIB)),
        _ => Err((text.to_owned(), "must be a size such as 68149MiB, 66.6GiB or 21.3GB".to_owned())),
    }
}

/// Means and worst errors, and runs that the account calls wrongly.
fn summary(rows: &[MemoryBesideRow]) -> Vec<String> {
    let mut notes = Vec::new();
    let allocated = rows.iter().map(|row| row.allocated_error_pct).collect::<Vec<_>>();
    let reserved = rows.iter().map(|row| row.reserved_error_pct).collect::<Vec<_>>();
    for (name, errors) in [("allocated", allocated), ("reserved", reserved)] {
        let all: Vec<f64> = errors.into_iter().flatten().map(f64::abs).collect();
        if !all.is_empty() {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let worst = all.iter().fold(0.0, |a: f64, b| a.max(*b));
            notes.push(format!("{name}: mean error {mean:.2} %, worst {worst:.2} %, over {} runs", all.len()));
        }
    }
    let known = rows.iter().filter(|row| row.ran.is_some()).count();
    if known > 0 {
        let wrong = |ran: bool| rows.iter().filter(|row| row.ran == Some(ran) && row.fits != ran).count();
        notes.push(format!(
            "of {known} runs: {} that ran out of memory fit by the account, {} that ran do not",
            wrong(false),
            wrong(true)
        ));
    }
    notes
}
