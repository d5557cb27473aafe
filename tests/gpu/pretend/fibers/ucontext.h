// Fibers for the tests' shim in place of the system's contexts, which enter the kernel at each switch: a twentieth of the time.

#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Whether the kernel that runs was taken for one whose threads wait for each other.
inline bool pretend_fibers_allowed = false;

#if !defined(__x86_64__)
#error "fibers are written for x86-64"
#endif

// Pushes what a call must keep, changes stacks, and returns on the other one.
extern "C" __attribute__((visibility("hidden"))) void pretend_switch(void** from, void* to);
asm(R"(
    .text
    .type pretend_switch, @function
    .hidden pretend_switch
    .globl pretend_switch
pretend_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size pretend_switch, . - pretend_switch
)");

struct pretend_fiber {
    void* stack_pointer;
    struct {
        void* ss_sp;
        size_t ss_size;
    } uc_stack;
    pretend_fiber* uc_link;
};

inline int pretend_get(pretend_fiber*) { return 0; }

inline void pretend_make(pretend_fiber* fiber, void (*entry)(), int) {
    const uintptr_t top = (reinterpret_cast<uintptr_t>(fiber->uc_stack.ss_sp) + fiber->uc_stack.ss_size) & ~uintptr_t(15);
    // From the top: where nobody returns to, the entry, six registers.
    auto* at = reinterpret_cast<void**>(top) - 8;
    for (int index = 0; index < 8; ++index) at[index] = nullptr;
    at[6] = reinterpret_cast<void*>(entry);
    fiber->stack_pointer = at;
}

inline int pretend_swap(pretend_fiber* from, pretend_fiber* to) {
    if (!pretend_fibers_allowed) {
        std::fprintf(stderr, "pretend: a kernel waits for other threads, and `build` has not seen it\n");
        std::abort();
    }
    pretend_switch(&from->stack_pointer, to->stack_pointer);
    return 0;
}

#define ucontext_t pretend_fiber
#define getcontext pretend_get
#define makecontext pretend_make
#define swapcontext pretend_swap
