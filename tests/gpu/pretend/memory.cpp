#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <deque>

namespace pretend {

namespace {

constexpr size_t ALIGNMENT = 256;
constexpr unsigned char GUARD = 0xA5, FRESH = 0xFF;
// Freed pages that stay out of reach, so that whoever still uses them is caught.
constexpr size_t KEPT = 4096;

const size_t PAGE = size_t(sysconf(_SC_PAGESIZE));
// On each side of an allocation, out of reach.
constexpr size_t MARGIN = 1 << 20;

struct Allocation {
    // Of a device, or PINNED.
    int ordinal;
    Context* context;
    size_t bytes;
    // Pages that may be touched.
    char* pages;
    size_t page_bytes;
    // Host memory of somebody else's.
    bool foreign = false;
};

using Allocations = std::map<uintptr_t, Allocation>;

Allocations& living() {
    static auto& all = *new Allocations;
    return all;
}
std::deque<std::pair<uintptr_t, Allocation>>& freed() {
    static auto& all = *new std::deque<std::pair<uintptr_t, Allocation>>;
    return all;
}
uint64_t& used(int ordinal) {
    static auto& all = *new std::map<int, uint64_t>;
    return all[ordinal];
}

// Of pinned memory, at once.
uint64_t most_pinned = 0;

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

std::string hex(uintptr_t address) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%zx", size_t(address));
    return text;
}

// The allocation that an address lies in.
Allocations::iterator find(uintptr_t address) {
    auto at = living().upper_bound(address);
    if (at == living().begin()) return living().end();
    --at;
    return address - at->first < at->second.bytes ? at : living().end();
}

void map_pages(Allocation& own, uintptr_t& address) {
    own.page_bytes = round_up(round_up(own.bytes, ALIGNMENT), PAGE);
    void* all = mmap(nullptr, own.page_bytes + 2 * MARGIN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
    own.pages = static_cast<char*>(all) + MARGIN;
    if (mprotect(own.pages, own.page_bytes, PROT_READ | PROT_WRITE) != 0) throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
    char* start = own.pages + own.page_bytes - round_up(own.bytes, ALIGNMENT);
    address = reinterpret_cast<uintptr_t>(start);
    std::memset(own.pages, GUARD, size_t(start - own.pages));
    std::memset(start, FRESH, own.bytes);
    std::memset(start + own.bytes, GUARD, size_t(own.pages + own.page_bytes - start) - own.bytes);
}

void check_guards(uintptr_t address, const Allocation& own) {
    const auto* start = reinterpret_cast<const unsigned char*>(address);
    const auto* from = reinterpret_cast<const unsigned char*>(own.pages);
    for (const unsigned char* at = from; at < from + own.page_bytes; ++at) {
        if (at == start) at += own.bytes;
        if (at < from + own.page_bytes && *at != GUARD)
            throw Violation{"somebody wrote " + std::string(at < start ? "before" : "behind") + " the " +
                            std::to_string(own.bytes) + " bytes at " + hex(address)};
    }
}

void bury(uintptr_t address, const Allocation& own) {
    madvise(own.pages, own.page_bytes, MADV_DONTNEED);
    mprotect(own.pages, own.page_bytes, PROT_NONE);
    freed().emplace_back(address, own);
    if (freed().size() <= KEPT) return;
    const Allocation& oldest = freed().front().second;
    munmap(oldest.pages - MARGIN, oldest.page_bytes + 2 * MARGIN);
    freed().pop_front();
}

}  // namespace

uintptr_t allocate(Context& context, size_t bytes, bool pinned) {
    if (bytes == 0) throw Refusal{CUDA_ERROR_INVALID_VALUE};
    const int ordinal = pinned ? PINNED : context.ordinal;
    const uint64_t limit = world().settings.memory_bytes;
    if (!pinned && world().fails("oom")) throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
    if (!pinned && (bytes > limit || round_up(bytes, ALIGNMENT) > limit - used(ordinal)))
        throw Refusal{CUDA_ERROR_OUT_OF_MEMORY};
    Allocation own{ordinal, &context, bytes, nullptr, 0};
    uintptr_t address = 0;
    map_pages(own, address);
    used(ordinal) += round_up(bytes, ALIGNMENT);
    if (pinned) most_pinned = std::max(most_pinned, used(PINNED));
    living()[address] = own;
    return address;
}

void release(uintptr_t address, bool pinned) {
    const auto at = living().find(address);
    if (at == living().end() || at->second.foreign || (at->second.ordinal == PINNED) != pinned) {
        std::string where;
        describe(reinterpret_cast<void*>(address), where);
        say("freed is what is no " + std::string(pinned ? "pinned" : "device") + " allocation: " + hex(address) + where);
        throw Refusal{CUDA_ERROR_INVALID_VALUE};
    }
    const Allocation own = at->second;
    living().erase(at);
    used(own.ordinal) -= round_up(own.bytes, ALIGNMENT);
    check_guards(address, own);
    bury(address, own);
}

void release_all(Context& context) {
    for (auto at = living().begin(); at != living().end();) {
        const auto [address, own] = *at;
        if (own.context != &context) {
            ++at;
            continue;
        }
        at = living().erase(at);
        if (own.foreign) continue;
        used(own.ordinal) -= round_up(own.bytes, ALIGNMENT);
        bury(address, own);
    }
}

uint64_t used_bytes(int ordinal) { return used(ordinal); }

char* range(const Context& context, CUdeviceptr address, size_t bytes, const char* what, bool copying) {
    if (bytes == 0) return reinterpret_cast<char*>(address);
    const auto at = find(address);
    std::string where;
    if (at == living().end()) {
        describe(reinterpret_cast<void*>(address), where);
        throw Violation{std::string(what) + " at " + hex(address) + ", which is no device's" + where};
    }
    const Allocation& own = at->second;
    if (bytes > own.bytes - (address - at->first)) {
        describe(reinterpret_cast<void*>(address), where);
        throw Violation{std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex(address) + ", beyond its end" + where};
    }
    if (own.ordinal != PINNED && own.ordinal != context.ordinal && !copying && context.peers.count(own.ordinal) == 0)
        throw Violation{std::string(what) + " at " + hex(address) + " of device " + std::to_string(own.ordinal) +
                        ", to which there is no access"};
    return reinterpret_cast<char*>(address);
}

bool is_pinned(const void* address, size_t bytes) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(address);
    const auto at = find(start);
    if (at == living().end()) return false;
    if (at->second.ordinal != PINNED) throw Violation{"a host's address is a device's: " + hex(start)};
    if (bytes > at->second.bytes - (start - at->first))
        throw Violation{"a copy of " + std::to_string(bytes) + " bytes goes beyond pinned memory at " + hex(start)};
    return true;
}

