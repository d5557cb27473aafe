// The driver's calls on the driver itself and its devices.

#include <cstdio>
#include <cstring>

#include "memory.hpp"

namespace pretend {

namespace {

void check(CUdevice ordinal) {
    if (ordinal < 0 || ordinal >= int(contexts().size())) throw Refusal{CUDA_ERROR_INVALID_DEVICE};
}

// Of CUdevice_attribute, those of any use here.
int attribute(int which) {
    const Settings& settings = world().settings;
    switch (which) {
        case 1: return 1024;               // threads of a block
        case 2: case 3: return 1024;       // block x, y
        case 4: return 64;                 // block z
        case 5: return 0x7fffffff;         // grid x
        case 6: case 7: return 65535;      // grid y, z
        case 8: return 48 << 10;           // shared memory of a block
        case 10: return 32;                // threads of a warp
        case 13: return 1000000;           // kHz
        case 16: return 4;                 // multiprocessors
        case 19: case 31: case 41: return 1;  // maps host memory, concurrent kernels, one address space
        case 36: return 1000000;           // kHz of the memory
        case 37: return 256;               // bits of its bus
        case 38: return 1 << 20;           // bytes of the second cache
        case 39: return 2048;              // threads of a multiprocessor
        case 40: return 2;                 // copy engines
        case 75: return settings.major;
        case 76: return settings.minor;
        case 78: return 1;                 // priorities
        case 81: return 64 << 10;          // shared memory of a multiprocessor
        case 97: return 48 << 10;          // shared memory of a block that asks for more
        default: return 0;
    }
}

}  // namespace

PRETEND_API CUresult cuInit(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard hold(world().lock);
    if (world().initialised) return CUDA_SUCCESS;
    for (int ordinal = 0; ordinal < world().settings.devices; ++ordinal) {
        contexts().push_back(std::make_unique<Context>());
        contexts().back()->ordinal = ordinal;
    }
    world().initialised = true;
    return CUDA_SUCCESS;
}

PRETEND_API CUresult cuDriverGetVersion(int* version) {
    *version = world().settings.driver;
    return CUDA_SUCCESS;
}

PRETEND_API CUresult cuDeviceGetCount(int* count) {
    return call([&] { *count = int(contexts().size()); });
}

PRETEND_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    return call([&] { check(ordinal), *device = ordinal; });
}

PRETEND_API CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
    return call([&] { check(device), std::snprintf(name, size_t(bytes), "Pretend GPU"); });
}

PRETEND_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    return call([&] { check(device), *bytes = world().settings.memory_bytes; });
}

PRETEND_API CUresult cuDeviceGetAttribute(int* value, int which, CUdevice device) {
    return call([&] { check(device), *value = attribute(which); });
}

PRETEND_API CUresult cuDeviceGetUuid_v2(unsigned char* sixteen, CUdevice device) {
    return call([&] {
        check(device);
        std::memset(sixteen, 0, 16);
        sixteen[0] = 'P', sixteen[15] = static_cast<unsigned char>(device);
    });
}

PRETEND_API CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
    return call([&] { check(device), std::snprintf(id, size_t(bytes), "0000:%02x:00.0", unsigned(device) + 1); });
}

namespace {

const char* name_of(CUresult code) {
    switch (code) {
#define NAME(code) \
    case code: return #code;
        NAME(CUDA_SUCCESS)
        NAME(CUDA_ERROR_INVALID_VALUE)
        NAME(CUDA_ERROR_OUT_OF_MEMORY)
        NAME(CUDA_ERROR_NOT_INITIALIZED)
        NAME(CUDA_ERROR_INVALID_DEVICE)
        NAME(CUDA_ERROR_INVALID_IMAGE)
        NAME(CUDA_ERROR_INVALID_CONTEXT)
        NAME(CUDA_ERROR_NO_BINARY_FOR_GPU)
        NAME(CUDA_ERROR_INVALID_HANDLE)
        NAME(CUDA_ERROR_NOT_FOUND)
        NAME(CUDA_ERROR_NOT_READY)
        NAME(CUDA_ERROR_ILLEGAL_ADDRESS)
        NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
        NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        NAME(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
        NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
        NAME(CUDA_ERROR_MISALIGNED_ADDRESS)
        NAME(CUDA_ERROR_NOT_SUPPORTED)
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE)
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
        NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        NAME(CUDA_ERROR_CAPTURED_EVENT)
        NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
#undef NAME
    }
    return nullptr;
}

}  // namespace

PRETEND_API CUresult cuGetErrorName(CUresult code, const char** text) {
    *text = name_of(code);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PRETEND_API CUresult cuGetErrorString(CUresult code, const char** text) { return cuGetErrorName(code, text); }

}  // namespace pretend
