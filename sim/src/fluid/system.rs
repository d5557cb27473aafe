//! `System`: holds the state of the incremental system: resources, activities.

use lockstep_topology::Time;

use super::Use;
use super::cells::Cells;
use super::classes::Classes;
use super::resource::{Fill, Resource};
use super::schedule::Schedule;
use super::work::Work;
use crate::event::Events;

/// The incremental fluid system; see [the module](crate::fluid) for what it computes.
///
/// ```
/// # use lockstep_sim::fluid::{Fluid, System, Use};
/// // Four ranks of one core each on two cores: half a core each.
/// let mut host = System::new();
/// let cores = host.add_resource(2.0)?;
/// let rank = host.class(1.0, &[Use::one(cores)])?;
/// for token in 0..4 {
///     host.start(rank, 3.0, token)?;
/// }
/// assert_eq!(host.speed(rank), 0.5);
/// assert_eq!(host.next_completion().map(|time| time.as_secs_f64()), Some(6.0));
/// # Ok::<(), lockstep_topology::InputError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct System {
    pub(super) now: Time,
    /// Count settlings, and searches within them; marks compare with them, so nothing needs to be cleared.
    pub(super) instant: u64,
    pub(super) searches: u64,
    pub(super) resources: Vec<Resource>,
    pub(super) fills: Vec<Fill>,
    pub(super) classes: Classes,
    /// Classes whose members changed since the last settling.
    pub(super) touched: Vec<u32>,
    /// The holder of each resource: a class that is alone on it, [`FREE`](super::resource::FREE) or
    /// [`SHARED`](super::resource::SHARED).
    pub(super) holders: Vec<u32>,
    /// The ends of the classes that are alone, and stale entries.
    pub(super) alone: Events<u32>,
    /// The first of these ends, as of the last query.
    pub(super) alone_due: Option<Time>,
    /// When the next activity is done; `None` where that has to be recomputed.
    pub(super) upcoming: Option<Option<Time>>,
    /// Classes that are no longer alone and wait to be entered into lists.
    pub(super) joined: Vec<u32>,
    /// Resources whose use by taps has changed since their users were updated.
    pub(super) sapped: Vec<u32>,
    /// Resources that only the classes of a cell use.
    pub(super) cells: Cells,
    /// The number of changes of capacities.
    pub(super) capacities: u64,
    /// One group of each component that has a completion ahead, at the component's next one.
    pub(super) schedule: Schedule,
    /// Activities without work, which end before the clock moves: number and token.
    pub(super) at_once: Vec<(u64, u64)>,
    /// Numbers and tokens of activities that end at one instant, to be sorted.
    pub(super) done: Vec<(u64, u64)>,
    pub(super) started: u64,
    pub(super) active: usize,
    pub(super) work: Work,
    pub(super) uses: Vec<Use>,
}

impl System {
    /// An empty system at time zero.
    pub fn new() -> System {
        System::default()
    }

    pub(super) fn touch(&mut self, class: u32) {
        let group = &mut self.classes.groups[class as usize];
        if !group.touched {
            group.touched = true;
            self.touched.push(class);
        }
    }
}
