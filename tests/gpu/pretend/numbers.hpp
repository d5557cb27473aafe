// Numbers as tensors have them: fp32 and bf16, and what a tensor core sees of fp32.

#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace pretend {

enum class Number { F32, Bf16 };

inline size_t size_of(Number number) { return number == Number::F32 ? 4 : 2; }

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// The nearest number with `dropped` bits of the mantissa zero, of two the even one.
inline float rounded(float value, unsigned dropped) {
    if (!std::isfinite(value)) return value;
    const uint32_t bits = to_bits(value), half = (1u << (dropped - 1)) - 1;
    return from_bits((bits + half + (bits >> dropped & 1)) & ~((1u << dropped) - 1));
}

inline float to_bf16(float value) { return rounded(value, 16); }
inline float to_tf32(float value) { return rounded(value, 13); }

// `count` numbers from `from` on, rounded to TF32 where wanted.
inline std::vector<float> read(const char* from, size_t count, Number number, bool tf32) {
    std::vector<float> all(count);
    if (number == Number::Bf16) {
        for (size_t at = 0; at < count; ++at) {
            uint16_t bits;
            std::memcpy(&bits, from + 2 * at, sizeof bits);
            all[at] = from_bits(uint32_t(bits) << 16);
        }
        return all;
    }
    std::memcpy(all.data(), from, 4 * count);
    if (tf32)
        for (float& value : all) value = to_tf32(value);
    return all;
}

inline float read_one(const char* from, size_t at, Number number) {
    if (number == Number::F32) {
        float value;
        std::memcpy(&value, from + 4 * at, sizeof value);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, from + 2 * at, sizeof bits);
    return from_bits(uint32_t(bits) << 16);
}

inline void write_one(char* into, size_t at, float value, Number number) {
    if (number == Number::F32) {
        std::memcpy(into + 4 * at, &value, sizeof value);
        return;
    }
    const uint16_t bits = std::isnan(value) ? 0x7fc0 : uint16_t(to_bits(to_bf16(value)) >> 16);
    std::memcpy(into + 2 * at, &bits, sizeof bits);
}

}  // namespace pretend
