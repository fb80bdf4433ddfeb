#pragma once

// Data for any model from a safetensors file with a tensor for each of its inputs.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/stored_tensors.h"
#include "core/model/model.h"
#include "executor/training/sample_source.h"
#include "executor/training/synthetic.h"

namespace fsdp::executor {

class StoredSamples final : public SampleSource {
 public:
  /// The file has a tensor [samples, ...] under the name of each input of the model, with integers or floating point
  /// like the input; positions and masks that hide nothing are made as from a seed. Errors: every tensor that is
  /// missing, unknown, of another shape or kind, or of another number of samples; an input whose first dimension is not
  /// the batch.
  static Result<std::shared_ptr<const StoredSamples>> open(const std::string& path, const Model& model,
                                                           std::optional<std::int64_t> shuffle_seed);

  std::int64_t samples() const override { return samples_; }
  std::int64_t batch() const override { return batch_; }
  std::optional<at::Tensor> input(const std::string& name, std::int64_t first) const override;

 private:
  struct Input {
    std::string name;
    InputRange range;
    Shape shape;  ///< The shape of a micro-batch.
    const StoredTensor* stored;
  };

  explicit StoredSamples(StoredTensors tensors) : tensors_(std::move(tensors)), reader_(tensors_) {}
  void check_numbers(const Input& input, const at::Tensor& batch, std::int64_t first) const;

  StoredTensors tensors_;
  mutable StoredReader reader_;
  std::vector<Input> inputs_;
  std::int64_t samples_ = 0;
  std::int64_t batch_ = 0;
  std::optional<SampleOrder> order_;
};

}  // namespace fsdp::executor
