//! The kernels' sources, as they stand in the binary.

use super::table::{self, Entry};

/// What every source begins with.
pub const PRELUDE: &str = include_str!("kernels/prelude.cuh");

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Layers element by element, rows that move, sums of buffers, bf16.
    Elementwise,
    /// Biases and scale layers, and sums over channels.
    Channels,
    /// Batch normalisation.
    BatchNorm,
    /// Pooling.
    Pooling,
    /// Local response normalisation.
    LocalResponse,
    /// Dropout.
    Dropout,
    /// Cross-entropies.
    Losses,
    /// Steps on parameters.
    Optimizer,
}

impl Source {
    /// All files.
    pub const ALL: [Source; 8] = [
        Source::Elementwise,
        Source::Channels,
        Source::BatchNorm,
        Source::Pooling,
        Source::LocalResponse,
        Source::Dropout,
        Source::Losses,
        Source::Optimizer,
    ];

    /// The file's name, for messages of the compiler.
    pub fn name(self) -> &'static str {
        match self {
            Source::Elementwise => "elementwise.cu",
            Source::Channels => "channels.cu",
            Source::BatchNorm => "batch_norm.cu",
            Source::Pooling => "pooling.cu",
            Source::LocalResponse => "local_response.cu",
            Source::Dropout => "dropout.cu",
            Source::Losses => "losses.cu",
            Source::Optimizer => "optimizer.cu",
        }
    }

    /// The text that the compiler is given: the prelude, the file, and for each of its kernels a check that its parameters have
    /// the types that the table hands over.
    pub fn program(self) -> String {
        let mut program = format!("#line 1 \"prelude.cuh\"\n{PRELUDE}#line 1 \"{}\"\n{}", self.name(), self.text());
        program.push_str("#line 1 \"table\"\n");
        program.push_str("template <class A, class B> struct Alike { static constexpr bool value = false; };\n");
        program.push_str("template <class A> struct Alike<A, A> { static constexpr bool value = true; };\n");
        for Entry { function, types, .. } in table::all().into_iter().filter(|entry| entry.source == self) {
            let types = types.join(", ");
            program.push_str(&format!(
                "static_assert(Alike<decltype(&{function}), void (*)({types})>::value, \"{function}\");\n"
            ));
        }
        program
    }

    /// The file's text, which needs [`PRELUDE`] before it.
    pub fn text(self) -> &'static str {
        match self {
            Source::Elementwise => include_str!("kernels/elementwise.cu"),
            Source::Channels => include_str!("kernels/channels.cu"),
            Source::BatchNorm => include_str!("kernels/batch_norm.cu"),
            Source::Pooling => include_str!("kernels/pooling.cu"),
            Source::LocalResponse => include_str!("kernels/local_response.cu"),
            Source::Dropout => include_str!("kernels/dropout.cu"),
            Source::Losses => include_str!("kernels/losses.cu"),
            Source::Optimizer => include_str!("kernels/optimizer.cu"),
        }
    }
}
