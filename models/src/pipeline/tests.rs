//! Compares schedules with closed forms and with a slow reference, and cuts with all possible cuts.

mod cuts;
mod layouts;
mod lists;
