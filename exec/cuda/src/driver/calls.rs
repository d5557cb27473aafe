//! Calls of cuDNN and cuBLASLt whose answers are numbers.
//!
//! Ours in place of cudarc's safe layer, for that declares what a library answers as an enum, and a newer library answers with statuses
//! that the enum does not have: such a value must not come into being in Rust. So functions are found here by their names and called
//! with the parameters that the bindings declare for them, and what comes back is a number.

use std::ffi::c_void;
use std::marker::PhantomData;

use lockstep_exec::device::DeviceError;

use super::status::{Library, refused};

/// A library's answer to a call.
#[must_use]
pub(super) struct Answer<L> {
    call: &'static str,
    /// None where the library has no such function.
    code: Option<u32>,
    library: PhantomData<L>,
}

impl<L: Library> Answer<L> {
    /// What a call has answered.
    pub(super) fn new(call: &'static str, code: Option<u32>) -> Answer<L> {
        Answer { call, code, library: PhantomData }
    }

    /// Nothing if the call did what it should.
    ///
    /// # Errors
    /// The device's memory is full, the device is lost, or else the library refuses the call or does not have it.
    pub(super) fn done(self) -> Result<(), DeviceError> {
        match self.code {
            Some(code) => L::judge(code, self.call),
            None => Err(missing(self.call)),
        }
    }

    /// The number, if there was a call.
    pub(super) fn code(&self) -> Option<u32> {
        self.code
    }
}

fn missing(call: &str) -> DeviceError {
    refused(call, "the library has no such function".to_owned())
}

/// The function of a library that has a name.
///
/// # Errors
/// There is none.
///
/// # Safety
/// It is of type `F`, with a number for its status.
pub(super) unsafe fn found<F: Copy>(library: &libloading::Library, name: &str) -> Result<F, DeviceError> {
    // SAFETY: as the caller says; the libraries stay loaded.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| missing(name))
}

/// A function as the bindings declare it.
pub(super) trait Function: Copy {
    /// Its status.
    type Library: Library;
    /// The function itself, with a number for its status.
    type Plain: Copy;

    /// The function that lies at `address`.
    ///
    /// # Safety
    /// One with the declared parameters, whose status is an enum of C, does lie there.
    unsafe fn plain(self, address: usize) -> Self::Plain;

    /// What a call of it has answered.
    fn answered(self, call: &'static str, code: Option<u32>) -> Answer<Self::Library> {
        Answer::new(call, code)
    }
}

/// Functions of so many parameters.
macro_rules! functions {
    ($(($($parameter:ident)*))*) => { $(
        impl<L: Library, $($parameter),*> Function for unsafe fn($($parameter),*) -> L {
            type Library = L;
            type Plain = unsafe extern "C" fn($($parameter),*) -> u32;

            unsafe fn plain(self, address: usize) -> Self::Plain {
                // SAFETY: as the caller says; an enum of C is as wide as an int.
                unsafe { std::mem::transmute(address as *const c_void) }
            }
        }
    )* };
}

functions! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F G) (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K M N O P Q) }

/// Calls a function of the bindings, `call!(library::function(arguments))`, and gives its [`Answer`]. The call is unsafe, and
/// the library must be there.
macro_rules! call {
    (@any $argument:expr) => { _ };
    ($library:ident::$function:ident($($argument:expr),* $(,)?)) => {{
        // Looked for once.
        static PLACE: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
        let declared: unsafe fn($($crate::driver::calls::call!(@any $argument)),*) -> _ = $library::$function;
        let name = stringify!($function);
        let found = PLACE.get_or_init(|| {
            $library::culib().get::<*mut std::ffi::c_void>(name.as_bytes()).ok().map(|symbol| *symbol as usize)
        });
        let code = found.map(|address| {
            $crate::driver::calls::Function::plain(declared, address)($($argument),*)
        });
        $crate::driver::calls::Function::answered(declared, name, code)
    }};
}
pub(super) use call;
