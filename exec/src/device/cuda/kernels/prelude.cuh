// What all kernel files share: groups of four neighbouring elements, channels of images, and sums in one fixed order.
//
// A file of kernels is compiled once for each scalar that activations may be made of, or pair of them, or once and for all. It
// stands in a namespace that begins with what the scalars are: `typedef float Real;`, or u16, which holds the bits of a bf16
// (`From` and `To` of a pair), and KERNEL(add), which is `extern "C" __global__ void add_f32`. Arithmetic is fp32 throughout, and
// what is stored is rounded once.
//
// Every kernel runs in blocks of BLOCK threads. Nothing here adds floats atomically and no order of additions depends on the
// device, so a launch gives the same bits each time. Compiled without fused multiply-adds, what is only additions and
// multiplications gives the bits of the CPU device. No header is included: NVRTC has none.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 BLOCK = 256;
constexpr u32 WARP = 32;
constexpr u32 WARPS = BLOCK / WARP;

// Shared memory of the size that the launch says; the twin on the CPU has a definition of its own.
#ifndef LOCKSTEP_TWIN
#define SHARED(T, name)                                          \
    extern __shared__ __align__(16) unsigned char shared_bytes[]; \
    T* name = reinterpret_cast<T*>(shared_bytes)
#endif

// Whether two types are one.
template <class A, class B>
struct Alike {
    static constexpr bool value = false;
};
template <class A>
struct Alike<A, A> {
    static constexpr bool value = true;
};

__device__ inline u64 thread_of_grid() { return u64(blockIdx.x) * BLOCK + threadIdx.x; }

__device__ inline u64 threads_of_grid() { return u64(gridDim.x) * BLOCK; }

// ---- Groups of four neighbouring elements ----

// A thread's share: those of the elements first + 0..4 that are there; `whole` where all are and lie together in 16 bytes.
struct Group {
    long long first;
    u32 from, to;
    bool whole;

    __device__ bool has(u32 lane) const { return from <= lane && lane < to; }
};

// Elements behind the last multiple of four of them.
template <class T>
__device__ inline u32 offset_of(const T* pointer) {
    return u32(reinterpret_cast<u64>(pointer) / sizeof(T)) & 3;
}

// Whether rows of `size` elements, which begin at the pointers that are not null, are read and written as vectors.
template <class... P>
__device__ inline bool in_fours(u32 size, const P*... pointers) {
    return size % 4 == 0 && ((pointers == nullptr || offset_of(pointers) == 0) && ... && true);
}

// Calls `body` with the groups of `elements`, a stride of the grid apart. They begin where `lead` is aligned; the other
// pointers, some of which may be null, are read and written as vectors if all lie alike.
template <class Body, class L, class... P>
__device__ inline void each_group(u64 elements, Body body, const L* lead, const P*... others) {
    const u32 shift = offset_of(lead);
    const bool alike = ((others == nullptr || offset_of(others) == shift) && ... && true);
    const u64 groups = (elements + shift + 3) / 4;
    for (u64 index = thread_of_grid(); index < groups; index += threads_of_grid()) {
        const long long first = (long long)(4 * index) - shift;
        const u32 from = first < 0 ? u32(-first) : 0;
        const u64 end = elements - u64(first);
        const u32 to = end < 4 ? u32(end) : 4;
        body(Group{first, from, to, alike && from == 0 && to == 4});
    }
}

__device__ inline float bf16_to_float(u16 bits) { return __uint_as_float(u32(bits) << 16); }

// The nearest bf16, of two the even one; what is no number stays none.
__device__ inline u16 float_to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return u16(bits >> 16 | 0x40);
    return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__device__ inline float load(const float* from) { return *from; }
__device__ inline float load(const u16* from) { return bf16_to_float(*from); }

__device__ inline void store(float* into, float value) { *into = value; }
__device__ inline void store(u16* into, float value) { *into = float_to_bf16(value); }

__device__ inline void load(const float* from, const Group& group, float (&into)[4]) {
    const float* at = from + group.first;
    if (group.whole) {
        const float4 all = *reinterpret_cast<const float4*>(at);
        into[0] = all.x, into[1] = all.y, into[2] = all.z, into[3] = all.w;
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) into[lane] = group.has(lane) ? at[lane] : 0.0f;
    }
}

