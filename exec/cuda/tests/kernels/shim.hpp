// Implements the part of CUDA C that the kernels use in C++: a block's threads are fibers that one thread runs in turn.
//
// Fibers switch only at barriers and warp sums. What may run in any order on a device runs in a chosen order here, so
// running a kernel in several orders finds results that depend on it.

#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#define LOCKSTEP_EMULATOR
#define __global__
#define __device__

using std::isnan;

struct Axis {
    unsigned x;
};
inline Axis threadIdx, blockIdx, gridDim;

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }

struct alignas(8) uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

namespace emulator {

constexpr unsigned MOST_THREADS = 256, WARP_THREADS = 32;
constexpr size_t STACK = 128 * 1024;

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "emulator: block %u: %s\n", blockIdx.x, what);
    std::abort();
}

// What threads wait for: all of the block, or of the warp.
enum class Wait { Nothing, Block, Warp };

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    bool done = false;
    Wait wait = Wait::Nothing;
};

inline Fiber fibers[MOST_THREADS];
inline ucontext_t scheduler;
inline unsigned running = 0;
inline const std::function<void()>* work = nullptr;
// Values exchanged between lanes.
inline double shown[MOST_THREADS];
// The block's shared memory, of exactly the size in the launch.
inline unsigned char* shared = nullptr;

inline void pause(Wait wait) {
    fibers[running].wait = wait;
    const unsigned own = running;
    swapcontext(&fibers[own].context, &scheduler);
    threadIdx.x = own;
}

inline void enter() {
    (*work)();
    fibers[running].done = true;
    swapcontext(&fibers[running].context, &scheduler);
}

// Whether all of from..to are at the same barrier; then they continue.
inline bool release(unsigned from, unsigned to, Wait wait) {
    bool any_done = false;
    for (unsigned at = from; at < to; ++at) {
        any_done |= fibers[at].done;
        if (fibers[at].wait != wait && !fibers[at].done) return false;
    }
    if (any_done) fail("threads wait at a barrier that others of theirs have left behind");
    for (unsigned at = from; at < to; ++at) fibers[at].wait = Wait::Nothing;
    return true;
}

// Runs one block: threads in the order start, start + stride, ….
inline void run_block(unsigned threads, unsigned start, unsigned stride) {
    for (unsigned at = 0; at < threads; ++at) {
        Fiber& fiber = fibers[at];
        fiber.done = false, fiber.wait = Wait::Nothing;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    for (;;) {
        bool moved = false, left = false;
        for (unsigned turn = 0; turn < threads; ++turn) {
            const unsigned at = (start + turn * stride) % threads;
            if (fibers[at].done || fibers[at].wait != Wait::Nothing) continue;
            running = at, threadIdx.x = at, moved = true;
            swapcontext(&scheduler, &fibers[at].context);
        }
        for (unsigned at = 0; at < threads; ++at) left |= !fibers[at].done;
        if (!left) return;
        bool released = false;
        for (unsigned warp = 0; warp < threads; warp += WARP_THREADS)
            if (fibers[warp].wait == Wait::Warp) released |= release(warp, warp + WARP_THREADS, Wait::Warp);
        if (fibers[0].wait == Wait::Block) released |= release(0, threads, Wait::Block);
        if (!moved && !released) fail("threads wait for each other at different barriers");
    }
}

}  // namespace emulator

inline void __syncthreads() { emulator::pause(emulator::Wait::Block); }

template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned distance) {
    const unsigned own = threadIdx.x;
    std::memcpy(&emulator::shown[own], &value, sizeof value);
    emulator::pause(emulator::Wait::Warp);
    T other;
    std::memcpy(&other, &emulator::shown[own ^ distance], sizeof other);
    // No lane publishes its next value before all have read this one.
    emulator::pause(emulator::Wait::Warp);
    return other;
}

#define SHARED(T, name) T* name = reinterpret_cast<T*>(emulator::shared)
