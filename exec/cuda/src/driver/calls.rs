//! Calls cuDNN and cuBLASLt with numeric statuses.
//!
//! It replaces cudarc's safe layer, which declares a library's status as an enum: newer libraries return statuses that
//! the enum lacks, and such a value must not exist in Rust. So functions are looked up here by name, called with the
//! parameters that the bindings declare, and their status is a number.

use std::ffi::c_void;
use std::marker::PhantomData;

use lockstep_exec::device::DeviceError;

use super::status::{Library, refused};

/// A library's status for a call.
#[must_use]
pub(super) struct Answer<L> {
    call: &'static str,
    /// `None` where the library has no such function.
    code: Option<u32>,
    library: PhantomData<L>,
}

impl<L: Library> Answer<L> {
    /// The status of a call.
    pub(super) fn new(call: &'static str, code: Option<u32>) -> Answer<L> {
        Answer { call, code, library: PhantomData }
    }

    /// Succeeds if the call succeeded.
    ///
    /// # Errors
    /// The device is out of memory or lost, or the library refuses the call or does not have it.
    pub(super) fn done(self) -> Result<(), DeviceError> {
        match self.code {
            Some(code) => L::check(code, self.call),
            None => Err(missing(self.call)),
        }
    }

    /// The status, if the call was made.
    pub(super) fn code(&self) -> Option<u32> {
        self.code
    }
}

fn missing(call: &str) -> DeviceError {
    refused(call, "the library has no such function".to_owned())
}

/// Looks up a function of a library by name.
///
/// # Errors
/// There is no such function.
///
/// # Safety
/// It is of type `F`, with a number for its status.
pub(super) unsafe fn found<F: Copy>(library: &libloading::Library, name: &str) -> Result<F, DeviceError> {
    // SAFETY: as the caller promises; the libraries stay loaded.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| missing(name))
}

/// A function type as declared by the bindings.
pub(super) trait Function: Copy {
    /// The library of its status.
    type Library: Library;
    /// The same type, with a number for its status.
    type Plain: Copy;

    /// The function at `address`.
    ///
    /// # Safety
    /// There is a function with the declared parameters, whose status is a C enum.
    unsafe fn plain(self, address: usize) -> Self::Plain;

    /// The status of a call of it.
    fn answered(self, call: &'static str, code: Option<u32>) -> Answer<Self::Library> {
        Answer::new(call, code)
    }
}

/// Implements it for functions of these parameters.
macro_rules! functions {
    ($(($($parameter:ident)*))*) => { $(
        impl<L: Library, $($parameter),*> Function for unsafe fn($($parameter),*) -> L {
            type Library = L;
            type Plain = unsafe extern "C" fn($($parameter),*) -> u32;

            unsafe fn plain(self, address: usize) -> Self::Plain {
                // SAFETY: as the caller promises; a C enum is as wide as an int.
                unsafe { std::mem::transmute(address as *const c_void) }
            }
        }
    )* };
}

functions! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F G) (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K M N O P Q) }

/// Calls a function of the bindings, `call!(library::function(arguments))`, and returns its [`Answer`]. The call is
/// unsafe, and the library must be loaded.
macro_rules! call {
    (@any $argument:expr) => { _ };
    ($library:ident::$function:ident($($argument:expr),* $(,)?)) => {{
        // Looked up once.
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
