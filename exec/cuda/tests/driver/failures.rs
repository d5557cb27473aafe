//! Tests the errors of a device that cannot do something.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::Path;

use lockstep_cuda::driver::{
    Cache, Context, Executor, Fill, GpuMemory, GpuStream, Graphs, Modules, Priority, WorkspaceLimits,
};
use lockstep_cuda::{
    Command, ConvolutionPass, Convolve, KernelLaunch, LibraryFolders, Multiply, Scalar, View, ViewMut, table,
};
use lockstep_exec::device::DeviceError;
use lockstep_models::Precision;

use crate::bench::{Bench, pointwise};
use crate::scene;

#[test]
fn out_of_memory_errors_state_the_free_memory() {
    let settings = [("PRETEND_MEMORY_BYTES", "16777216")];
    scene("failures::out_of_memory_errors_state_the_free_memory", &settings, |_, places| {
        let context = Context::open(&places, 0).expect("a pretend device");
        let new = |what, bytes| GpuMemory::new(&context, what, bytes, Fill::Zeros);
        let held = new("the first half", 8 << 20).expect("half of it");
        let Err(error) = new("the arena", 12 << 20) else { panic!("it has no 20 MiB") };
        let DeviceError::OutOfMemory { what, asked, free, total } = &error else { panic!("{error:?}") };
        assert_eq!((what.as_str(), *asked, *total), ("the arena", 12 << 20, 16 << 20));
        assert!((4 << 20..=8 << 20).contains(free), "{error}");
        drop(held);
        new("the arena", 12 << 20).expect("a device that was full continues");
    });
}

/// A list that adds ones, and the tensors that it uses.
fn counting(bench: &Bench) -> (Vec<Command>, [GpuMemory; 2]) {
    let memory = [0.0, 1.0].map(|value| bench.floats(&[value; 8]));
    let y = ViewMut::<f32>::new(memory[0].address(), 8);
    let add = table::Add { a: y.view(), b: View::new(memory[1].address(), 8), y, elements: 8, rectified: false };
    (vec![Command::Launch(add.call()); 2], memory)
}

/// After a kernel has failed every call returns the error, and everything is dropped without a panic.
#[test]
fn a_lost_device_stays_lost() {
    scene("failures::a_lost_device_stays_lost", &[("PRETEND_FAULT", "lost:7")], |_, places| {
        let bench = Bench::open(&places);
        let (list, memory) = counting(&bench);
        let mut graphs = Graphs::new(bench.executor(WorkspaceLimits::default()), true, 1);
        let play = |graphs: &mut Graphs| {
            // SAFETY: the tensors have eight elements and are dropped at the end.
            unsafe { graphs.play(&list) }.and_then(|()| bench.stream.synchronize())
        };
        (0..3).for_each(|_| play(&mut graphs).expect("six kernels of seven"));
        let lost = play(&mut graphs).expect_err("the seventh");
        assert!(matches!(lost, DeviceError::Lost { .. }), "{lost:?}");
        assert!(lost.to_string().contains("--resume"), "{lost}");
        let errors = [
            play(&mut graphs).expect_err("it is lost"),
            bench.stream.synchronize().expect_err("it is lost"),
            bench.stream.read(&memory[0], 0, &mut [0; 4]).expect_err("it is lost"),
            bench.context.memory().expect_err("it is lost"),
            GpuMemory::new(&bench.context, "more", 8, Fill::Zeros).map(drop).expect_err("it is lost"),
            GpuStream::new(&bench.context, Priority::Usual).map(drop).expect_err("it is lost"),
        ];
        for error in errors {
            assert!(matches!(error, DeviceError::Lost { .. }), "{error:?}");
        }
    });
}

