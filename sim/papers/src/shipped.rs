//! The papers that come with lockstep, as text.

/// What comes with lockstep of a paper.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// As `lockstep papers` names it.
    pub name: &'static str,
    /// The text of `experiments/papers/NAME.toml`: its rows.
    pub(super) rows: &'static str,
    /// The text of `experiments/papers/NAME.figures.toml`: what is drawn of it.
    pub(super) figures: &'static str,
}

/// The files of the paper called `$name`.
macro_rules! shipped {
    ($name:literal) => {
        Shipped {
            name: $name,
            rows: include_str!(concat!("../../../experiments/papers/", $name, ".toml")),
            figures: include_str!(concat!("../../../experiments/papers/", $name, ".figures.toml")),
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

impl Shipped {
    /// That with this name.
    pub(super) fn called(name: &str) -> Option<Shipped> {
        PAPERS.into_iter().find(|shipped| shipped.name == name)
    }
}
