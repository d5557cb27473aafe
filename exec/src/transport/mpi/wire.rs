//! Makes all MPI calls (with the folder beside this file), on the thread that initialised MPI.
//!
//! Messages are sent in pieces that stay in cache, so that a sum reads data just received, and the sum of one piece
//! overlaps the transfer of the next. Sender and receiver cut messages alike because lengths are equal by contract.
//! Where the library is CUDA-aware it reads and writes device memory by address; sums there are the device's. Errors
//! inside the library end the job, as intended (MPI's default error handler).

mod eager;
mod numbers;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use ::mpi::ffi;
use lockstep_topology::Dtype;

use super::super::slab::Slab;
use super::super::{Combine, Region, RegionMut, TransportError};
use super::{Fault, aware};
use crate::device::DeviceError;

/// Bytes of a piece: half of a usual second-level cache.
const PIECE: u64 = lockstep_topology::cluster::PIECE.0;

/// The most elements in one call of the library's allreduce, whose counts are 32-bit.
const LIBRARY_PIECE: usize = 1 << 28;

thread_local! {
    /// Whether this thread may call MPI.
    static MPI_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The piece that a request transfers.
#[derive(Debug, Clone, Copy)]
struct Piece {
    message: u32,
    /// First element in the message.
    start: usize,
    elements: usize,
}

/// A message in flight.
#[derive(Debug)]
struct Message {
    open: u32,
    /// The format of its elements.
    dtype: Dtype,
    /// For a sum: the destination, and the received data to add.
    sum: Option<(RegionMut, RegionMut)>,
    receives: bool,
}

/// This process's connection to all others.
#[derive(Debug)]
pub(super) struct Wire {
    comm: ffi::MPI_Comm,
    process: u32,
    processes: u32,
    requests: Vec<ffi::MPI_Request>,
    /// `pieces[i]` belongs to `requests[i]`.
    pieces: Vec<Piece>,
    messages: Slab<Message>,
    indices: Vec<c_int>,
    statuses: Vec<ffi::MPI_Status>,
    in_place: *const c_void,
    /// Communicators of groups that have called the library's allreduce, with their processes.
    groups: Vec<(Vec<u32>, ffi::MPI_Comm)>,
    /// Whether all processes' libraries accept addresses of GPU memory.
    takes_devices: bool,
}

impl Wire {
    /// Initialises MPI on this thread, once per process.
    pub(super) fn open() -> Result<Wire, TransportError> {
        let (mut initialised, mut provided, mut process, mut processes) = (0, 0, 0, 0);
        // SAFETY: plain calls with valid out-pointers; MPI is initialised at most once, as just checked.
        let comm = unsafe {
            ffi::MPI_Initialized(&mut initialised);
            if initialised != 0 {
                return Err(TransportError::Unsupported("MPI starts once in a process".to_owned()));
            }
            eager::raise_limits();
            ffi::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), ffi::RSMPI_THREAD_FUNNELED, &mut provided);
            let mut comm = ffi::RSMPI_COMM_NULL;
            ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, &mut comm);
            ffi::MPI_Comm_rank(comm, &mut process);
            ffi::MPI_Comm_size(comm, &mut processes);
            comm
        };
        MPI_THREAD.set(true);
        // SAFETY: constant of the library.
        if provided < unsafe { ffi::RSMPI_THREAD_FUNNELED } {
            return Err(TransportError::Unsupported("this MPI library refuses processes with threads".to_owned()));
        }
        let mut wire = Wire {
            comm,
            process: process as u32,
            processes: processes as u32,
            requests: Vec::new(),
            pieces: Vec::new(),
            messages: Slab::new(),
            indices: Vec::new(),
            statuses: Vec::new(),
            in_place: in_place(),
            groups: Vec::new(),
            takes_devices: false,
        };
        let own = aware::is_aware(process == 0);
        // A process with an invalid setting must still take part, since the others wait for it.
        let all = wire.gather(u32::from(own.as_ref().is_ok_and(|is| *is)));
        wire.takes_devices = own? && all.iter().all(|is| *is == 1);
        Ok(wire)
    }

    pub(super) fn takes_devices(&self) -> bool {
        self.takes_devices
    }

    pub(super) fn process(&self) -> u32 {
        self.process
    }

    pub(super) fn processes(&self) -> u32 {
        self.processes
    }

    /// The largest tag that the library supports.
    pub(super) fn largest_tag(&self) -> u32 {
        let (mut value, mut found): (*mut c_int, c_int) = (ptr::null_mut(), 0);
        // SAFETY: the attribute's value is a pointer to an int that the library keeps.
        unsafe {
            ffi::MPI_Comm_get_attr(self.comm, ffi::MPI_TAG_UB as c_int, ptr::from_mut(&mut value).cast(), &mut found);
            if found != 0 && !value.is_null() { *value as u32 } else { 32_767 }
        }
    }

    /// Sends `data` to a process; returns the message's number.
    ///
    /// # Errors
    /// The device that holds the data is lost.
    pub(super) fn send(&mut self, process: u32, tag: c_int, data: Region) -> Result<u32, DeviceError> {
        data.bind()?;
        let message = self.messages.insert(Message { open: 0, dtype: data.dtype(), sum: None, receives: false });
        for piece in pieces(message, data.len(), data.dtype()) {
            let part = data.part(piece.start..piece.start + piece.elements);
            // SAFETY: the region stays readable until the message is done, by the promise of `Region::new`.
            self.post(piece, |comm, request| unsafe {
                let count = part.bytes() as c_int;
                ffi::MPI_Isend(part.as_ptr().cast(), count, ffi::RSMPI_UINT8_T, process as c_int, tag, comm, request)
            });
        }
        Ok(message)
    }

    /// Receives from a process into `into`, through `scratch` for a sum; returns the message's number.
    ///
    /// # Errors
    /// The device that holds the regions is lost.
    pub(super) fn receive(
        &mut self,
        process: u32,
        tag: c_int,
        into: RegionMut,
        how: Combine,
        scratch: RegionMut,
    ) -> Result<u32, DeviceError> {
        let (lands, sum) = match how {
            Combine::Copy => (into, None),
            Combine::Sum => (scratch, Some((into, scratch))),
        };
        lands.read().bind()?;
        lands.count();
        let message = self.messages.insert(Message { open: 0, dtype: into.dtype(), sum, receives: true });
        for piece in pieces(message, into.len(), into.dtype()) {
            let part = lands.part(piece.start..piece.start + piece.elements);
            // SAFETY: the region is ours until the message is done, by the promise of `RegionMut::new`.
            self.post(piece, |comm, request| unsafe {
                let count = part.bytes() as c_int;
                ffi::MPI_Irecv(
                    part.as_mut_ptr().cast(),
                    count,
                    ffi::RSMPI_UINT8_T,
                    process as c_int,
                    tag,
                    comm,
                    request,
                )
            });
        }
        Ok(message)
    }

    fn post(&mut self, piece: Piece, call: impl FnOnce(ffi::MPI_Comm, *mut ffi::MPI_Request) -> c_int) {
        // SAFETY: constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        call(self.comm, &mut request);
        self.requests.push(request);
        self.pieces.push(piece);
        self.messages.get_mut(piece.message).open += 1;
    }

    /// Checks all requests once, adds arrived data, and calls `done` for each finished message.
    ///
    /// # Errors
    /// A piece of unexpected length, or a device error while adding.
    pub(super) fn poll(&mut self, mut done: impl FnMut(u32)) -> Result<(), Fault> {
        let active = self.requests.len();
        if active == 0 {
            return Ok(());
        }
        self.indices.resize(active, 0);
        // SAFETY: a status is plain numbers, for which zero is a value.
        self.statuses.resize_with(active, || unsafe { std::mem::zeroed() });
        let mut count: c_int = 0;
        // SAFETY: the three arrays have `active` entries.
        unsafe {
            let (indices, statuses) = (self.indices.as_mut_ptr(), self.statuses.as_mut_ptr());
            ffi::MPI_Testsome(active as c_int, self.requests.as_mut_ptr(), &mut count, indices, statuses);
        }
        let count = count.max(0) as usize;
        for at in 0..count {
            self.finish(self.indices[at] as usize, at, &mut done)?;
        }
        if count > 0 {
            // Order is kept: the library tests in order, and the oldest request is the one that others wait for.
            // SAFETY: constant of the library.
            let null = unsafe { ffi::RSMPI_REQUEST_NULL };
            let mut kept = 0;
            for at in 0..active {
                if self.requests[at] != null {
                    self.requests.swap(kept, at);
                    self.pieces.swap(kept, at);
                    kept += 1;
                }
            }
            self.requests.truncate(kept);
            self.pieces.truncate(kept);
        }
        Ok(())
    }

    /// Handles a finished request.
    fn finish(&mut self, index: usize, status: usize, done: &mut impl FnMut(u32)) -> Result<(), Fault> {
        let piece = self.pieces[index];
        let message = self.messages.get_mut(piece.message);
        if message.receives {
            let mut bytes: c_int = 0;
            // SAFETY: the status of a finished receive.
            unsafe { ffi::MPI_Get_count(&self.statuses[status], ffi::RSMPI_UINT8_T, &mut bytes) };
            let (bytes, expected) = (bytes.max(0) as u64, message.dtype.bytes(piece.elements as u64));
            if bytes != expected {
                let sent = message.dtype.elements_within(bytes) as usize;
                return Err(Fault::Length { sent, expected: piece.elements });
            }
        }
        if let Some((into, scratch)) = message.sum {
            let range = piece.start..piece.start + piece.elements;
            into.part(range.clone()).take(scratch.part(range).read(), Combine::Sum).map_err(Fault::Device)?;
        }
        message.open -= 1;
        if message.open == 0 {
            self.messages.remove(piece.message);
            done(piece.message);
        }
        Ok(())
    }

    /// Whether nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// The library's allreduce of fp32 over `members` (processes, in order), in place and blocking.
    pub(super) fn allreduce(&mut self, members: Vec<u32>, data: RegionMut) {
        assert!(data.dtype() == Dtype::F32, "the library adds fp32 here, not {}", data.dtype());
        let comm = self.group(members);
        let mut start = 0;
        while start < data.len() {
            let part = data.part(start..data.len().min(start + LIBRARY_PIECE));
            // SAFETY: the region is ours, and the constant tells the library to work in place.
            unsafe {
                let (place, into) = (self.in_place, part.as_mut_ptr().cast());
                ffi::MPI_Allreduce(place, into, part.len() as c_int, ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, comm);
            }
            start += part.len();
        }
    }

    /// The communicator of some processes; created at their first call, by all of them together.
    fn group(&mut self, members: Vec<u32>) -> ffi::MPI_Comm {
        if members.len() == self.processes as usize && members.is_sorted() {
            return self.comm;
        }
        if let Some((_, comm)) = self.groups.iter().find(|(known, _)| *known == members) {
            return *comm;
        }
        let numbers: Vec<c_int> = members.iter().map(|member| *member as c_int).collect();
        // SAFETY: plain calls with valid pointers; all members make the same call.
        let comm = unsafe {
            let (mut world, mut some) = (ffi::RSMPI_GROUP_NULL, ffi::RSMPI_GROUP_NULL);
            let mut comm = ffi::RSMPI_COMM_NULL;
            ffi::MPI_Comm_group(self.comm, &mut world);
            ffi::MPI_Group_incl(world, numbers.len() as c_int, numbers.as_ptr(), &mut some);
            ffi::MPI_Comm_create_group(self.comm, some, 0, &mut comm);
            ffi::MPI_Group_free(&mut some);
            ffi::MPI_Group_free(&mut world);
            comm
        };
        self.groups.push((members, comm));
        comm
    }

    /// Finalizes MPI; every process calls it.
    pub(super) fn close(&mut self) {
        // SAFETY: nothing is in flight, and the wire is not used any more.
        unsafe { ffi::MPI_Finalize() };
        MPI_THREAD.set(false);
    }
}

