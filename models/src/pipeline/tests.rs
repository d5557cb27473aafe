//! Schedules beside closed forms and a slow twin, and cuts beside all cuts that there are.

mod cuts;
mod lists;
