#include "stream.hpp"

#include "memory.hpp"

namespace pretend {

namespace {

// All that may have work, the destroyed ones until they have none.
std::vector<std::shared_ptr<Stream>>& active() {
    static auto& all = *new std::vector<std::shared_ptr<Stream>>;
    return all;
}

// Long stretches in which one stream is far ahead or far behind find more than fair turns would.
uint64_t draw_pace() { return uint64_t(1) << (3 * world().draw(4)); }

void change_paces() {
    auto& all = active();
    if (world().draw(16) == 0 && !all.empty()) all[world().draw(all.size())]->pace = draw_pace();
}

// An index drawn with the streams' paces as weights.
size_t pick(const std::vector<std::shared_ptr<Stream>>& from) {
    uint64_t sum = 0;
    for (const auto& stream : from) sum += stream->pace;
    uint64_t at = world().draw(sum);
    for (size_t index = 0;; ++index) {
        if (at < from[index]->pace) return index;
        at -= from[index]->pace;
    }
}

// Tries the first piece of a stream's work; a fault in it loses the context.
Step attempt(Stream& stream) {
    struct Try {
        Play play;
        Step step;
    } one{stream.queue.front(), Step::Done};
    try {
        guarded("work", [](void* given) {
            auto* own = static_cast<Try*>(given);
            own->step = own->play();
        }, &one);
    } catch (const Violation& violation) {
        lose(stream.context, violation);
        return Step::Moved;
    }
    if (one.step == Step::Done) stream.queue.pop_front();
    return one.step;
}

}  // namespace

Work at_once(std::function<void()> body) {
    return [body = std::move(body)]() -> Play {
        return [body] {
            body();
            return Step::Done;
        };
    };
}

std::shared_ptr<Stream> new_stream(Context& context) {
    auto stream = std::make_shared<Stream>(context);
    stream->pace = draw_pace();
    active().push_back(stream);
    return stream;
}

Handles<Stream>& streams() {
    static auto& all = *new Handles<Stream>;
    return all;
}

std::shared_ptr<Stream> stream_of(Context& context, CUstream handle) {
    if (!handle) return context.null_stream;
    auto stream = streams().get(handle);
    if (&stream->context != &context) throw Refusal{CUDA_ERROR_INVALID_HANDLE};
    return stream;
}

void enqueue(Stream& stream, const Work& work) {
    if (stream.capture) {
        if (stream.capture->invalid) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
        auto& nodes = stream.capture->graph->nodes;
        nodes.push_back({work, stream.after});
        stream.after = {nodes.size() - 1};
        return;
    }
    stream.queue.push_back(work());
    world().changed.notify_all();
}

bool advance() {
    auto& all = active();
    for (size_t at = all.size(); at-- > 0;)
        if (all[at]->destroyed && all[at]->queue.empty()) all.erase(all.begin() + long(at));
    change_paces();
    std::vector<std::shared_ptr<Stream>> candidates;
    for (const auto& stream : all)
        if (!stream->queue.empty()) candidates.push_back(stream);
    while (!candidates.empty()) {
        const size_t index = pick(candidates);
        if (attempt(*candidates[index]) == Step::Blocked) {
            candidates.erase(candidates.begin() + long(index));
            continue;
        }
        world().changed.notify_all();
        return true;
    }
    return false;
}

void work_until(Context& context, const std::function<bool()>& until) {
    for (;;) {
        if (context.lost != CUDA_SUCCESS) throw Refusal{context.lost};
        if (until()) return;
        if (!advance()) world().changed.wait(world().lock);
    }
}

void synchronize(Context& context) {
    work_until(context, [&] {
        for (const auto& stream : active())
            if (&stream->context == &context && !stream->queue.empty()) return false;
        return true;
    });
}

void drop_work(Context& context) {
    for (const auto& stream : active())
        if (&stream->context == &context) stream->queue.clear();
}

}  // namespace pretend