/// The same for a kernel that reads unallocated memory, in the mebibyte that the pretend device leaves empty after an
/// allocation.
#[test]
fn a_wrong_address_loses_the_device() {
    scene("failures::a_wrong_address_loses_the_device", &[], |_, places| {
        let bench = Bench::open(&places);
        let memory = bench.floats(&[0.0; 8]);
        let (b, y) = (View::<f32>::new(memory.address(), 1 << 17), ViewMut::new(memory.address(), 1 << 17));
        let add = table::Add { a: b, b, y, elements: 1 << 17, rectified: false };
        let mut executor = bench.executor(WorkspaceLimits::default());
        // SAFETY: the pretend device detects invalid addresses, which is what is tested.
        let given = unsafe { executor.play(&[Command::Launch(add.call())]) };
        let error = given.and_then(|()| bench.stream.synchronize()).expect_err("the memory ends before");
        let DeviceError::Lost { call, reason } = &error else { panic!("{error:?}") };
        assert!(!call.is_empty() && reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    });
}

fn unavailable(places: &LibraryFolders, ordinal: u32) -> String {
    match Context::open(places, ordinal) {
        Err(DeviceError::Unavailable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn missing_or_old_devices_are_not_opened() {
    scene("failures::missing_or_old_devices_are_not_opened", &[], |_, places| {
        let reason = unavailable(&places, 1);
        assert!(reason.contains("no GPU 1") && reason.contains("has 1"), "{reason}");
        Context::open(&places, 0).expect("the one that is there");
    });
}

#[test]
fn an_old_device_is_not_opened() {
    scene("failures::an_old_device_is_not_opened", &[("PRETEND_CAPABILITY", "7.0")], |_, places| {
        let reason = unavailable(&places, 0);
        assert!(reason.contains("compute capability 7.0"), "{reason}");
    });
}

#[test]
fn an_old_driver_opens_nothing() {
    scene("failures::an_old_driver_opens_nothing", &[("PRETEND_FAULT", "driver:12080")], |_, places| {
        let reason = unavailable(&places, 0);
        assert!(reason.contains("CUDA 12.8"), "{reason}");
    });
}

/// A device newer than the compiler opens, but has no programs.
#[test]
fn a_compiler_may_not_support_a_device() {
    scene("failures::a_compiler_may_not_support_a_device", &[("PRETEND_CAPABILITY", "15.0")], |_, places| {
        let context = Context::open(&places, 0).expect("a pretend device");
        match Modules::load(&context, &Cache::none()) {
            Err(DeviceError::Compiler(message)) => assert!(message.contains("sm_150"), "{message}"),
            other => panic!("{other:?}"),
        }
    });
}

/// A missing library is named, with the places searched.
#[test]
fn a_missing_library_is_named() {
    scene("failures::a_missing_library_is_named", &[], |folder, _| {
        let without = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("without-{}", std::process::id()));
        fs::create_dir_all(&without).expect("a folder");
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a file").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.contains(".so") && !name.starts_with("libcudnn") {
                fs::copy(&path, without.join(&name)).expect("a copy");
            }
        }
        let opened = Context::open(&LibraryFolders::default().with(&without), 0);
        fs::remove_dir_all(&without).expect("the folder");
        // On a machine with the library there is nothing to test.
        let Err(error) = opened else { return };
        let DeviceError::Unavailable(reason) = error else { panic!("{error:?}") };
        assert!(reason.contains("libcudnn.so.9") && reason.contains("pip install nvidia-cudnn-cu13"), "{reason}");
        assert!(reason.contains(&without.display().to_string()), "{reason}");
    });
}

/// Every call of a library returns, once, a status newer than the bindings. The error gives its number; where the
/// library may decline, an alternative is used.
#[test]
fn unknown_statuses_are_refused() {
    scene("failures::unknown_statuses_are_refused", &[], |folder, places| {
        // SAFETY: the library is loaded and has this function, which reads a text.
        let fault = unsafe {
            let library = libloading::Library::new(folder.join("libpretend.so")).expect("the pretend library");
            let fault = *library.get::<unsafe extern "C" fn(*const c_char)>(b"pretend_fault\0").expect("its function");
            std::mem::forget(library);
            move |text: &CStr| fault(text.as_ptr())
        };
        let bench = Bench::open(&places);
        let (convolution, product, memory) = small(&bench);
        for (library, number) in [("cudnn", "3998"), ("cublaslt", "98")] {
            let mut refusals = 0;
            for call in 1..=60 {
                fault(&CString::new(format!("{library}:{call}")).expect("a text"));
                let done = Executor::new(&bench.stream, &bench.modules, WorkspaceLimits::default()).and_then(
                    |mut executor| {
                        // SAFETY: the tensors have as many elements as in the commands.
                        unsafe { executor.play(&[convolution.clone(), product.clone()]) }
                    },
                );
                fault(c"");
                match done {
                    Ok(()) => {
                        let results = [bench.read(&memory[2]), bench.read(&memory[3])];
                        assert_eq!(results, [[7.0], [6.0]], "call {call} of {library}");
                    }
                    Err(DeviceError::Refused { reason, .. }) => {
                        assert!(reason.contains(number), "call {call} of {library}: {reason}");
                        refusals += 1;
                    }
                    Err(other) => panic!("call {call} of {library}: {other:?}"),
                }
            }
            assert!(refusals > 5, "{library} was called {refusals} times");
        }
    });
}

/// 2 · 3 + 1 as a rectified convolution and 2 · 3 as a product, and the tensors: both factors with the bias, and both results.
fn small(bench: &Bench) -> (Command, Command, [GpuMemory; 5]) {
    let memory = [2.0, 3.0, f32::NAN, f32::NAN, 1.0].map(|value| bench.floats(&[value]));
    let of = pointwise(1, 1, Precision::F32);
    let [left, right, sum, product, bias] = [0, 1, 2, 3, 4].map(|at: usize| memory[at].address());
    let (pass, bias) = (ConvolutionPass::Forward, Some(bias));
    let convolve = Convolve { of, pass, left, right, result: sum, bias, rectified: true, accumulate: false };
    let multiply = Multiply {
        rows: 1,
        columns: 1,
        depth: 1,
        a: left,
        transposed_a: false,
        b: right,
        transposed_b: false,
        c: product,
        result: Scalar::F32,
        bias: None,
        rectified: false,
        accumulate: false,
        precision: Precision::F32,
    };
    (Command::Convolve(convolve), Command::Multiply(multiply), memory)
}
