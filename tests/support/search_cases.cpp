#include "tests/support/search_cases.h"

#include <rapidcheck.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/frameworks/zero/zero_quantization.h"
#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"
#include "planner/space/batches.h"
#include "tests/support/small_models.h"

namespace fsdp::planner {

namespace {

/// A decoder, a mixture of experts, an encoder and a decoder, or a TTS model.
ModelSpec random_model(SmallTransformer sizes) {
  switch (*rc::gen::element(0, 0, 0, 1, 1, 2, 2, 3)) {
    case 1:
      sizes.cached = false;
      sizes.experts = *rc::gen::element(2, 4);
      sizes.stacked = *rc::gen::arbitrary<bool>();
      return small_transformer(sizes);
    case 2:
      sizes.layers = std::min(sizes.layers, 2);
      return small_encoder_decoder(sizes);
    case 3:
      return tiny_tts();
    default:
      return small_transformer(sizes);
  }
}

/// A few of the ways to wrap blocks: all of them would take seconds by brute force.
void choose_units(Space& space) {
  const std::vector<BlockParts> none;
  const std::vector<BlockParts> both = {BlockParts::Sublayers, BlockParts::Projections};
  using Ways = std::pair<std::vector<std::int64_t>, std::vector<BlockParts>>;
  std::tie(space.blocks_per_unit, space.block_parts) =
      *rc::gen::element(Ways{{1, 0}, none}, Ways{{2}, none}, Ways{{0}, both}, Ways{{1}, {BlockParts::Projections}});
  space.parts_from = 0;
}

std::vector<std::int64_t> micro_batches_of(const Case& c) {
  std::vector<std::int64_t> sizes;
  const std::vector<Batch> batches = *batches_of(c.space, c.cluster);
  for (const Batch& batch : batches) sizes.push_back(batch.micro_batch);
  return sizes;
}

/// As a request for DDP leaves the space.
void make_ddp(Case& c) {
  Plan& base = c.space.base;
  base.runtime.framework = Framework::Ddp;
  base.mixed_precision = {};
  base.ddp.gradient_as_bucket_view = *rc::gen::arbitrary<bool>();
  base.ddp.bucket_cap_mb = *rc::gen::element(std::optional<std::int64_t>(), std::optional<std::int64_t>(1));
  const bool must_look = has_unused_parameters(*build_model(c.spec, c.workload));
  base.ddp.find_unused_parameters = *rc::gen::arbitrary<bool>() || must_look;
  c.space.cpu_offload = false;
  c.space.shard = 1;
  c.space.wrap = Wrap{.blocks_per_unit = 0};
  c.space.wrap_ends.reset();
}

// ZeRO++, where DeepSpeed can quantize the model's parameters and gradients.
void quantize(Case& c) {
  Plan plan = c.space.base;
  plan.mesh = {1, world_size(c.cluster)};
  plan.cpu_offload = *c.space.cpu_offload;
  for (bool ZeroOptions::*key : {&ZeroOptions::quantized_weights, &ZeroOptions::quantized_gradients}) {
    plan.zero.*key = *rc::gen::arbitrary<bool>();
    if (plan.zero.*key && check_quantization(plan, *build_model(c.spec, c.workload)).empty()) {
      c.space.base.zero.*key = true;
    }
    plan.zero.*key = false;
  }
}

/// The same for ZeRO.
void make_zero(Case& c) {
  Plan& base = c.space.base;
  base.runtime.framework = *rc::gen::element(Framework::Zero1, Framework::Zero2, Framework::Zero3);
  base.parameter_dtype = Dtype::Float32;
  base.mixed_precision = {};
  if (*rc::gen::arbitrary<bool>()) {
    const Dtype dtype = *rc::gen::element(Dtype::BFloat16, Dtype::Float16);
    base.mixed_precision = {.param_dtype = dtype, .reduce_dtype = dtype};
  }
  base.zero.reduce_bucket_size = *rc::gen::element<std::int64_t>(10'000, 1'000'000, 500'000'000);
  base.zero.overlap_comm = *rc::gen::arbitrary<bool>();
  if (traits_of(base).zero_stage == 3) {
    const auto draw = [] { return *rc::gen::element<std::int64_t>(0, 1'000, 1'000'000, 1'000'000'000); };
    base.zero.prefetch_bucket_size = draw();
    base.zero.param_persistence_threshold = draw();
    base.zero.max_live_parameters = draw();
    base.zero.max_reuse_distance = draw();
    base.zero.sub_group_size = *rc::gen::element<std::int64_t>(1'000, 1'000'000'000);
  }
  if (*c.space.cpu_offload) {
    base.zero.pin_memory = *rc::gen::arbitrary<bool>();
    base.zero.offload_param = traits_of(base).zero_stage == 3 && *rc::gen::arbitrary<bool>();
  }
  c.space.shard = world_size(c.cluster);
  c.space.wrap = Wrap{.blocks_per_unit = 0};
  c.space.wrap_ends.reset();
  quantize(c);
  base.sync_every_micro_batch = base.runtime.framework != Framework::Zero1;
  c.space.sync_every_micro_batch = base.sync_every_micro_batch;
}

/// The same for SimpleFSDP.
void make_simple_fsdp(Case& c) {
  Plan& base = c.space.base;
  base.runtime.framework = Framework::SimpleFsdp;
  base.initialization = Initialization::Meta;
  base.mixed_precision.output_dtype.reset();
  if (*rc::gen::arbitrary<bool>()) base.mixed_precision.reduce_dtype.reset();
  c.space.cpu_offload = false;
  c.space.wrap = Wrap{.blocks_per_unit = 0};
  c.space.wrap_ends.reset();
  c.space.sync_every_micro_batch = true;
}

// FSDP1, where it has words for some plan of the case.
void be_flat(Case& c) {
  Case flat = c;
  flat.space.base.runtime.framework = Framework::Fsdp1;
  Fsdp1Options& options = flat.space.base.fsdp1;
  options.use_orig_params = *rc::gen::arbitrary<bool>();
  options.limit_all_gathers = *rc::gen::arbitrary<bool>();
  options.forward_prefetch = *rc::gen::arbitrary<bool>();
  options.backward_prefetch = *rc::gen::element(BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None);
  flat.space.cpu_offload = *rc::gen::arbitrary<bool>();
  flat.space.blocks_per_unit = {1, 0};
  flat.space.block_parts.clear();
  Predictors predictors = *Predictors::make(flat.spec, flat.workload, flat.cluster, micro_batches_of(flat));
  const Model& model = predictors.of(predictors.micro_batches().front()).model();
  if (families_of(flat.space, model, flat.cluster)) c = flat;
}

/// FSDP2 of another release, with and without a reduce_dtype.
void vary_torch(Case& c) {
  if (*rc::gen::arbitrary<bool>()) return;
  Plan& base = c.space.base;
  set_torch_version(base.runtime, torch_versions()[*rc::gen::inRange<std::size_t>(0, torch_versions().size())]);
  if (!torch_version_of(base.runtime).predicts_offload) c.space.cpu_offload = false;
  if (*rc::gen::arbitrary<bool>()) base.mixed_precision.reduce_dtype.reset();
}

/// Beside the arguments of the case some of those that a request for its framework tries.
void vary_arguments(Case& c) {
  if (*rc::gen::arbitrary<bool>()) return;
  c.space.arguments = arguments_to_search(c.space.base, world_size(c.cluster), c.cluster.gpus_per_node);
  while (c.space.arguments.size() > 3) {
    c.space.arguments.erase(c.space.arguments.begin() +
                            *rc::gen::inRange(1, static_cast<int>(c.space.arguments.size())));
  }
}

}  // namespace

namespace {

/// One way to checkpoint mostly, and what a search has.
std::vector<CheckpointWay> some_ways() {
  if (*rc::gen::inRange(0, 3) == 0) return kCheckpointWays;
  std::vector<CheckpointWay> ways;
  const auto first = *rc::gen::inRange<std::size_t>(0, kCheckpointWays.size());
  const auto step = *rc::gen::inRange<std::size_t>(1, kCheckpointWays.size());
  for (std::size_t w = first; w < kCheckpointWays.size(); w += step) ways.push_back(kCheckpointWays[w]);
  return ways;
}

}  // namespace

Case standard_case(Bytes memory) {
  Case c;
  c.spec = small_transformer({.layers = 4, .hidden = 512, .vocabulary = 8192, .batch = 4, .sequence = 512});
  c.cluster = small_cluster(4, 1, memory);
  c.space.base = *base_plan(c.spec, c.workload);
  return c;
}

namespace {

bool has_free_units(const Space& space) {
  return space.wrap.value_or(Wrap{}) == Wrap{} && space.wrap_ends.value_or(true) &&
         space.reshard.value_or(ReshardChoice{}) == ReshardChoice{};
}

}  // namespace

Case random_case() {
  Case c;
  SmallTransformer sizes;
  sizes.layers = *rc::gen::inRange(1, 4);
  sizes.hidden = *rc::gen::element(64, 256, 512);
  sizes.vocabulary = *rc::gen::element(256, 4096);
  sizes.batch = *rc::gen::inRange(1, 4);
  sizes.sequence = *rc::gen::element(16, 128, 512);
  sizes.tied = *rc::gen::arbitrary<bool>();
  sizes.mixed_precision = *rc::gen::arbitrary<bool>();
  sizes.cached = *rc::gen::arbitrary<bool>();
  c.spec = random_model(sizes);
  const auto [gpus, nodes] = *rc::gen::element(std::pair(1, 1), std::pair(2, 1), std::pair(4, 1), std::pair(2, 2));
  c.cluster = small_cluster(gpus, nodes, kPlenty);
  c.space.base = *base_plan(c.spec, c.workload);
  c.space.every_number = true;
  // A part of the space at a time: all of it would take seconds by brute force.
  c.space.cpu_offload = *rc::gen::arbitrary<bool>();
  choose_units(c.space);
  c.space.wrap_ends = *rc::gen::arbitrary<bool>();
  c.space.checkpoint_ways = some_ways();
  c.space.base.optimizer.implementation =
      *rc::gen::element(OptimizerImplementation::Foreach, OptimizerImplementation::Fused);
  c.space.base.accumulation = *rc::gen::element(1, 1, 2, 3);
  if (*rc::gen::inRange(0, 4) == 0) c.space.samples_per_gpu = *rc::gen::element(2, 3);
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      make_ddp(c);
      break;
    case 1:
      be_flat(c);
      break;
    case 2:
      make_zero(c);
      break;
    case 3:
      make_simple_fsdp(c);
      break;
    default:
      // On a release beside which shared experts are not predicted, the search has none.
      // transformers decides the units beside them, and those of a tied head are not predicted.
      if (has_free_units(c.space) && c.spec.tied.empty()) {
        c.space.expert_parallel = *rc::gen::element(std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1, 2});
      }
      vary_torch(c);
      break;
  }
  vary_arguments(c);
  return c;
}

