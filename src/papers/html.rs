//! The page of `lockstep papers --html`: all rows, how far each is off, and the machines with the provenance of their figures.
//!
//! One file without scripts and without anything from elsewhere, so that it can be sent and kept.

use std::fmt::Write as _;

use lockstep_topology::{Cluster, InputError};

use super::account::Account;
use super::{Paper, chart};
use crate::report::PaperRow;

const STYLE: &str = "\
body{font:15px/1.45 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:1px solid #ccc}table{border-collapse:collapse;width:100%;margin:1rem 0;\
font-size:.85rem}th,td{padding:.25rem .5rem;text-align:left;vertical-align:top;border-bottom:1px solid #e4e4e4}\
td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}tr.off td.error{background:#f6d3c0}\
tr.exempt{color:#777}small,.cite{color:#666}details{margin:1rem 0}summary{cursor:pointer}svg{max-width:100%;height:auto}\
.wide{overflow-x:auto}";

/// Errors beyond so many percent stand out.
const OFF: f64 = 10.0;

/// The page of these papers and what was predicted of them.
///
/// # Errors
/// A cluster that is gone since.
pub fn page(papers: &[Paper], account: &Account) -> Result<String, InputError> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>lockstep: papers</title><style>{STYLE}</style></head><body>\n\
         <h1>What papers measured, and what lockstep predicts</h1>\n"
    );
    let of_all = account.notes.iter().filter(|note| papers.iter().all(|paper| !is_of(note, paper)));
    of_all.for_each(|note| paragraph(&mut out, note));
    for paper in papers {
        let rows: Vec<&PaperRow> = account.rows.iter().filter(|row| row.paper == paper.name).collect();
        let _ = write!(out, "<h2 id=\"{0}\">{0}</h2>\n<p>{1}</p>\n", escaped(&paper.name), escaped(&paper.source));
        out += &chart::ratios(&rows);
        table(&mut out, &rows);
        let notes: Vec<&String> = account.notes.iter().filter(|note| is_of(note, paper)).collect();
        if !notes.is_empty() {
            out += "<p>What it rests on:</p><ul>\n";
            for note in notes {
                let _ = writeln!(out, "<li>{}</li>", escaped(&note[paper.name.len() + 2..]));
            }
            out += "</ul>\n";
        }
        machine(&mut out, &Cluster::load(&paper.common.cluster)?);
    }
    out += "</body></html>\n";
    Ok(out)
}

/// Whether a note of the account is about this paper.
fn is_of(note: &str, paper: &Paper) -> bool {
    note.strip_prefix(&paper.name).is_some_and(|rest| rest.starts_with(": "))
}

fn paragraph(out: &mut String, text: &str) {
    let _ = writeln!(out, "<p>{}</p>", escaped(text));
}

fn table(out: &mut String, rows: &[&PaperRow]) {
    *out += "<div class=\"wide\"><table><thead><tr><th>row<th>the paper says<th>published<th>predicted<th>unit<th>error\
             <th>mark<th>bound by</tr></thead><tbody>\n";
    for row in rows {
        let off = row.counted && row.error_pct.is_some_and(|error| error.abs() > OFF);
        let class = if off {
            "off"
        } else if row.counted {
            ""
        } else {
            "exempt"
        };
        let number = |value: Option<f64>| value.map_or(String::new(), significant);
        let error = match (row.error_pct, row.holds) {
            (Some(error), _) => format!("{error:+.1} %"),
            (None, Some(holds)) => if holds { "holds" } else { "does not hold" }.to_owned(),
            (None, None) => String::new(),
        };
        let mark = match (&row.mark, row.left_out) {
            (Some(mark), _) => escaped(mark),
            (None, true) => "left out of the fit".to_owned(),
            (None, false) => String::new(),
        };
        let _ = writeln!(
            out,
            "<tr class=\"{class}\"><td>{}<td>{} <span class=\"cite\">({})</span><td class=\"number\">{}<td \
             class=\"number\">{}<td>{}<td class=\"number error\">{error}<td>{mark}<td>{}</tr>",
            escaped(&row.row),
            escaped(&row.says),
            escaped(&row.cite),
            number(row.published),
            number(row.predicted),
            if row.unit == "1" { String::new() } else { escaped(&row.unit) },
            escaped(row.bound.as_deref().unwrap_or_default()),
        );
    }
    *out += "</tbody></table></div>\n";
}

/// Every figure of the machine with its source, folded away.
fn machine(out: &mut String, cluster: &Cluster) {
    let _ = writeln!(out, "<details><summary>The machine: {}</summary>", escaped(cluster.name()));
    for table in cluster.describe().iter().filter(|table| !table.rows.is_empty()) {
        let _ = write!(out, "<div class=\"wide\"><table><caption>{}</caption><thead><tr>", escaped(table.title));
        table.columns.iter().for_each(|column| *out += &format!("<th>{}", escaped(column)));
        *out += "</tr></thead><tbody>\n";
        for row in &table.rows {
            *out += "<tr>";
            row.iter().for_each(|cell| *out += &format!("<td>{}", escaped(cell)));
            *out += "</tr>\n";
        }
        *out += "</tbody></table></div>\n";
    }
    *out += "</details>\n";
}

/// Four digits, as far as they say something.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Text as HTML shows it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (value, text) in [(0.0, "0"), (15500.0, "15500"), (1.9375, "1.938"), (0.1012, "0.1012"), (29.0, "29")] {
            assert_eq!(significant(value), text);
        }
    }

    /// Every row of every paper stands in the page with its figures, and nothing is fetched from anywhere.
    #[test]
    fn a_page_has_all_rows_and_needs_nothing_else() {
        let papers = [Paper::load("krizhevsky2014").unwrap()];
        let row = |row: &super::super::Row| PaperRow {
            paper: "krizhevsky2014".into(),
            row: row.name.clone(),
            says: "a < b & c".into(),
            cite: "there".into(),
            published: Some(2.0),
            predicted: Some(2.5),
            unit: "h".into(),
            error_pct: Some(25.0),
            holds: None,
            mark: None,
            counted: true,
            left_out: false,
            bound: Some("gpu".into()),
        };
        let rows: Vec<PaperRow> = papers[0].rows.iter().map(row).collect();
        let account = Account { rows, notes: vec!["krizhevsky2014: its own".into(), "of all".into()] };
        let page = page(&papers, &account).unwrap();
        for row in &papers[0].rows {
            assert!(page.contains(&format!("<td>{}<td>a &lt; b &amp; c", row.name)), "{}", row.name);
        }
        assert_eq!(page.matches("error\">+25.0 %").count(), papers[0].rows.len());
        assert!(page.contains("<p>of all</p>") && page.contains("<li>its own</li>"));
        // Where the machine's figures come from.
        assert!(page.contains("BD-06455-001"));
        for word in ["src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
