//! Writes each row's error to a file, and compares later runs with it, so that no error grows unnoticed.

use std::fmt::Write as _;

use lockstep_topology::{ErrorPlace, InputError};

use lockstep_report::PaperRow;
use lockstep_report::failure::Failure;

/// Percentage points by which an error may change without a message.
const MARGIN: f64 = 1.0;
/// The columns of the file; a row's name may contain commas, so it comes last.
const HEADER: &str = "paper,error_pct,holds,row";
/// The flag that writes it.
const WRITE: ErrorPlace = ErrorPlace::Flag("write_errors");

/// The errors of all rows that have one, and which orderings hold, as a CSV file.
pub fn errors(rows: &[PaperRow]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows.iter().filter(|row| row.error_pct.is_some() || row.holds.is_some()) {
        let error = row.error_pct.map_or(String::new(), |error| format!("{error:.1}"));
        let holds = row.holds.map_or(String::new(), |holds| holds.to_string());
        let _ = writeln!(text, "{},{error},{holds},{}", row.paper, row.row);
    }
    text
}

/// Compares `rows` with those in `text`, the content of `file`; returns in sentences what has improved or is new.
///
/// # Errors
/// A file of another form; rows that are worse than committed, or gone.
pub fn check(file: &str, text: &str, rows: &[PaperRow]) -> Result<Vec<String>, Failure> {
    let mut lines = text.lines().zip(1..);
    if lines.next().map(|(header, _)| header) != Some(HEADER) {
        let message = format!("must begin with {HEADER}: write it again with {WRITE} {file}");
        return Err(InputError::new(file, text.lines().next().unwrap_or_default(), message).into());
    }
    let (mut known, mut worse, mut better, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (line, number) in lines {
        let wrong = |message: &str| InputError::new(ErrorPlace::line(file, number), line, message);
        let [paper, error, holds, name] = line.splitn(4, ',').collect::<Vec<_>>()[..] else {
            return Err(wrong("must have four columns").into());
        };
        if known.contains(&(paper, name)) {
            return Err(wrong("is there twice: keep one").into());
        }
        if !matches!(holds, "" | "true" | "false") || error.is_empty() && holds.is_empty() {
            return Err(wrong("needs an error, or true or false whether the ordering holds").into());
        }
        known.push((paper, name));
        let Some(row) = rows.iter().find(|row| row.paper == paper && row.row == name) else {
            if rows.iter().any(|row| row.paper == paper) {
                worse.push(format!("{paper} {name} is gone"));
            } else if !others.contains(&paper) {
                others.push(paper);
            }
            continue;
        };
        if !error.is_empty() {
            let committed = error.parse::<f64>().ok().filter(|error| error.is_finite());
            let committed = committed.ok_or_else(|| wrong("the error must be a number"))?;
            let now = row.error_pct.unwrap_or(f64::INFINITY);
            let moved = now.abs() - committed.abs();
            if moved > MARGIN {
                worse.push(format!("{paper} {name}: {now:.1} %, was {committed:.1} %"));
            } else if moved < -MARGIN {
                better.push(format!("{paper} {name}: {now:.1} %, was {committed:.1} %: better, commit it"));
            }
        }
        match (error.is_empty(), row.error_pct) {
            (true, Some(now)) => better.push(format!("{paper} {name}: {now:.1} %, was none: commit it")),
            (false, Some(_)) if holds.is_empty() && row.holds.is_some() => {
                better.push(format!("{paper} {name} holds or not, and did not say: commit it"));
            }
            _ => {}
        }
        match (holds, row.holds) {
            ("true", Some(true)) | ("false", Some(false)) | ("", _) => {}
            ("true", _) => worse.push(format!("{paper} {name} held")),
            (_, now) => better.push(format!("{paper} {name}: holds is {now:?}, was {holds}: commit it")),
        }
    }
    for row in rows.iter().filter(|row| row.error_pct.is_some() || row.holds.is_some()) {
        if !known.contains(&(row.paper.as_str(), row.row.as_str())) {
            better.push(format!("{} {} is new: commit it", row.paper, row.row));
        }
    }
    if !others.is_empty() {
        better.push(format!("not checked: the rows of {}, which were not asked for", others.join(", ")));
    }
    if worse.is_empty() {
        return Ok(better);
    }
    let cure = format!("if that is right, write {file} again with {WRITE} {file} and say why");
    Err(Failure::Run(format!("worse than {file} says:\n  {}\n{cure}", worse.join("\n  "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, error_pct: Option<f64>, holds: Option<bool>) -> PaperRow {
        PaperRow {
            paper: "p".into(),
            row: name.into(),
            says: String::new(),
            cite: String::new(),
            published: None,
            predicted: None,
            unit: "1".into(),
            error_pct,
            holds,
            mark: None,
            counted: true,
            left_out: false,
            bound: None,
        }
    }

    #[test]
    fn larger_errors_are_refused_and_smaller_ones_are_reported() {
        let committed = errors(&[row("A", Some(-5.0), None), row("B", Some(4.0), None), row("O", None, Some(true))]);
        let now = |a: f64, b: f64, holds: bool| {
            check("e.csv", &committed, &[row("A", Some(a), None), row("B", Some(b), None), row("O", None, Some(holds))])
        };
        assert_eq!(now(-5.0, 4.0, true), Ok(Vec::new()));
        // The sign does not matter, and neither does one point.
        assert_eq!(now(5.9, -4.9, true), Ok(Vec::new()));
        assert_eq!(now(-5.0, 2.5, true).unwrap(), ["p B: 2.5 %, was 4.0 %: better, commit it"]);
        let message = now(6.5, 4.0, false).unwrap_err().to_string();
        assert!(
            message.contains("p A: 6.5 %, was -5.0 %\n  p O held") && message.contains("--write-errors e.csv"),
            "{message}"
        );
        let message = check("e.csv", &committed, &[row("A", Some(1.0), None)]).unwrap_err().to_string();
        assert!(message.contains("p B is gone"), "{message}");
        assert_eq!(
            check("e.csv", &format!("{HEADER}\n"), &[row("A", Some(1.0), None)]).unwrap(),
            ["p A is new: commit it"]
        );
        // Other papers are not checked.
        assert_eq!(
            check("e.csv", &format!("{HEADER}\nq,1.0,,A\n"), &[]).unwrap(),
            ["not checked: the rows of q, which were not asked for"]
        );
    }

    #[test]
    fn files_of_another_form_are_refused_with_their_line() {
        for (text, wanted) in [
            ("row,error\n", "e.csv: row,error: must begin with paper,error"),
            ("paper,error_pct,holds,row\np,1.0,A\n", "e.csv:2: p,1.0,A: must have four columns"),
            ("paper,error_pct,holds,row\np,nan,,A\n", "e.csv:2: p,nan,,A: the error must be a number"),
            ("paper,error_pct,holds,row\np,1.0,maybe,A\n", "e.csv:2: p,1.0,maybe,A: needs an error, or true or false"),
            ("paper,error_pct,holds,row\np,,,A\n", "e.csv:2: p,,,A: needs an error, or true or false"),
            ("paper,error_pct,holds,row\np,1.0,,A\np,1.0,,A\n", "e.csv:3: p,1.0,,A: is there twice"),
            ("paper,error_pct,holds,row\np,x,,A\n", "e.csv:2: p,x,,A: the error must be a number"),
        ] {
            let message = check("e.csv", text, &[row("A", Some(1.0), None)]).unwrap_err().to_string();
            assert!(message.starts_with(wanted), "{message}");
        }
    }
}
