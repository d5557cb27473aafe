#include "workspace.hpp"

#include <algorithm>
#include <cstring>

#include "memory.hpp"

namespace pretend {

Work with_workspace(Context& context, CUdeviceptr address, size_t bytes, std::function<void()> body) {
    if (bytes == 0) return at_once(std::move(body));
    Context* own = &context;
    return [=]() -> Play {
        // 0 before the beginning.
        auto mark = std::make_shared<int>(0);
        return [=] {
            char* at = range(*own, address, bytes, "a workspace");
            if (*mark == 0) {
                *mark = 1 + int(world().draw(255));
                std::memset(at, *mark, bytes);
                return Step::Moved;
            }
            if (std::any_of(at, at + bytes, [&](char byte) { return static_cast<unsigned char>(byte) != *mark; }))
                throw Violation{"a workspace was written by others while it was in use"};
            body();
            return Step::Done;
        };
    };
}

}  // namespace pretend
