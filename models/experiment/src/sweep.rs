//! The points of a sweep: its lists, what stands for several values in them, and the order of their product.

mod plan;
mod range;
mod scale;

pub use plan::{Family, MOST_POINTS, Place, Plan, Point, Question, Sweep};
pub use range::{RankCount, clusters, counts};
pub use scale::{SCALES, Scale};
