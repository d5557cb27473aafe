//! Turns rows into columns: names in the order of the struct's fields, a cell per row.

use serde::Serialize;
use serde_json::{Map, Value};

use super::rounded::rounded;

/// Properties of a row besides its fields.
pub trait Row: Serialize {
    /// Fields that describe the setting: where all rows of a table agree on one, it is shown once above the table.
    const SETTING: &'static [&'static str] = &[];

    /// More such fields, of this kind of row alone.
    const OWN_SETTING: &'static [&'static str] = &[];

    /// Fields that only JSON carries: those with an inner structure, and former names.
    const JSON_ONLY: &'static [&'static str] = &[];

    /// Fields that tables omit because the text below contains them.
    const BELOW: &'static [&'static str] = &[];

    /// Figures with the fields that hold their errors in percent: tables show `3100 ± 45 %` in one column.
    const BARS: &'static [(&'static str, &'static str)] = &[];
}

/// Columns besides those of a setting that distinguish rows.
const FACTORS: &[&str] = &[
    "ranks",
    "batch_per_rank",
    "algorithm",
    "scenario",
    "scale",
    "chunk",
    "concurrent_exchanges",
    "unit",
    "mark",
    "counted",
];

/// Columns that distinguish rows: those of the setting and [`FACTORS`].
pub(super) fn factors<R: Row>() -> Vec<&'static str> {
    // A setting that tables show once may be an answer: what bounds a step.
    [R::SETTING, R::OWN_SETTING, FACTORS].concat().into_iter().filter(|name| *name != "bound").collect()
}

/// All cells of a report by column.
pub(super) struct Columns {
    /// Names, units included.
    pub(super) names: Vec<String>,
    /// A cell per name in each row.
    pub(super) rows: Vec<Vec<Value>>,
}

impl Columns {
    /// The fields of `rows`, of which some rows may lack some; lists become texts of their items.
    pub(super) fn of<R: Row>(rows: &[R]) -> Columns {
        let fields = |row: &R| match serde_json::to_value(row) {
            Ok(Value::Object(fields)) => fields,
            _ => unreachable!("a row is a plain struct"),
        };
        let rows: Vec<_> = rows.iter().map(fields).collect();
        // The first of the rows with the most fields has them all.
        let whole = rows.iter().rev().max_by_key(|fields| fields.len());
        let names = whole.into_iter().flat_map(|fields| fields.keys());
        let names: Vec<String> = names.filter(|name| !R::JSON_ONLY.contains(&name.as_str())).cloned().collect();
        let cells = |mut fields: Map<String, Value>| {
            names.iter().map(|name| flat(fields.remove(name).unwrap_or_default())).collect()
        };
        Columns { rows: rows.into_iter().map(cells).collect(), names: names.clone() }
    }

    /// Figures with their errors in percent behind them, whose columns are left out.
    pub(super) fn with_bars(mut self, bars: &[(&str, &str)]) -> Columns {
        for (figure, error) in bars {
            let at = |name: &str| self.names.iter().position(|known| known == name);
            let (Some(figure), Some(error)) = (at(figure), at(error)) else { continue };
            for row in &mut self.rows {
                if let (Some(value), Some(percent)) = (row[figure].as_f64(), row[error].as_f64()) {
                    row[figure] = Value::String(format!("{} ± {percent:.0} %", rounded(value)));
                }
            }
        }
        self.without(&bars.iter().map(|(_, error)| *error).collect::<Vec<_>>())
    }

    /// The other columns.
    pub(super) fn without(self, names: &[&str]) -> Columns {
        let kept: Vec<bool> = self.names.iter().map(|name| !names.contains(&name.as_str())).collect();
        let keep =
            |row: Vec<Value>| row.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell).collect();
        let rows = self.rows.into_iter().map(keep).collect();
        Columns {
            names: self.names.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(name, _)| name).collect(),
            rows,
        }
    }
}

/// A list as text: its items, or of items with fields the name and the figure that come first in each.
fn flat(value: Value) -> Value {
    let text = |item: &Value| match item {
        Value::Object(fields) => {
            let name = fields.values().find_map(Value::as_str).unwrap_or_default();
            fields.values().find(|field| field.is_number()).map_or(name.to_owned(), |figure| format!("{name}={figure}"))
        }
        item => item.as_str().map_or_else(|| item.to_string(), str::to_owned),
    };
    match value {
        Value::Array(items) => {
            let between =
                if items.iter().any(|item| item.is_object() || text(item).contains(' ')) { "; " } else { " " };
            Value::String(items.iter().map(text).collect::<Vec<_>>().join(between))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_become_text() {
        assert_eq!(flat(json!(["a", "b"])), json!("a b"));
        assert_eq!(flat(json!(["host memory", "b"])), json!("host memory; b"));
        let classes =
            json!([{ "class": "pcie", "busiest": "x", "share": 0.5, "n": 2 }, { "class": "cores", "share": 1.0 }]);
        assert_eq!(flat(classes), json!("pcie=0.5; cores=1.0"));
        assert_eq!(flat(json!([])), json!(""));
    }
}
