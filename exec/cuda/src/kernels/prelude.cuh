// Shared by all kernel files: groups of four neighbouring elements, channels of images, and sums in one fixed order.
//
// A kernel file is compiled once for each scalar of activations, or pair of scalars, or once if it has none. It is
// wrapped in a namespace that begins by defining the scalars, `typedef float Real;`, or u16, which holds the bits of a
// bf16 (`From` and `To` for a pair), and KERNEL(add), which is `extern "C" __global__ void add_f32`. Arithmetic is fp32
// throughout, and stored results are rounded once.
//
// Every kernel runs in blocks of BLOCK threads. There are no atomic float additions and no reduction order depends on
// the device, so a launch gives the same bits each time. It is compiled without fused multiply-adds, so kernels made of
// additions and multiplications alone give the bits of the CPU device. No header is included: NVRTC has none.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 BLOCK = 256;
constexpr u32 WARP = 32;
constexpr u32 WARPS = BLOCK / WARP;

// Shared memory of the size given by the launch; the emulator on the CPU has its own definition.
#ifndef LOCKSTEP_EMULATOR
#define SHARED(T, name)                                          \
    extern __shared__ __align__(16) unsigned char shared_bytes[]; \
    T* name = reinterpret_cast<T*>(shared_bytes)
#endif

// Whether two types are the same.
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

// A thread's share: the existing ones of the elements first + 0..4; `whole` if all exist and occupy 16 aligned bytes.
struct Group {
    long long first;
    u32 from, to;
    bool whole;

    __device__ bool has(u32 lane) const { return from <= lane && lane < to; }
};

// Elements after the last multiple of four of them.
template <class T>
__device__ inline u32 offset_of(const T* pointer) {
    return u32(reinterpret_cast<u64>(pointer) / sizeof(T)) & 3;
}

// Whether rows of `size` elements, starting at the non-null pointers, are accessed as vectors.
template <class... P>
__device__ inline bool in_fours(u32 size, const P*... pointers) {
    return size % 4 == 0 && ((pointers == nullptr || offset_of(pointers) == 0) && ... && true);
}

// The groups of `elements`. They begin where `lead` is aligned; the other pointers, some of which may be null, are
// accessed as vectors if all are aligned alike.
struct Groups {
    u64 elements, count;
    u32 shift;
    bool alike;

    template <class L, class... P>
    __device__ Groups(u64 elements, const L* lead, const P*... others) : elements(elements), shift(offset_of(lead)) {
        alike = ((others == nullptr || offset_of(others) == shift) && ... && true);
        count = (elements + shift + 3) / 4;
    }

    __device__ Group at(u64 index) const {
        const long long first = (long long)(4 * index) - shift;
        const u32 from = first < 0 ? u32(-first) : 0;
        const u64 end = elements - u64(first);
        const u32 to = end < 4 ? u32(end) : 4;
        return Group{first, from, to, alike && from == 0 && to == 4};
    }
};

// Calls `body` with the thread's groups of `elements`, in a grid-stride loop.
template <class Body, class... P>
__device__ inline void each_group(u64 elements, Body body, const P*... pointers) {
    const Groups groups(elements, pointers...);
    for (u64 index = thread_of_grid(); index < groups.count; index += threads_of_grid()) body(groups.at(index));
}

// The same in two steps, `fetch` and then `use` of the result. Two groups are fetched before the first is used, so that
// more loads are in flight: outputs must either coincide with inputs or not overlap them.
template <class Fetch, class Use, class... P>
__device__ inline void each_group_ahead(u64 elements, Fetch fetch, Use use, const P*... pointers) {
    const Groups groups(elements, pointers...);
    const auto one = [&](const Group& group) {
        auto fetched = fetch(group);
        use(fetched, group);
    };
    const u64 next = threads_of_grid();
    u64 index = thread_of_grid();
    for (; index + next < groups.count; index += 2 * next) {
        const Group here = groups.at(index), there = groups.at(index + next);
        if (here.whole && there.whole) {
            const Group first{here.first, 0, 4, true}, second{there.first, 0, 4, true};
            auto fetched = fetch(first), ahead = fetch(second);
            use(fetched, first);
            use(ahead, second);
        } else {
            one(here);
            one(there);
        }
    }
    if (index < groups.count) one(groups.at(index));
}

__device__ inline float bf16_to_float(u16 bits) { return __uint_as_float(u32(bits) << 16); }

// The nearest bf16, ties to even; NaN stays NaN.
__device__ inline u16 float_to_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return u16(bits >> 16 | 0x40);
    return u16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Two of them in a word, the first in its lower half; devices from sm_80 on have an instruction for it.
__device__ inline u32 two_bf16(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return float_to_bf16(first) | u32(float_to_bf16(second)) << 16;
#endif
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
        const uint2 all = *reinterpret_cast<const uint2*>(at);
        into[0] = __uint_as_float(all.x << 16), into[1] = __uint_as_float(all.x & 0xffff0000u);
        into[2] = __uint_as_float(all.y << 16), into[3] = __uint_as_float(all.y & 0xffff0000u);
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) into[lane] = group.has(lane) ? bf16_to_float(at[lane]) : 0.0f;
    }
}

