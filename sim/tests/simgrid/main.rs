//! SimGrid as an independent judge: its S4U plays the same flows and the same steps on the same platforms.
//!
//! `judge.cpp` is all that is known about SimGrid; `judge.rs` compiles it and asks it, `case.rs` writes the questions.
//! What agrees how well, and why not better, stands in `docs/simgrid.md`. The closed forms need no judge.

mod case;
mod closed_forms;
mod clusters;
mod flows;
mod judge;
mod random;
mod schedules;
mod world;
