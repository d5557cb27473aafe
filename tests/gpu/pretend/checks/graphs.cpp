// Graphs: captured work runs when it is launched, again and again, in the order that was captured.

#include "check.hpp"

namespace {

CUgraphExec executable_of(CUgraph graph) {
    CUgraphExec executable = nullptr;
    OK(cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(cuGraphDestroy(graph));
    return executable;
}

// y ← y + a, twice; nothing happens before the launch, and each launch does it again.
void repeated() {
    const Device device;
    const CUfunction function = kernel("elementwise.cu", "add", "_f32");
    const CUdeviceptr a = upload({1, 2, 3, 4}), y = upload({0, 0, 0, 0});
    const CUstream stream = new_stream();
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    add(a, y, y, 4, stream, function);
    add(a, y, y, 4, stream, function);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture(stream, &graph));
    EXPECT(download(y, 4) == std::vector<float>({0, 0, 0, 0}));
    const CUgraphExec executable = executable_of(graph);
    for (int turn = 0; turn < 3; ++turn) OK(cuGraphLaunch(executable, stream));
    EXPECT(download(y, 4) == std::vector<float>({6, 12, 18, 24}));
    OK(cuGraphExecDestroy(executable));
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch(executable, stream));
}

// A second stream takes part from the event that it waits for to the one that is waited for; without the latter it is left.
void forked() {
    for (unsigned seed = 0; seed < 20; ++seed) {
        pretend_seed(seed);
        const Device device;
        const CUfunction function = kernel("elementwise.cu", "add", "_f32");
        const CUdeviceptr a = upload({1, 2, 3, 4}), b = new_memory(16), c = new_memory(16), y = new_memory(16);
        const CUstream first = new_stream(), second = new_stream();
        const CUevent fork = new_event(), join = new_event();
        CUgraph graph = nullptr;
        OK(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuEventRecord(fork, first));
        OK(cuStreamWaitEvent(second, fork, 0));
        add(a, a, c, 4, second, function);
        REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(first, &graph));
        EXPECT(graph == nullptr);
        OK(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
        add(a, a, b, 4, first, function);
        OK(cuEventRecord(fork, first));
        OK(cuStreamWaitEvent(second, fork, 0));
        add(a, b, c, 4, second, function);
        OK(cuEventRecord(join, second));
        add(b, b, y, 4, first, function);
        OK(cuStreamWaitEvent(first, join, 0));
        add(y, c, y, 4, first, function);
        OK(cuStreamEndCapture(first, &graph));
        const CUgraphExec executable = executable_of(graph);
        OK(cuGraphLaunch(executable, first));
        EXPECT(download(y, 4) == std::vector<float>({7, 14, 21, 28}));
    }
}

// Launches of one graph come one after the other, whatever streams they are given to: b ← a + y, y ← b + b.
void ordered() {
    for (unsigned seed = 0; seed < 20; ++seed) {
        pretend_seed(seed);
        const Device device;
        const CUfunction function = kernel("elementwise.cu", "add", "_f32");
        const CUdeviceptr a = upload({1, 2, 3, 4}), b = new_memory(16), y = upload({0, 0, 0, 0});
        const CUstream first = new_stream(), second = new_stream();
        OK(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        add(a, y, b, 4, first, function);
        add(b, b, y, 4, first, function);
        CUgraph graph = nullptr;
        OK(cuStreamEndCapture(first, &graph));
        const CUgraphExec executable = executable_of(graph);
        OK(cuGraphLaunch(executable, first));
        OK(cuGraphLaunch(executable, second));
        EXPECT(download(y, 4) == std::vector<float>({6, 12, 18, 24}));
    }
}

// A call that waits spoils the capture.
void spoiled() {
    const Device device;
    const CUstream stream = new_stream();
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    REFUSED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(4096, 0, 4, stream));
    REFUSED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUdeviceptr address = 0;
    REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&address, 4));
    REFUSED(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUdeviceptr memory = new_memory(4);
    OK(cuMemsetD8Async(memory, 0, 4, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

}  // namespace

void check_graphs() {
    repeated();
    forked();
    ordered();
    spoiled();
}
