// A rank reads its range of a parameter's flat elements. They come through a buffer of a few megabytes, from which ATen
// converts them, so a second copy is never needed, for any dtypes.

#include "executor/checkpoint/weights.h"

#include <ATen/ops/copy.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
constexpr std::size_t kMostErrors = 50;
constexpr std::size_t kMostCandidates = 2000;  // Names are compared one by one, letter by letter.
constexpr const char* kOption = "--weights";

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Counts every problem, and stores the first ones.
class Problems {
 public:
  void add(Error error) {
    if (errors_.size() < kMostErrors) errors_.push_back(std::move(error));
    ++count_;
  }
  bool is_full() const { return errors_.size() == kMostErrors; }
  Errors take() && {
    if (count_ > errors_.size()) {
      errors_.push_back({kOption, fmt::format("There are {} more errors.", count_ - errors_.size()), ""});
    }
    return std::move(errors_);
  }

 private:
  Errors errors_;
  std::size_t count_ = 0;
};

/// "Did you mean ...?". Empty if no name is near: a list of all names would not help.
std::string likely(std::string_view name, const std::vector<std::string_view>& candidates) {
  if (candidates.size() > kMostCandidates) return "";
  const auto nearest = nearest_name(name, candidates);
  return nearest ? fmt::format("Did you mean {}?", json_quoted(*nearest)) : "";
}

const std::string& file_of(const StoredTensors& stored, const StoredTensor& tensor) {
  static const std::string kNone = kOption;
  return tensor.parts.empty() ? kNone : stored.files[tensor.parts[0].file];
}

void check_one(const StoredTensors& stored, const StoredTensor& tensor, const Shape& shape, Dtype dtype,
               Problems& problems) {
  if (tensor.shape != shape) {
    problems.add({file_of(stored, tensor),
                  fmt::format("{} has the shape {}, and the model's has {}.", json_quoted(tensor.name),
                              shape_text(tensor.shape), shape_text(shape)),
                  ""});
  } else if (is_floating_point(tensor.dtype) != is_floating_point(dtype)) {
    problems.add({file_of(stored, tensor),
                  fmt::format("{} has dtype {}, and the model's has {}.", json_quoted(tensor.name),
                              name_of(tensor.dtype), name_of(dtype)),
                  ""});
  }
}

}  // namespace

const StoredTensor* stored_parameter(const StoredTensors& stored, const Parameter& parameter) {
  if (const StoredTensor* found = stored.find(parameter.name)) return found;
  for (const std::string& name : parameter.tied_names) {
    if (const StoredTensor* found = stored.find(name)) return found;
  }
  return nullptr;
}

Errors check_weights(const StoredTensors& stored, const Model& model) {
  Problems problems;
  std::set<std::string_view> known;
  std::vector<const Parameter*> missing;
  for (const Parameter& parameter : model.parameters) {
    known.insert(parameter.name);
    known.insert(parameter.tied_names.begin(), parameter.tied_names.end());
    const StoredTensor* found = stored_parameter(stored, parameter);
    if (found == nullptr) {
      missing.push_back(&parameter);
    } else {
      check_one(stored, *found, parameter.shape, parameter.dtype, problems);
    }
  }
  for (const Buffer& buffer : model.buffers) {
    known.insert(buffer.name);
    if (const StoredTensor* found = stored.find(buffer.name)) {
      check_one(stored, *found, buffer.shape, buffer.dtype, problems);
    }
  }
  std::vector<std::string_view> absent;
  std::vector<std::string_view> unexpected;
  for (const Parameter* parameter : missing) absent.push_back(parameter->name);
  for (const StoredTensor& tensor : stored.tensors) {
    if (!known.contains(tensor.name)) unexpected.push_back(tensor.name);
  }
  for (const Parameter* parameter : missing) {
    problems.add({kOption,
                  fmt::format("No file has {} {}, which the model has.", json_quoted(parameter->name),
                              shape_text(parameter->shape)),
                  problems.is_full() ? "" : likely(parameter->name, unexpected)});
  }
  for (const std::string_view name : unexpected) {
    problems.add({file_of(stored, *stored.find(name)), fmt::format("The model has no {}.", json_quoted(name)),
                  problems.is_full() ? "" : likely(name, absent)});
  }
  return std::move(problems).take();
}

Result<void> read_into(const at::Tensor& to, StoredReader& reader, const StoredTensor& stored, std::int64_t first) {
  const at::Tensor flat = to.view({-1});
  const std::int64_t most = kPieceBytes / size_of(stored.dtype).count();
  std::vector<char> piece;
  for (std::int64_t done = 0; done < flat.numel(); done += most) {
    const std::int64_t count = std::min(most, flat.numel() - done);
    piece.resize(static_cast<std::size_t>(count * size_of(stored.dtype).count()));
    const Result<void> read = reader.read(stored, first + done, count, piece.data());
    if (!read) return read;
    flat.narrow(0, done, count).copy_(at::from_blob(piece.data(), {count}, scalar_type(stored.dtype)));
  }
  return {};
}

Result<std::int64_t> load_weights(const StoredTensors& stored, std::vector<std::unique_ptr<RunningUnit>>& units,
                                  const std::map<std::string, at::Tensor>& buffers, std::int64_t shard_rank) {
  StoredReader reader(stored);
  for (auto& unit : units) {
    for (ParameterState& state : unit->parameters()) {
      const std::int64_t first = first_element(state.layout, shard_rank);
      const Result<void> read = read_into(state.shard.narrow(0, 0, state.layout.local_elements), reader,
                                          *stored_parameter(stored, *state.parameter), first);
      if (!read) return tl::unexpected(read.error());
    }
  }
  for (const auto& [name, buffer] : buffers) {
    const StoredTensor* found = stored.find(name);
    if (found == nullptr) continue;
    const Result<void> read = read_into(buffer, reader, *found, 0);
    if (!read) return tl::unexpected(read.error());
  }
  return reader.bytes_read();
}

}  // namespace fsdp::executor
