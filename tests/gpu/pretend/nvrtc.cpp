// NVRTC: takes any text, and gives it back as the program. It checks its options, and `#error` is an error.

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "modules.hpp"

namespace pretend {

namespace {

enum nvrtcResult : int {
    NVRTC_SUCCESS = 0,
    NVRTC_ERROR_INVALID_INPUT = 3,
    NVRTC_ERROR_INVALID_PROGRAM = 4,
    NVRTC_ERROR_INVALID_OPTION = 5,
    NVRTC_ERROR_COMPILATION = 6,
};

constexpr int ARCHITECTURES[] = {75, 80, 86, 89, 90, 100, 103, 110, 120, 121};

struct Program {
    std::string text, name, log, image;
};

Handles<Program>& programs() {
    static auto& all = *new Handles<Program>;
    return all;
}

// The number behind "sm_" or "compute_", 0 where it is none that is known.
int architecture_of(const std::string& value) {
    for (const int known : ARCHITECTURES)
        if (value == "sm_" + std::to_string(known)) return known;
    return 0;
}

// An option that is a name, or a name and a value.
bool is_option(const std::string& option) {
    static const char* const known[] = {"--std=c++17", "--fmad=false", "--fmad=true", "--ftz=false", "--prec-div=true",
                                        "--prec-sqrt=true", "-default-device", "--restrict", "-lineinfo"};
    return std::any_of(std::begin(known), std::end(known), [&](const char* one) { return option == one; });
}

// "NAME(LINE): error: …" for each line that begins with #error, lines counted as #line says.
std::string errors_of(const Program& program) {
    std::string log, name = program.name;
    size_t line = 1;
    for (size_t from = 0; from < program.text.size(); ++line) {
        const size_t to = std::min(program.text.find('\n', from), program.text.size());
        const std::string text = program.text.substr(from, to - from);
        char file[256];
        size_t number;
        if (std::sscanf(text.c_str(), "#line %zu \"%255[^\"]\"", &number, file) == 2) name = file, line = number - 1;
        if (text.rfind("#error", 0) == 0)
            log += name + "(" + std::to_string(line) + "): error: #error directive:" + text.substr(6) + "\n";
        from = to + 1;
    }
    return log;
}

template <class Body>
nvrtcResult with(void* handle, Body body) {
    std::lock_guard hold(world().lock);
    const auto program = programs().find(handle);
    return program ? body(*program) : NVRTC_ERROR_INVALID_PROGRAM;
}

nvrtcResult give_size(const std::string& text, size_t rest, size_t* bytes) {
    *bytes = text.size() + rest;
    return NVRTC_SUCCESS;
}

nvrtcResult give(const std::string& text, size_t rest, char* into) {
    std::memcpy(into, text.c_str(), text.size() + rest);
    return NVRTC_SUCCESS;
}

}  // namespace

// No real version, so that no program of this compiler is taken for one of the real one's.
PRETEND_API nvrtcResult nvrtcVersion(int* major, int* minor) {
    *major = 13, *minor = 999;
    return NVRTC_SUCCESS;
}

PRETEND_API const char* nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
        case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
        case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    }
    return "NVRTC_ERROR unknown";
}

PRETEND_API nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
    *count = int(std::size(ARCHITECTURES));
    return NVRTC_SUCCESS;
}

PRETEND_API nvrtcResult nvrtcGetSupportedArchs(int* all) {
    std::copy(std::begin(ARCHITECTURES), std::end(ARCHITECTURES), all);
    return NVRTC_SUCCESS;
}

PRETEND_API nvrtcResult nvrtcCreateProgram(
    void** handle, const char* text, const char* name, int headers, const char* const*, const char* const*) {
    if (!text || headers != 0) return NVRTC_ERROR_INVALID_INPUT;
    std::lock_guard hold(world().lock);
    *handle = programs().add(std::make_shared<Program>(Program{text, name ? name : "default_program", "", ""}));
    return NVRTC_SUCCESS;
}

PRETEND_API nvrtcResult nvrtcDestroyProgram(void** handle) {
    std::lock_guard hold(world().lock);
    if (!programs().find(*handle)) return NVRTC_ERROR_INVALID_PROGRAM;
    programs().take(*handle);
    *handle = nullptr;
    return NVRTC_SUCCESS;
}

PRETEND_API nvrtcResult nvrtcCompileProgram(void* handle, int count, const char* const* options) {
    return with(handle, [&](Program& program) {
        int architecture = 75;
        program.log.clear(), program.image.clear();
        for (int at = 0; at < count; ++at) {
            const std::string option = options[at], target = "--gpu-architecture=";
            if (option.rfind(target, 0) == 0) {
                architecture = architecture_of(option.substr(target.size()));
                if (architecture == 0) program.log += "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
            } else if (!is_option(option)) {
                program.log += "nvrtc: error: unrecognized option " + option + " found\n";
            }
        }
        if (!program.log.empty()) return NVRTC_ERROR_INVALID_OPTION;
        program.log = errors_of(program);
        if (!program.log.empty()) return NVRTC_ERROR_COMPILATION;
        program.image = image_of(program.text, architecture);
        return NVRTC_SUCCESS;
    });
}

PRETEND_API nvrtcResult nvrtcGetCUBINSize(void* handle, size_t* bytes) {
    return with(handle, [&](Program& program) { return give_size(program.image, 0, bytes); });
}

PRETEND_API nvrtcResult nvrtcGetCUBIN(void* handle, char* into) {
    return with(handle, [&](Program& program) { return give(program.image, 0, into); });
}

PRETEND_API nvrtcResult nvrtcGetProgramLogSize(void* handle, size_t* bytes) {
    return with(handle, [&](Program& program) { return give_size(program.log, 1, bytes); });
}

PRETEND_API nvrtcResult nvrtcGetProgramLog(void* handle, char* into) {
    return with(handle, [&](Program& program) { return give(program.log, 1, into); });
}

}  // namespace pretend
