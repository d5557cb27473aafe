//! Writes the page of the docs that lists which settings can be combined, `docs/refusals.md`: builds the program of
//! every strategy and mesh with every algorithm, sampling and accumulation, and lists each refusal in a row.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lockstep_models::{Axis, Job, Mesh, Model, Strategy};
use lockstep_topology::{Algorithm, ErrorPlace, InputError};

const HEAD: &str = "# Valid combinations

Every strategy on every mesh, with every algorithm, with one micro-batch and with two, with every sampling: four ranks on two nodes train
LeNet. `lockstep schema refusals` builds the program of each of these jobs and prints this page; a test fails if the page is out of date.

";

const REFUSED: &str = "
What is refused, and the cure. Each job counts for the first reason found; the numbers count jobs.

| setting | values | why, and the cure | strategies |
|---|---|---|---|
";

/// The model of the page: convolutions, which some strategies keep whole, and dense layers, which some divide.
const MODEL: &str = "lenet";

/// Axes of four ranks; empty: those of the strategy.
const MESHES: [&[(Axis, u32)]; 6] = [
    &[],
    &[(Axis::Data, 2), (Axis::Device, 2)],
    &[(Axis::Data, 2), (Axis::Tensor, 2)],
    &[(Axis::Data, 2), (Axis::Pipeline, 2)],
    &[(Axis::Pipeline, 2), (Axis::Device, 2)],
    &[(Axis::Pipeline, 2), (Axis::Tensor, 2)],
];

/// Strategies, and some whose settings change what they take.
fn strategies() -> impl Iterator<Item = &'static str> {
    Strategy::forms().chain(["zero-3:no-reshard", "sma:reference-models", "hybrid:b:variable-batch"])
}

fn algorithms() -> Vec<Algorithm> {
    Algorithm::all().chain(["parameter-server:1:dedicated"].map(|form| form.parse().expect("an algorithm"))).collect()
}

const SAMPLINGS: [&str; 3] = ["one-shuffle", "per-node", "partitioned:groups=1:shuffle-every=100"];

/// All jobs of a strategy on a mesh.
fn jobs(model: &Arc<Model>, strategy: &str, axes: &[(Axis, u32)]) -> Vec<Job> {
    let mesh = (!axes.is_empty()).then(|| Mesh::new(axes).expect("a mesh of four ranks"));
    // Reference models need several learners on a device.
    let learners = if strategy.ends_with("reference-models") { 2 } else { 1 };
    let strategy: Strategy = strategy.parse().expect("a form of the registry");
    let mut all = Vec::new();
    for algorithm in algorithms() {
        let servers = (algorithm.servers() > 0).then_some(algorithm.servers());
        let node_sizes: Vec<u32> = [2, 2].into_iter().chain(servers).collect();
        for sampling in SAMPLINGS {
            for accumulate in [1, 2] {
                all.push(Job {
                    strategy: strategy.clone(),
                    mesh: mesh.clone(),
                    learners,
                    algorithm: algorithm.clone(),
                    node_sizes: Some(node_sizes.clone()),
                    sampling: sampling.parse().expect("a sampling"),
                    accumulate,
                    ..Job::new(model.clone(), 4, 4)
                });
            }
        }
    }
    all
}

/// The page, generated from the errors of programs.
///
/// # Panics
/// The zoo lacks the page's model.
pub fn refusals_page() -> String {
    let model = Arc::new(lockstep_readers::load_model(MODEL).expect("a model of the zoo"));
    let mut page = HEAD.to_owned();
    let meshes = MESHES.map(|axes| match axes {
        [] => "no mesh".to_owned(),
        _ => Mesh::new(axes).expect("a mesh of four ranks").to_string(),
    });
    let each = jobs(&model, "ssgd", &[]).len();
    let _ = writeln!(page, "| jobs of {each} that have a program, by mesh | {} |", meshes.join(" | "));
    let _ = writeln!(page, "|{}", "---|".repeat(MESHES.len() + 1));
    let mut refused: BTreeMap<(String, String), Row> = BTreeMap::new();
    for strategy in strategies() {
        let _ = write!(page, "| `{strategy}` |");
        for axes in MESHES {
            let mut runs = 0;
            for job in jobs(&model, strategy, axes) {
                match job.program() {
                    Ok(_) => runs += 1,
                    Err(error) => refused.entry(class(&error, &job)).or_default().add(&error, strategy),
                }
            }
            let _ = write!(page, " {runs} |");
        }
        page.push('\n');
    }
    page += REFUSED;
    for ((setting, message), Row { values, strategies }) in refused {
        let counts = strategies.iter().map(|(strategy, count)| format!("`{strategy}` {count}"));
        let counts: Vec<String> = counts.collect();
        let _ = writeln!(page, "| `{setting}` | {} | {message} | {} |", values.join(", "), counts.join(", "));
    }
    page
}

/// The setting that an error is about, and its message without the strategy's name.
fn class(error: &InputError, job: &Job) -> (String, String) {
    let setting = match &error.place {
        ErrorPlace::Flag(key) => (*key).to_owned(),
        other => other.to_string(),
    };
    (setting, error.message.replacen(&job.strategy.to_string(), "*strategy*", 1).replace('|', "\\|"))
}

/// Refusals of a class.
#[derive(Default)]
struct Row {
    values: Vec<String>,
    /// Jobs of each strategy, in the order of strategies.
    strategies: Vec<(String, u32)>,
}

impl Row {
    fn add(&mut self, error: &InputError, strategy: &str) {
        let value = format!("`{}`", error.value);
        if !self.values.contains(&value) {
            self.values.push(value);
        }
        match self.strategies.last_mut() {
            Some((last, count)) if last == strategy => *count += 1,
            _ => self.strategies.push((strategy.to_owned(), 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn the_page_of_refusals_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/refusals.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(text == super::refusals_page(), "write it again: cargo run -- schema refusals > docs/refusals.md");
    }
}
