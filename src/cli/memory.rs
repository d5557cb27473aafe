//! Runs `lockstep memory`: what PyTorch's frameworks take of a GPU's memory, rank by rank, and whether it fits.

mod beside;
mod layout_flags;

use std::path::PathBuf;

use clap::Args;
use lockstep_experiment::form::parsed;
use lockstep_flags::{Printed, print};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::{Format, MemoryAdviceRow, MemoryPart, RankMemoryRow, Report, memory_chart};
use lockstep_stack::{Account, Advice, GIB, Part, RankAccount, Wanted};
use lockstep_topology::InputError;

use super::foreign_flags::ForeignFlags;
use layout_flags::{LayoutFlags, Question};

/// Flags of `memory`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep memory --model llama-3-8b --gpus 8xh100-80 --seq-length 8192
      8B in full under torchtitan's FSDP: each part of the memory at the peak, and what stays free
  lockstep memory --model llama-3-70b --gpus 64xh100-80 --stack megatron --tp 8 --pp 4 --global-batch-size 128
      a row for each stage of the pipeline that differs
  lockstep memory --model llama-2-7b --gpus 1xrtx-4090 --lora r=16,modules=all --quantize nf4 --recompute full
      QLoRA under transformers' Trainer
  lockstep memory --model llama-3-8b --gpus 2xa100-80 --strategy fsdp --micro-batch-size 4 --advise
      what would make it fit, cheapest first
  lockstep memory --model llama-3-70b --gpus 8xh100-80 --recompute full --find gpus
  lockstep memory --gpus 8xa100-80 --from qlora.yml
      the settings of a file of axolotl, LlamaFactory, transformers, accelerate, DeepSpeed or torchtitan
  lockstep memory --gpus 64xh100-80 --from-megatron \"--tensor-model-parallel-size 8 --bf16 …\" --model llama-3-70b
  lockstep memory --model llama-3-8b --gpus 4xa100-80 --strategy zero-3 --recompute full --plot memory.svg")]
