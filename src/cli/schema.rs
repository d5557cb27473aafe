//! Runs `lockstep schema`: prints the JSON schema of a report, as published in `docs/schema`, or the pages of settings
//! and refusals.

use clap::Args;
use lockstep_experiment::{refusals_page, settings_page};
use lockstep_measure::calibrate::CalibrationRow;
use lockstep_report::failure::Failure;
use lockstep_report::{
    ArmRow, CheckRow, ClusterRow, CollectiveRow, CurvePointRow, CurveRow, DetailRow, DocumentRow, EpochRow, FrontRow,
    LayerRow, LayoutTableRow, MeasuredRow, MemoryAdviceRow, MemoryBesideRow, MemoryRow, ModelRow, NetworkRow, PackRow,
    PaperRow, PlotRow, PredictedRow, RankMemoryRow, RankRow, Report, SampleGroupRow, SampleRow, StageRow, SweepRow,
    TransitionRow, VERSION, print,
};
use lockstep_topology::{InputError, nearest};
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value};

use super::collective_beside::BesideRow;
use super::lab_rows::{CableRow, LabRow};
use super::link_rows::PathRow;
use super::profiles::ProfileRow;
use crate::compare::CompareRow;

/// Flags of `schema`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lockstep schema sim-predict")]
pub(super) struct Schema {
    /// Which report: sim-predict, exec-run, collective, models-list, models-show, clusters-list, clusters-show, check, …
    report: String,
}

impl Schema {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.report.as_str() {
            "settings" => return print(&settings_page()),
            "refusals" => return print(&refusals_page()),
            _ => {}
        }
        let all = schemas();
        let Some((_, schema)) = all.iter().find(|(name, _)| *name == self.report) else {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            let near = nearest(&self.report, names.iter().copied());
            let cure = if near.is_empty() { names.join(", ") } else { near.join(" or ") };
            let message = format!("there is no such report; did you mean {cure}?");
            return Err(InputError::new("REPORT", self.report, message).into());
        };
        print(&format!("{schema:#}\n"))
    }
}

/// Name and schema of the JSON form of each command, as in `docs/schema/NAME.json`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let all = vec![
        ("sim-predict", schema::<PredictedRow>()),
        ("sim-sweep", schema::<FrontRow>()),
        ("sim-sweep-rows", schema_for!(SweepRow).into()),
        ("exec-run", schema::<MeasuredRow>()),
        ("exec-links", schema::<PathRow>()),
        ("exec-sweep", schema::<ArmRow>()),
        ("exec-sweep-rows", schema_for!(EpochRow).into()),
        ("compare", schema::<CompareRow>()),
        ("calibrate", schema::<CalibrationRow>()),
        ("profiles-show", schema::<ProfileRow>()),
        ("collective", schema::<CollectiveRow>()),
        ("collective-beside", schema::<BesideRow>()),
        ("sim-curves", schema::<CurveRow>()),
        ("sim-curves-points", schema::<CurvePointRow>()),
        ("models-list", schema::<ModelRow>()),
        ("models-show", schema::<LayerRow>()),
        ("models-memory", schema::<MemoryRow>()),
        ("memory", schema::<RankMemoryRow>()),
        ("memory-advice", schema::<MemoryAdviceRow>()),
        ("memory-beside", schema::<MemoryBesideRow>()),
        ("models-plan", schema::<StageRow>()),
        ("models-plan-ranks", schema::<RankRow>()),
        ("models-plan-transitions", schema::<TransitionRow>()),
        ("models-layouts", schema::<LayoutTableRow>()),
        ("clusters-list", schema::<ClusterRow>()),
        ("clusters-networks", schema::<NetworkRow>()),
        ("clusters-show", schema::<DetailRow>()),
        ("lab-up", schema::<CableRow>()),
        ("lab-list", schema::<LabRow>()),
        ("data-pack", schema::<PackRow>()),
        ("data-show", schema::<SampleRow>()),
        ("data-show-documents", schema::<DocumentRow>()),
        ("data-stats", schema::<SampleGroupRow>()),
        ("papers", schema::<PaperRow>()),
        ("papers-figures", schema::<PlotRow>()),
        ("check", schema::<CheckRow>()),
    ];
    all.into_iter().map(|(name, schema)| (name, identified(name, schema))).collect()
}

/// The schema with its identifier first, which holds the version of the form.
fn identified(name: &str, schema: Value) -> Value {
    let mut all = Map::new();
    all.insert("$id".to_owned(), Value::String(format!("urn:lockstep:schema:{name}:{VERSION}")));
    if let Value::Object(fields) = schema {
        all.extend(fields);
    }
    Value::Object(all)
}

fn schema<R: JsonSchema>() -> Value {
    schema_for!(Report<R>).into()
}
