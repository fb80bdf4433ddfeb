#pragma once

// Memory that kernels take for themselves while they run: scratch, packed operands, results in another order. It is the
// library's choice for a CPU, which nothing but asking tells: fsdp-exec asks (executor/measured/kernel_calls.h), a
// calibration keeps the answers, and a prediction for CPU looks them up.

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
  Shape strides;  ///< Empty: it lies in the order of its sizes.
};

/// A call of ATen, as far as its memory depends on it.
struct KernelCall {
  std::string name;  ///< "mm", "addmm", "bmm", "convolution", "convolution_backward".
  Dtype dtype = Dtype::Float32;
  std::vector<KernelOperand> operands;  ///< Those of a product, and no bias.
  /// For convolutions, in order, with what each is: {"stride", {2, 2}}.
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> settings = {};
};

/// Equal for calls that take the same: "mm bfloat16 48x64 64x172t", t for a matrix that lies column by column; gaps
/// between its rows or columns do not count. For settings that are alike in all dimensions one number is left: "stride
/// 2".
std::string text_of(const KernelCall& call);

/// Products in fp32 go to MKL, which does not ask PyTorch for memory.
bool takes_workspace(const KernelCall& call);

class KernelWorkspaces {
 public:
  /// Where it was measured: CPU, instruction set, library. Answers hold there alone.
  std::string measured_on;

  /// Memory of a call beyond its results; nothing: it was never asked.
  std::optional<Bytes> find(const std::string& call, int threads) const;
  void set(const std::string& call, int threads, Bytes bytes) { bytes_[{call, threads}] = bytes; }
  /// Takes over what others of the same machine know and this does not.
  void add(const KernelWorkspaces& others);
  bool empty() const { return bytes_.empty(); }

  bool operator==(const KernelWorkspaces&) const = default;

  /// As a JSON object, which read_json() reads.
  void write(JsonWriter& writer) const;

 private:
  std::map<std::pair<std::string, int>, Bytes> bytes_;
};

bool read_json(const JsonValue& value, KernelWorkspaces& out, JsonErrors& errors);
/// A file with nothing else in it, as fsdp-exec writes it. Error: everything that is wrong with the file.
Result<KernelWorkspaces> read_kernel_workspaces(const std::string& path);

}  // namespace fsdp
