//! Writes the page of `lockstep papers --html`: all rows with their errors, and the machines with the provenance of
//! their figures.
//!
//! One file without scripts and external resources, so that it can be sent and kept.

use std::fmt::Write as _;

use lockstep_topology::{Cluster, InputError};

use super::account::Account;
use super::paper::Paper;
use super::{chart, plotting};
use lockstep_report::svg::{escaped, significant};
use lockstep_report::{PaperRow, PlotRow};

/// Colours that most people can distinguish (Okabe and Ito 2008), the same lighter in dark mode; on narrow windows a
/// row of the table is a block.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--soft:#666;--grid:#e0e0e0;--back:#fff;--off:#f6d3c0;--near:#e6f2e6;--c0:#0072b2;\
--c1:#d55e00;--c2:#009e73;--c3:#b8578f;--c4:#b07c00;--c5:#3f9fd0;--c6:#444}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e4e4;--soft:#a2a2a2;--grid:#3b3b3b;--back:#161616;--off:#6b3417;--near:#1d3322;\
--c0:#4fb0ea;--c1:#ff9048;--c2:#2fcf9e;--c3:#e79bc6;--c4:#e6b42e;--c5:#9fd8f5;--c6:#ccc}}\
body{font:15px/1.45 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--back);\
overflow-wrap:break-word}h1{font-size:1.6rem;line-height:1.2}h2{margin-top:2.5rem;border-bottom:1px solid var(--grid)}\
table{border-collapse:collapse;width:100%;margin:1rem 0;font-size:.85rem}th,td{padding:.25rem .5rem;text-align:left;\
vertical-align:top;border-bottom:1px solid var(--grid)}th{white-space:nowrap}.rows td:nth-child(2){min-width:15rem}td.number{text-align:right;\
font-variant-numeric:tabular-nums;white-space:nowrap}tr.off td.error{background:var(--off)}tr.exempt,.cite{color:var(--soft)}\
details{margin:1rem 0}summary{cursor:pointer}.wide{overflow-x:auto}.wide>table{min-width:40rem}td:first-child{white-space:nowrap}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem;align-items:start}\
figure{margin:0}figcaption{font-size:.85rem}figcaption b{display:block}svg{display:block;width:100%;max-width:34rem;height:auto}\
.ink,.name{fill:var(--ink)}.soft{fill:var(--soft)}.grid{stroke:var(--grid)}.even{stroke:var(--soft)}.near{fill:var(--near)}\
.name{font-size:11px;stroke:var(--back);stroke-width:3px;paint-order:stroke}polyline{fill:none}line[class^=l]{stroke-width:1.8}\
.perfect{stroke-opacity:.9}.p{stroke-width:1.5}.p.hollow{fill:var(--back)}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}\
.l6{stroke:var(--c6)}.d0,.q0{fill:var(--c0)}.d1,.q1{fill:var(--c1)}.d2,.q2{fill:var(--c2)}.d3,.q3{fill:var(--c3)}\
.d4,.q4{fill:var(--c4)}.d5,.q5{fill:var(--c5)}.d6,.q6{fill:var(--c6)}.q0{stroke:var(--c0)}.q1{stroke:var(--c1)}\
.q2{stroke:var(--c2)}.q3{stroke:var(--c3)}.q4{stroke:var(--c4)}.q5{stroke:var(--c5)}.q6{stroke:var(--c6)}";

/// The caption under all figures.
const READING: &str = "Lines with dots: predicted. Diamonds: numbers in the paper's text, or what follows from two of them, by the \
names of their rows; hollow where the row does not count. Nothing is read off an image.";

/// Errors beyond this many percent are highlighted.
const OFF: f64 = 10.0;

/// The page of these papers and their predictions.
///
/// # Errors
/// A cluster that no longer exists.
pub fn page(papers: &[Paper], account: &Account) -> Result<String, InputError> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>lockstep: papers</title><style>{STYLE}</style></head><body>\n\
         <h1>What papers measured, and what lockstep predicts</h1>\n"
    );
    let of_all = account.notes.iter().filter(|note| papers.iter().all(|paper| !is_of(note, paper)));
    of_all.for_each(|note| paragraph(&mut out, note));
    for paper in papers {
        let rows: Vec<&PaperRow> = account.rows.iter().filter(|row| row.paper == paper.name).collect();
        let _ = write!(out, "<h2 id=\"{0}\">{0}</h2>\n<p>{1}</p>\n", escaped(&paper.name), escaped(&paper.source));
        figures(&mut out, paper, &account.plots);
        out += "<h3>Every row</h3>\n";
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

/// The paper's figures, drawn from predictions.
fn figures(out: &mut String, paper: &Paper, points: &[PlotRow]) {
    let own: Vec<PlotRow> = points.iter().filter(|point| point.paper == paper.name).cloned().collect();
    if own.is_empty() {
        return;
    }
    let _ = writeln!(out, "<p class=\"cite\">{READING}</p>\n<div class=\"figures\">");
    for plot in &paper.plots {
        let _ = writeln!(
            out,
            "<figure>{}<figcaption><b>{} (paper: {})</b>{}</figcaption></figure>",
            plotting::svg(plot, &own),
            escaped(&plot.title),
            escaped(&plot.like),
            escaped(&plotting::told(plot, &own))
        );
    }
    *out += "</div>\n";
}

fn table(out: &mut String, rows: &[&PaperRow]) {
    *out += "<div class=\"wide\"><table class=\"rows\"><thead><tr><th>row<th>the paper says<th>published<th>predicted<th>unit<th>error\
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

/// Every figure of the machine with its source, collapsed.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of every paper is in the page with its figures, and nothing is fetched from anywhere.
    #[test]
    fn a_page_has_all_rows_and_needs_nothing_else() {
        let papers = [Paper::load("krizhevsky2014").unwrap()];
        let row = |row: &crate::row::Row| PaperRow {
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
        let account =
            Account { rows, notes: vec!["krizhevsky2014: its own".into(), "of all".into()], plots: Vec::new() };
        let page = page(&papers, &account).unwrap();
        for row in &papers[0].rows {
            assert!(page.contains(&format!("<td>{}<td>a &lt; b &amp; c", row.name)), "{}", row.name);
        }
        assert_eq!(page.matches("error\">+25.0 %").count(), papers[0].rows.len());
        assert!(page.contains("<p>of all</p>") && page.contains("<li>its own</li>"));
        // The sources of the machine's figures.
        assert!(page.contains("BD-06455-001"));
        for word in ["src=", "href=", "<script", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
