//! The papers, and the tables of training speeds, that come with lockstep, as text.

/// What comes with lockstep of a paper.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// As `lockstep papers` names it.
    pub name: &'static str,
    /// Its file: `experiments/papers/NAME.toml`.
    pub(super) file: &'static str,
    /// The text of that: its rows.
    pub(super) rows: &'static str,
    /// The text of `experiments/papers/NAME.figures.toml`: what is drawn of it.
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

/// Tables of training speeds on numbers of GPUs, of which one GPU is the anchor, printed behind the papers.
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

    /// That with this name.
    pub(super) fn called(name: &str) -> Option<Shipped> {
        Shipped::all().find(|shipped| shipped.name == name)
    }
}
