#pragma once

// Quantities as people write them, "16G", "450GB/s", "312TFLOPS", "3.5us", and back.
//
// A quantity always has its unit, because users have meant bytes, MiB and GiB by a bare "80". K, M, G and T alone are
// powers of 1024, as in GPU tools. "GB" is 10^9 bytes and "GiB" is 2^30 bytes, as everywhere.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp {

/// The largest size in any input: 2^62 bytes. Sums of two such sizes still fit.
inline constexpr Bytes kLargestSize{std::int64_t{1} << 62};

/// Reads a size: "16G", "1.5 GiB", "16GB", "4096B". Rounds a fraction of a byte to the nearest byte. Zero is a size.
/// Error, with the place `where`: no number, no unit, a unit of bits, negative, NaN, infinite, or above 2^62 bytes.
Result<Bytes> parse_size(std::string_view text, std::string_view where);

/// Reads a bandwidth: "450GB/s", "12.5 GiB/s", "900MB/s". Error: as `parse_size`, and for zero. "Gbps" gets its own
/// hint.
Result<BytesPerSecond> parse_bandwidth(std::string_view text, std::string_view where);

/// Reads a rate of floating point operations: "312TFLOPS", "1.5 PFLOPS", "65 TFLOP/s". Error: as `parse_bandwidth`.
Result<FlopsPerSecond> parse_flops_rate(std::string_view text, std::string_view where);

/// Reads a time: "3.5us", "20 ms", "1s", "2min". Zero is a time. Error: as `parse_size`.
Result<Seconds> parse_time(std::string_view text, std::string_view where);

/// An integer of digits only; `nullopt` for other text.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// A finite number; `nullopt` for other text.
std::optional<double> parse_number(std::string_view text);

/// Whether a size that `parse_size` accepts was written in powers of ten ("16GB"), so that a command can print once how
/// it was read.
bool is_decimal_size(std::string_view text);

/// Regular expressions (ECMA 262) of the texts that the parsers above accept, except for the ranges of numbers.
std::string size_pattern();
std::string bandwidth_pattern();
std::string flops_rate_pattern();
std::string time_pattern();

// For people: about three digits, binary prefixes for sizes ("15.4 GiB", "512 B"), decimal ones for the rest.
std::string format_bytes(Bytes size);
std::string format_bandwidth(BytesPerSecond bandwidth);
std::string format_flops_rate(FlopsPerSecond rate);
std::string format_time(Seconds time);

// For files: the shortest text that the parser above reads back as exactly the same value ("16GiB", "15360MiB",
// "3.5us"). REQUIRES: a value that the parser accepts.
std::string exact_size(Bytes size);
std::string exact_bandwidth(BytesPerSecond bandwidth);
std::string exact_flops_rate(FlopsPerSecond rate);
std::string exact_time(Seconds time);

}  // namespace fsdp
