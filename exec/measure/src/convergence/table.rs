//! Reads a table of epochs to a target, as papers print it.

use lockstep_topology::InputError;
use lockstep_topology::document::{Entry, SourceText};

use super::{Convergence, Point};

const KEYS: [&str; 5] = ["model", "target", "source", "samples", "point"];
const POINT_KEYS: [&str; 5] = ["global_batch", "epochs", "strategy", "learners", "missed"];

/// The table in `text`, the content of `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Convergence, InputError> {
    let document = SourceText { file, text }.parse()?;
    let root = document.table("a table of epochs", &KEYS)?;
    let samples = root.need("samples", "1281167")?.count()? as f64;
    let mut points: Vec<Point> = Vec::new();
    for entry in root.need("point", "[{ global_batch = 256, epochs = 90 }]")?.items()? {
        let point = point(&entry, samples)?;
        let same = |other: &Point| {
            (other.global_batch, &other.strategy, other.learners)
                == (point.global_batch, &point.strategy, point.learners)
        };
        if points.iter().any(same) {
            return Err(entry.error("is given twice: give the epochs of all runs in one list"));
        }
        points.push(point);
    }
    let text = |key: &str, example: &str| root.need(key, example)?.text().map(str::to_owned);
    Ok(Convergence {
        model: text("model", "\"resnet-50\"")?,
        target: text("target", "\"76 % of the held-out images\"")?,
        source: text("source", "\"Goyal et al. 2017, Table 1\"")?,
        points,
    })
}

fn point(entry: &Entry<'_>, samples: f64) -> Result<Point, InputError> {
    let keys = entry.section("a point", &POINT_KEYS)?;
    let of_runs = keys.need("epochs", "[90, 91]")?.items()?;
    let positive = |number: f64| match number > 0.0 && number.is_finite() {
        true => Ok(number),
        false => Err("must be a number of more than 0".to_owned()),
    };
    let of_run = |entry: &Entry<'_>| entry.checked(positive).map(|epochs| epochs * samples);
    Ok(Point {
        global_batch: keys.need("global_batch", "256")?.count()?.into(),
        strategy: keys.get("strategy").map(|entry| entry.text().map(str::to_owned)).transpose()?,
        learners: keys.get("learners").map(|entry| entry.count()).transpose()?,
        samples: of_runs.iter().map(of_run).collect::<Result<_, _>>()?,
        missed: keys.get("missed").map_or(Ok(0), |entry| entry.whole(0..=(1 << 20) - 1))? as u32,
    })
}
