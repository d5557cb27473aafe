// Checks of the pretend libraries: that they do what is asked, and find what is wrong.

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "check.hpp"

namespace {

std::string text_of(const std::string& file) {
    const char* folder = std::getenv("PRETEND_KERNELS");
    std::ifstream in(std::string(folder ? folder : ".") + "/" + file);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}

// Each library is found by its name, and each has its functions.
void check_names() {
    const char* const names[][2] = {{"libcuda.so.1", "cuInit"},           {"libcuda.so", "cuLaunchKernel"},
                                    {"libnvrtc.so.13", "nvrtcVersion"},   {"libnvrtc.so", "nvrtcVersion"},
                                    {"libcublas.so.13", "cublasLtCreate"}, {"libcublasLt.so", "cublasLtMatmul"},
                                    {"libcudnn.so.9", "cudnnCreate"},     {"libnccl.so", "ncclAllReduce"}};
    for (const auto& [file, function] : names) {
        void* library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
        EXPECT(library != nullptr);
        EXPECT(library && dlsym(library, function) != nullptr);
    }
}

}  // namespace

CUfunction kernel(const char* file, const std::string& name, const std::string& ending) {
    const std::string head = "#define KERNEL(name) extern \"C\" __global__ void name" + (ending.empty() ? "" : "##" + ending);
    const std::string text = text_of("prelude.cuh") + head + "\n" + text_of(file);
    void* program = nullptr;
    OK(nvrtcCreateProgram(&program, text.c_str(), file, 0, nullptr, nullptr));
    const char* const options[] = {"--std=c++17", "--fmad=false", "--gpu-architecture=sm_90"};
    OK(nvrtcCompileProgram(program, 3, options));
    size_t bytes = 0;
    OK(nvrtcGetCUBINSize(program, &bytes));
    std::string image(bytes, '\0');
    OK(nvrtcGetCUBIN(program, image.data()));
    OK(nvrtcDestroyProgram(&program));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    OK(cuModuleLoadData(&module, image.data()));
    OK(cuModuleGetFunction(&function, module, (name + ending).c_str()));
    return function;
}

void add(CUdeviceptr a, CUdeviceptr b, CUdeviceptr y, unsigned count, CUstream stream, CUfunction function) {
    if (!function) function = kernel("elementwise.cu", "add", "_f32");
    bool rectified = false;
    void* arguments[] = {&a, &b, &y, &count, &rectified};
    OK(cuLaunchKernel(function, (count + 1023) / 1024 + 1, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr));
}

int main() {
    check_names();
    REFUSED(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    OK(cuInit(0));
    REFUSED(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    check_streams();
    check_memory();
    check_graphs();
    check_kernels();
    check_libraries();
    check_collectives();
    std::printf(faults == 0 ? "the pretend libraries do what they should\n" : "%d faults\n", faults);
    return faults == 0 ? 0 : 1;
}
