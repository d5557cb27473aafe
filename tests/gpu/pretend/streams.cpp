// The driver's calls on streams and events.

#include "event.hpp"
#include "modules.hpp"

namespace pretend {

Handles<Event>& events() {
    static auto& all = *new Handles<Event>;
    return all;
}

void drop_handles(Context& context) {
    streams().each([&](const std::shared_ptr<Stream>& stream) { stream->destroyed |= &stream->context == &context; });
    streams().erase_if([&](const Stream& stream) { return &stream.context == &context; });
    events().erase_if([&](const Event& event) { return &event.context == &context; });
    drop_modules(context);
}

namespace {

// Of what is asked again and again something must come to pass.
void progress_a_little() {
    for (uint64_t left = world().draw(32); left > 0 && advance();) --left;
}

std::shared_ptr<Event> event_of(CUevent handle) {
    auto event = events().get(handle);
    if (!event->capture) return event;
    if (!event->capture->ended) event->capture->invalid = true;
    throw Refusal{CUDA_ERROR_CAPTURED_EVENT};
}

}  // namespace

PRETEND_API CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return in_context([&](Context&) {
        if (least) *least = 0;
        if (greatest) *greatest = -5;
    });
}

PRETEND_API CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int) {
    return in_context([&](Context& context) {
        if (flags != CU_STREAM_NON_BLOCKING) {
            say("streams that wait for the null stream are not there: ask for a non-blocking one");
            throw Refusal{CUDA_ERROR_NOT_SUPPORTED};
        }
        *handle = streams().add(new_stream(context));
    });
}

PRETEND_API CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
    return cuStreamCreateWithPriority(handle, flags, 0);
}

PRETEND_API CUresult cuStreamDestroy_v2(CUstream handle) {
    return in_context([&](Context&) {
        const auto stream = streams().take(handle);
        if (stream->capture) stream->capture->invalid = true;
        stream->destroyed = true;
    });
}

PRETEND_API CUresult cuStreamSynchronize(CUstream handle) {
    return in_context([&](Context& context) {
        const auto stream = stream_of(context, handle);
        not_captured(*stream);
        work_until(context, [&] { return stream->queue.empty(); });
    });
}

PRETEND_API CUresult cuStreamQuery(CUstream handle) {
    return in_context([&](Context& context) {
        const auto stream = stream_of(context, handle);
        not_captured(*stream);
        progress_a_little();
        if (context.lost != CUDA_SUCCESS) throw Refusal{context.lost};
        if (!stream->queue.empty()) throw Refusal{CUDA_ERROR_NOT_READY};
    });
}

PRETEND_API CUresult cuCtxSynchronize() {
    return in_context([&](Context& context) {
        not_while_capturing();
        synchronize(context);
    });
}

PRETEND_API CUresult cuStreamWaitEvent(CUstream handle, CUevent of, unsigned flags) {
    return in_context([&](Context& context) {
        if (flags != 0) throw Refusal{CUDA_ERROR_INVALID_VALUE};
        const auto stream = stream_of(context, handle);
        const auto event = events().get(of);
        if (world().fails("wait")) return say("a wait is forgotten, as was asked for");
        if (event->capture) return join(*stream, *event);
        if (stream->capture) {
            stream->capture->invalid = true;
            throw Refusal{CUDA_ERROR_STREAM_CAPTURE_ISOLATION};
        }
        const auto record = event->latest;
        if (!record) return;
        enqueue(*stream, [record]() -> Play { return [record] { return record->done ? Step::Done : Step::Blocked; }; });
    });
}

PRETEND_API CUresult cuEventCreate(CUevent* handle, unsigned flags) {
    return in_context([&](Context& context) {
        const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
        *handle = events().add(std::make_shared<Event>(Event{context, timed, nullptr, nullptr, {}}));
    });
}

PRETEND_API CUresult cuEventDestroy_v2(CUevent handle) {
    return in_context([&](Context&) { events().take(handle); });
}

PRETEND_API CUresult cuEventRecord(CUevent handle, CUstream of) {
    return in_context([&](Context& context) {
        const auto event = events().get(handle);
        const auto stream = stream_of(context, of);
        if (&event->context != &context) throw Refusal{CUDA_ERROR_INVALID_HANDLE};
        event->capture = stream->capture, event->after = stream->after;
        if (stream->capture) return;
        const auto record = event->latest = std::make_shared<Record>();
        enqueue(*stream, at_once([record] { record->done = true, record->at = std::chrono::steady_clock::now(); }));
    });
}

PRETEND_API CUresult cuEventQuery(CUevent handle) {
    return in_context([&](Context& context) {
        not_while_capturing();
        const auto record = event_of(handle)->latest;
        progress_a_little();
        if (context.lost != CUDA_SUCCESS) throw Refusal{context.lost};
        if (record && !record->done) throw Refusal{CUDA_ERROR_NOT_READY};
    });
}

PRETEND_API CUresult cuEventSynchronize(CUevent handle) {
    return in_context([&](Context& context) {
        not_while_capturing();
        const auto record = event_of(handle)->latest;
        if (record) work_until(context, [&] { return record->done; });
    });
}

PRETEND_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
    return in_context([&](Context&) {
        const auto start = event_of(from), end = event_of(to);
        if (!start->timed || !end->timed || !start->latest || !end->latest) throw Refusal{CUDA_ERROR_INVALID_HANDLE};
        if (!start->latest->done || !end->latest->done) throw Refusal{CUDA_ERROR_NOT_READY};
        *milliseconds = std::chrono::duration<float, std::milli>(end->latest->at - start->latest->at).count();
    });
}

PRETEND_API CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    return cuEventElapsedTime_v2(milliseconds, from, to);
}

}  // namespace pretend
