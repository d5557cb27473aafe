//! The CSV form (RFC 4180): a header, then full precision, an empty cell where there is no figure.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Row;
use super::columns::Columns;

/// Header and rows.
pub(super) fn render(columns: &Columns) -> String {
    let rows = columns.rows.iter().map(|row| record(row));
    std::iter::once(header(columns)).chain(rows).collect()
}

/// The line of names.
pub(super) fn header(columns: &Columns) -> String {
    line(columns.names.iter().map(|name| quoted(name)))
}

/// The line of a row.
pub(super) fn record(row: &[Value]) -> String {
    line(row.iter().map(|cell| match cell {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }))
}

/// The cells of a line as [`record`] writes it; `None` where quotes do not close.
pub(super) fn cells(line: &str) -> Option<Vec<String>> {
    let mut cells = vec![String::new()];
    let mut characters = line.chars().peekable();
    let mut quoted = false;
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => cells.last_mut()?.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells.last_mut()?.push(other),
        }
    }
    (!quoted).then_some(cells)
}

/// The row of such a line, without its end; `None` where it is none. `texts` are the columns whose cells are no figures.
pub(super) fn row<R: Row + Default + DeserializeOwned>(line: &str, texts: &[&str]) -> Option<R> {
    let names = Columns::of(&[R::default()]).names;
    let value = |name: &str, cell: String| -> Option<Value> {
        match cell.as_str() {
            "" => Some(Value::Null),
            _ if texts.contains(&name) => Some(Value::String(cell)),
            _ => serde_json::from_str(&cell).ok(),
        }
    };
    let cells = cells(line)?;
    let fields = names.iter().zip(cells).map(|(name, cell)| Some((name.clone(), value(name, cell)?)));
    serde_json::from_value(Value::Object(fields.collect::<Option<Map<String, Value>>>()?)).ok()
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

    #[test]
    fn cells_come_back() {
        for row in [vec!["a,\"b\"", "", "plain"], vec!["\""], vec![",", "\"\",\""]] {
            let values: Vec<Value> = row.iter().map(|text| Value::from(*text)).collect();
            assert_eq!(cells(record(&values).trim_end()).unwrap(), row);
        }
        assert_eq!(cells("\"open"), None);
    }
}
