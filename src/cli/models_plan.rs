//! Runs `lockstep models plan`: shows a model cut into pipeline stages under a schedule, or the ranks of a mesh.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lockstep_models::{
    Axis, AxisAlgorithms, Job, Mesh, Model, PipelinePass, PipelineSchedule, StageChunk, StageCut, Stages, Strategy,
    pipeline,
};
use lockstep_report::failure::Failure;
use lockstep_report::output::{check_outputs, write_atomically};
use lockstep_report::{Format, Report, STAGE_LEGEND, StageLabel, StageRow, print, stage_chart, stage_picture};
use lockstep_topology::aliases::of_key;
use lockstep_topology::{Algorithm, Cluster, Dtype, InputError, library_of_gpus};

use super::flags::{algorithm, positive};
use super::models_plan_mesh::{self, List};
use super::unfold_flag::UnfoldFlag;

/// Micro-batches of a step unless a flag says otherwise.
const MICRO_BATCHES: u32 = 8;

/// Flags of `models plan`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lockstep models plan resnet-50 --stages 4
      cuts where the slowest stage has least work; stages take a forward and a backward pass in turn
  lockstep models plan lenet --stages 2 --cut at=dense1 --schedule gpipe
  lockstep models plan llama-3-8b --stages 4 --cut 'Et*7|(t*9|)*2t*7L'
  lockstep models plan resnet-50 --stages 4 --schedule interleaved:2 --micro-batches 8 --plot stages.svg
      draws what the stages do when
  lockstep models plan vgg-16 --mesh data=4,tensor=2,pipeline=2 --strategy megatron --cluster dgx-a100:2
      lists coordinates, groups, stage, host and device of each rank, and the bytes that a step exchanges along each axis")]
