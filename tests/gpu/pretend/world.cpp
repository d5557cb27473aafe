#include "world.hpp"

#include <cstdio>
#include <cstdlib>

namespace pretend {

namespace {

uint64_t number(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

Settings Settings::of_environment() {
    Settings all;
    all.seed = number("PRETEND_SEED", all.seed);
    all.memory_bytes = number("PRETEND_MEMORY_BYTES", all.memory_bytes);
    all.devices = int(number("PRETEND_DEVICES", 1));
    if (const char* text = std::getenv("PRETEND_CAPABILITY")) std::sscanf(text, "%d.%d", &all.major, &all.minor);
    if (const char* text = std::getenv("PRETEND_FAULT")) all.read_faults(text);
    return all;
}

// "oom:3,lost:20": each kind's countdown.
void Settings::read_faults(const std::string& text) {
    size_t from = 0;
    while (from < text.size()) {
        const size_t to = std::min(text.find(',', from), text.size()), colon = text.find(':', from);
        if (colon < to) {
            const std::string kind = text.substr(from, colon - from);
            const uint64_t count = std::strtoull(text.c_str() + colon + 1, nullptr, 10);
            if (kind == "driver") driver = int(count);
            else faults[kind] = count;
        }
        from = to + 1;
    }
}

bool World::fails(const char* kind) {
    const auto found = settings.faults.find(kind);
    return found != settings.faults.end() && found->second > 0 && --found->second == 0;
}

World& world() {
    static World& only = *new World;
    return only;
}

void say(const std::string& line) { std::fprintf(stderr, "pretend: %s\n", line.c_str()); }

}  // namespace pretend

// For tests in one process: another order of things, and faults from now on.
PRETEND_API void pretend_seed(uint64_t seed) {
    std::lock_guard hold(pretend::world().lock);
    pretend::world().random.seed(seed);
}
PRETEND_API void pretend_fault(const char* text) {
    std::lock_guard hold(pretend::world().lock);
    pretend::world().settings.faults.clear();
    pretend::world().settings.read_faults(text);
}
