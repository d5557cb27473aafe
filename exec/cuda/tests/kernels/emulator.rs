//! Runs launches in another process: it receives the tensors and returns them as modified.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lockstep_cuda::{Argument, KernelCall, KernelEntry, KernelLaunch};

use crate::memory::Memory;
use crate::program::{FAULTS, program};

/// The process.
pub(crate) struct Emulator {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    names: Vec<&'static str>,
    played: BTreeSet<(&'static str, &'static str)>,
}

impl Emulator {
    /// Starts it, if there is a compiler.
    pub(crate) fn start() -> Option<Emulator> {
        Emulator::with_stderr(Stdio::inherit())
    }

    /// Starts it, with standard error going to `errors`.
    pub(crate) fn with_stderr(errors: Stdio) -> Option<Emulator> {
        let mut child = Command::new(program()?)
            .env("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("the emulator starts");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let names = KernelEntry::all().iter().map(|entry| entry.function).chain(FAULTS).collect();
        Some(Emulator { child, to, from, names, played: BTreeSet::new() })
    }

    /// The kernels that have been run: names and symbols.
    pub(crate) fn played(&self) -> &BTreeSet<(&'static str, &'static str)> {
        &self.played
    }

    /// Runs a launch on tensors of `memory`. Only the tensors that the launch writes may change.
    ///
    /// # Panics
    /// When the emulator ends; its messages and those of the sanitizers are on standard error.
    pub(crate) fn play(&mut self, memory: &mut Memory, launch: &impl KernelLaunch) {
        self.call(memory, &launch.call());
    }

    /// Runs a call as passed to a device, like [`Emulator::play`].
    pub(crate) fn call(&mut self, memory: &mut Memory, call: &KernelCall) {
        let name = call.entry.function;
        self.played.insert((call.entry.name, name));
        let tensors: Vec<_> = call.arguments.iter().filter_map(|argument| argument.tensor).collect();
        let used: BTreeSet<usize> = tensors.iter().map(|tensor| memory.place(tensor.address).0).collect();
        let used: Vec<usize> = used.into_iter().collect();
        let index = self.names.iter().position(|other| *other == name).expect("a kernel of the table");
        let mut question = Vec::new();
        let geometry = call.geometry;
        for number in [index as u32, geometry.blocks, geometry.threads, geometry.shared_bytes, geometry.strided.into()]
        {
            question.extend(number.to_le_bytes());
        }
        question.extend((used.len() as u32).to_le_bytes());
        for buffer in used.iter().map(|index| &memory.buffers[*index]) {
            question.extend(buffer.shift.to_le_bytes());
            question.extend((buffer.bytes.len() as u64).to_le_bytes());
            question.extend(&buffer.bytes);
        }
        question.extend((call.arguments.len() as u32).to_le_bytes());
        for argument in &call.arguments {
            encode(argument, memory, &used, &mut question);
        }
        let mut answers: Vec<Vec<u8>> = used.iter().map(|index| vec![0; memory.buffers[*index].bytes.len()]).collect();
        let talk = self.to.write_all(&question).and_then(|()| self.to.flush());
        let talk = talk.and_then(|()| answers.iter_mut().try_for_each(|answer| self.from.read_exact(answer)));
        if let Err(error) = talk {
            let status = self.child.wait().expect("the emulator ends");
            *self = Emulator::start().expect("it started before");
            panic!(
                "{name}: the emulator ended with {status}, its reason is above ({error}); {launch_of:?}",
                launch_of = call
            );
        }
        for (index, answer) in used.into_iter().zip(answers) {
            let written = tensors.iter().filter(|tensor| tensor.written).filter_map(|tensor| {
                let (of, start) = memory.place(tensor.address);
                (of == index).then_some(start as usize..(start + tensor.bytes) as usize)
            });
            let written: Vec<_> = written.collect();
            let before = &memory.buffers[index].bytes;
            for (at, (was, is)) in before.iter().zip(&answer).enumerate() {
                let may = written.iter().any(|range| range.contains(&at));
                assert!(may || was == is, "{name} changed byte {at} of tensor {index}, which it must not; {call:?}");
            }
            memory.buffers[index].bytes = answer;
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn encode(argument: &Argument, memory: &Memory, used: &[usize], into: &mut Vec<u8>) {
    match argument.tensor {
        Some(tensor) => {
            let (index, offset) = memory.place(tensor.address);
            let number = used.iter().position(|other| *other == index).expect("a tensor of the launch");
            into.extend(1u32.to_le_bytes());
            into.extend((number as u32).to_le_bytes());
            into.extend(offset.to_le_bytes());
        }
        None => {
            into.extend(0u32.to_le_bytes());
            into.extend((argument.value.len() as u32).to_le_bytes());
            into.extend(&argument.value);
        }
    }
}
