//! Rows turned into columns: names in the order of the struct's fields, a cell per row.

use serde_json::Value;

use super::Row;

/// All cells of a report by column.
pub(super) struct Columns {
    /// Names, units included.
    pub(super) names: Vec<String>,
    /// A cell per name in each row.
    pub(super) rows: Vec<Vec<Value>>,
}

impl Columns {
    /// The fields of `rows`; lists become texts of their items joined by spaces.
    pub(super) fn of<R: Row>(rows: &[R]) -> Columns {
        let mut columns = Columns { names: Vec::new(), rows: Vec::new() };
        for row in rows {
            let Ok(Value::Object(fields)) = serde_json::to_value(row) else { unreachable!("a row is a plain struct") };
            let fields = || fields.iter().filter(|(name, _)| !R::NESTED.contains(&name.as_str()));
            if columns.names.is_empty() {
                columns.names = fields().map(|(name, _)| name.clone()).collect();
            }
            columns.rows.push(fields().map(|(_, value)| flat(value.clone())).collect());
        }
        columns
    }
}

/// A list as text.
fn flat(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
            Value::String(items.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        other => other,
    }
}
