// Devices, their primary contexts, and how a call of the driver begins and ends.

#pragma once
#include <set>
#include <vector>

#include "world.hpp"

namespace pretend {

struct Stream;

// A device's primary context.
struct Context {
    int ordinal;
    // How often it is retained; 0 is none.
    unsigned retained = 0;
    // One more for each time that it was recreated: a thread that has an older one current has none.
    uint64_t generation = 0;
    // What every call says from now on.
    CUresult lost = CUDA_SUCCESS;
    // Devices whose memory its kernels may touch.
    std::set<int> peers;
    std::shared_ptr<Stream> null_stream;
};

// All devices' contexts, by ordinal.
std::vector<std::unique_ptr<Context>>& contexts();

// That of a handle; throws Refusal where it is none or is destroyed.
Context& context_of(CUcontext handle);

// The calling thread's. Throws Refusal where it has none, or it is lost.
Context& current();
// The same, lost or not.
Context& current_or_lost();

// Nothing on it can be trusted any more; its work is dropped.
void lose(Context& context, const Violation& violation);

// Runs a call that needs no context.
template <class Body>
CUresult call(Body body) {
    std::lock_guard hold(world().lock);
    if (!world().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    try {
        body();
        return CUDA_SUCCESS;
    } catch (const Refusal& refusal) {
        return refusal.code;
    }
}

// Runs a call in the calling thread's context; what it must not do loses that context.
template <class Body>
CUresult in_context(Body body) {
    return call([&] {
        Context& context = current();
        try {
            body(context);
        } catch (const Violation& violation) {
            lose(context, violation);
            throw Refusal{context.lost};
        }
    });
}

}  // namespace pretend
