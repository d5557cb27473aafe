//! The kernels' sources, as they stand in the binary, and the units that a compiler is given of them.

use std::fmt;

use super::argument::Scalar;
use super::table::{self, Entry};
use Scalar::{Bf16, F32};

/// What every unit begins with.
pub const PRELUDE: &str = include_str!("kernels/prelude.cuh");

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Layers element by element.
    Elementwise,
    /// What moves activations.
    Moves,
    /// Biases and scale layers, and sums over channels.
    Channels,
    /// Sums over channels that lie last.
    Columns,
    /// Batch normalisation.
    BatchNorm,
    /// Pooling over windows.
    Pooling,
    /// Pooling over whole planes.
    GlobalPooling,
    /// Local response normalisation.
    LocalResponse,
    /// Dropout.
    Dropout,
    /// Cross-entropies.
    Losses,
    /// What the sums over channels come to.
    Statistics,
    /// Sums of buffers, bf16.
    Buffers,
    /// Steps on parameters.
    Optimizer,
}

/// The scalars that files are compiled for: none, one for all activations, one that is read and one that is written.
const NONE: [&[Scalar]; 1] = [&[]];
const ONE: [&[Scalar]; 2] = [&[F32], &[Bf16]];
const TWO: [&[Scalar]; 4] = [&[F32, F32], &[F32, Bf16], &[Bf16, F32], &[Bf16, Bf16]];

impl Source {
    /// All files.
    pub const ALL: [Source; 13] = [
        Source::Elementwise,
        Source::Moves,
        Source::Channels,
        Source::Columns,
        Source::BatchNorm,
        Source::Pooling,
        Source::GlobalPooling,
        Source::LocalResponse,
        Source::Dropout,
        Source::Losses,
        Source::Statistics,
        Source::Buffers,
        Source::Optimizer,
    ];

    /// The file's name, for messages of the compiler.
    pub fn name(self) -> &'static str {
        match self {
            Source::Elementwise => "elementwise.cu",
            Source::Moves => "moves.cu",
            Source::Channels => "channels.cu",
            Source::Columns => "columns.cu",
            Source::BatchNorm => "batch_norm.cu",
            Source::Pooling => "pooling.cu",
            Source::GlobalPooling => "global_pooling.cu",
            Source::LocalResponse => "local_response.cu",
            Source::Dropout => "dropout.cu",
            Source::Losses => "losses.cu",
            Source::Statistics => "statistics.cu",
            Source::Buffers => "buffers.cu",
            Source::Optimizer => "optimizer.cu",
        }
    }

    /// The file's text, which needs a unit around it.
    pub fn text(self) -> &'static str {
        match self {
            Source::Elementwise => include_str!("kernels/elementwise.cu"),
            Source::Moves => include_str!("kernels/moves.cu"),
            Source::Channels => include_str!("kernels/channels.cu"),
            Source::Columns => include_str!("kernels/columns.cu"),
            Source::BatchNorm => include_str!("kernels/batch_norm.cu"),
            Source::Pooling => include_str!("kernels/pooling.cu"),
            Source::GlobalPooling => include_str!("kernels/global_pooling.cu"),
            Source::LocalResponse => include_str!("kernels/local_response.cu"),
            Source::Dropout => include_str!("kernels/dropout.cu"),
            Source::Losses => include_str!("kernels/losses.cu"),
            Source::Statistics => include_str!("kernels/statistics.cu"),
            Source::Buffers => include_str!("kernels/buffers.cu"),
            Source::Optimizer => include_str!("kernels/optimizer.cu"),
        }
    }

    fn scalars(self) -> &'static [&'static [Scalar]] {
        match self {
            Source::Statistics | Source::Buffers | Source::Optimizer => &NONE,
            Source::Moves => &TWO,
            _ => &ONE,
        }
    }
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
        Source::ALL.into_iter().flat_map(of).collect()
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
