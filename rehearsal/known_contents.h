#pragma once

// Bytes of device memory whose value is known, because the host sent them and no kernel has run since.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdp::rehearsal {

/// Pieces up to this size are stored: the values that programs compare and use as sizes are small, weights are not.
inline constexpr size_t kLargestKnown = 64 << 10;

/// Stores the contents of `address`. More than kLargestKnown bytes are only forgotten.
void remember(uint64_t address, const void* bytes, size_t size);

/// These bytes become unknown.
void forget(uint64_t address, size_t size);

/// A kernel ran and may have written anywhere: all bytes become unknown.
void forget_everything();

/// The bytes at `address`; nullopt unless all of them are known.
std::optional<std::string> recall(uint64_t address, size_t size);

}  // namespace fsdp::rehearsal
