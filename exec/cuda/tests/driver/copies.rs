//! Tests device memory and copies.

use lockstep_cuda::driver::{Context, Fill, GpuMemory, GpuStream, PinnedMemory, Priority};
use lockstep_exec::device::DeviceError;

use crate::scene;

#[test]
fn bytes_survive_a_copy_to_a_device_and_back() {
    scene("copies::bytes_survive_a_copy_to_a_device_and_back", &[("PRETEND_DEVICES", "2")], |_, places| {
        let contexts = [0, 1].map(|ordinal| Context::open(&places, ordinal).expect("a pretend device"));
        let [here, there] = &contexts;
        here.bind().expect("a thread");
        let stream = GpuStream::new(here, Priority::High).expect("a stream");
        let new = |fill| GpuMemory::new(here, "a tensor", 1000, fill).expect("memory");
        let read = |memory: &GpuMemory, offset, bytes| {
            let mut into = vec![1; bytes];
            stream.read(memory, offset, &mut into).map(|()| into)
        };
        let (zeros, poison) = (new(Fill::Zeros), new(Fill::Poison));
        assert_eq!(read(&zeros, 0, 1000), Ok(vec![0; 1000]));
        let poisoned = read(&poison, 0, 1000).expect("a copy");
        assert!(poisoned.chunks(4).all(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_nan()));
        stream.write(&zeros, 10, b"lockstep").expect("a copy");
        assert_eq!(read(&zeros, 8, 12).as_deref(), Ok(&b"\0\0lockstep\0\0"[..]));
        assert_eq!(read(&zeros, 1000, 0), Ok(Vec::new()));
        for (offset, bytes) in [(993, 8), (1001, 0), (u64::MAX, 8)] {
            let refused = read(&zeros, offset, bytes);
            assert!(matches!(refused, Err(DeviceError::Refused { .. })), "{bytes} from {offset}: {refused:?}");
        }

        // Host, device, device, other device, host, without a wait in between.
        let host = PinnedMemory::new(here, 1000).expect("page-locked memory");
        let back = PinnedMemory::new(here, 1000).expect("page-locked memory");
        let reached = here.reach(there).expect("an answer");
        assert_eq!(here.reach(there), Ok(reached), "asked again");
        assert_eq!(here.reach(here), Ok(true));
        let away = GpuMemory::new(there, "a tensor", 1000, Fill::Poison).expect("memory");
        // SAFETY: all have 1,000 bytes and outlive the stream's work, which is awaited before the result is read.
        unsafe {
            for at in 0..1000 {
                host.start().add(at).write((at % 251) as u8);
            }
            stream.upload(zeros.address(), host.start(), 1000).expect("a copy");
            stream.copy(poison.address(), zeros.address(), 1000).expect("a copy");
            stream.fill(poison.address() + 500, 7, 100).expect("a fill");
            stream.send(there, away.address(), poison.address(), 1000).expect("a copy");
            stream.synchronize().expect("the stream");
            let other = GpuStream::new(there, Priority::Usual).expect("a stream");
            there.bind().expect("a thread");
            other.download(back.start(), away.address(), 1000).expect("a copy");
            other.synchronize().expect("the stream");
        }
        // SAFETY: nothing writes there any more.
        let back = unsafe { std::slice::from_raw_parts(back.start(), 1000) };
        let expected: Vec<u8> =
            (0..1000).map(|at| if (500..600).contains(&at) { 7 } else { (at % 251) as u8 }).collect();
        assert_eq!(back, expected);
    });
}

/// A dropped object may belong to another device than the thread's, and no memory is leaked that way.
#[test]
fn dropped_objects_are_freed() {
    scene("copies::dropped_objects_are_freed", &[("PRETEND_DEVICES", "2")], |_, places| {
        let [here, there] = [0, 1].map(|ordinal| Context::open(&places, ordinal).expect("a pretend device"));
        let free = |context: &Context| context.memory().expect("an answer").0;
        let before = (free(&here), free(&there));
        let memory = [&here, &there].map(|of| GpuMemory::new(of, "a tensor", 1 << 20, Fill::Zeros).expect("memory"));
        assert!(free(&here) < before.0 && free(&there) < before.1);
        here.bind().expect("a thread");
        std::thread::spawn(move || drop(memory)).join().expect("a thread without a context drops it too");
        assert_eq!((free(&here), free(&there)), before);
    });
}
