// What all libraries share: one lock, the seeded generator of the order of things, and what the environment asks for.

#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>

#include "driver.hpp"

namespace pretend {

// A call's answer that is not success.
struct Refusal {
    CUresult code;
};

// What a device must never do; the context that did it is lost.
struct Violation {
    std::string what;
    CUresult code = CUDA_ERROR_ILLEGAL_ADDRESS;
};

// PRETEND_… of the environment; README.md says what each means.
struct Settings {
    uint64_t seed = 1, memory_bytes = uint64_t(2) << 30;
    int devices = 1, major = 9, minor = 0, driver = 13000;
    // Calls of each kind that are still to be made before one fails; 0 is never.
    std::map<std::string, uint64_t> faults;

    static Settings of_environment();
    void read_faults(const std::string& text);
};

struct World {
    // Held by every call from its beginning to its end; work is executed under it too.
    std::mutex lock;
    // Notified whenever somebody may go on who waits for others' threads.
    std::condition_variable_any changed;
    Settings settings = Settings::of_environment();
    std::mt19937_64 random{settings.seed};
    bool initialised = false;

    // A number below `below`.
    uint64_t draw(uint64_t below) { return random() % below; }
    // Whether this is the call of its kind that the environment wants to fail.
    bool fails(const char* kind);
};

// Never destroyed: threads may still call while the process ends.
World& world();

// One line to stderr.
void say(const std::string& line);

// Objects behind handles.
template <class T>
class Handles {
   public:
    void* add(std::shared_ptr<T> object) {
        void* handle = next_handle();
        objects[handle] = std::move(object);
        return handle;
    }
    std::shared_ptr<T> find(void* handle) const {
        const auto found = objects.find(handle);
        return found == objects.end() ? nullptr : found->second;
    }
    // Throws where there is none.
    std::shared_ptr<T> get(void* handle) const {
        auto found = find(handle);
        if (!found) throw Refusal{CUDA_ERROR_INVALID_HANDLE};
        return found;
    }
    std::shared_ptr<T> take(void* handle) {
        auto found = get(handle);
        objects.erase(handle);
        return found;
    }
    template <class Test>
    void erase_if(Test test) {
        for (auto at = objects.begin(); at != objects.end();) at = test(*at->second) ? objects.erase(at) : std::next(at);
    }
    template <class Body>
    void each(Body body) const {
        for (const auto& [handle, object] : objects) body(object);
    }

   private:
    static void* next_handle() {
        static uintptr_t last = 0x1000;
        return reinterpret_cast<void*>(last += 0x10);
    }
    std::map<void*, std::shared_ptr<T>> objects;
};

}  // namespace pretend
