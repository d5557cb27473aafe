//! The kernels' sources, as they stand in the binary, and the units that a compiler is given of them.

use std::fmt;

use super::argument::Scalar;
use super::table::{self, Entry};
use Scalar::{Bf16, F32};

/// What every unit begins with.
pub const PRELUDE: &str = include_str!("kernels/prelude.cuh");

/// The scalars that files are compiled for: none, one for all activations, one that is read and one that is written.
const NONE: [&[Scalar]; 1] = [&[]];
const ONE: [&[Scalar]; 2] = [&[F32], &[Bf16]];
const TWO: [&[Scalar]; 4] = [&[F32, F32], &[F32, Bf16], &[Bf16, F32], &[Bf16, Bf16]];

/// Defines the files of kernels: what it is for, `Name = file, the scalars that it is compiled for`.
macro_rules! sources {
    ($($(#[$doc:meta])* $name:ident = $file:literal, $scalars:ident;)*) => {
        /// A file of kernels.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Source { $($(#[$doc])* $name,)* }

        impl Source {
            /// All files.
            pub const ALL: &[Source] = &[$(Source::$name),*];

            /// The file's name, for messages of the compiler.
            pub fn name(self) -> &'static str {
                match self { $(Source::$name => $file,)* }
            }

            /// The file's text, which needs a unit around it.
            pub fn text(self) -> &'static str {
                match self { $(Source::$name => include_str!(concat!("kernels/", $file)),)* }
            }

            fn scalars(self) -> &'static [&'static [Scalar]] {
                match self { $(Source::$name => &$scalars,)* }
            }
        }
    };
}

sources! {
    /// Layers element by element.
    Elementwise = "elementwise.cu", ONE;
    /// What moves activations.
    Moves = "moves.cu", TWO;
    /// Biases and scale layers, and sums over channels.
    Channels = "channels.cu", ONE;
    /// Sums over channels that lie last.
    Columns = "columns.cu", ONE;
    /// Batch normalisation.
    BatchNorm = "batch_norm.cu", ONE;
    /// Pooling over windows.
    Pooling = "pooling.cu", ONE;
    /// Pooling over whole planes.
    GlobalPooling = "global_pooling.cu", ONE;
    /// Local response normalisation.
    LocalResponse = "local_response.cu", ONE;
    /// Dropout.
    Dropout = "dropout.cu", ONE;
    /// Cross-entropies.
    Losses = "losses.cu", ONE;
    /// What the sums over channels come to.
    Statistics = "statistics.cu", NONE;
    /// Sums of buffers, bf16.
    Buffers = "buffers.cu", NONE;
    /// Steps on parameters.
    Optimizer = "optimizer.cu", NONE;
}

/// What is compiled at once: a file, for activations of some scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The file.
    pub source: Source,
    /// What activations are made of: one scalar, one that is read and one that is written, or none in a file that has to do
    /// with none.
    pub scalars: &'static [Scalar],
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source.name())?;
        self.scalars.iter().try_for_each(|scalar| write!(f, " {}", scalar.name()))
    }
}

impl Unit {
    /// All units, file by file.
    pub fn all() -> Vec<Unit> {
        let of = |source: Source| source.scalars().iter().map(move |scalars| Unit { source, scalars });
        Source::ALL.iter().copied().flat_map(of).collect()
    }

    /// The text that the compiler is given: [`PRELUDE`] and the unit itself.
    pub fn program(self) -> String {
        format!("#line 1 \"prelude.cuh\"\n{PRELUDE}{}", self.text())
    }

    /// What stands behind [`PRELUDE`]: in the [namespace](Unit::namespace) what the scalars are, the file, and for each of its
    /// kernels a check that its parameters have the types that the table hands over. All units' texts may stand in one program.
    pub fn text(self) -> String {
        let (name, text) = (self.source.name(), self.source.text());
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
        for Entry { function, types, .. } in table::all().into_iter().filter(|entry| entry.unit == self) {
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
        format!("{}{}", self.source.name().trim_end_matches(".cu"), self.ending())
    }

    /// What stands behind a kernel's name in its symbol.
    fn ending(self) -> String {
        self.scalars.iter().map(|scalar| format!("_{}", scalar.name())).collect()
    }
}
