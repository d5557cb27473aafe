// Modules and kernels: those whose threads wait for each other too, and the compiler's refusals.

#include "check.hpp"

namespace {

// Totals of a block: Σ i of 1,000 losses, and the counts of ranks below 1 and below 5.
void sums() {
    const Device device;
    std::vector<double> losses(1000);
    std::vector<uint32_t> ranks(1000);
    for (size_t at = 0; at < losses.size(); ++at) losses[at] = double(at), ranks[at] = uint32_t(at % 10);
    CUdeviceptr from = new_memory(8000), of = new_memory(4000), totals = new_memory(8), counts = new_memory(8);
    const CUstream stream = new_stream();
    OK(cuMemcpyHtoDAsync_v2(from, losses.data(), 8000, stream));
    OK(cuMemcpyHtoDAsync_v2(of, ranks.data(), 4000, stream));
    unsigned samples = 1000;
    void* arguments[] = {&from, &of, &totals, &counts, &samples};
    OK(cuLaunchKernel(kernel("statistics.cu", "loss_totals", ""), 1, 1, 1, 256, 1, 1, 64, stream, arguments, nullptr));
    double total = 0;
    uint32_t found[2] = {};
    OK(cuMemcpyDtoHAsync_v2(&total, totals, 8, stream));
    OK(cuMemcpyDtoHAsync_v2(found, counts, 8, stream));
    EXPECT(total == 499500 && found[0] == 100 && found[1] == 500);
    // Too much shared memory, too many threads, a stream that is none.
    const CUfunction function = kernel("statistics.cu", "loss_totals", "");
    REFUSED(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 1 << 20, stream, arguments, nullptr));
    REFUSED(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 64, stream, arguments, nullptr));
    REFUSED(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 64, from ? pointer(8) : stream, arguments, nullptr));
}

// What does not compile, and what is no program.
void refusals() {
    const Device device;
    void* program = nullptr;
    OK(nvrtcCreateProgram(&program, "int a;\n#line 7 \"a.cu\"\n#error no\n", "b.cu", 0, nullptr, nullptr));
    const char* options[] = {"--gpu-architecture=sm_60"};
    REFUSED(5, nvrtcCompileProgram(program, 1, options));
    options[0] = "--gpu-architecture=sm_90";
    REFUSED(6, nvrtcCompileProgram(program, 1, options));
    size_t bytes = 0;
    OK(nvrtcGetProgramLogSize(program, &bytes));
    std::string log(bytes, '?');
    OK(nvrtcGetProgramLog(program, log.data()));
    EXPECT(std::string(log.c_str()) == "a.cu(7): error: #error directive: no\n");
    OK(nvrtcDestroyProgram(&program));
    CUmodule module = nullptr;
    REFUSED(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "this is no program, however long it may be"));
    // An architecture newer than the device's; a program without the kernel; one with another text of it.
    const auto load = [&](const char* text, const char* option) {
        OK(nvrtcCreateProgram(&program, text, "a.cu", 0, nullptr, nullptr));
        OK(nvrtcCompileProgram(program, 1, &option));
        OK(nvrtcGetCUBINSize(program, &bytes));
        std::string image(bytes, '\0');
        OK(nvrtcGetCUBIN(program, image.data()));
        OK(nvrtcDestroyProgram(&program));
        return cuModuleLoadData(&module, image.data());
    };
    REFUSED(CUDA_ERROR_NO_BINARY_FOR_GPU, load("", "--gpu-architecture=sm_100"));
    CUfunction function = nullptr;
    OK(load("", "--gpu-architecture=sm_90"));
    REFUSED(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "add_f32"));
    OK(load("#define KERNEL(name) void name##_f32\nKERNEL(add)() {}", "--gpu-architecture=sm_90"));
    for (const char* name : {"add", "add_f32", "add_bf16"})
        REFUSED(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, name));
}

}  // namespace

void check_kernels() {
    sums();
    refusals();
}
