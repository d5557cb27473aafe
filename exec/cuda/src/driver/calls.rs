//! Calls of cuDNN and cuBLASLt whose answers are numbers.
//!
//! The bindings declare what a library answers as an enum, and a newer library answers with statuses that the enum does not
//! have: such a value must not come into being in Rust. So functions are found here by their names and called with the
//! parameters that the bindings declare for them, and what comes back is a number.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

use lockstep_exec::device::DeviceError;

/// The statuses of a library, as the bindings declare them.
pub(super) trait Library {
    /// What the number `code` that `call` has answered means.
    ///
    /// # Errors
    /// It is not success.
    fn judge(code: u32, call: &str) -> Result<(), DeviceError>;
}

/// A library's answer to a call.
#[must_use]
pub(super) struct Answer<L> {
    call: &'static str,
    /// None where the library has no such function.
    code: Option<u32>,
    library: PhantomData<L>,
}

impl<L: Library> Answer<L> {
    /// Nothing if the call did what it should.
    ///
    /// # Errors
    /// The device's memory is full, the device is lost, or else the library refuses the call or does not have it.
    pub(super) fn done(self) -> Result<(), DeviceError> {
        match self.code {
            Some(code) => L::judge(code, self.call),
            None => {
                let reason = "the library has no such function".to_owned();
                Err(DeviceError::Refused { call: self.call.to_owned(), reason })
            }
        }
    }

    /// The number, if there was a call.
    pub(super) fn code(&self) -> Option<u32> {
        self.code
    }
}

/// A function as the bindings declare it.
pub(super) trait Function: Copy {
    /// Its status.
    type Library;
    /// The function itself, with a number for its status.
    type Plain: Copy;

    /// The function that lies at `address`.
    ///
    /// # Safety
    /// One with the declared parameters, whose status is an enum of C, does lie there.
    unsafe fn plain(self, address: *mut c_void) -> Self::Plain;

    /// What a call of it has answered.
    fn answered(self, call: &'static str, code: Option<u32>) -> Answer<Self::Library> {
        Answer { call, code, library: PhantomData }
    }
}

/// Functions of so many parameters.
macro_rules! functions {
    ($(($($parameter:ident)*))*) => { $(
        impl<L, $($parameter),*> Function for unsafe fn($($parameter),*) -> L {
            type Library = L;
            type Plain = unsafe extern "C" fn($($parameter),*) -> u32;

            unsafe fn plain(self, address: *mut c_void) -> Self::Plain {
                // SAFETY: as the caller says; an enum of C is as wide as an int.
                unsafe { std::mem::transmute(address) }
            }
        }
    )* };
}

functions! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K M N) (A B C D E F G H I J K M N O P Q)
    (A B C D E F G H I J K M N O P Q R S)
}

/// Where a library has a function, looked for once.
pub(super) struct Place(AtomicPtr<c_void>);

impl Place {
    pub(super) const fn unknown() -> Place {
        Place(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The function's address, which `search` finds if nobody has found it yet.
    pub(super) fn or(&self, search: impl FnOnce() -> Option<*mut c_void>) -> Option<*mut c_void> {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return Some(known);
        }
        // Whoever else is searching finds the same.
        let found = search().filter(|address| !address.is_null())?;
        self.0.store(found, Ordering::Relaxed);
        Some(found)
    }
}

/// Calls a function of the bindings, `call!(library::function(arguments))`, and gives its [`Answer`]. The call is unsafe, and
/// the library must be there.
macro_rules! call {
    (@any $argument:expr) => { _ };
    ($library:ident::$function:ident($($argument:expr),* $(,)?)) => {{
        static PLACE: $crate::driver::calls::Place = $crate::driver::calls::Place::unknown();
        let declared: unsafe fn($($crate::driver::calls::call!(@any $argument)),*) -> _ = $library::$function;
        let found = PLACE.or(|| {
            let name = concat!(stringify!($function), "\0").as_bytes();
            $library::culib().get::<*mut std::ffi::c_void>(name).ok().map(|symbol| *symbol)
        });
        let code = found.map(|address| {
            $crate::driver::calls::Function::plain(declared, address)($($argument),*)
        });
        $crate::driver::calls::Function::answered(declared, stringify!($function), code)
    }};
}
pub(super) use call;
