// Sizes around those of the workload: half and twice the batch, half and twice the sequence, in all pairs, so that an
// op of another plan lies between two measured sizes. Units of one block, of two, and the root alone give copies and
// reductions of several sizes; two micro-batches measure the accumulation; a clipped step measures the norm. Each runs
// with every number of ranks, because ranks share cores and links.
//
// Not modeled: models whose cost depends on a size other than batch and seq.

#include "runs/calibration_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdp::runs {

namespace {

struct Sizes {
  double batch = 1;  ///< Relative to the workload's.
  double sequence = 1;
};

/// The settings beside sizes and ranks.
struct Shape {
  Sizes sizes;
  std::size_t blocks_per_unit = 0;  ///< 0 for the root alone.
  std::int64_t accumulation = 1;
  bool sync = true;
  bool clips = false;
  bool with_collectives = false;
};

std::vector<Shape> shapes() {
  return {{.with_collectives = true},
          {.blocks_per_unit = 1},
          {.sizes = {.5, .5}},
          {.sizes = {2, 2}},
          {.blocks_per_unit = 2, .accumulation = 2, .clips = true},
          {.sizes = {2, .5}},
          {.sizes = {.5, 2}},
          {.blocks_per_unit = 1, .accumulation = 3, .sync = false},
          {.sizes = {2, 1}},
          {.sizes = {1, 2}},
          {.sizes = {.5, 1}},
          {.sizes = {1, .5}}};
}

Dimension scaled(const Dimension& dimension, const Sizes& sizes) {
  const double factor = dimension.name == "batch" ? sizes.batch : dimension.name == "seq" ? sizes.sequence : 1;
  return {dimension.name, factor == 1 ? dimension.value : std::max(1., std::round(dimension.value * factor))};
}

std::vector<Unit> units_of(const Model& model, std::size_t blocks_per_unit) {
  std::vector<Unit> units;
  for (const Stack& stack : model.stacks) {
    if (blocks_per_unit == 0) continue;
    for (std::size_t i = 0; i < stack.calls.size(); ++i) {
      if (i % blocks_per_unit == 0) units.emplace_back();
      units.back().modules.push_back(model.modules[model.calls[stack.calls[i]].module].name);
    }
  }
  units.push_back({.modules = {""}, .reshard_after_forward = {}});
  return units;
}

std::string name_of(const Shape& shape, const Plan& plan) {
  std::string name = fmt::format("{} {}", plan.mesh.world_size(), plan.mesh.world_size() == 1 ? "rank" : "ranks");
  for (const Dimension& dimension : plan.dimensions) {
    if (dimension.name == "batch" || dimension.name == "seq") {
      name += fmt::format(", {} {:g}", dimension.name, dimension.value);
    }
  }
  if (shape.blocks_per_unit > 0) {
    name += fmt::format(", units of {} {}", shape.blocks_per_unit, shape.blocks_per_unit == 1 ? "block" : "blocks");
  }
  if (shape.accumulation > 1) name += fmt::format(", {} micro-batches", shape.accumulation);
  return name;
}

}  // namespace

Result<std::vector<CalibrationItem>> calibration_items(const ModelSpec& spec, const Workload& workload,
                                                       const Plan& base, const std::vector<std::int64_t>& ranks) {
  FSDP_TRY(const Model center, build_model(spec, workload));
  std::vector<CalibrationItem> items;
  for (const Shape& shape : shapes()) {
    Workload sized = workload;
    sized.dimensions.clear();
    for (const Dimension& dimension : center.dimensions) {
      if (dimension.name == "batch" || dimension.name == "seq") {
        sized.dimensions.push_back(scaled(dimension, shape.sizes));
      } else if (find_dimension(workload.dimensions, dimension.name) != nullptr) {
        sized.dimensions.push_back(dimension);
      }
    }
    // A size that the model cannot have does not matter for the machine.
    const Result<Model> model = build_model(spec, sized);
    if (!model) continue;
    for (const std::int64_t count : ranks) {
      CalibrationItem item{.plan = base, .with_collectives = shape.with_collectives && count > 1};
      item.plan.model_fingerprint = fingerprint_of(*model);
      item.plan.dimensions = model->dimensions;
      item.plan.mesh = {1, count};
      item.plan.units = units_of(*model, shape.blocks_per_unit);
      item.plan.checkpointing.entries.clear();
      item.plan.accumulation = shape.accumulation;
      item.plan.sync_every_micro_batch = shape.sync;
      if (shape.clips && !base.optimizer.clip_grad_norm) item.plan.optimizer.clip_grad_norm = 1;
      item.name = name_of(shape, item.plan);
      const auto is_same = [&](const CalibrationItem& other) { return other.plan == item.plan; };
      if (std::none_of(items.begin(), items.end(), is_same)) items.push_back(std::move(item));
    }
  }
  return items;
}

}  // namespace fsdp::runs
