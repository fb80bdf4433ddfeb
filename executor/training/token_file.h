#pragma once

// Data of a language model from files of token ids, in place of data from a seed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "executor/memory/id_file.h"
#include "executor/training/sample_source.h"

namespace fsdp::executor {

/// The layout of samples in a file for a model: sample i is tokens [i seq, (i + 1) seq), and one more if labels are the
/// next tokens and the model does not shift them itself.
struct TokenShape {
  std::int64_t batch = 0;       ///< Samples of a micro-batch.
  std::int64_t seq = 0;         ///< Tokens of a sample.
  std::int64_t vocabulary = 0;  ///< Ids are below it.
  bool shifts = true;           ///< The model's loss shifts the labels.
};

/// Derived from the model's inputs. Error: they are not `input_ids` and `labels` [batch, seq], and inputs derived from
/// them.
Result<TokenShape> token_shape(const Model& model);

/// The samples of a training, and their order.
struct TokenSource {
  std::vector<std::string> files;    ///< One after the other; a sample lies in one file.
  std::vector<std::string> labels;   ///< One for each file, or none to use the tokens themselves. -100 is ignored.
  std::optional<std::string> dtype;  ///< The dtype of raw files.
  std::optional<std::int64_t>
      shuffle_seed;  ///< Samples come in a different order in each epoch. Defaults to the order of the files.
  std::optional<std::int64_t> document_end{};  ///< The token after this one is not a target.
};

class TokenFile final : public SampleSource {
 public:
  /// .npy files of integers, or raw ids; the dtype of raw ids defaults to uint16 for a vocabulary of at most 65536 and
  /// int32 for a larger one. Errors: all files that cannot be read, are of another kind, have less than one sample, or
  /// a different number of labels.
  static Result<std::shared_ptr<TokenFile>> open(const TokenSource& source, const TokenShape& shape);

  std::int64_t samples() const override { return samples_; }
  std::int64_t batch() const override { return shape_.batch; }
  /// int64 [batch, seq]: samples [first, first + batch) of the run, which starts over after the last. Throws
  /// std::runtime_error for an id outside the vocabulary, with its place, and for a file that has become shorter.
  at::Tensor tokens(std::int64_t first, bool are_labels) const;
  std::optional<at::Tensor> input(const std::string& name, std::int64_t first) const override;

 private:
  TokenFile() = default;
  std::int64_t checked(std::int64_t id, const IdFile& ids, std::int64_t index) const;
  void read_tokens(std::size_t file, std::int64_t begin, std::int64_t* to) const;
  void read_labels(std::size_t file, std::int64_t begin, std::int64_t* to) const;

  TokenSource source_;
  TokenShape shape_;
  std::vector<std::shared_ptr<const IdFile>> ids_;
  std::vector<std::shared_ptr<const IdFile>> labels_;
  std::vector<std::int64_t> begins_;  ///< [files] The first sample of each.
  std::int64_t samples_ = 0;
  std::optional<SampleOrder> order_;
};

}  // namespace fsdp::executor
