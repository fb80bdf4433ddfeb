#pragma once

// Memory that kernels allocate while they run: scratch, packed operands, results in another order. On a CPU the library
// chooses it, and only a measurement finds it: fsdp-exec measures (executor/measured/kernel_calls.h), a calibration
// saves the results, and a prediction for CPU looks them up.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/model/model.h"

namespace fsdp {

/// A tensor that a kernel reads.
struct KernelOperand {
  Shape sizes;
  Shape strides;  ///< Empty if it is contiguous.
};

/// A call of ATen: the parts that determine its memory.
struct KernelCall {
  std::string name;  ///< "mm", "addmm", "bmm", "convolution", "convolution_backward".
  Dtype dtype = Dtype::Float32;
  std::vector<KernelOperand> operands;  ///< For a product, without bias.
  /// For convolutions, in order, each with its name: {"stride", {2, 2}}.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> settings = {};
};

/// Equal for calls that take equal memory: "mm bfloat16 48x64 64x172t", with t for a column-major matrix; ignores gaps
/// between rows or columns. Settings that are equal in all dimensions become one number: "stride 2".
std::string text_of(const KernelCall& call);

/// False for products in fp32: they go to MKL, which does not allocate through PyTorch.
bool takes_workspace(const KernelCall& call);

class KernelWorkspaces {
 public:
  /// The CPU, instruction set and library of the measurement. Answers hold only there.
  std::string measured_on;

  /// Memory of a call beyond its results; `nullopt` if it was not measured.
  std::optional<Bytes> find(const std::string& call, int threads) const;
  void set(const std::string& call, int threads, Bytes bytes) { bytes_[{call, threads}] = bytes; }
  /// Adds answers of the same machine that this lacks.
  void add(const KernelWorkspaces& others);
  bool empty() const { return bytes_.empty(); }

  bool operator==(const KernelWorkspaces&) const = default;

  /// Writes the JSON object that read_json() reads.
  void write(JsonWriter& writer) const;

 private:
  std::map<std::pair<std::string, int>, Bytes> bytes_;
};

bool read_json(const JsonValue& value, KernelWorkspaces& out, JsonErrors& errors);
/// Reads a file of fsdp-exec that has only this. Error: all faults of the file.
Result<KernelWorkspaces> read_kernel_workspaces(const std::string& path);

}  // namespace fsdp
