#pragma once

// Programs that train a model by a configuration of their own, and the plans that such a configuration can express.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/report/report.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

enum class Trainer : std::uint8_t {
  Accelerate,    ///< accelerate with FSDP version 2 or 1, around the user's own loop.
  Transformers,  ///< transformers' Trainer, which shards through accelerate.
  Torchtitan,    ///< torchtitan, with its own loop and models.
  DeepSpeed,     ///< DeepSpeed, ZeRO-1 to 3, in the user's own loop.
};

/// A trainer release that we have read and run. Each difference between releases is a field, so that no rule compares
/// version numbers.
struct TrainerRelease {
  Trainer trainer = Trainer::Accelerate;
  std::string_view version;  ///< "1.15.0"
  std::string_view name;     ///< "accelerate 1.15.0"

  /// accelerate, and the Trainer on it: the embedding is a unit, and so are final norm and head together, which stay
  /// gathered; the root uses FSDP2's default. If false, the root is resharded like the units (fsdp2_prepare_model).
  bool has_units_of_ends = false;
  /// The Trainer: fsdp_config has keys for version 2 (TrainingArguments._process_fsdp_args).
  bool has_keys_of_fsdp2 = false;
  /// The Trainer: it computes the norm of the gradients in every step, clipped or not (trainer.py _get_grad_norm).
  bool takes_norms = false;
  /// The Trainer: with accelerator_config's sync_each_batch every micro-batch reduces (trainer.py). If false, only the
  /// last one does.
  bool can_sync_each_batch = false;
  /// The Trainer, and models of its transformers: activation_checkpointing_enable has `offload`.
  bool can_offload_inputs = false;
  /// The Trainer: we write its fsdp_config for FSDP1, too, as we do for every accelerate.
  bool can_configure_fsdp1 = false;
  /// torchtitan: configurations are Python functions, and it reads no TOML.
  bool has_registry = false;

  /// The newest release of a trainer.
  TrainerRelease(Trainer of);  // NOLINT(google-explicit-constructor): a trainer is its newest release.
  TrainerRelease(Trainer of, std::string_view number, std::string_view called)
      : trainer(of), version(number), name(called) {}
};

/// All releases of a trainer, the newest first.
std::span<const TrainerRelease> releases_of(Trainer trainer);

/// The release "1.15.0", also by a prefix, "1.15". Errors: it is not one of the known releases, which the error lists;
/// `where` is the place of the error.
Result<TrainerRelease> find_release(Trainer trainer, std::string_view version, std::string_view where);

/// "accelerate 1.15.0": the program and its release.
inline std::string_view name_of(const TrainerRelease& release) {
  return release.name;
}

/// The modules that accelerate makes units, beside the root. None if neither field is set.
struct WrapPolicy {
  std::vector<std::string> classes;            ///< TRANSFORMER_BASED_WRAP: every module of these classes.
  std::optional<std::int64_t> more_than = {};  ///< SIZE_BASED_WRAP: every module with more parameters than this.

  bool operator==(const WrapPolicy&) const = default;
};

/// "FULL_SHARD": FSDP1's name for the plan's mesh and units.
std::string_view flat_strategy_of(const Plan& plan);

/// The policy that makes exactly the units of a plan, beside those of the ends if the release has them; nullopt if
/// there is none.
std::optional<WrapPolicy> wrap_policy_of(const TrainerRelease& release, const Plan& plan, const Model& model);

/// True if the units are resharded after forward; nullopt if the release cannot treat all of them alike. REQUIRES: it
/// has a policy for the units.
std::optional<bool> reshard_of_all(const TrainerRelease& release, const Plan& plan, const Model& model);

/// The dtype of all shards; nullopt if they have several.
std::optional<Dtype> dtype_of_shards(const Plan& plan, const Model& model);

/// torchtitan's names of a model: [model] name and flavor, and the prefix of its function in the registry.
struct TorchtitanModel {
  std::string_view name;
  std::string_view flavor;
  std::string_view config;
  bool is_tied = false;  ///< Head and embedding are: a model of 0.3.0 alone, under the spmd_backend partial_dtensor.
};
std::optional<TorchtitanModel> torchtitan_model_of(const Model& model);

/// A flavor of torchtitan whose model is in our library.
struct TorchtitanInLibrary {
  std::string_view library;  ///< "llama3_1_8b"
  bool is_tied = false;
};
std::optional<TorchtitanInLibrary> library_model_of_torchtitan(std::string_view name, std::string_view flavor);
/// "llama3 8B, llama3 70B, ...": the flavors that are in our library.
std::string torchtitan_models_in_library(bool newest);

/// torchtitan's fsdp_reshard_after_forward: "always", "never" or "default". REQUIRES: units of a plan that it can
/// express.
std::string_view torchtitan_reshard_of(const Plan& plan);

/// The parts of a plan that the trainer's configuration cannot express. Empty if the trainer runs the plan exactly.
Errors unsaid(const TrainerRelease& trainer, const Plan& plan, const Model& model);

/// True if some trainer's configuration expresses this plan exactly, so that said_exactly_by is not empty. This is
/// cheaper.
bool is_said_exactly(const Plan& plan, const Model& model);

/// The trainers whose configuration expresses this plan exactly, in the order of the enum.
std::vector<Trainer> said_exactly_by(const Plan& plan, const Model& model);

/// The plan with each inexpressible part changed to its nearest. Errors: parts without a near equivalent, or a result
/// that is no valid plan of this model.
Result<Plan> nearest_said(const TrainerRelease& trainer, Plan plan, const Model& model);

/// A plan that a trainer can express.
struct SaidPlan {
  Plan plan;
  StepReport report;  ///< Its prediction.
  Errors changes;     ///< Its differences from the given plan. Empty if it is that plan.
};

/// The plan itself if the trainer can express it. Otherwise the nearest plan that fits, predicted for the same rank: if
/// the nearest one does not fit, it checkpoints, reshards, shards or offloads more. `report` is of `plan`; if that does
/// not fit, the nearest need not. Errors: all inexpressible parts, if there is no near plan or none fits; those of the
/// prediction.
Result<SaidPlan> said_by(const TrainerRelease& trainer, const Plan& plan, const StepReport& report,
                         simulator::Predictor& predictor);

}  // namespace fsdp::planner
