//! Compiles the kernels by NVRTC for a device, checking that their parameters are those of the table.

use std::ffi::{CString, c_char};
use std::fmt;

use cudarc::nvrtc::result;
use cudarc::nvrtc::sys::{
    nvrtcGetCUBIN, nvrtcGetCUBINSize, nvrtcGetNumSupportedArchs, nvrtcGetSupportedArchs, nvrtcProgram, nvrtcVersion,
};

use super::kernel::SourceUnit;
use super::libraries::{LibraryFolders, LoadedLibrary, Missing, NvidiaLibrary, load};

/// The loaded compiler.
#[derive(Debug, Clone)]
pub struct Nvrtc {
    found: LoadedLibrary,
}

/// Why a source did not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The file, or the request to the compiler.
    pub what: String,
    /// The compiler's log.
    pub log: String,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NVRTC: {}: {}", self.what, self.log)
    }
}

impl std::error::Error for CompileError {}

/// Options for all kernels: no fused multiply-adds, so that results have the CPU device's bits.
pub(super) const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

impl Nvrtc {
    /// Loads the compiler.
    ///
    /// # Errors
    /// It is not found.
    pub fn load(places: &LibraryFolders) -> Result<Nvrtc, Missing> {
        load(NvidiaLibrary::Nvrtc, places).map(|found| Nvrtc { found })
    }

    /// Its path and version.
    ///
    /// # Errors
    /// It does not report them.
    pub fn describe(&self) -> Result<String, CompileError> {
        let (major, minor) = self.version()?;
        Ok(format!("{}, version {major}.{minor}", self.found.path.display()))
    }

    /// Its version, major and minor.
    ///
    /// # Errors
    /// It does not report it.
    pub fn version(&self) -> Result<(i32, i32), CompileError> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the library is loaded; both numbers outlive the call.
        unsafe { nvrtcVersion(&mut major, &mut minor) }.result().map_err(|error| refused("its version", &error))?;
        Ok((major, minor))
    }

    /// The architectures that it compiles for, as 90 for `sm_90`.
    ///
    /// # Errors
    /// It does not report them.
    pub fn architectures(&self) -> Result<Vec<i32>, CompileError> {
        let refusal = |error: result::NvrtcError| refused("its architectures", &error);
        let mut count = 0;
        // SAFETY: the library is loaded; the number outlives the call.
        unsafe { nvrtcGetNumSupportedArchs(&mut count) }.result().map_err(refusal)?;
        let mut all = vec![0; count as usize];
        // SAFETY: as above, and there is space for as many as it reported.
        unsafe { nvrtcGetSupportedArchs(all.as_mut_ptr()) }.result().map_err(refusal)?;
        Ok(all)
    }

    /// Compiles a unit for one architecture, to a form that the driver loads.
    ///
    /// # Errors
    /// The compiler's log: the architecture is not supported, or the unit is wrong.
    pub fn compile(&self, unit: SourceUnit, architecture: i32) -> Result<Vec<u8>, CompileError> {
        self.compile_text(&unit.to_string(), &unit.program(), architecture)
    }

    /// Compiles any text.
    ///
    /// # Errors
    /// As [`Nvrtc::compile`].
    pub fn compile_text(&self, name: &str, text: &str, architecture: i32) -> Result<Vec<u8>, CompileError> {
        let what = format!("{name} for sm_{architecture}");
        let text = CString::new(text).map_err(|error| refused(&what, &error))?;
        let file = CString::new(name).map_err(|error| refused(&what, &error))?;
        let program = result::create_program(&text, Some(&file)).map_err(|error| refused(&what, &error))?;
        let target = format!("--gpu-architecture=sm_{architecture}");
        let options = [OPTIONS[0], OPTIONS[1], target.as_str()];
        // SAFETY: the program has just been created, and `text` and `file` outlive it.
        let compiled = unsafe { result::compile_program(program, &options) };
        let answer = match compiled {
            Ok(()) => cubin(program).map_err(|error| refused(&what, &error)),
            Err(error) => Err(CompileError { what, log: log(program).unwrap_or_else(|| error.to_string()) }),
        };
        // SAFETY: it is not used any more. What it refuses to free ends with the process.
        let _ = unsafe { result::destroy_program(program) };
        answer
    }
}

fn refused(what: &str, error: &dyn fmt::Display) -> CompileError {
    CompileError { what: what.to_owned(), log: error.to_string() }
}

fn cubin(program: nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut bytes = 0;
    // SAFETY: the program has been compiled; the number outlives the call.
    unsafe { nvrtcGetCUBINSize(program, &mut bytes) }.result()?;
    let mut cubin = vec![0u8; bytes];
    // SAFETY: there is space for as many bytes as it reported.
    unsafe { nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast::<c_char>()) }.result()?;
    Ok(cubin)
}

fn log(program: nvrtcProgram) -> Option<String> {
    // SAFETY: the program is alive.
    let log = unsafe { result::get_program_log(program) }.ok()?;
    let bytes: Vec<u8> = log.into_iter().map(|letter| letter as u8).take_while(|letter| *letter != 0).collect();
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}
