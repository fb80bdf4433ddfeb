#pragma once

// A captured model: the recorded training step of a user's own script, in place of a spec of the computation.
// docs/file_formats.md, "Captured models", has the format.
//
//   fsdp-plan my.model.json --gpus 8 --mem 24G
//
// A model spec expands for any requested sizes; a capture has only its captured sizes.

#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/object_reader.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

struct CapturedModel {
  std::vector<std::string> command;  ///< The captured command: "python", "train.py".
  std::string batch_option;          ///< Its option for the batch: "--batch-size {}"; empty if unknown.
  std::string framework;             ///< PyTorch's version.
  std::string gpu;                   ///< The GPU that the script saw.
  /// Kinds of the collectives that the script itself makes in each micro-batch, such as an "all_gather" of the features
  /// of all ranks. No plan has them.
  std::vector<std::string> own_collectives;
  std::vector<Model> points;  ///< One for each captured size. Never empty after reading.

  bool operator==(const CapturedModel&) const = default;
};

/// Whether a file is a captured model, by its member "kind".
bool is_captured_model(const JsonDocument& document);

/// Reads one as a spec with `captured`. Adds all its faults to `errors`.
void read_captured_model(const JsonDocument& document, ModelSpec& spec, JsonErrors& errors);

/// The model of the captured size in a workload; the first one if it has no size. Errors: a size that was not captured,
/// with the captured ones; patterns that would train other parameters than the script did. REQUIRES: `spec.captured`.
Result<Model> captured_point(const ModelSpec& spec, const Workload& workload);

/// Samples of a micro-batch. REQUIRES: a point of a capture.
std::int64_t batch_of(const Model& point);

/// The captured micro-batches, ascending.
std::vector<std::int64_t> batches_of(const CapturedModel& captured);

/// Whether every block that can be checkpointed was recorded with checkpointing in this precision.
bool can_checkpoint(const Model& model, Dtype activation);

/// One sentence for programs that need the computation of a model, not only its costs: an executor, an expanded model.
/// `nullopt` if the spec is not a captured model.
std::optional<Error> refuse_captured(const ModelSpec& spec);

}  // namespace fsdp
