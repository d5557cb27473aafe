// Events: marks in streams that others wait for.

#pragma once
#include <chrono>

#include "stream.hpp"

namespace pretend {

// One time that an event was recorded; whoever waits for it is not concerned by later ones.
struct Record {
    bool done = false;
    std::chrono::steady_clock::time_point at;
};

struct Event {
    Context& context;
    bool timed;
    // None before the first time.
    std::shared_ptr<Record> latest;
    // Where it was recorded in a capture last: that, and the nodes that it comes after.
    std::shared_ptr<Capture> capture;
    std::vector<size_t> after;
};

Handles<Event>& events();

// A capturing stream's next work, or that of a stream that takes part in the capture from now on, comes after the event.
void join(Stream& stream, const Event& event);

}  // namespace pretend
