// The project's kernels by their names, compiled as C++. `build` writes the list from the sources.

#pragma once
#include <cstddef>

namespace pretend {

struct Parameter {
    size_t bytes;
    // Of what a pointer points to; 0 of what is no pointer.
    size_t alignment;
};

struct Kernel {
    const char* name;
    // What its symbol has behind the name: the scalars that it was compiled for.
    const char* ending;
    // The text of the file that it is in.
    const char* const* source;
    const Parameter* parameters;
    size_t count;
    // Runs all blocks, the last first if `backward`.
    void (*run)(void** arguments, unsigned blocks, unsigned threads, unsigned shared_bytes, bool backward);
};

// Ends with one that has no name.
extern const Kernel KERNELS[];

}  // namespace pretend