// A group's numbers; zeros without a tensor.
struct Four {
    float of[4];

    template <class R>
    __device__ Four(const R* from, const Group& group) : of{} {
        if (from) load(from, group, of);
    }
};

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
    u16* at = into + group.first;
    if (group.whole) {
        const uint2 all = make_uint2(two_bf16(values[0], values[1]), two_bf16(values[2], values[3]));
        *reinterpret_cast<uint2*>(at) = all;
    } else {
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane)
            if (group.has(lane)) at[lane] = float_to_bf16(values[lane]);
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

// y ← curve(x), element by element. y may alias x.
template <class R, class Curve>
__device__ inline void each_value(const R* x, R* y, u32 elements, Curve curve) {
    each_group(elements, [&](const Group& group) {
        float values[4];
        load(x, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) values[lane] = curve(values[lane]);
        store(y, group, values);
    }, y, x);
}

// d_x ← d_y · derivative(at), element by element, or adds that. d_x may alias d_y.
template <class R, class Derivative>
__device__ inline void each_derivative(const R* d_y, const R* at, R* d_x, u32 elements, bool accumulate, Derivative derivative) {
    each_group(elements, [&](const Group& group) {
        float gradients[4], values[4];
        load(d_y, group, gradients);
        load(at, group, values);
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) gradients[lane] *= derivative(values[lane]);
        merge(d_x, group, gradients, accumulate);
    }, d_x, d_y, at);
}

template <class R>
__device__ inline void merge(R* into, float value, bool accumulate) {
    store(into, accumulate ? load(into) + value : value);
}

// max(x, 0), but NaN for NaN, so that a diverged model shows.
__device__ inline float relu(float x) { return x <= 0.0f ? 0.0f : x; }

// ---- Channels of [samples, channels, plane] ----

// The channel of an element and of those after it.
struct Channel {
    u32 channels, plane, channel, left;

    __device__ Channel(u32 channels, u32 plane, u64 index) : channels(channels), plane(plane) {
        const u32 image = plane == 1 ? u32(index) : u32(index) / plane;
        channel = image % channels;
        left = plane - (u32(index) - image * plane);
    }

    __device__ void step() {
        if (--left > 0) return;
        left = plane;
        channel = channel + 1 == channels ? 0 : channel + 1;
    }
};

// N numbers per channel, as a thread of each_group needs them for the elements of a group.
//
// Where channels are adjacent they are read as vectors, and only once if a thread's groups all have the same channels:
// that is when a grid has a multiple of channels / 4 threads, which holds for powers of two that are not very large.
template <u32 N>
struct OfChannels {
    u32 channels, plane;
    const float* numbers[N];
    bool vectors, same, there = false;
    float of[N][4] = {};

    // Null for a number that is not needed.
    template <class... P>
    __device__ OfChannels(u32 channels, u32 plane, const P*... all) : channels(channels), plane(plane), numbers{all...} {
        vectors = plane == 1 && in_fours(channels, all...);
        same = vectors && 4 * threads_of_grid() % channels == 0;
    }

    // Returns whether they changed.
    __device__ bool load_for(const Group& group) {
        if (same && there) return false;
        Channel at(channels, plane, group.first + group.from);
        if (vectors && group.whole && at.channel % 4 == 0) {
            there = true;
#pragma unroll
            for (u32 number = 0; number < N; ++number)
                if (numbers[number]) load(numbers[number] + at.channel, Group{0, 0, 4, true}, of[number]);
            return true;
        }
#pragma unroll
        for (u32 lane = 0; lane < 4; ++lane) {
            if (!group.has(lane)) continue;
#pragma unroll
            for (u32 number = 0; number < N; ++number)
                if (numbers[number]) of[number][lane] = numbers[number][at.channel];
            at.step();
        }
        return true;
    }
};

// The division of a channel's `count` elements into parts of `length`; mirrors the host's struct of this name.
struct Parts {
    u32 count, parts, length;

    __device__ u32 begin(u32 part) const { return part * length; }

    __device__ u32 end(u32 part) const { return count - begin(part) < length ? count : begin(part) + length; }
};

// Calls `body` with the block's share of the elements begin..end of one channel, counted through the samples; in fours
// if `fours`, which requires planes of a multiple of four and aligned pointers.
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

// Σ over the warp, in pairs; every lane gets it.
template <class T>
__device__ inline T warp_sum(T value) {
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

// Σ over the block, warps in order; every thread gets it. `scratch` holds WARPS numbers.
__device__ inline double block_sum(double value, double* scratch) {
    value = warp_sum(value);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = value;
    __syncthreads();
    double total = 0.0;
    for (u32 warp = 0; warp < WARPS; ++warp) total += scratch[warp];
    __syncthreads();
    return total;
}
