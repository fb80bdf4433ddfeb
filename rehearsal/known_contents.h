#pragma once

// Bytes of device memory whose value is known, because the host sent them and no kernel has run since.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::rehearsal {

/// Pieces up to this size are kept: what programs compare and size things by is small, weights are not.
inline constexpr size_t kLargestKnown = 64 << 10;

/// The bytes at `address` are these from now on. More than kLargestKnown are only forgotten.
void remember(uint64_t address, const void* bytes, size_t size);

/// Nothing is known about these bytes any more.
void forget(uint64_t address, size_t size);

/// A kernel ran, and may have written anywhere.
void forget_everything();

/// The bytes at `address`, if all of them are known.
std::optional<std::string> recall(uint64_t address, size_t size);

}  // namespace fsdp::rehearsal
