//! The CSV form (RFC 4180): a header, then full precision, an empty cell where there is no figure.

use serde_json::Value;

use super::columns::Columns;

/// Header and rows.
pub(super) fn render(columns: &Columns) -> String {
    let mut text = line(columns.names.iter().map(|name| quoted(name)));
    for row in &columns.rows {
        text.push_str(&line(row.iter().map(|cell| match cell {
            Value::Null => String::new(),
            Value::String(text) => quoted(text),
            other => other.to_string(),
        })));
    }
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(",") + "\n"
}

/// In quotes where it must be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_where_needed() {
        let columns = Columns {
            names: vec!["name".into(), "time_s".into()],
            rows: vec![vec![Value::from("a,\"b\""), Value::from(0.1)], vec![Value::from("plain"), Value::Null]],
        };
        assert_eq!(render(&columns), "name,time_s\n\"a,\"\"b\"\"\",0.1\nplain,\n");
    }
}
