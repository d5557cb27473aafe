// Captures of streams, and graphs that do again what was captured.

#include <algorithm>
#include <atomic>

#include "event.hpp"
#include "stream.hpp"

namespace pretend {

namespace {

// Of all graphs.
std::atomic<uint64_t> launches;

// All that are being made.
std::vector<std::shared_ptr<Capture>>& captures() {
    static auto& all = *new std::vector<std::shared_ptr<Capture>>;
    return all;
}

// Whether all of `wanted` are among `from` and what comes before those.
bool reaches(const Graph& graph, const std::vector<size_t>& from, const std::vector<size_t>& wanted) {
    std::vector<bool> seen(graph.nodes.size());
    std::vector<size_t> open = from;
    while (!open.empty()) {
        const size_t at = open.back();
        open.pop_back();
        if (seen[at]) continue;
        seen[at] = true;
        open.insert(open.end(), graph.nodes[at].after.begin(), graph.nodes[at].after.end());
    }
    return std::all_of(wanted.begin(), wanted.end(), [&](size_t at) { return seen[at]; });
}

struct GraphExec {
    std::shared_ptr<const Graph> graph;
    // Launches of one graph come one after the other.
    std::shared_ptr<uint64_t> begun = std::make_shared<uint64_t>(0), ended = std::make_shared<uint64_t>(0);
};

Handles<Graph>& graphs() {
    static auto& all = *new Handles<Graph>;
    return all;
}
Handles<GraphExec>& executables() {
    static auto& all = *new Handles<GraphExec>;
    return all;
}

// A graph that is being done.
struct Run {
    std::shared_ptr<const Graph> graph;
    std::vector<Play> plays;
    std::vector<size_t> waits_for;
    std::vector<std::vector<size_t>> then;
    std::vector<size_t> ready;
    size_t left = 0;

    explicit Run(std::shared_ptr<const Graph> of) : graph(std::move(of)) {
        const auto& nodes = graph->nodes;
        then.resize(nodes.size());
        for (size_t at = 0; at < nodes.size(); ++at) {
            plays.push_back(nodes[at].work());
            waits_for.push_back(nodes[at].after.size());
            for (const size_t before : nodes[at].after) then[before].push_back(at);
            if (nodes[at].after.empty()) ready.push_back(at);
        }
        left = nodes.size();
    }

    Step step() {
        std::vector<size_t> candidates = ready;
        while (!candidates.empty()) {
            const size_t drawn = world().draw(candidates.size()), at = candidates[drawn];
            const Step step = plays[at]();
            if (step == Step::Blocked) {
                candidates.erase(candidates.begin() + long(drawn));
                continue;
            }
            if (step == Step::Moved) return Step::Moved;
            ready.erase(std::find(ready.begin(), ready.end(), at));
            for (const size_t next : then[at])
                if (--waits_for[next] == 0) ready.push_back(next);
            return --left == 0 ? Step::Done : Step::Moved;
        }
        return left == 0 ? Step::Done : Step::Blocked;
    }
};

}  // namespace

Work replay(std::shared_ptr<const Graph> graph) {
    return [graph]() -> Play {
        auto run = std::make_shared<Run>(graph);
        return [run] { return run->step(); };
    };
}

void not_while_capturing() {
    bool refused = false;
    for (const auto& capture : captures()) {
        const bool own = capture->thread == std::this_thread::get_id();
        if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !own) continue;
        capture->invalid = refused = true;
    }
    if (refused) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void not_captured(Stream& stream) {
    not_while_capturing();
    if (!stream.capture) return;
    stream.capture->invalid = true;
    throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

void join(Stream& stream, const Event& event) {
    if (event.capture->ended) throw Refusal{CUDA_ERROR_CAPTURED_EVENT};
    if (stream.capture && stream.capture != event.capture) {
        stream.capture->invalid = event.capture->invalid = true;
        throw Refusal{CUDA_ERROR_STREAM_CAPTURE_MERGE};
    }
    if (!stream.capture) {
        stream.capture = event.capture, stream.after.clear();
        event.capture->joined.push_back(stream.shared_from_this());
    }
    for (const size_t at : event.after)
        if (std::find(stream.after.begin(), stream.after.end(), at) == stream.after.end()) stream.after.push_back(at);
}

PRETEND_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    return in_context([&](Context& context) {
        const auto stream = stream_of(context, handle);
        if (!handle) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
        if (stream->capture || mode < 0 || mode > 2) throw Refusal{CUDA_ERROR_INVALID_VALUE};
        stream->capture = std::make_shared<Capture>();
        stream->capture->origin = stream.get(), stream->capture->mode = mode;
        stream->after.clear();
        captures().push_back(stream->capture);
    });
}

PRETEND_API CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    return in_context([&](Context& context) {
        *graph = nullptr;
        const auto stream = stream_of(context, handle);
        const auto capture = stream->capture;
        if (!capture) throw Refusal{CUDA_ERROR_INVALID_VALUE};
        if (capture->origin != stream.get()) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED};
        if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
            throw Refusal{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD};
        bool joined = true;
        for (const auto& other : capture->joined) {
            joined = joined && reaches(*capture->graph, stream->after, other->after);
            other->capture = nullptr;
        }
        stream->capture = nullptr, capture->ended = true, capture->joined.clear();
        captures().erase(std::find(captures().begin(), captures().end(), capture));
        if (capture->invalid) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
        if (!joined) throw Refusal{CUDA_ERROR_STREAM_CAPTURE_UNJOINED};
        *graph = graphs().add(capture->graph);
    });
}

PRETEND_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    return in_context([&](Context& context) {
        const auto capture = stream_of(context, handle)->capture;
        *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                  : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    });
}

PRETEND_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
    return in_context([&](Context&) {
        if (flags != 0) throw Refusal{CUDA_ERROR_NOT_SUPPORTED};
        auto executable = std::make_shared<GraphExec>();
        executable->graph = graphs().get(graph);
        *handle = executables().add(executable);
    });
}

PRETEND_API CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    return in_context([&](Context& context) { executables().get(executable), stream_of(context, stream); });
}

// For tests in one process: how often graphs have been launched.
PRETEND_API uint64_t pretend_graph_launches() {
    return pretend::launches;
}

PRETEND_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
    return in_context([&](Context& context) {
        const auto executable = executables().get(handle);
        const Work all = replay(executable->graph);
        ++launches;
        const auto begun = executable->begun, ended = executable->ended;
        enqueue(*stream_of(context, stream), [=]() -> Play {
            const uint64_t turn = (*begun)++;
            return [play = all(), ended, turn] {
                if (*ended != turn) return Step::Blocked;
                const Step step = play();
                if (step == Step::Done) ++*ended;
                return step;
            };
        });
    });
}

PRETEND_API CUresult cuGraphDestroy(CUgraph graph) {
    return in_context([&](Context&) { graphs().take(graph); });
}

PRETEND_API CUresult cuGraphExecDestroy(CUgraphExec executable) {
    return in_context([&](Context&) { executables().take(executable); });
}

}  // namespace pretend
