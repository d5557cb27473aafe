// Kernels with one fault each. The emulator must detect all of them: otherwise its silence about others means nothing.

#pragma once

extern "C" __global__ void fault_reads_behind(float* y, u32 elements) {
    if (thread_of_grid() == 0) y[0] = y[elements];
}

extern "C" __global__ void fault_writes_behind(float* y, u32 elements) {
    if (thread_of_grid() == 0) y[elements] = 1.0f;
}

extern "C" __global__ void fault_writes_before(float* y, u32) {
    if (thread_of_grid() == 0) y[-1] = 1.0f;
}

// The launch provides one float per thread.
extern "C" __global__ void fault_shares_too_much(float* y, u32) {
    SHARED(float, shared);
    shared[threadIdx.x + 1] = 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) y[0] = shared[0];
}

extern "C" __global__ void fault_races(float* y, u32) {
    SHARED(float, shared);
    shared[threadIdx.x] = float(threadIdx.x);
    // A barrier is missing here.
    if (threadIdx.x == 7) y[0] = shared[8];
}

extern "C" __global__ void fault_is_misaligned(float* y, u32) {
    if (thread_of_grid() == 0) *reinterpret_cast<float4*>(y) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

extern "C" __global__ void fault_leaves_a_barrier(float* y, u32) {
    if (threadIdx.x < 40) __syncthreads();
    if (threadIdx.x == 0) y[0] = 1.0f;
}
