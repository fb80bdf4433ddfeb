#pragma once

// Data of a language model from a file of token ids, in the place of data from a seed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/model.h"
#include "core/result.h"

namespace fsdp::executor {

/// How samples lie in a file for a model: sample i is tokens [i seq, (i + 1) seq), and one more where labels are the
/// next tokens and the model does not shift them itself.
struct TokenShape {
  std::int64_t batch = 0;       ///< Samples of a micro-batch.
  std::int64_t seq = 0;         ///< Tokens of a sample.
  std::int64_t vocabulary = 0;  ///< Ids are below it.
  bool shifts = true;           ///< The model's loss shifts the labels.
};

/// Reads it off the model's inputs. Error: they are not `input_ids` and `labels` [batch, seq], and what follows from
/// them.
Result<TokenShape> token_shape(const Model& model);

class TokenFile {
 public:
  /// A .npy file of whole numbers, or raw ids; `dtype` of those, else uint16 for a vocabulary of at most 65536 and
  /// int32 for a larger one. Errors: a file that cannot be read, is of another kind, or has less than one sample.
  static Result<std::shared_ptr<TokenFile>> open(const std::string& path, const std::optional<std::string>& dtype,
                                                 const TokenShape& shape);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  std::int64_t samples() const { return samples_; }
  std::int64_t batch() const { return shape_.batch; }
  /// int64 [batch, seq]: samples [first, first + batch), from the beginning again after the last. `next`: each token's
  /// successor. Throws std::runtime_error for an id outside the vocabulary, with its place.
  at::Tensor tokens(std::int64_t first, bool next) const;
  /// What the model is given as this input, or nothing when it is no input of tokens.
  std::optional<at::Tensor> input(const std::string& name, std::int64_t first) const;

 private:
  TokenFile() = default;
  std::int64_t id_at(std::int64_t index) const;

  std::string path_;
  TokenShape shape_;
  const char* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  const char* ids_ = nullptr;
  std::int64_t bytes_per_id_ = 2;
  bool is_signed_ = false;
  std::int64_t samples_ = 0;
};

}  // namespace fsdp::executor