__device__ inline void load(const u16* from, const Group& group, float (&into)[4]) {
    const u16* at = from + group.first;
    if (group.whole) {
        const ushort4 all = *reinterpret_cast<const ushort4*>(at);
        into[0] = bf16_to_float(all.x), into[1] = bf16_to_float(all.y);
        into[2] = bf16_to_float(all.z), into[3] = bf16_to_float(all.w);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) into[lane] = group.has(lane) ? bf16_to_float(at[lane]) : 0.0f;
    }
}

__device__ inline void store(float* into, const Group& group, const float (&values)[4]) {
    float* at = into + group.first;
    if (group.whole) {
        *reinterpret_cast<float4*>(at) = make_float4(values[0], values[1], values[2], values[3]);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane)
            if (group.has(lane)) at[lane] = values[lane];
    }
}

__device__ inline void store(u16* into, const Group& group, const float (&values)[4]) {
    u16 bits[4];
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) bits[lane] = float_to_bf16(values[lane]);
    u16* at = into + group.first;
    if (group.whole) {
        *reinterpret_cast<ushort4*>(at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane)
            if (group.has(lane)) at[lane] = bits[lane];
    }
}

// into = values, or into += values.
template <class R>
__device__ inline void merge(R* into, const Group& group, float (&values)[4], bool accumulate) {
    if (accumulate) {
        float before[4];
        load(into, group, before);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = before[lane] + values[lane];
    }
    store(into, group, values);
}

template <class R>
__device__ inline void merge(R* into, float value, bool accumulate) {
    store(into, accumulate ? load(into) + value : value);
}

// max(x, 0), but NaN for NaN, so that a diverged model shows.
__device__ inline float relu(float x) { return x <= 0.0f ? 0.0f : x; }

// ---- Channels of [samples, channels, plane] ----

// The channel of an element and of those behind it.
struct Channel {
    u32 channels, plane, channel, left;

    __device__ Channel(u32 channels, u32 plane, u64 index) : channels(channels), plane(plane) {
        const u32 image = u32(index) / plane;
        channel = image % channels;
        left = plane - (u32(index) - image * plane);
    }

    __device__ void step() {
        if (--left > 0) return;
        left = plane;
        channel = channel + 1 == channels ? 0 : channel + 1;
    }
};

// The numbers of a group's channels, of which `first` is that of its first element; one vector where channels lie side by side.
__device__ inline void load_of_channels(const float* numbers, Channel first, const Group& group, float (&into)[4]) {
    if (group.whole && first.plane == 1 && first.channel % 4 == 0 && in_fours(first.channels, numbers)) {
        load(numbers + first.channel, Group{0, 0, 4, true}, into);
        return;
    }
#pragma unroll
    for (u32 lane = 0; lane < 4; ++lane) {
        into[lane] = group.has(lane) ? numbers[first.channel] : 0.0f;
        if (group.has(lane)) first.step();
    }
}

// How `count` elements of a channel are cut into parts of `length`; as the host's struct of this name.
struct Parts {
    u32 count, parts, length;

    __device__ u32 begin(u32 part) const { return part * length; }

    __device__ u32 end(u32 part) const { return count - begin(part) < length ? count : begin(part) + length; }
};

// Calls `body` with the block's share of the elements begin..end of one channel, counted through the samples; in fours if
// `fours`, for which planes must be a multiple of four and every pointer aligned.
template <class Body>
__device__ inline void each_of_channel(u32 channels, u32 plane, u32 channel, u32 begin, u32 end, bool fours, Body body) {
    const u32 width = fours ? 4 : 1, step = BLOCK * width;
    const u32 over = step / plane, rest = step % plane;
    const u64 start = u64(begin) + u64(threadIdx.x) * width;
    if (start >= end) return;
    u32 sample = u32(start) / plane, place = u32(start) % plane;
    for (u64 at = start; at < end; at += step) {
        const long long index = (u64(sample) * channels + channel) * plane + place;
        if (fours) body(Group{index, 0, 4, true});
        else body(Group{index, 0, 1, false});
        sample += over, place += rest;
        if (place >= plane) place -= plane, ++sample;
    }
}

// ---- Sums ----

// Σ over the warp, in pairs; every lane has it.
template <class T>
__device__ inline T warp_sum(T value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

// Σ over the block, warps in order; every thread has it. `scratch` holds WARPS numbers.
__device__ inline double block_sum(double value, double* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    double total = 0.0;
    for (u32 warp = 0; warp < WARPS; ++warp) total += scratch[warp];
    __syncthreads();
    return total;
}
