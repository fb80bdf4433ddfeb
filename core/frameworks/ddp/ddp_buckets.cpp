// DDP's buckets.
//
// The first step reduces one bucket for each dtype, with parameters in the order of the model. It records the order in
// which gradients become ready; before the second step DDP distributes the parameters over buckets in that order. A
// bucket takes parameters until it reaches its cap, 1 MiB for the first one and 25 MiB for all others, so it may be
// much larger; a parameter is never cut. Parameters of different dtypes go to different buckets. DDP reduces buckets in
// order, so a full bucket waits for those before it.
//
// With find_unused_parameters DDP makes the buckets once, in the order of the model, and reduces them from the last to
// the first. Parameters without a gradient are ready when the forward is over, and one more all-reduce after the last
// bucket tells which parameters were used anywhere.
//
// Sources: torch/nn/parallel/distributed.py (_ddp_init_helper), torch/csrc/distributed/c10d/reducer.cpp
// (compute_bucket_assignment_by_size, rebuild_buckets, mark_bucket_ready), torch 2.11.
//
// Not modeled: static_graph; the order of the last buckets of several dtypes, which is that of a hash table.

#include "core/frameworks/ddp/ddp_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/plan/ready_gradients.h"

namespace fsdp {

namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;
constexpr std::int64_t kFirstCap = kMebi;  // torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
constexpr std::int64_t kCap = 25 * kMebi;  // bucket_cap_mb

struct Open {
  Dtype dtype = Dtype::Float32;
  GradientBucket bucket;
  int num_closed = 0;
};

// A parameter that DDP waits for in vain, if any.
std::optional<Error> check_use(const Plan& plan, const Model& model) {
  if (plan.mesh.world_size() == 1 || plan.ddp.find_unused_parameters) return std::nullopt;
  for (const Parameter& parameter : model.parameters) {
    if (!parameter.trainable || parameter.receives_gradient) continue;
    return Error{
        "ddp/find_unused_parameters",
        fmt::format("\"{}\" is trained but gets no gradient, so that DDP fails in its second step.", parameter.name),
        "Write true, or freeze it."};
  }
  return std::nullopt;
}

}  // namespace

Errors check_ddp_plan(const Plan& plan, const Model& model) {
  Errors errors;
  const auto wrong = [&](std::string where, std::string what, std::string hint) {
    errors.push_back({std::move(where), std::move(what), std::move(hint)});
  };
  if (plan.mesh.dp_shard() != 1) {
    wrong("mesh", fmt::format("DDP does not shard, but the mesh has shard groups of {}.", plan.mesh.dp_shard()),
          fmt::format("Write replicate {} and shard 1.", plan.mesh.world_size()));
  }
  if (plan.units.size() != 1) {
    wrong("units", fmt::format("DDP wraps the whole model, and the plan has {} units.", plan.units.size()),
          "Leave the root as the only one.");
  }
  if (plan.units.size() == 1 && plan.units[0].reshard_after_forward != ReshardAfterForward{}) {
    wrong("units/0", "DDP gathers no parameters that it could reshard.", "Leave reshard_after_forward out.");
  }
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    wrong("prefetch", "DDP does not prefetch.", "Leave forward_prefetch and backward_prefetch out.");
  }
  if (plan.cpu_offload) wrong("cpu_offload", "DDP does not offload.", "Write false.");
  const MixedPrecision& precision = plan.mixed_precision;
  if (precision.param_dtype || precision.reduce_dtype || precision.output_dtype) {
    wrong("mixed_precision", "DDP reduces in the parameters' own dtype, and computes in it or under autocast.",
          "Leave the dtypes out (--precision autocast, accelerate, bf16, fp16 or fp32).");
  }
  if (plan.ddp.bucket_cap_mb && *plan.ddp.bucket_cap_mb < 1) {
    wrong("ddp/bucket_cap_mb", fmt::format("{} MiB is not a valid bucket size.", *plan.ddp.bucket_cap_mb),
          "Write 1 or more.");
  }
  if (auto unused = check_use(plan, model)) errors.push_back(*std::move(unused));
  return errors;
}

