//! Runs `lockstep models list`, `show` and `check`; `plan` and `layouts` have files of their own.

use clap::Subcommand;
use lockstep_models::{Model, Node, Pass};
use lockstep_report::failure::Failure;
use lockstep_report::{CheckRow, Format, LayerRow, ModelRow, Report, print};
use lockstep_topology::{Bytes, Dtype, InputError};

use super::models_layouts::ModelsLayouts;
use super::models_memory::ModelsMemory;
use super::models_plan::ModelsPlan;
use super::unfold_flag::UnfoldFlag;

/// What can be asked about models.
#[derive(Debug, Subcommand)]
pub(super) enum Models {
    /// The models that come with lockstep
    #[command(after_help = "Example:
  lockstep models list --format json")]
    List {
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// The layers of a model: shapes, parameters, FLOPs and bytes of each pass of one sample
    #[command(after_help = "Examples:
  lockstep models show lenet
  lockstep models show resnet-50 --memory --batch 16
      the device memory that training takes, as planned and with a buffer for each operator's output
  lockstep models show gpt2 --memory --batch 4 --optimizer adamw --recompute full --plot memory.svg
      where activations of each block are computed again, and a picture over the step")]
    Show {
        /// Name of a model, or a .toml, .onnx, .prototxt or config.json file, e.g. lenet, resnet-50:image=64 or gpt2:layers=2
        model: String,
        #[command(flatten)]
        unfold: UnfoldFlag,
        #[command(flatten)]
        memory: Option<ModelsMemory>,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// Cut a model into the stages of a pipeline: layers, work and messages of each, and how long it waits
    Plan(ModelsPlan),
    /// How a strategy spreads tensors over ranks: the layout of each, and the collectives that change it
    Layouts(ModelsLayouts),
    /// Read model files and say whether they make sense
    #[command(after_help = "Example:
  lockstep models check my-net.toml")]
    Check {
        /// Names of models, or .toml, .onnx, .prototxt or config.json files, variants and sizes behind a colon
        #[arg(required = true)]
        models: Vec<String>,
        #[command(flatten)]
        unfold: UnfoldFlag,
        /// How to print
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
}

impl Models {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Models::List { format } => {
                let row = |name: &String| lockstep_readers::load_model(name).map(|model| model_row(&model));
                let rows: Result<Vec<ModelRow>, InputError> = lockstep_readers::zoo().iter().map(row).collect();
                Report::new(rows?, Vec::new()).print(format)
            }
            Models::Show { model, unfold, memory: Some(memory), format } => memory.run(load(&model, &unfold)?, format),
            Models::Show { model, unfold, format, .. } => {
                let model = load(&model, &unfold)?;
                let rows = model.layers().iter().map(|node| layer_row(&model, node)).collect();
                let report = Report::new(rows, model.notes().to_vec());
                if format == Format::Table {
                    print(&format!("{}\n", summary(&model)))?;
                }
                report.print(format)
            }
            Models::Plan(plan) => {
                let model = load(&plan.model, &plan.unfold)?;
                plan.run(model)
            }
            Models::Layouts(layouts) => {
                let model = load(&layouts.model, &layouts.unfold)?;
                layouts.run(model)
            }
            Models::Check { models, unfold, format } => {
                let mut notes = Vec::new();
                let check = |name: String| {
                    let model = load(&name, &unfold)?;
                    notes.extend_from_slice(model.notes());
                    Ok(CheckRow::ok(&name, summary(&model)))
                };
                let rows: Result<Vec<CheckRow>, InputError> = models.into_iter().map(check).collect();
                Report::new(rows?, notes).print(format)
            }
        }
    }
}

/// A model by its name or path; errors are located at the argument.
fn load(name: &str, unfold: &UnfoldFlag) -> Result<Model, InputError> {
    // The error for an unknown name has no place of its own.
    unfold.load(name).map_err(|error| error.or_at("MODEL"))
}

fn flops(model: &Model, passes: &[Pass]) -> f64 {
    let of = |node: &Node, pass: &Pass| node.work(*pass, 1).flops;
    model
        .iter()
        .flat_map(|(id, node)| {
            let needed = |pass: &&Pass| **pass != Pass::BackwardData || model.needs_input_gradient(id);
            passes.iter().filter(needed).map(|pass| of(node, pass)).collect::<Vec<f64>>()
        })
        .sum()
}

fn model_row(model: &Model) -> ModelRow {
    ModelRow {
        name: model.name().to_owned(),
        layers: model.layers().len() as u32,
        input: model.input().to_string(),
        classes: model.classes(),
        parameters: model.parameter_elements(),
        parameters_mib: Dtype::F32.bytes(model.parameter_elements()) as f64 / f64::from(1 << 20),
        forward_gflop: flops(model, &[Pass::Forward]) * 1e-9,
        training_gflop: flops(model, &[Pass::Forward, Pass::BackwardData, Pass::BackwardWeight]) * 1e-9,
        source: model.source().to_owned(),
    }
}

/// A one-line summary: parameters, size, work per sample.
fn summary(model: &Model) -> String {
    let row = model_row(model);
    format!(
        "{}: {} layers, {} parameters ({}), forward {:.4} GFLOP and training {:.4} GFLOP per sample",
        row.name,
        row.layers,
        row.parameters,
        Bytes(Dtype::F32.bytes(row.parameters)),
        row.forward_gflop,
        row.training_gflop
    )
}

fn layer_row(model: &Model, node: &Node) -> LayerRow {
    let work = |pass: Pass| node.work(pass, 1);
    let parameters = node.parameters.iter().map(|parameter| parameter.elements()).sum();
    LayerRow {
        layer: node.name.clone(),
        kind: node.layer.kind().to_owned(),
        inputs: node.inputs.iter().map(|input| model.node(*input).name.clone()).collect(),
        output: node.output.to_string(),
        parameters,
        forward_flops: work(Pass::Forward).flops,
        backward_data_flops: work(Pass::BackwardData).flops,
        backward_weight_flops: work(Pass::BackwardWeight).flops,
        forward_bytes: work(Pass::Forward).bytes(Dtype::F32),
        backward_data_bytes: work(Pass::BackwardData).bytes(Dtype::F32),
        backward_weight_bytes: work(Pass::BackwardWeight).bytes(Dtype::F32),
    }
}
