// How a kernel compiled as C++ is run: thread by thread in a loop, or, if its threads wait for each other, as fibers.
//
// Included by the list that `build` writes, behind the tests' shim and before the kernels.

#pragma once
#include <tuple>
#include <utility>

#include "kernels.hpp"
#include "shim.hpp"

namespace pretend {

template <class T>
constexpr Parameter parameter() {
    if constexpr (std::is_pointer_v<T>) return {sizeof(T), alignof(std::remove_pointer_t<T>)};
    else return {sizeof(T), 0};
}

template <auto KERNEL, bool FIBERS>
struct Bound;

template <class... A, void (*KERNEL)(A...), bool FIBERS>
struct Bound<KERNEL, FIBERS> {
    static constexpr Parameter PARAMETERS[] = {parameter<A>()...};
    static constexpr size_t COUNT = sizeof...(A);

    static std::tuple<A...> values(void** arguments) { return values(arguments, std::index_sequence_for<A...>{}); }

    template <size_t... I>
    static std::tuple<A...> values(void** arguments, std::index_sequence<I...>) {
        return std::tuple<A...>(*static_cast<A*>(arguments[I])...);
    }

    static void run(void** arguments, unsigned blocks, unsigned threads, unsigned shared_bytes, bool backward) {
        const std::tuple<A...> given = values(arguments);
        const std::function<void()> thread = [&] { std::apply(KERNEL, given); };
        // Nothing lies in shared memory when a block begins.
        std::vector<unsigned char> shared(FIBERS ? shared_bytes + 16 : 0);
        emulator::work = &thread;
        emulator::shared = shared.data() + (16 - reinterpret_cast<uintptr_t>(shared.data()) % 16) % 16;
        gridDim.x = blocks;
        pretend_fibers_allowed = FIBERS;
        for (unsigned turn = 0; turn < blocks; ++turn) {
            blockIdx.x = backward ? blocks - 1 - turn : turn;
            if constexpr (FIBERS) {
                std::memset(shared.data(), 0xFF, shared.size());
                emulator::run_block(threads, backward ? threads - 1 : 0, backward ? threads - 1 : 1);
            } else {
                for (unsigned at = 0; at < threads; ++at) {
                    threadIdx.x = backward ? threads - 1 - at : at;
                    std::apply(KERNEL, given);
                }
            }
        }
    }
};

}  // namespace pretend
