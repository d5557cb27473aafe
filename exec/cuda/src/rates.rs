//! Times copies of a GPU, each on a stream of its own, by events, with nothing concurrent.

use std::sync::Arc;

use lockstep_exec::device::DeviceError;

use super::driver::{Context, Event, Fill, GpuMemory, GpuStream, PinnedMemory, Priority};
use super::libraries::LibraryFolders;

/// Consecutive fills, whose total time is divided among them.
const BURST: u32 = 64;
/// Bytes of a small copy.
const SMALL: u64 = 4;

/// Times of the copies in one direction, in seconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Way {
    /// Of a copy of one element, for each repetition.
    pub small: Vec<f64>,
    /// Per byte of a large copy, for each repetition.
    pub byte: Vec<f64>,
}

/// The measurements of a GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// From page-locked host memory.
    pub to_device: Way,
    /// To page-locked host memory.
    pub to_host: Way,
    /// Within its own memory.
    pub within: Way,
    /// To the next GPU of the machine, if there is one.
    pub to_peer: Option<Way>,
    /// Seconds from one small fill to the next.
    pub launch: Vec<f64>,
}

/// Free memory of a GPU, in bytes.
///
/// # Errors
/// There is no such GPU, or it is lost.
pub fn free_memory(ordinal: u32) -> Result<u64, DeviceError> {
    Ok(Context::open(&LibraryFolders::usual(), ordinal)?.memory()?.0)
}

/// Times copies of `bytes` bytes in each direction, `repetitions` times after one warm-up.
///
/// # Errors
/// There is no such GPU, too little memory on it or the host, or it is lost.
pub fn rates(ordinal: u32, bytes: u64, repetitions: u32) -> Result<Rates, DeviceError> {
    let places = LibraryFolders::usual();
    let context = Context::open(&places, ordinal)?;
    let stream = GpuStream::new(&context, Priority::Usual)?;
    let memory = |what: &str| GpuMemory::new(&context, what, bytes, Fill::Zeros);
    let (from, to) = (memory("the source of copies")?, memory("the target of copies")?);
    let pinned = PinnedMemory::new(&context, bytes)?;
    let clock = Clock { stream: &stream, events: [Event::new(&context, true)?, Event::new(&context, true)?] };
    let way = |copy: &dyn Fn(u64) -> Result<(), DeviceError>| -> Result<Way, DeviceError> {
        let mut way = Way::default();
        for repetition in 0..=repetitions {
            let small = clock.time(|| copy(SMALL))?;
            let byte = clock.time(|| copy(bytes))? / bytes as f64;
            if repetition > 0 {
                way.small.push(small);
                way.byte.push(byte);
            }
        }
        Ok(way)
    };
    // SAFETY: all memory has that many bytes and no other user, and lives until the clock has waited for the stream.
    let to_device = way(&|bytes| unsafe { stream.upload(to.address(), pinned.start(), bytes) })?;
    // SAFETY: as above.
    let to_host = way(&|bytes| unsafe { stream.download(pinned.start(), from.address(), bytes) })?;
    // SAFETY: as above; they are distinct.
    let within = way(&|bytes| unsafe { stream.copy(to.address(), from.address(), bytes) })?;
    let to_peer = match peer(&places, &context, bytes)? {
        Some((there, memory)) => {
            // SAFETY: as above, in another GPU's memory.
            let send = |bytes: u64| unsafe { stream.send(&there, memory.address(), from.address(), bytes) };
            Some(way(&send)?)
        }
        None => None,
    };
    let burst = || {
        // SAFETY: as above.
        (0..BURST).try_for_each(|_| unsafe { stream.fill(to.address(), 0, SMALL) })
    };
    let mut launch = Vec::new();
    for _ in 0..repetitions {
        launch.push(clock.time(burst)? / f64::from(BURST));
    }
    Ok(Rates { to_device, to_host, within, to_peer, launch })
}

/// The next GPU of the machine, with memory there.
fn peer(
    places: &LibraryFolders,
    context: &Arc<Context>,
    bytes: u64,
) -> Result<Option<(Arc<Context>, GpuMemory)>, DeviceError> {
    let Ok(there) = Context::open(places, context.ordinal() + 1) else {
        context.bind()?;
        return Ok(None);
    };
    let memory = GpuMemory::new(&there, "the target of copies", bytes, Fill::Zeros)?;
    context.bind()?;
    // Without peer access the driver copies through the host, and that time is the result.
    context.reach(&there)?;
    Ok(Some((there, memory)))
}

/// Two events on a stream.
struct Clock<'a> {
    stream: &'a GpuStream,
    events: [Event; 2],
}

impl Clock<'_> {
    /// Seconds that the stream takes for the submitted work.
    fn time(&self, give: impl FnOnce() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let [before, after] = &self.events;
        self.stream.synchronize()?;
        before.record(self.stream)?;
        give()?;
        after.record(self.stream)?;
        after.synchronize()?;
        Ok(after.seconds_since(before)?.max(0.0))
    }
}
