//! Runs `lockstep models layouts`: shows how a strategy lays out tensors over ranks, and which collectives change the
//! layouts.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockstep_experiment::default_method;
use lockstep_models::{Axis, Graph, Job, LayerId, LayoutRow, Mesh, Model, Strategy};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::{Format, LayoutTableRow, Report, layout_picture, print};
use lockstep_topology::InputError;

use super::flags::positive;
use super::unfold_flag::UnfoldFlag;

/// Flags of `models layouts`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep models layouts lenet
  lockstep models layouts alexnet --strategy hybrid:b --ranks 4
  lockstep models layouts lenet --strategy model-parallel --mesh data=4,tensor=2
  lockstep models layouts lenet --strategy sma:reference-models --ranks 8 --learners 2
  lockstep models layouts lenet --strategy model-parallel --plot layouts.svg
      draws what each rank holds of each tensor, and the exchanges between")]
pub(super) struct ModelsLayouts {
    /// Name of a model, or a .toml, .onnx or .prototxt file, e.g. lenet or resnet-50:image=64
    pub(super) model: String,
    #[command(flatten)]
    pub(super) unfold: UnfoldFlag,
    /// How training is spread over ranks, e.g. ssgd, hybrid:b, model-parallel, sma or first-device-table
    #[arg(long, value_name = "S", default_value = "ssgd")]
    strategy: Strategy,
    /// Ranks that train
    #[arg(long, value_name = "N", default_value = "4", value_parser = positive, allow_hyphen_values = true)]
    ranks: u32,
    /// Axes of the ranks with their sizes, outer axes first, e.g. data=4,tensor=2; instead of ranks
    #[arg(long, value_name = "AXIS=N,…", conflicts_with = "ranks")]
    mesh: Option<Mesh>,
    /// Micro-batches per step and rank
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, allow_hyphen_values = true)]
    accumulate: u32,
    /// Learners on each device, for strategies that average learners' models
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, allow_hyphen_values = true)]
    learners: u32,
    /// Ranks on each node, for strategies whose nodes share samples; by default all of them
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true)]
    ranks_per_node: Option<u32>,
    /// Draw which part of each tensor each rank holds, step by step, into an .svg file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl ModelsLayouts {
    /// Reports on `model`, the one named by the flags.
    pub(super) fn run(self, model: Model) -> Result<(), Failure> {
        check_outputs(&[("--plot", self.plot.as_deref())])?;
        let ranks = self.mesh.as_ref().map_or(self.ranks, Mesh::ranks);
        let each = self.ranks_per_node.unwrap_or(ranks);
        if !ranks.is_multiple_of(each) {
            let message = format!("does not divide {ranks} ranks: use a divisor");
            return Err(InputError::flag("ranks_per_node", each.to_string(), message).into());
        }
        // Layouts do not depend on samples, of which each rank has at least one.
        let batch = self.mesh.as_ref().map_or(1, |mesh| mesh.size(Axis::Tensor));
        let job = Job {
            strategy: self.strategy.clone(),
            accumulate: self.accumulate,
            learners: self.learners,
            algorithm: default_method(self.learners),
            node_sizes: Some(vec![each; (ranks / each) as usize]),
            mesh: self.mesh.clone(),
            ..Job::new(Arc::new(model), ranks, batch)
        };
        let (graph, shard) = job.graph()?;
        self.check_read(&job, &graph)?;
        let of_rank = shard.as_ref().map_or(&job.model, |(model, _)| model);
        let table = graph.table();
        let rows = table.iter().map(|row| table_row(of_rank, &graph.mesh, row)).collect();
        if let Some(path) = &self.plot {
            let heading = format!("{}: strategy {}", job.model.name(), self.strategy);
            let picture = layout_picture(&heading, of_rank, &graph.mesh, &table);
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        if self.format == Format::Table {
            let model = job.model.name();
            print(&format!("{model}: strategy {}, ranks {ranks}, mesh {}\n", self.strategy, graph.mesh))?;
        }
        Report::new(rows, Vec::new()).print(self.format)
    }
}

impl ModelsLayouts {
    /// Refuses flags that leave the layouts as they are without them.
    fn check_read(&self, job: &Job, graph: &Graph) -> Result<(), InputError> {
        let all_ranks = Some(vec![job.workers]);
        let each = self.ranks_per_node.unwrap_or(job.workers);
        let without = [
            ("accumulate", self.accumulate, self.accumulate == 1, Job { accumulate: 1, ..job.clone() }),
            ("learners", self.learners, self.learners == 1, Job { learners: 1, ..job.clone() }),
            ("ranks_per_node", each, each == job.workers, Job { node_sizes: all_ranks, ..job.clone() }),
        ];
        for (flag, value, is_default, without) in without {
            let shown = |of: &Graph| (of.mesh.to_string(), of.table());
            let same = |other: &Graph| shown(other) == shown(graph);
            // Where the strategy needs the flag, there is no graph without it.
            if !is_default && without.graph().is_ok_and(|(other, _)| same(&other)) {
                let message = format!("changes no layout of {}: leave it out", self.strategy);
                return Err(InputError::flag(flag, value.to_string(), message));
            }
        }
        Ok(())
    }
}

fn table_row(model: &Model, mesh: &Mesh, row: &LayoutRow) -> LayoutTableRow {
    let name = |id: &LayerId| model.node(*id).name.clone();
    let change = row.change.as_ref();
    LayoutTableRow {
        tensor: row.tensor.to_owned(),
        layers: match row.layers.as_slice() {
            [] => None,
            [only] => Some(name(only)),
            [first, .., last] => Some(format!("{}..{}", name(first), name(last))),
        },
        layout: row.layout.to_string(),
        collective: change.map(|change| change.by.unwrap_or("slice").to_owned()),
        becomes: change.map(|change| change.to.to_string()),
        needed_by: change.map(|_| match row.needed_by.as_slice() {
            [] => "update".to_owned(),
            [(only, pass)] => format!("{} of {}", pass.name(), name(only)),
            [(first, pass), .., (last, _)] => format!("{} of {}..{}", pass.name(), name(first), name(last)),
        }),
        axes: change.map(|change| change.axes.to_string()),
        groups: change.map(|change| mesh.group_count(change.axes)),
        group_ranks: change.map(|change| mesh.group(change.axes, 0).count()),
        changes: change.map(|_| row.changes),
    }
}
