//! Collects every setting from the rows of the table.

use lockstep_models::{Gradients, TransformAt};
use lockstep_topology::{Algorithm, Bytes};

use crate::experiment::{Experiment, Length};
use crate::foreign::Foreign;
use crate::form::{
    self, ACCURACY, ALGORITHM, ALGORITHM_OR_DEFAULT, CHOICE, CHUNK, CHUNK_OR_AUTO, COUNT, LONG, NOT_NEGATIVE, SEED,
    SWITCH, TEXT, THRESHOLD, word,
};
use crate::learners::{self, Learners};
use crate::optimizer::{self, OPTIMIZER};
use crate::range::{self, Ranges};
use crate::recipe_file::ByName;
use crate::scaling::Scales;
use crate::setting::{
    AXIS, Each, List, Nests, One, PREDICT, ROW, RUN, ReadBy, SWEEP, SettingEntry, SettingTable, SweepAxis, TRAIN, list,
};
use crate::solver::BySolver;
use crate::trained::{Trained, in_stages};
use crate::unlike::{self, Unlike};
use crate::{initial, input, noise, published, scenario};

/// The lists of chunks and algorithms, which have a value for "not given".
const CHUNKS: List<Option<Bytes>> = List {
    items: CHUNK_OR_AUTO,
    own: |e| vec![e.chunk],
    set: |e, chunk| e.chunk = chunk,
    spell: |chunk| chunk.map_or("auto".to_owned(), |bytes| bytes.0.to_string()),
};
const ALGORITHMS: List<Option<Algorithm>> = List {
    items: ALGORITHM_OR_DEFAULT,
    own: |e| if e.algorithms.is_empty() { vec![None] } else { e.algorithms.iter().cloned().map(Some).collect() },
    set: |e, algorithm| e.algorithms = algorithm.into_iter().collect(),
    spell: |algorithm| algorithm.as_ref().map_or("default".to_owned(), ToString::to_string),
};

macro_rules! table {
    ($($key:literal $($field:ident: $type:ty = $default:expr)?, $help:expr, { $($row:tt)* })*) => {
        /// The rows, without those of the table `[optimizer]`.
        static ROWS: &[SettingEntry] = &[$(SettingEntry { key: $key, help: $help, $($row)* ..ROW },)*];
    };
}

rows!(table);

/// Every setting.
pub fn settings() -> impl Iterator<Item = &'static SettingEntry> {
    ROWS.iter().chain(OPTIMIZER)
}
