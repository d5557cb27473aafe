//! Reads recipes, from a file or by name.

use std::path::Path;

use lockstep_models::{Augmentation, InitRules, Optimizer};
use lockstep_topology::{DESCRIPTION, InputError, nearest, read_text};

use crate::experiment::{Experiment, Length};
use crate::recipe::Recipe;
use crate::setting::{Reading, SettingEntry};
use crate::{initial, optimizer};
use lockstep_topology::document::{Entry, SourceText};

/// The recipes that come with the project, by file name.
const FILES: [(&str, &str); 5] = [
    ("goyal2017", include_str!("../../../experiments/recipes/goyal2017.toml")),
    ("iandola2016", include_str!("../../../experiments/recipes/iandola2016.toml")),
    ("koliousis2019", include_str!("../../../experiments/recipes/koliousis2019.toml")),
    ("krizhevsky2014", include_str!("../../../experiments/recipes/krizhevsky2014.toml")),
    ("kumar2018", include_str!("../../../experiments/recipes/kumar2018.toml")),
];

impl Recipe {
    /// The recipe of that name: `goyal2017` (its file's first), `iandola2016:nin`, or `FILE.toml` and `FILE.toml:NAME`.
    ///
    /// # Errors
    /// An unknown name (with the nearest), an unreadable file, and whatever [`Recipe::parse`] refuses.
    pub fn load(text: &str) -> Result<Recipe, InputError> {
        let whole = Path::new(text).is_file() || FILES.iter().any(|(name, _)| *name == text);
        let (file, own) = match text.rsplit_once(':') {
            Some((file, own)) if !whole => (file, Some(own)),
            _ => (text, None),
        };
        let recipes = match FILES.iter().find(|(name, _)| *name == file) {
            Some((name, text)) => Recipe::parse(name, text)?,
            None if Path::new(file).is_file() => {
                let read = read_text(Path::new(file), DESCRIPTION);
                let content =
                    read.map_err(|error| InputError::flag("recipe", file, error.with_cure("name another")))?;
                Recipe::parse(file, &content)?
            }
            None => {
                let mut near = nearest(file, FILES.iter().map(|(name, _)| *name));
                near.extend(
                    FILES.iter().map(|(name, _)| *name).filter(|name| !file.is_empty() && name.starts_with(file)),
                );
                let cure = if near.is_empty() {
                    format!("there are {}", FILES.map(|(name, _)| name).join(", "))
                } else {
                    format!("did you mean {}?", near.join(" or "))
                };
                return Err(InputError::flag("recipe", text, format!("no such recipe or file: {cure}")));
            }
        };
        let found = recipes.iter().find(|recipe| own.is_none_or(|own| recipe.name == format!("{file}:{own}")));
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
            InputError::flag("recipe", text, format!("the file has no such recipe: use one of {}", names.join(", ")))
        })
    }

    /// The recipes in `text`, the content of `file`, at least one.
    ///
    /// # Errors
    /// File, line, value and cure of the first mistake.
    pub fn parse(file: &str, text: &str) -> Result<Vec<Recipe>, InputError> {
        let document = SourceText { file, text }.parse()?;
        let root = document.table("a file of recipes", &["source", "recipe"])?;
        let from = root.need("source", "\"Goyal et al. 2017, section 5.1\"")?.text()?.to_owned();
        root.need("recipe", "[{ name = \"resnet-50\", optimizer = { learning_rate = 0.1 } }]")?
            .items()?
            .iter()
            .map(|item| recipe(file, &from, item))
            .collect()
    }

    /// The names of all that come with the project.
    ///
    /// # Panics
    /// When one of them is broken, which a test rules out.
    pub fn all() -> Vec<Recipe> {
        let read = |(name, text): &(&str, &str)| match Recipe::parse(name, text) {
            Ok(recipes) => recipes,
            Err(error) => panic!("{error}"),
        };
        FILES.iter().flat_map(read).collect()
    }
}

fn recipe(file: &str, source: &str, item: &Entry<'_>) -> Result<Recipe, InputError> {
    let keys = ["name", "global_batch", "epochs", "optimizer", "init", "augment"];
    let section = item.section("a recipe", &keys)?;
    let own = section.need("name", "\"resnet-50\"")?.text()?;
    let mut recipe = Recipe {
        name: format!("{file}:{own}"),
        source: source.to_owned(),
        global_batch: section.optional("global_batch", Entry::count)?,
        epochs: section.optional("epochs", Entry::count)?,
        optimizer: Optimizer::default(),
        inits: InitRules::default(),
        augmentation: section.get("augment").map_or(Ok(Augmentation::default()), |entry| entry.read(str::parse))?,
    };
    let mut read = Experiment::default();
    optimizer::read(&mut read, &section.need("optimizer", "{ learning_rate = 0.1 }")?)?;
    if let Some(entry) = section.get("init") {
        initial::read(&mut read, &entry)?;
    }
    read.check_read()?;
    (recipe.optimizer, recipe.inits) = (read.optimizer, read.inits);
    Ok(recipe)
}

/// A recipe by its name.
pub(crate) struct ByName;

impl Reading for ByName {
    fn take(&self, experiment: &mut Experiment, _: &SettingEntry, texts: &[String]) -> Result<(), InputError> {
        texts.iter().try_for_each(|name| Recipe::load(name).map(|recipe| experiment.follow(recipe)))
    }

    fn read(&self, experiment: &mut Experiment, _: &SettingEntry, entry: &Entry<'_>) -> Result<(), InputError> {
        if experiment.solver.is_some() {
            return Err(entry.error("a solver says how to train too: give one of the two"));
        }
        let recipe = entry.read(|name| Recipe::load(name).map_err(|error| error.message))?;
        experiment.follow(recipe);
        Ok(())
    }
}

impl Experiment {
    /// Trains by the recipe; its epochs count only if nothing else sets the length.
    pub fn follow(&mut self, recipe: Recipe) {
        self.optimizer = recipe.optimizer.clone();
        (self.inits, self.augmentation) = (recipe.inits, recipe.augmentation);
        let says = |key: &str| self.places.contains_key(key);
        if let (Some(epochs), false) = (recipe.epochs, says("steps") || says("epochs")) {
            self.length = Length::Epochs(epochs);
        }
        self.recipe = Some(recipe);
    }
}

#[cfg(test)]
mod tests;
