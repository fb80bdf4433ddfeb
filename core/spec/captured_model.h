#pragma once

// A captured model: what one training step of a user's own script was seen to do, in place of a spec that says what a
// model computes. docs/file_formats.md, "Captured models", has the file.
//
//   fsdp-plan my.model.json --gpus 8 --mem 24G
//
// A model spec is expanded for the sizes that somebody asks for; a capture has the sizes that were captured, and no
// others.

#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

struct CapturedModel {
  std::vector<std::string> command;  ///< That was run: "python", "train.py".
  std::string batch_option;          ///< How it is told its batch: "--batch-size {}"; empty: not known.
  std::string framework;             ///< PyTorch's version.
  std::string gpu;                   ///< That the script saw.
  /// Kinds of the collectives that the script makes by itself in each micro-batch, as "all_gather" of the features of
  /// all ranks. No plan has them.
  std::vector<std::string> own_collectives;
  std::vector<Model> points;  ///< One for each size that was captured. Never empty after reading.

  bool operator==(const CapturedModel&) const = default;
};

/// Whether a file is one: by its member "kind".
bool is_captured_model(const JsonDocument& document);

/// Reads one as a spec that has `captured`. All that is wrong goes to `errors`.
void read_captured_model(const JsonDocument& document, ModelSpec& spec, JsonErrors& errors);

/// The model of the captured size that a workload names; the first one where it names none. Errors: a size that was not
/// captured, with those that were; patterns that would train other parameters than the script did.
/// REQUIRES: `spec.captured`.
Result<Model> captured_point(const ModelSpec& spec, const Workload& workload);

/// Samples of a micro-batch. REQUIRES: a point of a capture.
std::int64_t batch_of(const Model& point);

/// The micro-batches that were captured, ascending.
std::vector<std::int64_t> batches_of(const CapturedModel& captured);

/// Whether every block that can be checkpointed was recorded so in this precision.
bool can_checkpoint(const Model& model, Dtype activation);

/// One sentence for those who must know what a model computes and not only what it takes: an executor, an expanded
/// model. Nothing: the spec is no captured model.
std::optional<Error> refuse_captured(const ModelSpec& spec);

}  // namespace fsdp
