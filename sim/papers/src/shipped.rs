//! Holds the papers, and the tables of training speeds, that come with lockstep, as text.

/// The files of a paper that come with lockstep.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its name for `lockstep papers`.
    pub name: &'static str,
    /// Its file: `experiments/papers/NAME.toml`.
    pub(super) file: &'static str,
    /// The text of its rows.
    pub(super) rows: &'static str,
    /// The text of `experiments/papers/NAME.figures.toml`: its plots.
    pub(super) figures: &'static str,
}

/// The files of the paper or table called `$name`.
macro_rules! shipped {
    ($name:literal) => {
        shipped!("papers", $name)
    };
    ($folder:literal, $name:literal) => {
        Shipped {
            name: $name,
            file: concat!("experiments/", $folder, "/", $name, ".toml"),
            rows: include_str!(concat!("../../../experiments/", $folder, "/", $name, ".toml")),
            figures: include_str!(concat!("../../../experiments/", $folder, "/", $name, ".figures.toml")),
        }
    };
}

/// The papers that come with lockstep, in the order in which they are printed.
pub const PAPERS: [Shipped; 5] = [
    shipped!("goyal2017"),
    shipped!("iandola2016"),
    shipped!("krizhevsky2014"),
    shipped!("kumar2018"),
    shipped!("koliousis2019"),
];

/// Tables of training speeds on numbers of GPUs, with one GPU as the anchor, printed after the papers.
pub const TABLES: [Shipped; 5] = [
    shipped!("training", "nvidia-mxnet"),
    shipped!("training", "nvidia-pytorch"),
    shipped!("training", "nvidia-tensorflow"),
    shipped!("training", "nvidia-paddle"),
    shipped!("training", "mxnet-p2"),
];

impl Shipped {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Shipped> {
        PAPERS.into_iter().chain(TABLES)
    }

    /// The one with this name.
    pub(super) fn called(name: &str) -> Option<Shipped> {
        Shipped::all().find(|shipped| shipped.name == name)
    }
}
