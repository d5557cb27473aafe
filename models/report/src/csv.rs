//! Reads and writes CSV (RFC 4180): a header, then full precision, an empty cell where there is no figure.

use std::marker::PhantomData;

use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns::{Columns, Row};

/// Header and rows.
pub(super) fn render(columns: &Columns) -> String {
    let rows = columns.rows.iter().map(|row| record(row));
    std::iter::once(header(&columns.names)).chain(rows).collect()
}

/// The line of names.
fn header(names: &[String]) -> String {
    line(names.iter().map(|name| quoted(name)))
}

/// The line of a row.
fn record(row: &[Value]) -> String {
    line(row.iter().map(|cell| match cell {
        Value::Null => String::new(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }))
}

/// The cells of a line as [`record`] writes it; `None` where quotes do not close.
fn cells(line: &str) -> Option<Vec<String>> {
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

/// The lines of a file of such rows, whose columns are found once.
#[derive(Debug)]
pub struct CsvForm<R> {
    names: Vec<String>,
    /// Columns that hold text; all others hold figures, or yes and no.
    texts: Vec<String>,
    of: PhantomData<R>,
}

impl<R: Row + DeserializeOwned + JsonSchema> CsvForm<R> {
    /// The form of rows that have the columns of `example`; others leave cells empty.
    pub fn of(example: &R) -> CsvForm<R> {
        let schema = schema_for!(R);
        let columns = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        // `"string"`, or `["string", "null"]`.
        let is_text = |column: &Value| column["type"] == "string" || column["type"][0] == "string";
        let texts = columns.filter(|(_, column)| is_text(column)).map(|(name, _)| name.clone()).collect();
        CsvForm { names: Columns::of(std::slice::from_ref(example)).names, texts, of: PhantomData }
    }

    /// The form without the column `name`.
    pub fn without(&self, name: &str) -> CsvForm<R> {
        let names = self.names.iter().filter(|own| *own != name).cloned().collect();
        CsvForm { names, texts: self.texts.clone(), of: PhantomData }
    }

    /// The names of the columns, a file's first line.
    pub fn header(&self) -> String {
        header(&self.names)
    }

    /// The line of a row.
    pub fn line(&self, row: &R) -> String {
        let Columns { names, rows } = Columns::of(std::slice::from_ref(row));
        let cell =
            |name: &String| names.iter().position(|own| own == name).map_or(Value::Null, |at| rows[0][at].clone());
        record(&self.names.iter().map(cell).collect::<Vec<_>>())
    }

    /// The row of such a line, without its end; `None` where it is none.
    pub fn row(&self, line: &str) -> Option<R> {
        let value = |name: &str, cell: String| -> Option<Value> {
            match cell.as_str() {
                "" => Some(Value::Null),
                _ if self.texts.iter().any(|text| text == name) => Some(Value::String(cell)),
                _ => serde_json::from_str(&cell).ok(),
            }
        };
        let fields = self.names.iter().zip(cells(line)?).map(|(name, cell)| Some((name.clone(), value(name, cell)?)));
        serde_json::from_value(Value::Object(fields.collect::<Option<Map<String, Value>>>()?)).ok()
    }
}

/// The names of the columns that rows of this kind can have.
pub fn column_names<R: JsonSchema>() -> Vec<String> {
    let schema = schema_for!(R);
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()).collect()
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
    fn cells_round_trip() {
        for row in [vec!["a,\"b\"", "", "plain"], vec!["\""], vec![",", "\"\",\""]] {
            let values: Vec<Value> = row.iter().map(|text| Value::from(*text)).collect();
            assert_eq!(cells(record(&values).trim_end()).unwrap(), row);
        }
        assert_eq!(cells("\"open"), None);
    }
}
