//! Loads the project's kernels on a device: compiles every unit for its architecture and looks up every function.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaFunction;
use cudarc::driver::result::launch_kernel;
use cudarc::nvrtc::Ptx;
use lockstep_exec::device::DeviceError;

use super::cache::{Cache, Key};
use super::context::Context;
use super::status::{Status, refused};
use super::stream::GpuStream;
use crate::kernel::{KernelCall, SourceUnit};
use crate::nvrtc::{CompileError, Nvrtc, OPTIONS};

/// All kernels of the table, ready to be launched on one device.
#[derive(Debug)]
pub struct Modules {
    context: Arc<Context>,
    functions: BTreeMap<&'static str, CudaFunction>,
    compiled: usize,
}

impl Modules {
    /// Compiles what `cache` does not have, and loads everything.
    ///
    /// # Errors
    /// The compiler does not know the device's architecture, or refuses a unit; the device is out of memory or lost.
    pub fn load(context: &Arc<Context>, cache: &Cache) -> Result<Modules, DeviceError> {
        let nvrtc = Nvrtc::load(context.places()).map_err(|not| DeviceError::Unavailable(not.to_string()))?;
        let version = nvrtc.version().map_err(compiler)?;
        let architecture = target(context.architecture(), &nvrtc.architectures().map_err(compiler)?, version)?;
        let mut all = Modules { context: Arc::clone(context), functions: BTreeMap::new(), compiled: 0 };
        context.within(|| {
            for unit in SourceUnit::all() {
                let text = unit.program();
                let key = Key { text: &text, options: &OPTIONS, version, architecture };
                all.load_unit(unit, key, &nvrtc, cache)?;
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Number of units compiled; the others were in the cache.
    pub fn compiled(&self) -> usize {
        self.compiled
    }

    /// Launches a kernel on a stream of this device.
    ///
    /// # Errors
    /// The device is lost, or a kernel is missing.
    ///
    /// # Safety
    /// Addresses are this device's, or another's that it can access, with as many bytes as the kernel accesses, until
    /// the stream is done.
    pub(crate) unsafe fn launch(&self, stream: &GpuStream, call: &KernelCall) -> Result<(), DeviceError> {
        let function = self.function(call.entry.function)?;
        let value = |value: &Vec<u8>| value.as_ptr().cast::<c_void>().cast_mut();
        let mut values: Vec<*mut c_void> = call.arguments.iter().map(|argument| value(&argument.value)).collect();
        let (blocks, threads, shared) = (call.geometry.blocks, call.geometry.threads, call.geometry.shared_bytes);
        let (function, stream) = (function.cu_function(), stream.raw());
        // cudarc's builder takes typed arguments; here they are already bytes.
        // SAFETY: the table's types are the kernel's parameters, as the compiler has checked; values are read during
        // the call.
        unsafe { launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), shared, stream, &mut values) }
            .of(call.entry.function)
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn function(&self, name: &str) -> Result<&CudaFunction, DeviceError> {
        self.functions.get(name).ok_or_else(|| refused(name, "no kernel of that name".to_owned()))
    }

    fn load_unit(&mut self, unit: SourceUnit, key: Key<'_>, nvrtc: &Nvrtc, cache: &Cache) -> Result<(), DeviceError> {
        // A cached program that the driver refuses counts as missing.
        let kept = cache.read(key).and_then(|program| self.load_program(unit, &program).ok());
        if kept.is_some() {
            return Ok(());
        }
        let program = nvrtc.compile(unit, key.architecture).map_err(compiler)?;
        self.compiled += 1;
        self.load_program(unit, &program)?;
        cache.write(key, &program);
        Ok(())
    }

    fn load_program(&mut self, unit: SourceUnit, program: &[u8]) -> Result<(), DeviceError> {
        let module = self.context.cuda().load_module(Ptx::from_binary(program.to_vec())).of("cuModuleLoadData")?;
        for entry in unit.entries() {
            let found = module.load_function(entry.function);
            let function = found.of(&format!("cuModuleGetFunction({})", entry.function))?;
            self.functions.insert(entry.function, function);
        }
        Ok(())
    }
}

fn compiler(error: CompileError) -> DeviceError {
    DeviceError::Compiler(error.to_string())
}

/// The architecture to compile for: the newest of the device's generation that is not newer than the device, which can
/// run its programs.
fn target(device: i32, known: &[i32], version: (i32, i32)) -> Result<i32, DeviceError> {
    let runs = |one: &i32| *one / 10 == device / 10 && *one <= device;
    known.iter().copied().filter(runs).max().ok_or_else(|| {
        let known: Vec<String> = known.iter().map(|one| format!("sm_{one}")).collect();
        let (major, minor) = version;
        DeviceError::Compiler(format!(
            "NVRTC {major}.{minor} compiles for {}, and not for this device's sm_{device}: install a newer one (pip install \
             --upgrade nvidia-cuda-nvrtc)",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_gets_the_newest_target_of_its_generation() {
        let known = [75, 80, 86, 90, 100, 120];
        for (device, expected) in [(75, 75), (86, 86), (87, 86), (89, 86), (90, 90), (103, 100), (121, 120)] {
            assert_eq!(target(device, &known, (13, 0)), Ok(expected), "sm_{device}");
        }
        for device in [70, 110, 130] {
            let Err(DeviceError::Compiler(message)) = target(device, &known, (13, 0)) else { panic!("sm_{device}") };
            assert!(message.contains("NVRTC 13.0") && message.contains(&format!("sm_{device}:")), "{message}");
        }
    }
}
