#pragma once

// Tensors of a checkpoint by name, in one or several safetensors files, whole or cut along dimension 0. Callers read
// only the bytes of the elements that they need.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"

namespace fsdp {

/// Elements [first, first + count) of a tensor, one after the other in a file.
struct StoredPart {
  int file = 0;             ///< Index in `StoredTensors::files`.
  std::int64_t first = 0;   ///< Index in the tensor's flat elements.
  std::int64_t count = 0;   ///< Elements.
  std::int64_t offset = 0;  ///< Byte offset in the file.

  bool operator==(const StoredPart&) const = default;
};

struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::Float32;
  Shape shape;                    ///< Shape of the whole tensor.
  std::vector<StoredPart> parts;  ///< Ascending, without gaps; empty for a tensor without elements.

  bool operator==(const StoredTensor&) const = default;
};

struct StoredTensors {
  std::vector<std::string> files;
  std::vector<StoredTensor> tensors;  ///< In the order of their names.

  /// Bytes of all tensors.
  std::int64_t bytes() const;
  /// The tensor of this name; `nullptr` if there is none.
  const StoredTensor* find(std::string_view name) const;
};

/// All tensors of the given paths. A path is a safetensors file, an index (model.safetensors.index.json), or a folder
/// with an index or with safetensors files, all of which are read. Errors of all files: those of the headers; a file
/// that an index names but is missing or lacks a tensor; a tensor in two files; parts of a tensor that overlap, leave
/// gaps, or differ in dtype or further dimensions; types that nothing computes with.
Result<StoredTensors> read_stored_tensors(const std::vector<std::string>& paths);

/// The files that `read_stored_tensors` would read. Errors: a missing path, a folder without such files, an invalid
/// index, or one that names a missing file.
Result<std::vector<std::string>> safetensors_files(const std::vector<std::string>& paths);

/// Reads elements of stored tensors; has one file open at a time. REQUIRES: `tensors` outlives it.
class StoredReader {
 public:
  explicit StoredReader(const StoredTensors& tensors) : tensors_(tensors) {}
  ~StoredReader();
  StoredReader(const StoredReader&) = delete;
  StoredReader& operator=(const StoredReader&) = delete;

  /// Copies elements [first, first + count) of a tensor, in its dtype, to `out`. Error: a file is unreadable or has
  /// become shorter. REQUIRES: the tensor has them.
  Result<void> read(const StoredTensor& tensor, std::int64_t first, std::int64_t count, void* out);
  /// Bytes of all calls so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  Result<void> open(int file);

  const StoredTensors& tensors_;
  int file_ = -1;
  int descriptor_ = -1;
  std::int64_t bytes_read_ = 0;
};

}  // namespace fsdp
