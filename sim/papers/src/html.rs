//! Writes the page of `lockstep papers --html`: all rows, to filter and sort, and by paper its figures and machine with
//! the provenance of each number.

use std::fmt::Write as _;
use std::path::Path;

use lockstep_topology::{Cluster, InputError};

use super::account::Account;
use super::paper::Paper;
use super::{chart, plotting};
use lockstep_report::svg::escaped;
use lockstep_report::{Chart, Page, PaperRow, PlotRow, Report, save_page};

/// Colours of figures that most people can distinguish (Okabe and Ito 2008), the same lighter in dark mode.
const STYLE: &str = "\
:root{--near:#e6f2e6;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b8578f;--c4:#b07c00;--c5:#3f9fd0;--c6:#444}\
@media(prefers-color-scheme:dark){:root{--near:#1d3322;--c0:#4fb0ea;--c1:#ff9048;--c2:#2fcf9e;--c3:#e79bc6;--c4:#e6b42e;\
--c5:#9fd8f5;--c6:#ccc}}body{overflow-wrap:break-word}.cite{color:var(--soft);font-size:.85rem}\
details{margin:1rem 0}summary{cursor:pointer}caption{text-align:left;font-weight:600}td:first-child{white-space:nowrap}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem;align-items:start}\
figcaption b{display:block}svg{display:block;width:100%;max-width:34rem;height:auto}\
.ink,.name{fill:var(--ink)}.soft{fill:var(--soft)}.grid{stroke:var(--grid)}.even{stroke:var(--soft)}.near{fill:var(--near)}\
.name{font-size:11px;stroke:var(--back);stroke-width:3px;paint-order:stroke}polyline{fill:none}line[class^=l]{stroke-width:1.8}\
.perfect{stroke-opacity:.9}.p{stroke-width:1.5}.p.hollow{fill:var(--back)}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}\
.l6{stroke:var(--c6)}.d0,.q0{fill:var(--c0)}.d1,.q1{fill:var(--c1)}.d2,.q2{fill:var(--c2)}.d3,.q3{fill:var(--c3)}\
.d4,.q4{fill:var(--c4)}.d5,.q5{fill:var(--c5)}.d6,.q6{fill:var(--c6)}.q0{stroke:var(--c0)}.q1{stroke:var(--c1)}\
.q2{stroke:var(--c2)}.q3{stroke:var(--c3)}.q4{stroke:var(--c4)}.q5{stroke:var(--c5)}.q6{stroke:var(--c6)}";

/// How far the rows' predictions are off; rows have units of their own, so no axis is common to their values.
const CHARTS: &[Chart] = &[Chart::ERRORS];

/// The caption under all figures.
const READING: &str = "Lines with dots: predicted. Diamonds: numbers in the paper's text, or what follows from two of them, by the \
names of their rows; hollow where the row does not count. Nothing is read off an image.";

/// Writes the page of these papers and their predictions.
///
/// # Errors
/// A cluster that no longer exists, a place that cannot be written.
pub fn save_papers(path: &Path, papers: &[Paper], account: &Account) -> Result<(), InputError> {
    let sections = sections(papers, account)?;
    let title = "What papers measured, and what lockstep predicts";
    let notes = account.notes.iter().filter(|note| papers.iter().all(|paper| !is_of(note, paper)));
    let report = Report::new(account.rows.clone(), notes.cloned().collect());
    save_page(path, &Page { title, charts: CHARTS, sections: &sections, style: STYLE, ..Page::default() }, &report)
}

/// By paper: its figures, the ratios of its rows, what these rest on, and the machine.
fn sections(papers: &[Paper], account: &Account) -> Result<String, InputError> {
    let mut out = String::new();
    for paper in papers {
        let rows: Vec<&PaperRow> = account.rows.iter().filter(|row| row.paper == paper.name).collect();
        let _ = write!(out, "<h2 id=\"{0}\">{0}</h2>\n<p>{1}</p>\n", escaped(&paper.name), escaped(&paper.source));
        figures(&mut out, paper, &account.plots);
        out += &chart::ratios(&rows);
        let notes: Vec<&String> = account.notes.iter().filter(|note| is_of(note, paper)).collect();
        if !notes.is_empty() {
            out += "<p>What the rows rest on:</p><ul>\n";
            for note in notes {
                let _ = writeln!(out, "<li>{}</li>", escaped(&note[paper.name.len() + 2..]));
            }
            out += "</ul>\n";
        }
        machine(&mut out, &Cluster::load(&paper.common.cluster)?);
    }
    Ok(out)
}

/// Whether a note of the account is about this paper.
fn is_of(note: &str, paper: &Paper) -> bool {
    note.strip_prefix(&paper.name).is_some_and(|rest| rest.starts_with(": "))
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
            escaped(&plotting::bounds_line(plot, &own))
        );
    }
    *out += "</div>\n";
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

    /// A page has all rows with their figures, each paper's notes and the sources of its machine's figures, and fetches
    /// nothing.
    #[test]
    fn a_page_has_all_rows_and_needs_nothing_else() {
        let papers = [Paper::load("krizhevsky2014").unwrap()];
        let row = |row: &crate::row::CaseRow| PaperRow {
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
        let notes = vec!["krizhevsky2014: its < own".into(), "of all".into()];
        let account = Account { rows, notes, plots: Vec::new() };
        let folder = std::env::temp_dir().join(format!("lockstep-papers-page-{}", std::process::id()));
        save_papers(&folder, &papers, &account).unwrap();
        let page = std::fs::read_to_string(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        for row in &papers[0].rows {
            assert!(page.contains(&format!("\"{}\",\"a \\u003c b & c\"", row.name)), "{}", row.name);
        }
        assert!(page.contains("\"notes\":[\"of all\"]") && page.contains("<li>its &lt; own</li>"));
        assert!(page.contains("BD-06455-001"), "the sources of the machine's figures");
        for word in ["src=", "href=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
