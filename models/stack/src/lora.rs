//! `Lora`: adapters of low rank beside frozen products (Hu et al. 2021).

use std::fmt;
use std::str::FromStr;

use crate::decoder::Decoder;

/// A product of a decoder's layer that an adapter can stand beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// The product behind attention.
    Output,
    /// The gate of the feed-forward part, where it has one.
    Gate,
    /// The product into the feed-forward part.
    Up,
    /// The one out of it.
    Down,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 7] =
        [Target::Query, Target::Key, Target::Value, Target::Output, Target::Gate, Target::Up, Target::Down];

    fn name(self) -> &'static str {
        match self {
            Target::Query => "q",
            Target::Key => "k",
            Target::Value => "v",
            Target::Output => "o",
            Target::Gate => "gate",
            Target::Up => "up",
            Target::Down => "down",
        }
    }

    /// Features in and out of the product.
    pub fn features(self, decoder: &Decoder) -> (u64, u64) {
        let (heads, keys) = (decoder.query_features(), decoder.key_features());
        match self {
            Target::Query => (decoder.hidden, heads),
            Target::Key | Target::Value => (decoder.hidden, keys),
            Target::Output => (heads, decoder.hidden),
            Target::Gate | Target::Up => (decoder.hidden, decoder.feed_forward),
            Target::Down => (decoder.feed_forward, decoder.hidden),
        }
    }
}

/// Adapters: `r=16`, `r=16,modules=q+v`, `r=8,modules=all`, `r=8,dropout=0`.
#[derive(Debug, Clone, PartialEq)]
pub struct Lora {
    /// Features between an adapter's two products, at least one.
    pub rank: u32,
    /// Beside which products, ascending, none twice.
    pub targets: Vec<Target>,
    /// Whether features are dropped before the adapter.
    pub dropout: bool,
}

impl Lora {
    /// Parameters of the adapters of one layer.
    ///
    /// ```
    /// # use lockstep_stack::{Decoder, Lora};
    /// let model = lockstep_readers::load_model("llama-2-7b")?;
    /// let lora: Lora = "r=8,modules=q+v".parse().unwrap();
    /// assert_eq!(32 * lora.parameters(&Decoder::of(&model)?), 4_194_304);
    /// # Ok::<(), lockstep_topology::InputError>(())
    /// ```
    pub fn parameters(&self, decoder: &Decoder) -> u64 {
        self.here(decoder).map(|target| target.features(decoder)).map(|(i, o)| u64::from(self.rank) * (i + o)).sum()
    }

    /// Whether there are adapters beside any of these products.
    pub(crate) fn has(&self, targets: &[Target]) -> bool {
        self.targets.iter().any(|target| targets.contains(target))
    }

    /// Bytes of an element of an adapter's input: the dropped features and their mask, or the features themselves.
    pub(crate) fn input_bytes(&self, element: u64) -> u64 {
        element + u64::from(self.dropout)
    }

    /// The products of `decoder` that have adapters.
    pub fn here<'a>(&'a self, decoder: &Decoder) -> impl Iterator<Item = Target> + 'a {
        let gated = decoder.gated;
        self.targets.iter().copied().filter(move |target| gated || *target != Target::Gate)
    }
}

impl FromStr for Lora {
    type Err = String;

    fn from_str(text: &str) -> Result<Lora, String> {
        let mut lora = Lora { rank: 0, targets: vec![Target::Query, Target::Value], dropout: true };
        // Modules may be separated by commas too, as PEFT's lists are.
        let mut words: Vec<String> = Vec::new();
        for word in text.split(',') {
            match (word.contains('='), words.last_mut()) {
                (false, Some(last)) if last.starts_with("modules=") => *last += &format!("+{word}"),
                _ => words.push(word.to_owned()),
            }
        }
        for word in &words {
            let (key, value) = word.split_once('=').ok_or("must be such as r=16,modules=q+v")?;
            match key {
                "r" => lora.rank = value.parse().map_err(|_| "r must be a whole number from 1 on")?,
                "modules" => lora.targets = targets(value)?,
                "dropout" => {
                    let rate: f64 = value.parse().map_err(|_| "dropout must be from 0 to below 1")?;
                    lora.dropout = match (0.0..1.0).contains(&rate) {
                        true => rate > 0.0,
                        false => return Err("dropout must be from 0 to below 1".into()),
                    };
                }
                _ => return Err(format!("has no setting {key:?}; there are: r, modules, dropout")),
            }
        }
        match lora.rank {
            0 => Err("r must be a whole number from 1 on: write r=16".into()),
            _ => Ok(lora),
        }
    }
}

/// Names such as `q+v`, `q_proj+v_proj`, `all`.
fn targets(text: &str) -> Result<Vec<Target>, String> {
    if ["all", "all-linear"].contains(&text) {
        return Ok(Target::ALL.to_vec());
    }
    let one = |name: &str| {
        let short = name.strip_suffix("_proj").unwrap_or(name);
        let found = Target::ALL.into_iter().find(|target| target.name() == short);
        found.ok_or_else(|| format!("has no module {name:?}; there are: q, k, v, o, gate, up, down, all"))
    };
    let mut all = text.split('+').map(one).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

impl fmt::Display for Lora {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.targets.iter().map(|target| target.name()).collect();
        write!(f, "r={},modules={}", self.rank, names.join("+"))?;
        if self.dropout { Ok(()) } else { f.write_str(",dropout=0") }
    }
}
