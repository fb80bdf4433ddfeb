#pragma once

// Programs that train a model by a configuration of their own, and what of a plan such a configuration can say.

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
  Accelerate,    ///< accelerate with FSDP version 2 or 1, around a loop of the user's own.
  Transformers,  ///< transformers' Trainer, which has accelerate shard.
  Torchtitan,    ///< torchtitan, its own loop around its own models.
  DeepSpeed,     ///< DeepSpeed, ZeRO-1 to 3, in a loop of the user's own.
};

/// A release of a trainer that was read and run. What releases differ in is a field, so that no rule asks for a number.
struct TrainerRelease {
  Trainer trainer = Trainer::Accelerate;
  std::string_view version;  ///< "1.15.0"
  std::string_view name;     ///< "accelerate 1.15.0"

  /// accelerate, and the Trainer on it: the embedding is a unit, and so are final norm and head together, which stay
  /// gathered; the root does as FSDP2 does by itself. Else the root is resharded as the units are
  /// (fsdp2_prepare_model).
  bool has_units_of_ends = false;
  /// The Trainer: fsdp_config has keys for version 2 (TrainingArguments._process_fsdp_args).
  bool has_keys_of_fsdp2 = false;
  /// The Trainer: it takes the norm of the gradients in every step, clipped or not (trainer.py _get_grad_norm).
  bool takes_norms = false;
  /// torchtitan: configurations are functions of Python, and no TOML is read.
  bool has_registry = false;

  /// The newest one of a trainer.
  TrainerRelease(Trainer of);  // NOLINT(google-explicit-constructor): a trainer is its newest release.
  TrainerRelease(Trainer of, std::string_view number, std::string_view called)
      : trainer(of), version(number), name(called) {}
};

/// All releases of a trainer, the newest first.
std::span<const TrainerRelease> releases_of(Trainer trainer);

/// The release "1.15.0", also by its first numbers, "1.15". Error: those that there are; `where` is put in front.
Result<TrainerRelease> find_release(Trainer trainer, std::string_view version, std::string_view where);

/// "accelerate 1.15.0": the program and the release that was read.
inline std::string_view name_of(const TrainerRelease& release) {
  return release.name;
}

/// Which modules accelerate makes units of, beside the root. Neither: none.
struct WrapPolicy {
  std::vector<std::string> classes;            ///< TRANSFORMER_BASED_WRAP: every module of these classes.
  std::optional<std::int64_t> more_than = {};  ///< SIZE_BASED_WRAP: every module with more parameters than that.

  bool operator==(const WrapPolicy&) const = default;
};

/// "FULL_SHARD": the name that FSDP1 has for what mesh and units of its plan come to.
std::string_view flat_strategy_of(const Plan& plan);

/// The policy that makes exactly the units of a plan, beside those of the ends where the release has them; nothing:
/// none does.
std::optional<WrapPolicy> wrap_policy_of(const TrainerRelease& release, const Plan& plan, const Model& model);

/// Whether the units are resharded after forward, where all of them are treated as the release does; nothing: they are
/// not. REQUIRES: it has a policy for the units.
std::optional<bool> reshard_of_all(const TrainerRelease& release, const Plan& plan, const Model& model);

/// The dtype of all shards; nothing: they have several.
std::optional<Dtype> dtype_of_shards(const Plan& plan, const Model& model);

/// torchtitan's name of a model: [model] name and flavor, and the function of its registry to begin with.
struct TorchtitanModel {
  std::string_view name;
  std::string_view flavor;
  std::string_view config;
};
std::optional<TorchtitanModel> torchtitan_model_of(const Model& model);

/// torchtitan's fsdp_reshard_after_forward: "always", "never" or "default". REQUIRES: units of a plan that it can say.
std::string_view torchtitan_reshard_of(const Plan& plan);

/// What the trainer's configuration cannot say of a plan. None: the trainer does what the plan says.
Errors unsaid(const TrainerRelease& trainer, const Plan& plan, const Model& model);

/// Whether some trainer's configuration says exactly this plan: said_exactly_by has one. It costs less to find out.
bool is_said_exactly(const Plan& plan, const Model& model);

/// The trainers whose configuration says exactly this plan, in the order of the enum.
std::vector<Trainer> said_exactly_by(const Plan& plan, const Model& model);

/// The plan with all that changed which the trainer cannot say, each to what is nearest. Errors: what has nothing near,
/// or makes no plan of this model.
Result<Plan> nearest_said(const TrainerRelease& trainer, Plan plan, const Model& model);

/// A plan that a trainer can say.
struct SaidPlan {
  Plan plan;
  StepReport report;  ///< Its prediction.
  Errors changes;     ///< What the plan that was asked for has otherwise; none: this is that plan.
};

/// The plan itself where the trainer can say it, else the nearest plan that fits, predicted for the same rank: where
/// the nearest one does not, it has more checkpointed, resharded, sharded or offloaded. `report` is of `plan`; where
/// that does not fit, the nearest need not. Errors: all that it cannot say, where nothing is near, or nothing near
/// fits; those of the prediction.
Result<SaidPlan> said_by(const TrainerRelease& trainer, const Plan& plan, const StepReport& report,
                         simulator::Predictor& predictor);

}  // namespace fsdp::planner
