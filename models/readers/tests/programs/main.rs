//! Tests programs of models from files: strategies, jobs, memory, critical paths, periodic work.

mod critical_path;
mod formats;
mod job;
mod key;
mod memory;
mod padding;
mod periodic;
mod split;
mod split_graph;
mod stages;
mod straggling;
mod strategy;
mod table_first;
mod timeline;
mod zero;

use std::sync::Arc;

use lockstep_models::critical_path::*;
use lockstep_models::memory::*;
use lockstep_models::profile::*;
use lockstep_models::*;
use lockstep_readers::{load_model, parse_model, zoo};
use lockstep_topology::*;
