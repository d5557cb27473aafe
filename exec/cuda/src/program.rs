//! Assembles the source text of each unit, with a check that its kernels have the parameter types of the table.

use super::kernel::{KernelEntry, SourceUnit};
use super::{layers, table};

/// The beginning of every unit.
pub const PRELUDE: &str = include_str!("kernels/prelude.cuh");

impl KernelEntry {
    /// All kernels, each for all its scalars.
    pub fn all() -> Vec<KernelEntry> {
        [table::entries(), layers::entries()].concat()
    }
}

impl SourceUnit {
    /// All units that have kernels.
    pub fn all() -> Vec<SourceUnit> {
        let mut units: Vec<SourceUnit> = KernelEntry::all().into_iter().map(|entry| entry.unit).collect();
        units.sort_by_key(|unit| (unit.source.name, unit.scalars));
        units.dedup();
        units
    }

    /// Its kernels.
    pub fn entries(self) -> impl Iterator<Item = KernelEntry> {
        KernelEntry::all().into_iter().filter(move |entry| entry.unit == self)
    }

    /// The full text for the compiler: [`PRELUDE`] and the unit itself.
    pub fn program(self) -> String {
        format!("#line 1 \"prelude.cuh\"\n{PRELUDE}{}", self.text())
    }

    /// The source after [`PRELUDE`]: in the [namespace](SourceUnit::namespace) the scalars, the file, and for each of its
    /// kernels a check that its parameters have the types in the table. The texts of all units can be combined in one
    /// program.
    pub fn text(self) -> String {
        let (name, text) = (self.source.name, self.source.text);
        let ending = self.ending();
        let pasted = if ending.is_empty() { String::new() } else { format!("##{ending}") };
        let types: &[&str] = if self.scalars.len() == 2 { &["From", "To"] } else { &["Real"] };
        let mut unit = format!(
            "#line 1 \"unit\"\n#undef KERNEL\n#define KERNEL(name) extern \"C\" __global__ void name{pasted}\nnamespace {} {{\n",
            self.namespace()
        );
        for (scalar, name) in self.scalars.iter().zip(types) {
            unit.push_str(&format!("typedef {} {name};\n", scalar.in_cuda()));
        }
        unit.push_str(&format!("#line 1 \"{name}\"\n{text}#line 1 \"table\"\n"));
        for KernelEntry { function, types, .. } in self.entries() {
            let types = types.join(", ");
            unit.push_str(&format!(
                "static_assert(Alike<decltype(&{function}), void (*)({types})>::value, \"{function}\");\n"
            ));
        }
        unit.push_str("}\n");
        unit
    }

    /// The namespace of its functions; a kernel's symbol has none.
    pub fn namespace(self) -> String {
        format!("{}{}", self.source.name.trim_end_matches(".cu"), self.ending())
    }

    /// The suffix of a kernel's name in its symbol.
    fn ending(self) -> String {
        self.scalars.iter().map(|scalar| format!("_{}", scalar.name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::Scalar;

    /// The table has every kernel of the sources exactly once for each of its scalars, and no other kernel.
    #[test]
    fn the_table_has_every_kernel_of_the_sources() {
        let mut defined = Vec::new();
        for unit in SourceUnit::all() {
            for rest in unit.source.text.split("KERNEL(").skip(1) {
                let name = rest.split(')').next().expect("a name");
                let symbol = |symbol, scalar: &Scalar| format!("{symbol}_{}", scalar.name());
                defined.push((unit.to_string(), name, unit.scalars.iter().fold(name.to_owned(), symbol)));
            }
        }
        let listed: Vec<_> = KernelEntry::all()
            .iter()
            .map(|entry| (entry.unit.to_string(), entry.name, entry.function.to_owned()))
            .collect();
        assert_eq!(BTreeSet::from_iter(&listed), BTreeSet::from_iter(&defined));
        assert_eq!(listed.len(), defined.len());
        let names: BTreeSet<&str> = listed.iter().map(|(_, _, function)| function.as_str()).collect();
        assert_eq!(names.len(), listed.len(), "two kernels of one name");
    }

    /// Every file of the folder is compiled, for the scalars that its kernels use.
    #[test]
    fn every_source_has_its_units() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels");
        let mut files = 0;
        for path in std::fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("a file").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a text");
            let expected = match (text.contains("From*"), text.contains("Real*")) {
                (true, _) => 4,
                (false, true) => 2,
                (false, false) => 1,
            };
            if name.ends_with(".cu") {
                let units = SourceUnit::all().iter().filter(|unit| unit.source.name == name).count();
                assert_eq!(units, expected, "{name}");
                files += 1;
            }
        }
        assert!(files > 10, "the sources are where this test looks for them");
    }

    /// The prelude and the table use the same block size.
    #[test]
    fn block_sizes_equal_those_of_the_prelude() {
        assert!(PRELUDE.contains(&format!("constexpr u32 BLOCK = {};", crate::BLOCK)));
        assert!(PRELUDE.contains(&format!("constexpr u32 WARP = {};", crate::WARP)));
    }
}
