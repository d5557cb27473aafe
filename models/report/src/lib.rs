//! What commands answer: rows as tables, CSV and JSON, traces, pictures, progress, and the files that hold them.

mod columns;
mod csv;
pub mod explanation;
pub mod failure;
mod layout_row;
pub mod lines;
mod listing_row;
pub mod notes;
pub mod output;
mod paper_row;
mod plot_row;
pub mod progress;
mod report;
mod row;
mod stage_picture;
mod stage_row;
pub mod svg;
mod sweep_row;
mod table;
pub mod trace;
mod trained_row;

pub use columns::Row;
pub use csv::CsvForm;
pub use failure::Failure;
pub use layout_row::LayoutTableRow;
pub use listing_row::{CheckRow, ClusterRow, DetailRow, LayerRow, MemoryRow, ModelRow};
pub use paper_row::PaperRow;
pub use plot_row::PlotRow;
pub use report::{Format, Report, VERSION, print};
pub use row::{CollectiveRow, MeasuredRow, PredictedRow, Setting, scaling_efficiencies};
pub use stage_picture::{STAGE_LEGEND, stage_picture};
pub use stage_row::StageRow;
pub use sweep_row::{FrontRow, SweepRow};
pub use table::aligned;
pub use trained_row::{ArmRow, EpochRow};