/// The pieces of a message; an empty message is one empty piece.
fn pieces(message: u32, elements: usize, dtype: Dtype) -> impl Iterator<Item = Piece> {
    let each = dtype.elements_within(PIECE) as usize;
    let count = elements.div_ceil(each).max(1);
    (0..count).map(move |index| {
        let start = index * each;
        Piece { message, start, elements: each.min(elements - start) }
    })
}

/// The library's name for itself, up to the first comma: `Open MPI v4.1.4`.
pub(super) fn library() -> String {
    let mut name = [0u8; 8192];
    let mut length: c_int = 0;
    // SAFETY: the buffer is at least as long as any library's longest version string.
    unsafe { ffi::MPI_Get_library_version(name.as_mut_ptr().cast(), &mut length) };
    let text = String::from_utf8_lossy(&name[..length.clamp(0, 8192) as usize]);
    text.split([',', '\n', '\0']).next().unwrap_or_default().trim().to_owned()
}

/// `MPI_IN_PLACE`, a macro that bindings do not provide: 1 in Open MPI, −1 in MPICH and its derivatives.
fn in_place() -> *const c_void {
    ptr::without_provenance(if library().starts_with("Open MPI") { 1 } else { usize::MAX })
}

/// Whether this thread is the one that calls MPI.
pub(super) fn on_mpi_thread() -> bool {
    MPI_THREAD.get()
}

/// Ends all processes of the job at once, this one included.
pub(super) fn abort() -> ! {
    if on_mpi_thread() {
        // SAFETY: MPI is initialised on this thread.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, super::EXIT_CODE) };
    }
    // Without MPI_Finalize, so that the launcher ends the others.
    std::process::exit(super::EXIT_CODE)
}
