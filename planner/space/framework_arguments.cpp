// The search tries values that people write. DDP: 25 MiB, a fifth of it, and four times as much. ZeRO: buckets of 500
// million elements, a tenth and a hundredth, because the buffer exists even for a small model. ZeRO-3: keep parameters
// that are needed again; release them; also gather nothing ahead; and parts on the host, with and without streams of
// their own for collectives, and with the optimizer on a drive. FSDP2: one more input of a reduction, which PyTorch's
// documentation calls enough, and reductions on a communicator of their own. All other values lie between two of these.

#include "planner/space/framework_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

namespace {

constexpr std::array<std::int64_t, 3> kReduceBuckets = {500'000'000, 50'000'000, 5'000'000};
constexpr std::array<std::int64_t, 2> kBucketCaps = {5, 100};
constexpr std::array<std::int64_t, 2> kReduceInputs = {1, 2};
constexpr std::array kPrefetches = {BackwardPrefetch::Pre, BackwardPrefetch::Post, BackwardPrefetch::None};

void add_new(std::vector<FrameworkArguments>& all, const FrameworkArguments& arguments) {
  if (std::find(all.begin(), all.end(), arguments) == all.end()) all.push_back(arguments);
}

}  // namespace

FrameworkArguments arguments_of(const Plan& plan) {
  return {.bucket_cap_mb = plan.ddp.bucket_cap_mb,
          .backward_prefetch = plan.fsdp1.backward_prefetch,
          .reduce_bucket_size = plan.zero.reduce_bucket_size,
          .prefetch_bucket_size = plan.zero.prefetch_bucket_size,
          .max_live_parameters = plan.zero.max_live_parameters,
          .max_reuse_distance = plan.zero.max_reuse_distance,
          .offload_param = plan.zero.offload_param,
          .overlap_comm = plan.zero.overlap_comm,
          .hpz_partition_size = plan.zero.hpz_partition_size,
          .drive = plan.zero.nvme.optimizer,
          .sub_group_size = plan.zero.sub_group_size,
          .reduce_scatter_buffers = plan.reduce_scatter_buffers,
          .separate_reduce_scatter_group = plan.separate_reduce_scatter_group};
}

void set_arguments(Plan& plan, const FrameworkArguments& arguments) {
  plan.ddp.bucket_cap_mb = arguments.bucket_cap_mb;
  plan.fsdp1.backward_prefetch = arguments.backward_prefetch;
  plan.zero.reduce_bucket_size = arguments.reduce_bucket_size;
  plan.zero.prefetch_bucket_size = arguments.prefetch_bucket_size;
  plan.zero.max_live_parameters = arguments.max_live_parameters;
  plan.zero.max_reuse_distance = arguments.max_reuse_distance;
  plan.zero.offload_param = arguments.offload_param;
  plan.zero.overlap_comm = arguments.overlap_comm;
  plan.zero.hpz_partition_size = arguments.hpz_partition_size;
  plan.zero.nvme.optimizer = arguments.drive;
  plan.zero.sub_group_size = arguments.sub_group_size;
  plan.reduce_scatter_buffers = arguments.reduce_scatter_buffers;
  plan.separate_reduce_scatter_group = arguments.separate_reduce_scatter_group;
}

namespace {

void add_reductions(std::vector<FrameworkArguments>& all) {
  FrameworkArguments other = all.front();
  for (const bool is_apart : {false, true}) {
    for (const std::int64_t buffers : kReduceInputs) {
      other.separate_reduce_scatter_group = is_apart;
      other.reduce_scatter_buffers = buffers;
      add_new(all, other);
    }
  }
}

/// The arguments of the plan itself, with other values of one of them.
template <class Values, class Member>
void add_each(std::vector<FrameworkArguments>& all, const Values& values, Member FrameworkArguments::*member) {
  FrameworkArguments other = all.front();
  for (const auto value : values) {
    other.*member = value;
    add_new(all, other);
  }
}

/// ZeRO-3's thresholds, with the smallest bucket: a user who releases parameters to save memory also wants that.
void add_thresholds(std::vector<FrameworkArguments>& all, const Plan& base, std::int64_t gpus,
                    std::int64_t gpus_per_node) {
  const FrameworkArguments own = all.front();
  FrameworkArguments other = own;
  other.reduce_bucket_size = kReduceBuckets.back();
  other.max_reuse_distance = 0;
  add_new(all, other);
  // A second copy in each node of the parameters that are gathered twice, if parameters are on the GPUs.
  FrameworkArguments with_copies = other;
  with_copies.hpz_partition_size = gpus_per_node;
  if (!own.offload_param && suits(with_copies, gpus, gpus_per_node)) add_new(all, with_copies);
  other.prefetch_bucket_size = 0;
  add_new(all, other);
  // The second copies that the user requested are on the GPUs, and quantized parameters do not come from the host.
  if (own.hpz_partition_size == 1 && !base.zero.quantized_weights) other.offload_param = true;
  add_new(all, other);
  // Streams of their own hold the memory that they used; a plan short of memory has none for that.
  other.overlap_comm = false;
  add_new(all, other);
  // A plan that is short of host memory, too.
  if (own.drive || zero_master_dtype(base) != Dtype::Float32 || base.zero.offload_ratio < 1) return;
  other.drive = true;
  other.sub_group_size = std::min(own.sub_group_size, kDriveSubGroup);
  for (const bool overlaps : {true, false}) {
    other.overlap_comm = overlaps;
    add_new(all, other);
  }
}

}  // namespace