namespace {

// Every trained parameter where the model has it, with the position after which its gradient is ready: before the
// backward where none comes.
std::vector<ReadyGradient> trained_in_order(const ModelIndex& index) {
  std::vector<int> ready(index.model->parameters.size(), index.num_positions());
  for (const ReadyGradient& gradient : gradients_as_they_are_ready(index))
    ready[gradient.parameter] = gradient.position;
  std::vector<ReadyGradient> trained;
  for (std::size_t p = 0; p < ready.size(); ++p) {
    if (index.model->parameters[p].trainable) trained.push_back({static_cast<int>(p), ready[p]});
  }
  return trained;
}

}  // namespace

std::vector<GradientBucket> make_buckets(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  const std::optional<std::int64_t>& cap = plan.ddp.bucket_cap_mb;
  const bool finds_unused = plan.ddp.find_unused_parameters;
  std::vector<GradientBucket> buckets;
  std::vector<Open> open;
  const auto close = [&](Open& of) {
    buckets.push_back(std::move(of.bucket));
    of.bucket = {};
    ++of.num_closed;
  };
  const bool casts_weights = plan.mixed_precision.autocast && plan.parameter_dtype == Dtype::Float32;
  for (const ReadyGradient& ready :
       finds_unused ? trained_in_order(index) : gradients_as_they_are_ready(index, false, casts_weights)) {
    const Dtype dtype = layout.parameter_dtype[ready.parameter];
    auto of = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == dtype; });
    if (of == open.end()) of = open.insert(open.end(), Open{.dtype = dtype, .bucket = {}});
    if (of->bucket.parameters.empty()) of->bucket.ready = index.num_positions();
    of->bucket.dtype = dtype;
    of->bucket.parameters.push_back(ready.parameter);
    of->bucket.elements += num_elements(index.model->parameters[ready.parameter].shape);
    of->bucket.ready = std::min(of->bucket.ready, ready.position);
    const std::int64_t limit = cap ? *cap * kMebi : of->num_closed == 0 ? kFirstCap : kCap;
    if (of->bucket.bytes().count() >= limit) close(*of);
  }
  for (Open& of : open) {
    if (!of.bucket.parameters.empty()) close(of);
  }
  if (finds_unused) {
    std::stable_sort(buckets.begin(), buckets.end(), [](const GradientBucket& a, const GradientBucket& b) {
      return a.parameters.front() > b.parameters.front();
    });
  }
  int before = std::numeric_limits<int>::max();
  for (GradientBucket& bucket : buckets) before = bucket.ready = std::min(before, bucket.ready);
  return buckets;
}

void add_ddp_buckets(Layout& layout, const ModelIndex& index, const Plan& plan) {
  if (plan.mesh.world_size() == 1) return;
  layout.buckets = make_buckets(index, plan, layout);
  layout.first_buckets = first_step_buckets(plan, layout.buckets);
}

bool has_unused_parameters(const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const Parameter& parameter) { return parameter.trainable && !parameter.receives_gradient; });
}

Bytes used_map_bytes(const Model& model) {
  const auto is_trained = [](const Parameter& parameter) { return parameter.trainable; };
  return size_of(Dtype::Int32) * std::count_if(model.parameters.begin(), model.parameters.end(), is_trained);
}

std::vector<GradientBucket> first_step_buckets(const Plan& plan, const std::vector<GradientBucket>& later) {
  if (plan.ddp.find_unused_parameters) return {};
  std::vector<GradientBucket> whole;
  for (const GradientBucket& bucket : later) {
    auto of =
        std::find_if(whole.begin(), whole.end(), [&](const GradientBucket& w) { return w.dtype == bucket.dtype; });
    if (of == whole.end()) of = whole.insert(whole.end(), GradientBucket{.parameters = {}, .dtype = bucket.dtype});
    of->elements += bucket.elements;
    of->parameters.insert(of->parameters.end(), bucket.parameters.begin(), bucket.parameters.end());
    of->ready = bucket.ready;
  }
  for (GradientBucket& of : whole) std::sort(of.parameters.begin(), of.parameters.end());
  std::sort(whole.begin(), whole.end(), [](const GradientBucket& a, const GradientBucket& b) {
    return a.parameters.front() > b.parameters.front();
  });
  int before = std::numeric_limits<int>::max();
  for (GradientBucket& of : whole) before = of.ready = std::min(before, of.ready);
  return whole;
}

}  // namespace fsdp
