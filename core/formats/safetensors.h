#pragma once

// Safetensors files: a header in JSON with the place of each tensor, then the bytes. A file may hold parts of tensors,
// cut along dimension 0, as PyTorch's distributed checkpoints in this format do.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"

namespace fsdp {

/// A tensor, or a part of one, in a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      ///< As in the file: "BF16".
  std::optional<Dtype> dtype;  ///< `nullopt` for a type that nothing here computes with.
  Shape shape;
  std::int64_t begin = 0;                   ///< Its bytes are [begin, end) of the file.
  std::int64_t end = 0;                     ///< See `begin`.
  std::optional<Shape> saved_offsets = {};  ///< Where the part begins in its tensor; `nullopt` for a whole tensor.

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::string path;
  std::int64_t file_bytes = 0;
  std::vector<SafetensorsEntry> entries;                           ///< In the order of their bytes.
  std::vector<std::pair<std::string, std::string>> metadata = {};  ///< As written.

  bool operator==(const SafetensorsHeader&) const = default;
};

/// Bytes before the header's text, which are its length, little-endian.
inline constexpr std::int64_t kSafetensorsLengthBytes = 8;
/// The longest header. safetensors' own limit is 100 MB.
inline constexpr std::int64_t kLongestSafetensorsHeader = std::int64_t{64} << 20;

/// Reads the text of a header. Errors: all its faults: no JSON; tensors whose bytes overlap, leave gaps, end beyond the
/// file or do not fit their shapes; negative or too large sizes; parts without an offset.
Result<SafetensorsHeader> parse_safetensors_header(std::string text, const std::string& path, std::int64_t file_bytes);

/// Reads only the header of a file. Errors: those of the header; a file that is missing or too short.
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

/// The format's name of a dtype.
std::string_view safetensors_name(Dtype dtype);

/// The start of a file: the length and the text, padded to eight bytes. Tensors follow in the given order, without
/// gaps; ignores `begin` and `end`.
std::string safetensors_header_text(std::span<const SafetensorsEntry> entries,
                                    std::span<const std::pair<std::string, std::string>> metadata = {});

/// Bytes of a shape in a dtype; `nullopt` if they exceed 2^60 or a size is negative.
std::optional<std::int64_t> checked_bytes(const Shape& shape, Dtype dtype);

}  // namespace fsdp
