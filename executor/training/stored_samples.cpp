// A row of a tensor belongs to one sample, so sample i of a micro-batch is row place_of(i) of every input's tensor.
// Rows are read when they are needed, in the dtype of the file. Integers are compared with the range of the ops that
// read them: a label may also be -100, which cross entropy ignores.
//
// Not modeled: attention that stops at padding: every position counts, as without a file.

#include "executor/training/stored_samples.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/nearest.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

constexpr std::int64_t kIgnoredLabel = -100;  // cross_entropy's.

bool is_read(const InputRange& range) {
  return range.kind == InputRange::Kind::Below || range.kind == InputRange::Kind::Normal;
}

/// The fault of a tensor as an input. Empty if it has none.
std::string mismatch(const StoredTensor& stored, const Value& value, const InputRange& range) {
  const bool has_rows = stored.shape.size() == value.shape.size() &&
                        std::equal(stored.shape.begin() + 1, stored.shape.end(), value.shape.begin() + 1);
  if (!has_rows) {
    return fmt::format("{} has the shape [{}], and samples of the model have [samples, {}].", json_quoted(stored.name),
                       fmt::join(stored.shape, ", "), fmt::join(value.shape.begin() + 1, value.shape.end(), ", "));
  }
  const bool is_real = range.kind == InputRange::Kind::Normal;
  if (is_floating_point(stored.dtype) == is_real && stored.dtype != Dtype::Bool) return "";
  return fmt::format("{} is {}, and the model takes {}.", json_quoted(stored.name), name_of(stored.dtype),
                     is_real ? "floating point" : "whole numbers");
}

}  // namespace

Result<std::shared_ptr<const StoredSamples>> StoredSamples::open(const std::string& path, const Model& model,
                                                                 std::optional<std::int64_t> shuffle_seed) {
  FSDP_TRY(StoredTensors tensors, read_stored_tensors({path}));
  std::shared_ptr<StoredSamples> file(new StoredSamples(std::move(tensors)));
  Errors errors;
  std::vector<std::string> known;
  const std::vector<InputRange> ranges = input_ranges(model);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Value& value = model.values[model.inputs[i]];
    if (!is_read(ranges[i])) continue;
    known.push_back(value.name);
    const StoredTensor* stored = file->tensors_.find(value.name);
    if (file->batch_ == 0 && !value.shape.empty()) file->batch_ = value.shape[0];
    if (value.shape.empty() || value.shape[0] != file->batch_) {
      errors.push_back({"--tokens",
                        fmt::format("The first dimension of {} is not the batch, so that samples have no rows of it.",
                                    json_quoted(value.name)),
                        "Leave it out: data then come from the seed."});
    } else if (stored == nullptr) {
      errors.push_back({path,
                        fmt::format("It has no {} [samples, {}], which the model takes.", json_quoted(value.name),
                                    fmt::join(value.shape.begin() + 1, value.shape.end(), ", ")),
                        ""});
    } else if (std::string wrong = mismatch(*stored, value, ranges[i]); !wrong.empty()) {
      errors.push_back({path, std::move(wrong), ""});
    } else {
      file->inputs_.push_back({value.name, ranges[i], value.shape, stored});
    }
  }
  for (const StoredTensor& tensor : file->tensors_.tensors) {
    if (std::find(known.begin(), known.end(), tensor.name) != known.end()) continue;
    const auto nearest = nearest_name(tensor.name, known);
    errors.push_back({path,
                      fmt::format("{} is no input that {} reads from a file.", json_quoted(tensor.name), model.name),
                      nearest ? fmt::format("Did you mean {}?", json_quoted(*nearest)) : ""});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  if (file->inputs_.empty()) return failure(path, fmt::format("{} takes nothing from a file.", model.name), "");
  file->samples_ = file->inputs_.front().stored->shape[0];
  for (const Input& input : file->inputs_) {
    if (input.stored->shape[0] == file->samples_ && file->samples_ > 0) continue;
    errors.push_back({path,
                      fmt::format("{} has {} samples, and {} has {}.", json_quoted(input.name), input.stored->shape[0],
                                  json_quoted(file->inputs_.front().name), file->samples_),
                      "Each sample has a row of every input."});
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  file->order_.emplace(file->samples_, shuffle_seed);
  return file;
}

void StoredSamples::check_numbers(const Input& input, const at::Tensor& batch, std::int64_t first) const {
  if (input.range.kind != InputRange::Kind::Below) return;
  const auto* numbers = batch.const_data_ptr<std::int64_t>();
  const std::int64_t row = batch.numel() / batch_;
  for (std::int64_t i = 0; i < batch.numel(); ++i) {
    const std::int64_t number = numbers[i];
    if (number >= 0 && number < input.range.below) continue;
    if (number == kIgnoredLabel && input.range.is_label) continue;
    throw std::runtime_error(fmt::format("{}: {} of sample {} has {}, and the model takes whole numbers from 0 to {}.",
                                         tensors_.files.front(), json_quoted(input.name),
                                         order_->place_of(first + i / row), number, input.range.below - 1));
  }
}

std::optional<at::Tensor> StoredSamples::input(const std::string& name, std::int64_t first) const {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& each) { return each.name == name; });
  if (found == inputs_.end()) return std::nullopt;
  const StoredTensor& stored = *found->stored;
  const std::int64_t row =
      std::accumulate(found->shape.begin() + 1, found->shape.end(), std::int64_t{1}, std::multiplies<>());
  at::Tensor batch = at::empty(found->shape, scalar_type(stored.dtype));
  auto* out = static_cast<char*>(batch.mutable_data_ptr());
  for (std::int64_t i = 0; i < batch_; ++i) {
    const Result<void> read = reader_.read(stored, order_->place_of(first + i) * row, row,
                                           out + i * row * static_cast<std::int64_t>(batch.element_size()));
    if (!read) throw std::runtime_error(to_string(read.error().front()));
  }
  if (found->range.kind == InputRange::Kind::Below) batch = batch.to(c10::kLong);
  check_numbers(*found, batch, first);
  return batch;
}

}  // namespace fsdp::executor
