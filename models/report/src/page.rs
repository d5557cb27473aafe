//! Writes a report as one page that needs no network: its rows as a table that can be sorted and filtered,
//! charts, timelines.
//!
//! Charts are drawn by Chart.js, which each page holds (`models/report/page/LICENSES.md`).

mod chart;
mod lines;

use std::path::Path;

use lockstep_topology::{ErrorPlace, InputError};
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

use crate::Report;
use crate::columns::{Columns, Row, factors};
use crate::output::write_atomically;
pub use chart::{Chart, ChartAxis, ChartKind};
pub use lines::TimelineLines;

/// The content of a page, as its script reads it.
#[derive(Serialize)]
struct Content<'a> {
    title: &'a str,
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    settings: Vec<&'static str>,
    factors: Vec<&'static str>,
    notes: &'a [String],
    charts: &'a [Chart],
    timelines: &'a [TimelineLines],
}

#[derive(Serialize)]
struct Column {
    name: String,
    /// Its documentation.
    about: String,
}

/// What a page holds besides the rows of its report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page<'a> {
    /// The heading.
    pub title: &'a str,
    /// Charts of the rows.
    pub charts: &'a [Chart],
    /// Timelines of steps.
    pub timelines: &'a [TimelineLines],
    /// HTML below all else, whose texts are escaped.
    pub sections: &'a str,
    /// Its style.
    pub style: &'a str,
}

/// The page of a report, as HTML.
fn text<R: Row + JsonSchema>(page: &Page<'_>, report: &Report<R>) -> String {
    let Page { title, charts, timelines, sections, style } = *page;
    let columns = Columns::of(&report.rows);
    let schema = schema_for!(R).to_value();
    let about = |name: &String| Column {
        about: schema["properties"][name]["description"].as_str().unwrap_or_default().replace('\n', " "),
        name: name.clone(),
    };
    let content = Content {
        title,
        columns: columns.names.iter().map(about).collect(),
        rows: columns.rows,
        settings: [R::SETTING, R::OWN_SETTING].concat(),
        factors: factors::<R>(),
        notes: &report.notes,
        charts,
        timelines,
    };
    let Ok(content) = serde_json::to_string(&content) else { unreachable!("rows are plain structs") };
    // No text in the content may close the element that holds it.
    let content = content.replace('<', "\\u003c");
    let escaped = crate::svg::escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{escaped}</title>\n<style>\n{}{style}</style></head>\n<body><main id=\"page\">\
         <noscript>This page draws its figures by a script; they are in the page's source as JSON.</noscript></main>\n{sections}\
         <script id=\"report\" type=\"application/json\">{content}</script>\n<script>{}</script>\n<script>{}</script>\n\
         <script>\n{}</script>\n<script>\n{}</script></body></html>\n",
        include_str!("../page/page.css"),
        include_str!("../page/chart.js"),
        include_str!("../page/zoom.js"),
        include_str!("../page/looks.js"),
        include_str!("../page/page.js"),
    )
}

/// Writes the page that `--html` names, atomically.
///
/// # Errors
/// A place that cannot be written.
pub fn save_page<R: Row + JsonSchema>(path: &Path, page: &Page<'_>, report: &Report<R>) -> Result<(), InputError> {
    let text = text(page, report);
    write_atomically(ErrorPlace::Flag("html"), path, |out| out.write_all(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{PredictedRow, Setting};

    fn row(model: &str, ranks: u32) -> PredictedRow {
        let setting = Setting { model: model.to_owned(), ranks, ..Setting::default() };
        PredictedRow { setting, images_per_s: 100.0 * f64::from(ranks), ..PredictedRow::default() }
    }

    /// The JSON that a page holds.
    fn content(page: &str) -> Value {
        let begin = page.find("application/json\">").expect("figures") + "application/json\">".len();
        let end = begin + page[begin..].find("</script>").expect("an end");
        serde_json::from_str(&page[begin..end]).expect("JSON")
    }

    #[test]
    fn a_page_has_all_rows_and_explains_their_columns() {
        let report = Report::new(vec![row("lenet", 1), row("lenet", 2)], vec!["a note".to_owned()]);
        let of = Page { title: "A title", charts: &Chart::SCALING, sections: "<p>below</p>\n", ..Page::default() };
        let page = text(&of, &report);
        let content = content(&page);
        let names: Vec<&str> =
            content["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
        let at = names.iter().position(|name| *name == "images_per_s").expect("a column");
        assert_eq!(content["rows"][1][at], 200.0);
        assert_eq!(
            content["columns"][at]["about"],
            "Samples per second over all ranks, each step's share of a shuffle counted."
        );
        assert!(
            content["columns"].as_array().unwrap().iter().all(|column| !column["about"].as_str().unwrap().is_empty())
        );
        assert_eq!(content["notes"][0], "a note");
        for chart in content["charts"].as_array().unwrap() {
            assert!(names.contains(&chart["x"]["column"].as_str().unwrap()));
            for line in chart["lines"].as_array().unwrap() {
                assert!(names.contains(&line[1].as_str().unwrap()), "{line}");
            }
        }
        assert!(page.contains("</main>\n<p>below</p>\n<script"), "the figures come last");
        assert!(!page.contains("src=") && !page.contains("<link"), "nothing comes from elsewhere");
    }

    #[test]
    fn names_cannot_end_the_script() {
        let report = Report::new(vec![row("</script><script>alert(1)</script>", 1)], Vec::new());
        let page = text(&Page { title: "<b>", ..Page::default() }, &report);
        assert_eq!(page.matches("</script>").count(), 5);
        assert_eq!(content(&page)["rows"][0][0], "</script><script>alert(1)</script>");
        assert!(page.contains("<title>&lt;b&gt;</title>"));
    }
}
