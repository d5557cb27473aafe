//! Sets up a pretend device with a stream and all kernels, and tensors on it.

use std::sync::Arc;

use lockstep_cuda::driver::{Cache, Context, Executor, Fill, GpuMemory, GpuStream, Modules, Priority, WorkspaceLimits};
use lockstep_cuda::{Command, Convolution, LibraryFolders};
use lockstep_models::{ImageShape, Precision};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A 1×1 convolution of `samples` single pixels, from `channels` to as many.
pub(crate) fn pointwise(samples: u32, channels: u32, precision: Precision) -> Convolution {
    let shape = ImageShape { channels, height: 1, width: 1 };
    let one = (1, 1);
    Convolution {
        samples,
        input: shape,
        output: shape,
        kernel: one,
        stride: one,
        padding: (0, 0),
        dilation: one,
        groups: 1,
        precision,
        channels_last: false,
    }
}

/// A device that is open.
pub(crate) struct Bench {
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<GpuStream>,
    pub(crate) modules: Arc<Modules>,
}

/// A tensor that does not begin at the start of its memory.
pub(crate) struct Written {
    memory: GpuMemory,
    pub(crate) address: u64,
    half: bool,
    shift: usize,
}

impl Bench {
    pub(crate) fn open(places: &LibraryFolders) -> Bench {
        let context = Context::open(places, 0).expect("a pretend device");
        let stream = Arc::new(GpuStream::new(&context, Priority::Usual).expect("a stream"));
        let modules = Arc::new(Modules::load(&context, &Cache::none()).expect("all kernels"));
        Bench { context, stream, modules }
    }

    pub(crate) fn executor(&self, limits: WorkspaceLimits) -> Executor {
        Executor::new(&self.stream, &self.modules, limits).expect("an executor")
    }

    /// A tensor of bytes that holds `bytes`.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> GpuMemory {
        let memory = self.poisoned(bytes.len());
        self.stream.write(&memory, 0, bytes).expect("a copy");
        memory
    }

    /// A tensor of unwritten bytes.
    pub(crate) fn poisoned(&self, bytes: usize) -> GpuMemory {
        GpuMemory::new(&self.context, "a tensor", bytes as u64, Fill::Poison).expect("memory")
    }

    /// A tensor of fp32.
    pub(crate) fn floats(&self, values: &[f32]) -> GpuMemory {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// A tensor of bf16; the values must be representable.
    fn halves(&self, values: &[f32]) -> GpuMemory {
        let half = |value: &f32| {
            assert_eq!(value.to_bits() & 0xffff, 0, "{value} is not a bf16");
            ((value.to_bits() >> 16) as u16).to_le_bytes()
        };
        self.bytes(&values.iter().flat_map(half).collect::<Vec<u8>>())
    }

    /// A tensor of fp32, or `half` of bf16, that begins a random number of elements after an aligned address.
    pub(crate) fn placed(&self, values: &[f32], half: bool, rng: &mut ChaCha8Rng) -> Written {
        let shift = rng.random_range(0..5);
        let all = [&vec![0.0; shift], values].concat();
        let memory = if half { self.halves(&all) } else { self.floats(&all) };
        let address = memory.address() + (shift * if half { 2 } else { 4 }) as u64;
        Written { memory, address, half, shift }
    }

    /// The content of such a tensor; the elements before it must be unchanged.
    pub(crate) fn read_placed(&self, of: &Written) -> Vec<f32> {
        let mut all = if of.half { self.read_halves(&of.memory) } else { self.read(&of.memory) };
        let tensor = all.split_off(of.shift);
        assert!(all.iter().all(|before| *before == 0.0), "written before the tensor");
        tensor
    }

    /// The content of a tensor of fp32, after all earlier work on the stream.
    pub(crate) fn read(&self, memory: &GpuMemory) -> Vec<f32> {
        self.raw(memory).chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    fn read_halves(&self, memory: &GpuMemory) -> Vec<f32> {
        let wide = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
        self.raw(memory).chunks_exact(2).map(wide).collect()
    }

    fn raw(&self, memory: &GpuMemory) -> Vec<u8> {
        let mut bytes = vec![0; memory.bytes() as usize];
        self.stream.read(memory, 0, &mut bytes).expect("a copy");
        bytes
    }
}

/// Executes commands on tensors that stay alive until the caller has read the results.
pub(crate) fn play(executor: &mut Executor, commands: &[Command]) {
    // SAFETY: the tensors are on the device, with the sizes in the commands, and are read after this.
    unsafe { executor.play(commands) }.expect("the commands are right");
}

pub(crate) fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Whole numbers from -2 to 2, of which sums and products are exact in fp32 and small ones in bf16.
pub(crate) fn whole(elements: usize, rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..elements).map(|_| rng.random_range(-2..=2) as f32).collect()
}
