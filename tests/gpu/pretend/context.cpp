#include "context.hpp"

#include "memory.hpp"
#include "stream.hpp"

namespace pretend {

namespace {

// A thread's contexts; the last is current.
struct Entry {
    Context* context;
    uint64_t generation;
};
thread_local std::vector<Entry> stack;

Entry entry_of(CUcontext handle) {
    if (!handle) return {nullptr, 0};
    Context& context = context_of(handle);
    return {&context, context.generation};
}

}  // namespace

std::vector<std::unique_ptr<Context>>& contexts() {
    static auto& all = *new std::vector<std::unique_ptr<Context>>;
    return all;
}

Context& context_of(CUcontext handle) {
    for (auto& context : contexts()) {
        if (context.get() != handle) continue;
        if (context->retained == 0) throw Refusal{CUDA_ERROR_CONTEXT_IS_DESTROYED};
        return *context;
    }
    throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
}

Context& current_or_lost() {
    if (stack.empty() || !stack.back().context) throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
    const Entry& top = stack.back();
    if (top.context->retained == 0 || top.context->generation != top.generation)
        throw Refusal{CUDA_ERROR_CONTEXT_IS_DESTROYED};
    return *top.context;
}

Context& current() {
    Context& context = current_or_lost();
    if (context.lost != CUDA_SUCCESS) throw Refusal{context.lost};
    return context;
}

void lose(Context& context, const Violation& violation) {
    if (context.lost != CUDA_SUCCESS) return;
    say("device " + std::to_string(context.ordinal) + " is lost: " + violation.what);
    context.lost = violation.code;
    drop_work(context);
    world().changed.notify_all();
}

namespace {

Context& device(CUdevice ordinal) {
    if (ordinal < 0 || ordinal >= int(contexts().size())) throw Refusal{CUDA_ERROR_INVALID_DEVICE};
    return *contexts()[ordinal];
}

}  // namespace

PRETEND_API CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
    return call([&] {
        Context& context = device(ordinal);
        if (context.retained++ == 0) {
            ++context.generation, context.lost = CUDA_SUCCESS;
            context.null_stream = new_stream(context);
        }
        *handle = &context;
    });
}

PRETEND_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal) {
    return call([&] {
        Context& context = device(ordinal);
        if (context.retained == 0) throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
        if (--context.retained > 0) return;
        drop_work(context);
        drop_handles(context);
        context.null_stream->destroyed = true, context.null_stream = nullptr;
        context.peers.clear();
        release_all(context);
        world().changed.notify_all();
    });
}

PRETEND_API CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
    return call([&] { *flags = 0, *active = device(ordinal).retained > 0 ? 1 : 0; });
}

PRETEND_API CUresult cuCtxSetCurrent(CUcontext handle) {
    return call([&] {
        if (stack.empty()) stack.push_back({});
        stack.back() = entry_of(handle);
    });
}

PRETEND_API CUresult cuCtxGetCurrent(CUcontext* handle) {
    return call([&] { *handle = stack.empty() ? nullptr : stack.back().context; });
}

PRETEND_API CUresult cuCtxPushCurrent_v2(CUcontext handle) {
    return call([&] {
        if (!handle) throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
        stack.push_back(entry_of(handle));
    });
}

PRETEND_API CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
    return call([&] {
        if (stack.empty()) throw Refusal{CUDA_ERROR_INVALID_CONTEXT};
        if (handle) *handle = stack.back().context;
        stack.pop_back();
    });
}

PRETEND_API CUresult cuCtxGetDevice(CUdevice* ordinal) {
    return call([&] { *ordinal = current_or_lost().ordinal; });
}

PRETEND_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
    return call([&] { *can = &device(from) != &device(to) ? 1 : 0; });
}

PRETEND_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    return in_context([&](Context& context) {
        const Context& peer = context_of(handle);
        if (flags != 0) throw Refusal{CUDA_ERROR_INVALID_VALUE};
        if (&peer == &context) throw Refusal{CUDA_ERROR_INVALID_DEVICE};
        if (!context.peers.insert(peer.ordinal).second) throw Refusal{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED};
    });
}

PRETEND_API CUresult cuCtxDisablePeerAccess(CUcontext handle) {
    return in_context([&](Context& context) {
        if (context.peers.erase(context_of(handle).ordinal) == 0) throw Refusal{CUDA_ERROR_PEER_ACCESS_NOT_ENABLED};
    });
}

}  // namespace pretend