pub(super) struct Memory {
    #[command(flatten)]
    layout: LayoutFlags,
    #[command(flatten)]
    _foreign: ForeignFlags,
    /// Compare with published runs instead: a .csv of flags and what they took, experiments/memory has some
    #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["model", "gpus", "plot"])]
    beside: Option<PathBuf>,
    /// List what would make it fit, cheapest first, with what each change costs
    #[arg(long, conflicts_with_all = ["beside", "find", "plot"])]
    advise: bool,
    /// Look for the largest micro-batch-size or seq-length (in steps of 256), or the fewest gpus, that fit
    #[arg(long, value_name = "WHAT", value_parser = parsed::<Wanted>, conflicts_with = "beside")]
    find: Option<Wanted>,
    /// Print the layout as flags of megatron or torchtitan instead
    #[arg(long, value_name = "FRAMEWORK", value_parser = parsed::<Printed>, conflicts_with_all = ["beside", "advise", "plot"])]
    print_flags: Option<Printed>,
    /// Draw the memory of the rank that takes most over a step (SVG)
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Memory {
    pub(super) fn run(self) -> Result<(), Failure> {
        if let Some(file) = &self.beside {
            return beside::report(file)?.print(self.format);
        }
        check_outputs(&[("--plot", self.plot.as_deref())])?;
        let mut question = self.layout.question()?;
        if self.advise {
            return advise(&question)?.print(self.format);
        }
        let mut found = None;
        if let Some(wanted) = self.find {
            question = question.found(wanted)?;
            found = Some(question.found_line(wanted));
        }
        if let Some(framework) = self.print_flags {
            let text = print(framework, &question.decoder, &question.layout)?;
            question.check_described(framework, &text)?;
            return lockstep_report::print(&text);
        }
        let account = question.account()?;
        if let Some(path) = &self.plot {
            let picture = picture(&question, &account);
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        let rows = account.ranks.iter().map(|rank| row(&question, &account, rank)).collect();
        let notes = found.into_iter().chain(notes(&question, &account)).collect();
        Report::new(rows, notes).print(self.format)
    }
}

/// What would make it fit.
fn advise(question: &Question) -> Result<Report<MemoryAdviceRow>, InputError> {
    let all = lockstep_stack::advice(&question.setting(), &question.layout)?;
    let row = |one: Advice| MemoryAdviceRow {
        change: flag(one.change),
        allocated_gib: one.alone.0,
        margin_gib: one.alone.1,
        fits: one.alone.1 >= 0.0,
        together_margin_gib: one.together,
        together_fit: one.together >= 0.0,
        costs: one.costs,
    };
    let notes = vec![answer(question, &question.account()?), format!("layout: {}", question.layout_line())];
    Ok(Report::new(all.into_iter().map(row).collect(), notes))
}

/// A setting as a flag.
fn flag((key, value): (&str, String)) -> String {
    format!("--{} {value}", key.replace('_', "-")).trim_end().to_owned()
}

/// The answer in a sentence.
fn answer(question: &Question, account: &Account) -> String {
    let board = question.gpus.board;
    let margin = account.margin_gib(board);
    match account.fits(board) {
        true => format!("it fits: {margin:.1} GiB of {:.1} stay free on the rank that takes most", board.usable_gib()),
        false => {
            let cure = "--advise lists what would make it fit";
            format!("it does not fit: {:.1} GiB too much on the rank that takes most; {cure}", -margin)
        }
    }
}

/// The row of a rank.
fn row(question: &Question, account: &Account, rank: &RankAccount) -> RankMemoryRow {
    let Question { layout, gpus, .. } = question;
    let gib = |part: Part| rank.peak[part] as f64 / GIB;
    let usable_gib = gpus.board.usable_gib();
    let margin_gib = usable_gib - rank.reserved_gib() - account.context_gib;
    RankMemoryRow {
        model: question.decoder.name.clone(),
        gpus: gpus.to_string(),
        stack: question.stack.name().to_owned(),
        seq_length: layout.seq_length,
        micro_batch_size: layout.micro_batch,
        stage: rank.stage,
        ranks: rank.stages * layout.tensor * layout.copies(),
        layers: rank.layers,
        in_flight: rank.in_flight,
        when: rank.when.to_owned(),
        weights_gib: gib(Part::Weights),
        gradients_gib: gib(Part::Gradients),
        optimizer_gib: gib(Part::Optimizer),
        gathered_gib: gib(Part::Gathered),
        buffers_gib: gib(Part::Buffers),
        workspace_gib: gib(Part::Workspace),
        attention_gib: gib(Part::Attention),
        feed_forward_gib: gib(Part::FeedForward),
        norms_gib: gib(Part::Norms),
        logits_gib: gib(Part::Logits),
        temporaries_gib: gib(Part::Temporaries),
        allocated_gib: rank.allocated_gib(),
        reserved_gib: rank.reserved_gib(),
        context_gib: account.context_gib,
        usable_gib,
        margin_gib,
        fits: margin_gib >= 0.0,
    }
}

/// What the figures rest on, and the answer in a sentence.
fn notes(question: &Question, account: &Account) -> Vec<String> {
    let board = question.gpus.board;
    let caveat = question.stack.caveat(&question.layout).map(|caveat| format!("{}: {caveat}", question.stack.name()));
    let known = board.cluster.as_ref().map_or_else(String::new, |name| format!("; in predictions cluster {name}"));
    let rest = vec![
        answer(question, account),
        format!("layout: {}", question.layout_line()),
        format!("{}: {}", question.stack.name(), question.stack.source()),
        format!("{}: {}{known}", board.name, board.provenance),
        "reserved is 1.05 of allocated; context is assumed (docs/memory.md)".to_owned(),
    ];
    rest.into_iter().chain(caveat).collect()
}

/// The picture of the rank that takes most over a step.
fn picture(question: &Question, account: &Account) -> String {
    let Some(rank) = account.worst() else { return memory_chart("nothing", &[], &[]) };
    let of_part = |part: &Part| MemoryPart {
        name: part.name().replace('_', " "),
        bytes: rank.moments.iter().map(|moment| moment.live[*part]).collect(),
    };
    let parts: Vec<MemoryPart> =
        Part::ALL.iter().map(of_part).filter(|part| part.bytes.iter().any(|of| *of > 0)).collect();
    let first = |name: &str| rank.moments.iter().position(|moment| moment.name == name);
    let passes = ["forward", "backward", "optimizer"].into_iter().filter_map(|name| Some((first(name)?, name)));
    let passes: Vec<(usize, &str)> = passes.collect();
    let heading = format!("{} on {}, {}", question.decoder.name, question.gpus, question.stack.name());
    memory_chart(&heading, &parts, &passes)
}
