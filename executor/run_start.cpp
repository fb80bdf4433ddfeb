#include "executor/run_start.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "executor/weights.h"

namespace fsdp::executor {

namespace {

template <class T>
void keep(Result<T> result, T& to, Errors& errors) {
  if (result) {
    to = *std::move(result);
  } else {
    errors.insert(errors.end(), result.error().begin(), result.error().end());
  }
}

void read_weights(const RunOptions& options, const Model& model, RunStart& start, Errors& errors) {
  if (options.weights.empty()) return;
  const std::size_t before = errors.size();
  keep(read_stored_tensors(options.weights), start.weights.emplace(), errors);
  if (errors.size() != before) return;
  const Errors unfit = check_weights(*start.weights, model);
  errors.insert(errors.end(), unfit.begin(), unfit.end());
}

Result<std::shared_ptr<const TokenFile>> open_tokens(const RunOptions& options, const Model& model) {
  FSDP_TRY(const TokenShape shape, token_shape(model));
  FSDP_TRY(std::shared_ptr<const TokenFile> file, TokenFile::open(options.tokens, options.token_dtype, shape));
  return file;
}

}  // namespace

Result<RunStart> read_run_start(const RunOptions& options, const Model& model) {
  Errors errors;
  RunStart start;
  read_weights(options, model, start, errors);
  if (!options.tokens.empty()) keep(open_tokens(options, model), start.tokens, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return start;
}

std::string summary_of(const RunStart& start) {
  std::string text;
  if (start.weights) {
    for (const StoredTensor& tensor : start.weights->tensors) {
      text += fmt::format("{} {} [{}]\n", tensor.name, name_of(tensor.dtype), fmt::join(tensor.shape, ", "));
    }
  }
  if (start.tokens) text += fmt::format("{} samples\n", start.tokens->samples());
  return text;
}

Result<std::string> begin_run(const RunStart& start, Trainer& trainer) {
  const c10::AutoGradMode no_gradient(false);
  if (!start.weights) return std::string();
  const int shard_rank = trainer.shard_group().rank();
  FSDP_TRY(const std::int64_t bytes, load_weights(*start.weights, trainer.units(), trainer.buffers(), shard_rank));
  return fmt::format("rank {} has read {} of {} bytes of weights", trainer.rank(), bytes, start.weights->bytes());
}

}  // namespace fsdp::executor
