// What the checks are written with: a device of their own, tensors on it, and the project's kernels.

#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "calls.hpp"

inline int faults = 0;

inline void expect(bool holds, const char* what, const char* file, int line) {
    if (holds) return;
    ++faults;
    std::printf("%s:%d: not so: %s\n", file, line, what);
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
// A call that must succeed, of whatever library.
#define OK(...) expect(int(__VA_ARGS__) == 0, #__VA_ARGS__, __FILE__, __LINE__)
#define REFUSED(code, ...) expect(int(__VA_ARGS__) == int(code), #__VA_ARGS__ " says " #code, __FILE__, __LINE__)

// A device's context, current in this thread from beginning to end.
struct Device {
    int ordinal;
    CUcontext context = nullptr;

    explicit Device(int ordinal = 0) : ordinal(ordinal) {
        OK(cuDevicePrimaryCtxRetain(&context, ordinal));
        OK(cuCtxSetCurrent(context));
    }
    ~Device() {
        OK(cuCtxSetCurrent(nullptr));
        OK(cuDevicePrimaryCtxRelease_v2(ordinal));
    }
    Device(const Device&) = delete;
};

inline CUstream new_stream() {
    CUstream stream = nullptr;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

inline CUevent new_event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent event = nullptr;
    OK(cuEventCreate(&event, flags));
    return event;
}

inline CUdeviceptr new_memory(size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc_v2(&address, bytes));
    return address;
}

inline CUdeviceptr upload(const std::vector<float>& values) {
    const CUdeviceptr address = new_memory(4 * values.size());
    OK(cuMemcpyHtoD_v2(address, values.data(), 4 * values.size()));
    OK(cuCtxSynchronize());
    return address;
}

inline std::vector<float> download(CUdeviceptr address, size_t count) {
    std::vector<float> values(count);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(values.data(), address, 4 * count));
    return values;
}

inline float* new_pinned(size_t count) {
    void* memory = nullptr;
    OK(cuMemHostAlloc(&memory, 4 * count, 0));
    return static_cast<float*>(memory);
}

inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// One of the project's kernels, from one of its files; the text comes from PRETEND_KERNELS.
CUfunction kernel(const char* file, const std::string& name, const std::string& ending);

// y ← a + b of `count` elements; loads the kernel again for each context.
void add(CUdeviceptr a, CUdeviceptr b, CUdeviceptr y, unsigned count, CUstream stream, CUfunction function = nullptr);

// Values that are small integers, so that sums are exact.
inline std::vector<float> integers(size_t count, unsigned seed) {
    std::vector<float> values(count);
    for (float& value : values) value = float(int((seed = seed * 1103515245u + 12345u) >> 16 & 15) - 7);
    return values;
}

void check_streams();
void check_memory();
void check_graphs();
void check_kernels();
void check_libraries();
void check_collectives();
