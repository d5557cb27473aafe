// Memory of devices and pinned memory of the host: pages of their own between pages that nobody may touch.
//
// An allocation ends at the end of a page, so that what reads or writes behind it is caught at once; what is left of its first
// page and behind its last byte holds a pattern that is looked at when it is freed.

#pragma once
#include "context.hpp"

namespace pretend {

constexpr int PINNED = -1;

// Memory for `context`, or pinned memory, full of NaNs. Throws Refusal where the device has not as much.
uintptr_t allocate(Context& context, size_t bytes, bool pinned);

// Gives it back. Throws Refusal where there is none at that address, Violation where somebody wrote around it.
void release(uintptr_t address, bool pinned);

// Gives back all that a context has; for its end.
void release_all(Context& context);

// Bytes that a device has given.
uint64_t used_bytes(int ordinal);

// The host's address of a range that the context's kernels and copies may touch: on its device, pinned, or on a peer with access.
// Throws Violation. `copying` may touch any device.
char* range(const Context& context, CUdeviceptr address, size_t bytes, const char* what, bool copying = false);

// Whether a range lies in pinned memory as a whole; throws Violation where only a part does.
bool is_pinned(const void* address, size_t bytes);

// Pages of the host's own memory that are pinned from now on.
void pin(const void* address, size_t bytes);
void unpin(const void* address);

// Where an address that faulted lies, if it is one of ours, living or freed.
bool describe(const void* address, std::string& into);

// Runs `body`; a fault inside it at an address of ours becomes a Violation.
void guarded(const char* what, void (*body)(void*), void* argument);

}  // namespace pretend