void pin(const void* address, size_t bytes) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(address);
    if (bytes == 0) throw Refusal{CUDA_ERROR_INVALID_VALUE};
    if (find(start) != living().end()) throw Refusal{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED};
    living()[start] = Allocation{PINNED, &current(), bytes, nullptr, 0, true};
}

void unpin(const void* address) {
    const auto at = living().find(reinterpret_cast<uintptr_t>(address));
    if (at == living().end() || !at->second.foreign) throw Refusal{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED};
    living().erase(at);
}

bool describe(const void* address, std::string& into) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    const auto tell = [&](uintptr_t start, const Allocation& own, const char* state) {
        const auto pages = reinterpret_cast<uintptr_t>(own.pages);
        if (own.foreign || at < pages - MARGIN || at >= pages + own.page_bytes + MARGIN) return false;
        const long long off = (long long)(at) - (long long)(start);
        into = " (byte " + std::to_string(off) + " of " + std::to_string(own.bytes) + state + ")";
        return true;
    };
    for (const auto& [start, own] : living())
        if (tell(start, own, "")) return true;
    for (const auto& [start, own] : freed())
        if (tell(start, own, ", freed")) return true;
    return false;
}

// ---- Faults ----

namespace {

thread_local sigjmp_buf* recovery = nullptr;
thread_local void* faulted = nullptr;
struct sigaction before;

// Only while work is done is a fault of ours; others are left to whoever had the signal before.
void on_fault(int, siginfo_t* info, void*) {
    if (recovery) {
        faulted = info->si_addr;
        siglongjmp(*recovery, 1);
    }
    sigaction(SIGSEGV, &before, nullptr);
}

void install() {
    static bool once = false;
    if (once) return;
    once = true;
    struct sigaction own = {};
    own.sa_sigaction = on_fault;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&own.sa_mask);
    sigaction(SIGSEGV, &own, &before);
}

}  // namespace

void guarded(const char* what, void (*body)(void*), void* argument) {
    install();
    sigjmp_buf here;
    if (sigsetjmp(here, 1) == 0) {
        recovery = &here;
        try {
            body(argument);
        } catch (...) {
            recovery = nullptr;
            throw;
        }
        recovery = nullptr;
        return;
    }
    recovery = nullptr;
    std::string where;
    if (!describe(faulted, where)) {
        say(std::string(what) + " faults at " + hex(reinterpret_cast<uintptr_t>(faulted)) + ", which is no device's");
        std::abort();
    }
    throw Violation{std::string(what) + " touches " + hex(reinterpret_cast<uintptr_t>(faulted)) + where};
}

}  // namespace pretend

// For tests in one process: the most bytes of pinned memory that there have been at once.
PRETEND_API uint64_t pretend_most_pinned() {
    std::lock_guard hold(pretend::world().lock);
    return pretend::most_pinned;
}