std::vector<FrameworkArguments> fixed_arguments(const PlanChoices& choices, std::optional<BackwardPrefetch> prefetch,
                                                std::vector<FrameworkArguments> all) {
  if (prefetch) {
    for (FrameworkArguments& each : all) each.backward_prefetch = *prefetch;
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  std::erase_if(all, [&](const FrameworkArguments& each) {
    const bool is_given = choices.ddp_arguments.value_or(DdpArguments::Searched) != DdpArguments::Searched;
    return (is_given && each.bucket_cap_mb.has_value()) ||
           (choices.reduce_scatter_buffers && each.reduce_scatter_buffers != *choices.reduce_scatter_buffers) ||
           (choices.separate_reduce_scatter && each.separate_reduce_scatter_group != *choices.separate_reduce_scatter);
  });
  return all;
}

std::vector<FrameworkArguments> arguments_to_search(const Plan& base, std::int64_t gpus, std::int64_t gpus_per_node) {
  const FrameworkTraits& traits = traits_of(base);
  std::vector<FrameworkArguments> all = {arguments_of(base)};
  if (traits.has_unit_setters && torch_version_of(base.runtime).has_reduce_scatter_settings) add_reductions(all);
  switch (traits.options) {
    case OptionsMember::None:
      break;
    case OptionsMember::Fsdp1:
      add_each(all, kPrefetches, &FrameworkArguments::backward_prefetch);
      break;
    case OptionsMember::Ddp:
      add_each(all, kBucketCaps, &FrameworkArguments::bucket_cap_mb);
      break;
    case OptionsMember::Zero:
      add_each(all, kReduceBuckets, &FrameworkArguments::reduce_bucket_size);
      if (traits.zero_stage == 3) add_thresholds(all, base, gpus, gpus_per_node);
      break;
  }
  return all;
}

bool suits(const FrameworkArguments& arguments, std::int64_t gpus, std::int64_t gpus_per_node) {
  const std::int64_t neighbors = arguments.hpz_partition_size;
  return neighbors == 1 || (neighbors == gpus_per_node && gpus > neighbors && gpus % neighbors == 0);
}

bool are_without_effect(Framework framework, const Mesh& mesh, bool has_units) {
  const FrameworkTraits& traits = traits_of(framework);
  if (traits.wraps_units) return mesh.dp_shard() == 1 || !has_units;
  return traits.mesh == MeshRule::AllCopies && mesh.world_size() == 1;
}

std::vector<std::string> texts_of_arguments(Framework framework, const FrameworkArguments& arguments) {
  Plan plan;
  plan.zero = default_zero_options(framework);
  const FrameworkArguments usual = arguments_of(plan);
  std::vector<std::string> texts;
  if (arguments.bucket_cap_mb) texts.push_back(fmt::format("bucket_cap_mb {}", *arguments.bucket_cap_mb));
  if (arguments.backward_prefetch != usual.backward_prefetch) {
    texts.push_back(fmt::format("backward_prefetch {}", name_of(kBackwardPrefetchTable, arguments.backward_prefetch)));
  }
  if (arguments.reduce_scatter_buffers != 1) {
    texts.push_back(fmt::format("{} reduce-scatter buffers", arguments.reduce_scatter_buffers));
  }
  if (arguments.separate_reduce_scatter_group) texts.emplace_back("reduce-scatters apart");
  const auto add_unusual = [&](const char* key, std::int64_t FrameworkArguments::*value) {
    if (arguments.*value != usual.*value) texts.push_back(fmt::format("{} {}", key, arguments.*value));
  };
  add_unusual("reduce_bucket_size", &FrameworkArguments::reduce_bucket_size);
  add_unusual("max_reuse_distance", &FrameworkArguments::max_reuse_distance);
  add_unusual("max_live_parameters", &FrameworkArguments::max_live_parameters);
  add_unusual("prefetch_bucket_size", &FrameworkArguments::prefetch_bucket_size);
  add_unusual("hpz_partition_size", &FrameworkArguments::hpz_partition_size);
  if (arguments.offload_param) texts.emplace_back("offload_param");
  if (arguments.drive) texts.emplace_back("optimizer on NVMe");
  if (usual.overlap_comm && !arguments.overlap_comm) texts.emplace_back("overlap_comm false");
  return texts;
}

}  // namespace fsdp::planner
