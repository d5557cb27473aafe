// Runs launches received on standard input (tensors, arguments, blocks), and returns the tensors afterwards.
//
// Each launch is run in three orders of blocks and threads, from the same tensors, and, where threads stride over their
// work, also with fewer blocks. All must give the same bits. Tensors end where their memory ends, so that the address
// sanitizer detects accesses beyond them, and begin after guard bytes.

#pragma once
#include "shim.hpp"

namespace emulator {

using Play = void (*)(void** arguments);

template <class... A, size_t... I>
void apply(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}

// Passes arguments to a kernel as cuLaunchKernel does: by an array of pointers to them.
template <auto KERNEL>
struct Bound;
template <class... A, void (*KERNEL)(A...)>
struct Bound<KERNEL> {
    static void play(void** arguments) { apply(KERNEL, arguments, std::index_sequence_for<A...>{}); }
};

inline void read_exactly(void* into, size_t bytes) {
    if (std::fread(into, 1, bytes, stdin) != bytes) std::exit(0);
}
template <class T>
T read_number() {
    T value;
    read_exactly(&value, sizeof value);
    return value;
}

constexpr unsigned char GUARD = 0xA5;
constexpr size_t ALIGNMENT = 256;

// A tensor `shift` bytes after an aligned address; its end is the end of its memory.
struct Tensor {
    size_t shift, bytes;
    std::vector<unsigned char> content;
    unsigned char* memory = nullptr;

    void allocate() {
        // posix_memalign does not round the size up, so memory is poisoned from the first byte after the tensor.
        if (posix_memalign(reinterpret_cast<void**>(&memory), ALIGNMENT, ALIGNMENT + shift + bytes) != 0) std::abort();
        std::memset(memory, GUARD, ALIGNMENT + shift);
        std::memcpy(start(), content.data(), bytes);
    }
    unsigned char* start() { return memory + ALIGNMENT + shift; }
    void free() {
        for (size_t at = 0; at < ALIGNMENT + shift; ++at)
            if (memory[at] != GUARD) fail("wrote before a tensor's first element");
        std::free(memory);
    }
};

struct Argument {
    bool pointer;
    std::vector<unsigned char> bytes;
    unsigned tensor;
    uint64_t offset;
};

struct Order {
    bool backward;
    unsigned start, stride;
};

inline std::vector<std::vector<unsigned char>> play(
    Play kernel, std::vector<Tensor> tensors, std::vector<Argument> arguments, unsigned blocks, unsigned threads,
    unsigned shared_bytes, Order order) {
    for (Tensor& tensor : tensors) tensor.allocate();
    std::vector<void*> pointers;
    for (Argument& argument : arguments) {
        if (argument.pointer) {
            unsigned char* address = tensors[argument.tensor].start() + argument.offset;
            argument.bytes.resize(sizeof address);
            std::memcpy(argument.bytes.data(), &address, sizeof address);
        }
        pointers.push_back(argument.bytes.data());
    }
    const std::function<void()> thread = [&] { kernel(pointers.data()); };
    work = &thread;
    gridDim.x = blocks;
    for (unsigned turn = 0; turn < blocks; ++turn) {
        blockIdx.x = order.backward ? blocks - 1 - turn : turn;
        // Shared memory is undefined when a block begins.
        shared = new unsigned char[shared_bytes];
        std::memset(shared, 0xFF, shared_bytes);
        run_block(threads, order.start, order.stride);
        delete[] shared;
    }
    std::vector<std::vector<unsigned char>> after;
    for (Tensor& tensor : tensors) {
        after.emplace_back(tensor.start(), tensor.start() + tensor.bytes);
        tensor.free();
    }
    return after;
}

inline void serve(const Play* kernels, size_t count) {
    for (;;) {
        const auto kernel = read_number<uint32_t>(), blocks = read_number<uint32_t>(), threads = read_number<uint32_t>();
        const auto shared_bytes = read_number<uint32_t>(), strided = read_number<uint32_t>();
        if (kernel >= count || threads > MOST_THREADS || threads % WARP_THREADS != 0) fail("no such launch");
        std::vector<Tensor> tensors(read_number<uint32_t>());
        for (Tensor& tensor : tensors) {
            tensor.shift = read_number<uint32_t>();
            tensor.bytes = read_number<uint64_t>();
            tensor.content.resize(tensor.bytes);
            read_exactly(tensor.content.data(), tensor.bytes);
        }
        std::vector<Argument> arguments(read_number<uint32_t>());
        for (Argument& argument : arguments) {
            argument.pointer = read_number<uint32_t>() == 1;
            if (argument.pointer) {
                argument.tensor = read_number<uint32_t>();
                argument.offset = read_number<uint64_t>();
            } else {
                argument.bytes.resize(read_number<uint32_t>());
                read_exactly(argument.bytes.data(), argument.bytes.size());
            }
        }
        const auto in = [&](unsigned of, Order order) {
            return play(kernels[kernel], tensors, arguments, of, threads, shared_bytes, order);
        };
        const auto after = in(blocks, Order{false, 0, 1});
        if (in(blocks, Order{true, threads - 1, threads - 1}) != after) fail("other bits with threads in reverse");
        if (in(strided ? (blocks + 2) / 3 : blocks, Order{false, 5, 97}) != after)
            fail(strided ? "other bits with a third of the blocks" : "other bits with threads in another order");
        for (const auto& content : after)
            if (std::fwrite(content.data(), 1, content.size(), stdout) != content.size()) std::abort();
        std::fflush(stdout);
    }
}

}  // namespace emulator
