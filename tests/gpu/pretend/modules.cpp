#include "modules.hpp"

#include <cstring>

#include "kernels.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace pretend {

namespace {

struct Head {
    char magic[8];
    uint32_t architecture, reserved;
    uint64_t bytes, sum;
};
constexpr char MAGIC[8] = {'\x7f', 'E', 'L', 'F', 'p', 'r', 'e', 't'};

uint64_t sum_of(const char* text, size_t bytes) {
    uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
    for (size_t at = 0; at < bytes; ++at) sum = (sum ^ static_cast<unsigned char>(text[at])) * 0x100000001b3;
    return sum;
}

struct Module {
    Context& context;
    std::string text;
};

struct Function {
    Context& context;
    std::shared_ptr<Module> module;
    const Kernel* kernel;
};

Handles<Module>& modules() {
    static auto& all = *new Handles<Module>;
    return all;
}
Handles<Function>& functions() {
    static auto& all = *new Handles<Function>;
    return all;
}

// The kernel of a symbol, if the module's text defines it with that ending.
const Kernel* kernel_of(const Module& module, const std::string& symbol) {
    const auto has = [&](const std::string& part) { return module.text.find(part) != std::string::npos; };
    for (const Kernel* kernel = KERNELS; kernel->name; ++kernel) {
        const std::string name = kernel->name, ending = kernel->ending, pasted = ending.empty() ? "" : "##" + ending;
        if (symbol != name + ending) continue;
        if (!has("void name" + pasted + "\n") || !has("KERNEL(" + name + ")(")) return nullptr;
        // What is compiled here must be what was compiled there.
        if (has(*kernel->source)) return kernel;
        say("the source of " + symbol + " is not the one that these libraries were built from: build them again");
        return nullptr;
    }
    return nullptr;
}

// A launch's arguments, copied when it is asked for.
struct Arguments {
    std::vector<std::string> values;

    Arguments(const Kernel& kernel, void** given) {
        for (size_t at = 0; at < kernel.count; ++at)
            values.emplace_back(static_cast<const char*>(given[at]), kernel.parameters[at].bytes);
    }

    // Throws Violation where a pointer points to what its device must not touch.
    void check(const Context& context, const Kernel& kernel) const {
        for (size_t at = 0; at < kernel.count; ++at) {
            const size_t alignment = kernel.parameters[at].alignment;
            if (alignment == 0) continue;
            CUdeviceptr address;
            std::memcpy(&address, values[at].data(), sizeof address);
            if (address == 0) continue;
            const std::string what = std::string(kernel.name) + "'s argument " + std::to_string(at);
            if (address % alignment != 0) throw Violation{what + " is misaligned", CUDA_ERROR_MISALIGNED_ADDRESS};
            range(context, address, 1, what.c_str());
        }
    }
};

}  // namespace

std::string image_of(const std::string& text, int architecture) {
    Head head = {};
    std::memcpy(head.magic, MAGIC, sizeof MAGIC);
    head.architecture = uint32_t(architecture), head.bytes = text.size(), head.sum = sum_of(text.data(), text.size());
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + text;
}

void drop_modules(Context& context) {
    functions().erase_if([&](const Function& function) { return &function.context == &context; });
    modules().erase_if([&](const Module& module) { return &module.context == &context; });
}

PRETEND_API CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
    return in_context([&](Context& context) {
        not_while_capturing();
        Head head;
        const char* text = static_cast<const char*>(image);
        // A broken image is told from a whole one before anything behind its head is read.
        if (std::memcmp(text, MAGIC, sizeof MAGIC) != 0) throw Refusal{CUDA_ERROR_INVALID_IMAGE};
        std::memcpy(&head, text, sizeof head);
        text += sizeof head;
        if (head.bytes > (1 << 24) || sum_of(text, head.bytes) != head.sum) throw Refusal{CUDA_ERROR_INVALID_IMAGE};
        const Settings& settings = world().settings;
        const int major = int(head.architecture) / 10, minor = int(head.architecture) % 10;
        if (major != settings.major || minor > settings.minor) throw Refusal{CUDA_ERROR_NO_BINARY_FOR_GPU};
        *handle = modules().add(std::make_shared<Module>(Module{context, std::string(text, head.bytes)}));
    });
}

PRETEND_API CUresult cuModuleUnload(CUmodule handle) {
    return in_context([&](Context&) {
        const auto module = modules().take(handle);
        functions().erase_if([&](const Function& function) { return function.module == module; });
    });
}

PRETEND_API CUresult cuModuleGetFunction(CUfunction* handle, CUmodule of, const char* name) {
    return in_context([&](Context& context) {
        const auto module = modules().get(of);
        const Kernel* kernel = kernel_of(*module, name);
        if (!kernel) throw Refusal{CUDA_ERROR_NOT_FOUND};
        *handle = functions().add(std::make_shared<Function>(Function{context, module, kernel}));
    });
}

PRETEND_API CUresult cuLaunchKernel(
    CUfunction of, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
    unsigned threads_z, unsigned shared_bytes, CUstream on, void** arguments, void** extra) {
    return in_context([&](Context& context) {
        const auto function = functions().get(of);
        const auto stream = stream_of(context, on);
        if (&function->context != &context) throw Refusal{CUDA_ERROR_INVALID_HANDLE};
        if (blocks == 0 || blocks > 0x7fffffff || blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1)
            throw Refusal{CUDA_ERROR_INVALID_VALUE};
        if (threads == 0 || threads > 256 || threads % 32 != 0 || shared_bytes > 48 << 10 || extra)
            throw Refusal{CUDA_ERROR_INVALID_VALUE};
        const Kernel* kernel = function->kernel;
        const auto given = std::make_shared<const Arguments>(*kernel, arguments);
        Context* own = &context;
        enqueue(*stream, at_once([=] {
            if (world().fails("lost")) throw Violation{std::string("a fault that was asked for, in ") + kernel->name};
            given->check(*own, *kernel);
            std::vector<void*> pointers;
            for (const std::string& value : given->values) pointers.push_back(const_cast<char*>(value.data()));
            kernel->run(pointers.data(), blocks, threads, shared_bytes, world().draw(2) == 1);
        }));
    });
}

}  // namespace pretend