pub(super) struct ModelsPlan {
    /// Name of a model, or a .toml, .onnx or .prototxt file, e.g. lenet or resnet-50:image=64
    pub(super) model: String,
    #[command(flatten)]
    pub(super) unfold: UnfoldFlag,
    /// Stages of the pipeline
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true, required_unless_present = "mesh")]
    stages: Option<u32>,
    /// Axes of the ranks with their sizes, outer axes first, e.g. data=4,tensor=2: where they lie and what they exchange
    #[arg(long, value_name = "AXIS=N,…", conflicts_with = "stages")]
    mesh: Option<Mesh>,
    /// With --mesh: how training is spread over ranks
    #[arg(long, value_name = "S", default_value = "ssgd", conflicts_with = "stages")]
    strategy: Strategy,
    /// With --mesh: the cluster that the ranks fill in order, a preset or a file
    #[arg(long, value_name = "C", conflicts_with = "stages")]
    cluster: Option<String>,
    /// With --mesh: allreduce algorithm of the gradients [default: the library between the cluster's GPUs, else ring]
    #[arg(long, value_name = "A", value_parser = algorithm, conflicts_with = "stages")]
    algorithm: Option<Algorithm>,
    /// With --mesh: algorithms of the exchanges along single axes, e.g. tensor=library:nccl
    #[arg(long, value_name = "AXIS=A,…", conflicts_with = "stages")]
    axis_algorithms: Option<AxisAlgorithms>,
    /// With --mesh, in CSV and JSON: what to list
    #[arg(long, value_enum, default_value = "transitions", conflicts_with = "stages")]
    list: List,
    /// Where to cut: layers (equal numbers of them), work (least FLOPs in the slowest), blocks (of a decoder, embedding and loss
    /// counting as one each), a layout of blocks as Megatron has it, e.g. 'Et*3|(tt|)*29t|L', or the first layer of each chunk
    /// but the first: at=conv3,fc1
    #[arg(long, value_name = "C", default_value = "work", aliases = of_key("cut"))]
    cut: StageCut,
    /// Order in which stages run the passes of micro-batches: gpipe, 1f1b, interleaved:V (V chunks of layers per stage)
    /// or zb-h1 (gradients of weights are passes of their own)
    #[arg(long, value_name = "S", default_value = "1f1b")]
    schedule: PipelineSchedule,
    /// Micro-batches of a step
    #[arg(long, value_name = "N", default_value_t = MICRO_BATCHES, value_parser = positive, allow_hyphen_values = true)]
    micro_batches: u32,
    /// Samples of a micro-batch
    #[arg(long, value_name = "N", default_value = "32", value_parser = positive, allow_hyphen_values = true)]
    batch: u32,
    /// Refuse a schedule in which a stage holds activations of more micro-batches at once, counted per chunk
    #[arg(long, value_name = "N", value_parser = positive, allow_hyphen_values = true, conflicts_with = "mesh")]
    max_in_flight: Option<u32>,
    /// Draw the stages and their passes to an .svg file
    #[arg(long, value_name = "FILE", conflicts_with = "mesh")]
    plot: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl ModelsPlan {
    /// Reports on `model`, the one named by the flags.
    pub(super) fn run(self, model: Model) -> Result<(), Failure> {
        check_outputs(&[("--plot", self.plot.as_deref())])?;
        match self.mesh.clone() {
            Some(mesh) => self.run_mesh(mesh, model),
            None => self.run_stages(&model),
        }
    }

    /// Reports on ranks in a mesh.
    fn run_mesh(self, mesh: Mesh, model: Model) -> Result<(), Failure> {
        let in_stages = mesh.size(Axis::Pipeline) > 1;
        let unread = [
            ("cut", self.cut != StageCut::Work, self.cut.to_string()),
            ("schedule", self.schedule != PipelineSchedule::OneForwardOneBackward, self.schedule.to_string()),
            ("micro_batches", self.micro_batches != MICRO_BATCHES, self.micro_batches.to_string()),
        ];
        if let Some((flag, _, value)) = unread.into_iter().find(|(_, given, _)| *given && !in_stages) {
            let message = "is of pipeline stages: give the mesh a pipeline axis, e.g. pipeline=2, or leave it out";
            return Err(InputError::flag(flag, value, message).into());
        }
        let cluster = self.cluster.as_deref().map(Cluster::load).transpose()?;
        let library = || cluster.as_ref().and_then(library_of_gpus);
        let job = Job {
            strategy: self.strategy,
            activations: library(),
            algorithm: self.algorithm.or_else(library).unwrap_or_else(Algorithm::ring),
            axis_algorithms: self.axis_algorithms.unwrap_or_default(),
            accumulate: if in_stages { self.micro_batches } else { 1 },
            cut: self.cut,
            schedule: self.schedule,
            ..Job::new(Arc::new(model), mesh.ranks(), self.batch)
        };
        models_plan_mesh::run(&Job { mesh: Some(mesh), ..job }, cluster.as_ref(), self.list, self.format)
    }

    /// Reports on stages of a pipeline.
    fn run_stages(&self, model: &Model) -> Result<(), Failure> {
        let count = self.stages.unwrap_or(1);
        let chunks = self.schedule.chunks();
        let stages = Stages::new(model, count, chunks, &self.cut)?;
        let lists = self.schedule.lists(count, self.micro_batches)?;
        let limit = self.max_in_flight.unwrap_or(u32::MAX);
        let passes = self.schedule.passes();
        let in_flight = pipeline::check_within(&lists, passes, (chunks, self.micro_batches), limit)?;
        let ticks = |chunk: u32, pass: PipelinePass| stages.chunks()[chunk as usize].flops(pass, passes).round() as u64;
        let spans = pipeline::times(&lists, chunks, ticks)?;
        let idle = pipeline::idle_shares(&spans);
        let rows = (0..count).zip(in_flight).zip(&idle);
        let rows = rows.map(|((stage, in_flight), idle)| self.row(model, &stages, stage, in_flight, *idle));
        let rows: Vec<StageRow> = rows.collect();
        if let Some(path) = &self.plot {
            let heading =
                format!("{}: {} stages, {}, {} micro-batches", model.name(), count, self.schedule, self.micro_batches);
            let label = |row: &StageRow| StageLabel {
                layers: row.layers.clone(),
                in_flight: row.in_flight,
                idle_share: row.idle_share,
            };
            let labels: Vec<StageLabel> = rows.iter().map(label).collect();
            let picture = stage_chart(&heading, &lists, &spans, &labels);
            write_atomically("--plot", path, |file| file.write_all(picture.as_bytes()))?;
        }
        if self.format == Format::Table {
            let idle = 100.0 * idle.iter().sum::<f64>() / idle.len() as f64;
            let summary = format!(
                "{}: stages {}, cut {}, schedule {}, micro-batches {}, samples of each {}; stages are idle for {idle:.1} % of a step",
                model.name(),
                count,
                self.cut,
                self.schedule,
                self.micro_batches,
                self.batch
            );
            print(&format!("{summary}\n{}{STAGE_LEGEND}\n\n", stage_picture(&lists, &spans)))?;
        }
        let notes = [
            "idle time counts FLOPs alone, as if all ran at one rate and messages took no time".to_owned(),
            format!("sim predict and exec run take the stages as an axis of the mesh: --mesh pipeline={count}"),
        ];
        Report::new(rows, notes.into()).print(self.format)
    }

    fn row(&self, model: &Model, stages: &Stages, stage: u32, in_flight: u32, idle_share: f64) -> StageRow {
        let sum = |of: fn(&StageChunk) -> f64| stages.chunks_of(stage).map(of).sum::<f64>();
        let sent_bytes_per_sample = Dtype::F32.bytes(stages.sent_elements(stage));
        StageRow {
            stage,
            layers: stages.chunks_of(stage).map(|chunk| layers(model, chunk)).collect(),
            parameters: stages.chunks_of(stage).map(|chunk| chunk.parameters).sum(),
            forward_gflop: sum(|chunk| chunk.forward_flops) * 1e-9,
            backward_gflop: sum(|chunk| chunk.backward_flops) * 1e-9,
            sent_bytes_per_sample,
            sent_mib: sent_bytes_per_sample as f64 * f64::from(self.batch) / f64::from(1 << 20),
            in_flight,
            idle_share,
        }
    }
}

/// `conv1..pool2`, or the name alone of a single layer.
fn layers(model: &Model, chunk: &StageChunk) -> String {
    let name = |index: u32| &model.layers()[index as usize].name;
    let (first, last) = (chunk.layers.start, chunk.layers.end - 1);
    if first == last { name(first).clone() } else { format!("{}..{}", name(first), name(last)) }
}
