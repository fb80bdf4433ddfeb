#pragma once

// Programs that train a model by a configuration of their own, and what of a plan such a configuration can say.

#include <cstdint>
#include <optional>
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
  Accelerate,    ///< accelerate 1.12.0 with FSDP version 2 or 1, around a loop of the user's own.
  Transformers,  ///< transformers' Trainer 4.57.3, which has accelerate shard.
  Torchtitan,    ///< torchtitan 0.2.2, its own loop around its own models.
  DeepSpeed,     ///< DeepSpeed 0.19.8, ZeRO-1 to 3, in a loop of the user's own.
};

/// "accelerate 1.12.0": the program and the version that was read.
std::string_view name_of(Trainer trainer);

/// Which modules accelerate makes units of, beside the root. Neither: none.
struct WrapPolicy {
  std::vector<std::string> classes;            ///< TRANSFORMER_BASED_WRAP: every module of these classes.
  std::optional<std::int64_t> more_than = {};  ///< SIZE_BASED_WRAP: every module with more parameters than that.

  bool operator==(const WrapPolicy&) const = default;
};

/// "FULL_SHARD": the name that FSDP1 has for what mesh and units of its plan come to.
std::string_view flat_strategy_of(const Plan& plan);

/// The policy that makes exactly the units of a plan; nothing: none does.
std::optional<WrapPolicy> wrap_policy_of(const Plan& plan, const Model& model);

/// Whether the units are resharded after forward, where all of them are treated alike, as accelerate does; nothing:
/// they are not.
std::optional<bool> reshard_of_all(const Plan& plan);

/// The dtype of all shards; nothing: they have several.
std::optional<Dtype> dtype_of_shards(const Plan& plan, const Model& model);

/// torchtitan's name of a model: [model] name and flavor.
struct TorchtitanModel {
  std::string_view name;
  std::string_view flavor;
};
std::optional<TorchtitanModel> torchtitan_model_of(const Model& model);

/// torchtitan's fsdp_reshard_after_forward: "always", "never" or "default". REQUIRES: units of a plan that it can say.
std::string_view torchtitan_reshard_of(const Plan& plan);

/// What the trainer's configuration cannot say of a plan. None: the trainer does what the plan says.
Errors unsaid(Trainer trainer, const Plan& plan, const Model& model);

/// The trainers whose configuration says exactly this plan, in the order of the enum.
std::vector<Trainer> said_exactly_by(const Plan& plan, const Model& model);

/// The plan with all that changed which the trainer cannot say, each to what is nearest. Errors: what has nothing near,
/// or makes no plan of this model.
Result<Plan> nearest_said(Trainer trainer, Plan plan, const Model& model);

/// A plan that a trainer can say.
struct SaidPlan {
  Plan plan;
  StepReport report;  ///< Its prediction.
  Errors changes;     ///< What the plan that was asked for has otherwise; none: this is that plan.
};

/// The plan itself where the trainer can say it, else the nearest plan, predicted for the same rank. `report` is of
/// `plan`. Errors: all that it cannot say, where nothing is near; those of the prediction.
Result<SaidPlan> said_by(Trainer trainer, const Plan& plan, const StepReport& report, simulator::Predictor& predictor);

}  // namespace fsdp::planner
