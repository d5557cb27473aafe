//! Tests that the emulator detects faulty kernels, and runs a correct one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;

use lockstep_cuda::table::AddInto;
use lockstep_cuda::{BLOCK, Geometry, KernelCall, KernelEntry, KernelLaunch, SourceUnit, ToArgument, ViewMut};

use crate::emulator::Emulator;
use crate::memory::Memory;
use crate::program::FAULTS;

/// A launch of the fault of this number on a tensor that begins one element after an aligned address.
struct Fault<const NUMBER: usize> {
    y: ViewMut<f32>,
    elements: u32,
}

impl<const NUMBER: usize> KernelLaunch for Fault<NUMBER> {
    const ENTRY: KernelEntry = KernelEntry {
        unit: SourceUnit { scalars: &[], ..AddInto::ENTRY.unit },
        name: FAULTS[NUMBER],
        function: FAULTS[NUMBER],
        types: &["float*", "u32"],
    };

    fn call(&self) -> KernelCall {
        let geometry = Geometry { blocks: 1, threads: BLOCK, shared_bytes: 4 * BLOCK, strided: false };
        let arguments = vec![self.y.argument("y", self.elements.into()), self.elements.argument("elements", 0)];
        KernelCall { entry: Self::ENTRY, geometry, arguments }
    }
}

/// Whether the emulator ends when it runs the fault.
fn is_found<const NUMBER: usize>() -> bool {
    let Some(mut emulator) = Emulator::with_stderr(Stdio::null()) else { return true };
    let (mut memory, elements) = (Memory::odd(), 8);
    let y = memory.put(&vec![0.0f32; elements as usize]);
    let fault = Fault::<NUMBER> { y: y.write(), elements };
    catch_unwind(AssertUnwindSafe(|| emulator.play(&mut memory, &fault))).is_err()
}

#[test]
fn the_emulator_finds_faults() {
    let found = [
        is_found::<0>(),
        is_found::<1>(),
        is_found::<2>(),
        is_found::<3>(),
        is_found::<4>(),
        is_found::<5>(),
        is_found::<6>(),
    ];
    for (name, found) in FAULTS.iter().zip(found) {
        assert!(found, "{name} was not found");
    }
}

/// A tensor that a launch reads must come back unchanged, as must a written one outside of its extent.
#[test]
fn the_emulator_accepts_correct_launches() {
    let Some(mut emulator) = Emulator::start() else { return };
    let mut memory = Memory::odd();
    let (a, b) = (memory.put(&[1.0f32, 2.0, 3.0, 4.0, 5.0]), memory.put(&[10.0f32, 20.0, 30.0, 40.0, 50.0]));
    emulator.play(&mut memory, &AddInto { a: a.part(1..4).write(), b: b.part(2..5).read(), elements: 3 });
    assert_eq!(memory.get(a), [1.0, 32.0, 43.0, 54.0, 5.0]);
    assert_eq!(memory.get(b), [10.0, 20.0, 30.0, 40.0, 50.0]);
}
