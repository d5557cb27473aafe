// Streams: work that is only noted when it is given, and done late, in an order among streams that chance chooses.

#pragma once
#include <deque>
#include <functional>
#include <thread>

#include "context.hpp"

namespace pretend {

// What a try at the first piece of a stream's work came to.
enum class Step {
    // It is done.
    Done,
    // A part of it is done.
    Moved,
    // It waits for something else.
    Blocked,
};
// One run of a piece of work, tried until it is done.
using Play = std::function<Step()>;
// A piece of work, which a graph runs again and again: begins a run when it is given to a stream.
using Work = std::function<Play()>;

// Work that never waits.
Work at_once(std::function<void()> body);

// Captured work, each piece after some of those before it.
struct Graph {
    struct Node {
        Work work;
        std::vector<size_t> after;
    };
    std::vector<Node> nodes;
};

struct Capture {
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    Stream* origin;
    CUstreamCaptureMode mode;
    std::thread::id thread = std::this_thread::get_id();
    bool invalid = false, ended = false;
    // Streams beside the first whose work is caught too.
    std::vector<std::shared_ptr<Stream>> joined;
};

struct Stream : std::enable_shared_from_this<Stream> {
    explicit Stream(Context& of) : context(of) {}

    Context& context;
    std::deque<Play> queue;
    // How much more likely than others it is to go on; changes now and then.
    uint64_t pace = 1;
    // Where work goes instead while it is captured, and the nodes that the next one comes after.
    std::shared_ptr<Capture> capture;
    std::vector<size_t> after;
    bool destroyed = false;
};

// Makes one that takes part in the drawing.
std::shared_ptr<Stream> new_stream(Context& context);

// The streams by their handles.
Handles<Stream>& streams();

// That of a handle; null is the context's own. Throws Refusal.
std::shared_ptr<Stream> stream_of(Context& context, CUstream handle);

// Gives a stream work, or its capture. Throws Refusal where the capture is invalid.
void enqueue(Stream& stream, const Work& work);

// Does a piece of work of any stream; false where all wait.
bool advance();

// Works until `until` holds; where all streams wait, waits for other threads. Throws Refusal once the context is lost.
void work_until(Context& context, const std::function<bool()>& until);

// Works until none of a context's streams has anything left.
void synchronize(Context& context);

// Drops what a context's streams still have to do.
void drop_work(Context& context);
// Drops a context's streams, events, modules and graphs.
void drop_handles(Context& context);

// ---- Captures ----

// Throws Refusal, and invalidates the captures that forbid it, where a call may not be made while work is captured.
void not_while_capturing();
// The same of a call about one stream, whoever captures it.
void not_captured(Stream& stream);
// Work that does a whole graph, pieces that do not wait for each other in any order.
Work replay(std::shared_ptr<const Graph> graph);

}  // namespace pretend