Engine::Engine(const Case& c)
    : Engine(c, std::make_shared<Predictors>(*Predictors::make(c.spec, c.workload, c.cluster, micro_batches_of(c)))) {}

Engine::Engine(const Case& c, const Engine& other) : Engine(c, other.predictors) {}

Engine::Engine(const Case& c, std::shared_ptr<Predictors> shared)
    : predictors(std::move(shared)),
      families(*families_of(c.space, predictors->of(predictors->micro_batches().front()).model(), c.cluster)),
      cost(c.space.base, families,
           [this](std::int64_t micro) -> simulator::Predictor& { return predictors->of(micro); }) {}

std::vector<Priced> price_all(Engine& engine, Bytes enough) {
  engine.cost.care_up_to(enough.count());
  std::vector<Priced> points;
  for (const Box& box : engine.cost.space()) {
    for (std::int32_t x = box.ranges[0].first; x <= box.ranges[0].last; ++x) {
      for (std::int32_t y = box.ranges[1].first; y <= box.ranges[1].last; ++y) {
        for (std::int32_t z = box.ranges[2].first; z <= box.ranges[2].last; ++z) {
          Box point = box;
          point.ranges[0] = {x, x};
          point.ranges[1] = {y, y};
          point.ranges[2] = {z, z};
          const Bound cost = engine.cost.bound(point, static_cast<int>(CostLevel::Memory));
          points.push_back({point, cost.time, cost.memory});
        }
      }
    }
  }
  engine.cost.care_up_to(simulator::kWholePrediction.count());
  // Boxes of one family need not follow each other in the order of the space.
  std::sort(points.begin(), points.end(), [](const Priced& a, const Priced& b) { return comes_before(a.box, b.box); });
  return points;
}

}  // namespace fsdp::planner
