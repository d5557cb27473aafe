//! Compares predictions with SimGrid as an independent reference: its S4U runs the same flows and the same steps on the
//! same platforms.
//!
//! `judge.cpp` holds all that is known about SimGrid; `judge.rs` compiles and runs it, `case.rs` writes the cases.
//! `docs/simgrid.md` says how well results agree, and why not better. The closed forms need no SimGrid.

mod case;
mod closed_forms;
mod clusters;
mod flows;
mod judge;
mod random;
mod schedules;
mod world;
