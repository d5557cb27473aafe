// The driver's calls on memory: allocations, copies, fills.

#include <cstring>

#include "memory.hpp"
#include "stream.hpp"

namespace pretend {

namespace {

// What a stream does: a copy between devices, or between them and pinned memory.
Work copy(Context& context, CUdeviceptr to, CUdeviceptr from, size_t bytes, const char* what) {
    Context* own = &context;
    return at_once([=] {
        const std::string text = what;
        const char* source = range(*own, from, bytes, (text + " reads").c_str(), true);
        std::memmove(range(*own, to, bytes, (text + " writes").c_str(), true), source, bytes);
    });
}

// From the host: what is not pinned is read now, as CUDA stages it; a capture cannot.
Work upload(Context& context, Stream& stream, CUdeviceptr to, const void* from, size_t bytes) {
    const auto source = reinterpret_cast<CUdeviceptr>(from);
    if (is_pinned(from, bytes)) return copy(context, to, source, bytes, "a copy to the device");
    if (stream.capture) {
        stream.capture->invalid = true;
        throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
    }
    Context* own = &context;
    const std::string staged(static_cast<const char*>(from), bytes);
    return at_once([=] { std::memcpy(range(*own, to, bytes, "a copy to the device writes", true), staged.data(), bytes); });
}

// To the host; what is not pinned is there when the call returns.
void download(Context& context, const std::shared_ptr<Stream>& stream, void* to, CUdeviceptr from, size_t bytes) {
    const auto target = reinterpret_cast<CUdeviceptr>(to);
    if (is_pinned(to, bytes)) return enqueue(*stream, copy(context, target, from, bytes, "a copy from the device"));
    not_captured(*stream);
    Context* own = &context;
    enqueue(*stream, at_once([=] { std::memcpy(to, range(*own, from, bytes, "a copy from the device reads", true), bytes); }));
    work_until(context, [&] { return stream->queue.empty(); });
}

Work fill(Context& context, CUdeviceptr to, const std::string& pattern, size_t count) {
    Context* own = &context;
    return at_once([=] {
        char* at = range(*own, to, count * pattern.size(), "a fill");
        if (pattern.size() == 1) std::memset(at, pattern[0], count);
        else
            for (size_t index = 0; index < count; ++index) std::memcpy(at + index * pattern.size(), pattern.data(), pattern.size());
    });
}

template <class T>
std::string bytes_of(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

PRETEND_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    return in_context([&](Context& context) {
        not_while_capturing();
        *address = allocate(context, bytes, false);
    });
}

// Whatever is still to be done on the device is done first, as CUDA has it.
PRETEND_API CUresult cuMemFree_v2(CUdeviceptr address) {
    return in_context([&](Context& context) {
        if (address == 0) return;
        not_while_capturing();
        synchronize(context);
        release(address, false);
    });
}

PRETEND_API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    return in_context([&](Context& context) {
        *total = world().settings.memory_bytes;
        *free = *total - used_bytes(context.ordinal);
    });
}

PRETEND_API CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    return in_context([&](Context& context) {
        not_while_capturing();
        *address = reinterpret_cast<void*>(allocate(context, bytes, true));
    });
}

PRETEND_API CUresult cuMemAllocHost_v2(void** address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

PRETEND_API CUresult cuMemFreeHost(void* address) {
    return in_context([&](Context& context) {
        not_while_capturing();
        synchronize(context);
        release(reinterpret_cast<uintptr_t>(address), true);
    });
}

PRETEND_API CUresult cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
    return in_context([&](Context&) { pin(address, bytes); });
}

PRETEND_API CUresult cuMemHostUnregister(void* address) {
    return in_context([&](Context& context) {
        synchronize(context);
        unpin(address);
    });
}

PRETEND_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream of) {
    return in_context([&](Context& context) {
        const auto stream = stream_of(context, of);
        enqueue(*stream, upload(context, *stream, to, from, bytes));
    });
}

PRETEND_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream of) {
    return in_context([&](Context& context) { download(context, stream_of(context, of), to, from, bytes); });
}

PRETEND_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream of) {
    return in_context([&](Context& context) {
        enqueue(*stream_of(context, of), copy(context, to, from, bytes, "a copy on the device"));
    });
}

PRETEND_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream of) {
    return in_context([&](Context& context) { enqueue(*stream_of(context, of), copy(context, to, from, bytes, "a copy")); });
}

PRETEND_API CUresult cuMemcpyPeerAsync(
    CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream of) {
    return in_context([&](Context& context) {
        context_of(to_context), context_of(from_context);
        enqueue(*stream_of(context, of), copy(context, to, from, bytes, "a copy between devices"));
    });
}

PRETEND_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream of) {
    return in_context([&](Context& context) { enqueue(*stream_of(context, of), fill(context, to, bytes_of(value), count)); });
}

PRETEND_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream of) {
    return in_context([&](Context& context) { enqueue(*stream_of(context, of), fill(context, to, bytes_of(value), count)); });
}

// ---- On the null stream, which no other stream waits for ----

// What is not pinned is on its way when the call returns, and need not have arrived.
PRETEND_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    return in_context([&](Context& context) {
        not_while_capturing();
        const auto stream = context.null_stream;
        enqueue(*stream, upload(context, *stream, to, from, bytes));
        if (is_pinned(from, bytes)) work_until(context, [&] { return stream->queue.empty(); });
    });
}

PRETEND_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    return in_context([&](Context& context) {
        not_while_capturing();
        const auto stream = context.null_stream;
        download(context, stream, to, from, bytes);
        work_until(context, [&] { return stream->queue.empty(); });
    });
}

PRETEND_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return in_context([&](Context& context) {
        not_while_capturing();
        enqueue(*context.null_stream, copy(context, to, from, bytes, "a copy on the device"));
    });
}

PRETEND_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return in_context([&](Context& context) {
        not_while_capturing();
        enqueue(*context.null_stream, fill(context, to, bytes_of(value), count));
    });
}

}  // namespace pretend
