// ZeRO's flat buffer and buckets.
//
// DeepSpeed concatenates the trained parameters in the order of model.parameters(), padded to a multiple of 2 N
// elements; the module's parameters are views of the result. Rank k updates the k-th of N equal parts, wherever a
// parameter begins or ends.
//
// Gradients are copied into a buffer of reduce_bucket_size elements as they become ready. If one does not fit, the
// buffer is reduced first; one that is larger than the whole buffer is reduced by itself, in place. Stage 1 without
// overlap_comm waits for the end of the last backward and takes them in the order of the parameters.
//
// ZeRO-3 cuts each parameter by itself, into N equal parts with the last one padded, and a rank has its parts one
// after the other. Its buckets are reduce-scattered.
//
// For ZeRO-1 and 2 DeepSpeed's "reduce_scatter" is an all-reduce of what the buffer holds:
// use_multi_rank_bucket_allreduce. A bucket of several ranks is passed as so many slices, which are copied
// into one tensor if they are several.
//
// Sources: deepspeed/runtime/zero/stage_1_and_2.py (__init__, get_partition_info, average_tensor,
// allreduce_and_scatter, reduce_independent_p_g_buckets_and_remove_grads), stage3.py (_create_fp16_sub_groups),
// partition_parameters.py (_partition_param), DeepSpeed 0.19.8.
//
// Not modeled: round_robin_gradients, parameter_alignment, reduce_scatter and use_multi_rank_bucket_allreduce off,
// contiguous_gradients off, another communication_data_type or grad_accum_dtype, fp16_master_weights_and_grads,
// bf16_master_weights_and_grads without bf16_optimizer_states, experts of DeepSpeed's own MoE, several parameter
// groups.

#include "core/frameworks/zero/zero_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/frameworks/zero/hooked_modules.h"
#include "core/frameworks/zero/zero_nvme.h"
#include "core/frameworks/zero/zero_quantization.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/parameter_part.h"
#include "core/plan/ready_gradients.h"
#include "core/plan/schedule.h"

namespace fsdp {

namespace {

constexpr std::int64_t kAlignment = 2;  // nccl_start_alignment_factor

// Gradients in the order in which they are put into buckets.
std::vector<ReadyGradient> gradients_to_reduce(const ModelIndex& index, const Plan& plan) {
  std::vector<ReadyGradient> gradients = gradients_as_they_are_ready(index, traits_of(plan).replaces_linear);
  const bool waits = traits_of(plan).zero_stage == 1 && !plan.zero.overlap_comm;
  if (!waits) return gradients;
  std::sort(gradients.begin(), gradients.end(),
            [](const ReadyGradient& a, const ReadyGradient& b) { return a.parameter < b.parameter; });
  for (ReadyGradient& gradient : gradients) gradient.position = 0;
  return gradients;
}

// The ranks that update a parameter, each with how many of its elements, in the order of the elements.
std::vector<std::pair<std::int64_t, std::int64_t>> owners_of(const ZeroBuffer& buffer, std::size_t place) {
  std::vector<std::pair<std::int64_t, std::int64_t>> owners;
  for (std::int64_t at = buffer.begins[place]; at < buffer.begins[place + 1];) {
    const std::int64_t rank = at / buffer.part_elements();
    const std::int64_t end = std::min(buffer.begins[place + 1], (rank + 1) * buffer.part_elements());
    owners.emplace_back(rank, end - at);
    at = end;
  }
  return owners;
}

// ZeRO-3 closes a sub-group with the parameter that fills it.
std::vector<std::size_t> sub_groups_of(const ZeroBuffer& buffer, std::int64_t size) {
  std::vector<std::size_t> begins = {0};
  for (std::size_t i = 0; i < buffer.parameters.size(); ++i) {
    const bool is_full = buffer.begins[i + 1] - buffer.begins[begins.back()] >= size;
    if (is_full || i + 1 == buffer.parameters.size()) begins.push_back(i + 1);
  }
  return begins;
}

}  // namespace

ZeroBuffer make_zero_buffer(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  const Model& model = *index.model;
  ZeroBuffer buffer{.parameters = {}, .begins = {0}, .ranks = plan.mesh.world_size()};
  buffer.cuts_gradients = traits_of(plan).zero_stage > 1;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    if (!model.parameters[p].trainable) continue;
    buffer.parameters.push_back(static_cast<int>(p));
    const std::int64_t elements = num_elements(model.parameters[p].shape);
    const CutBy cut = traits_of(plan).zero_stage == 3 ? CutBy::Elements : CutBy::None;
    buffer.begins.push_back(buffer.begins.back() + part_of(elements, cut, buffer.ranks).chunk);
    buffer.dtype = layout.parameter_dtype[p];
  }
  if (traits_of(plan).zero_stage == 3) {
    buffer.elements = buffer.ranks * buffer.begins.back();
    buffer.group_begins = sub_groups_of(buffer, plan.zero.sub_group_size);
    return buffer;
  }
  const std::int64_t multiple = kAlignment * buffer.ranks;
  buffer.elements = (buffer.begins.back() + multiple - 1) / multiple * multiple;
  return buffer;
}

std::vector<GradientBucket> make_zero_buckets(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  std::vector<GradientBucket> buckets;
  GradientBucket open{.parameters = {}, .dtype = layout.zero.dtype};
  const auto close = [&](int ready) {
    if (open.parameters.empty()) return;
    open.ready = ready;
    buckets.push_back(std::move(open));
    open = {.parameters = {}, .dtype = layout.zero.dtype};
  };
  for (const ReadyGradient& gradient : gradients_to_reduce(index, plan)) {
    const std::int64_t elements = num_elements(index.model->parameters[gradient.parameter].shape);
    if (elements == 0) continue;
    if (open.elements + elements > plan.zero.reduce_bucket_size) close(gradient.position);
    open.parameters.push_back(gradient.parameter);
    open.elements += elements;
  }
  close(0);
  return buckets;
}

namespace {

// Places in the buffer of the first parameter that reaches into a rank's part, and after the last one.
std::pair<std::size_t, std::size_t> places_of_rank(const ZeroBuffer& buffer, std::int64_t rank) {
  const std::int64_t begin = rank * buffer.part_elements();
  const std::int64_t end = std::min(begin + buffer.part_elements(), buffer.begins.back());
  if (begin >= end) return {0, 0};
  const auto first = std::upper_bound(buffer.begins.begin(), buffer.begins.end(), begin) - 1;
  const auto last = std::lower_bound(buffer.begins.begin(), buffer.begins.end(), end);
  return {static_cast<std::size_t>(first - buffer.begins.begin()),
          static_cast<std::size_t>(last - buffer.begins.begin())};
}

std::int64_t num_slices(const ZeroBuffer& buffer, std::int64_t rank) {
  const auto [first, last] = places_of_rank(buffer, rank);
  return static_cast<std::int64_t>(last - first);
}

std::int64_t largest_slice(const ZeroBuffer& buffer, std::int64_t rank) {
  std::int64_t largest = 0;
  for (const ZeroSlice& slice : slices_of_rank(buffer, rank)) largest = std::max(largest, slice.elements);
  return largest;
}

}  // namespace

std::vector<ZeroSlice> slices_of_rank(const ZeroBuffer& buffer, std::int64_t rank) {
  const std::int64_t begin = rank * buffer.part_elements();
  const std::int64_t end = begin + buffer.part_elements();
  const auto [first, last] = places_of_rank(buffer, rank);
  std::vector<ZeroSlice> slices;
  for (std::size_t i = first; i < last; ++i) {
    const std::int64_t from = std::max(begin, buffer.begins[i]);
    const std::int64_t to = std::min(end, buffer.begins[i + 1]);
    if (from < to) slices.push_back({buffer.parameters[i], from - buffer.begins[i], to - from});
  }
  return slices;
}

std::int64_t touched_elements(const ZeroBuffer& buffer, std::int64_t rank) {
  const auto [first, last] = places_of_rank(buffer, rank);
  return buffer.begins[last] - buffer.begins[first];
}

std::int64_t rank_that_touches_most(const ZeroBuffer& buffer) {
  std::int64_t most = 0;
  for (std::int64_t rank = 1; rank < buffer.ranks; ++rank) {
    if (touched_elements(buffer, rank) > touched_elements(buffer, most)) most = rank;
  }
  return most;
}

std::vector<std::int64_t> different_parts(const ZeroBuffer& buffer) {
  constexpr std::int64_t kFew = 8;
  std::vector<std::int64_t> ranks;
  if (buffer.ranks <= kFew) {
    for (std::int64_t rank = 0; rank < buffer.ranks; ++rank) ranks.push_back(rank);
    return ranks;
  }
  // The gradients that it keeps whole, the one that it copies into fp64, and their number.
  std::int64_t largest = 0;
  std::int64_t most_slices = 0;
  for (std::int64_t rank = 0; rank < buffer.ranks; ++rank) {
    if (largest_slice(buffer, rank) > largest_slice(buffer, largest)) largest = rank;
    if (num_slices(buffer, rank) > num_slices(buffer, most_slices)) most_slices = rank;
  }
  ranks = {0, rank_that_touches_most(buffer), largest, most_slices, buffer.ranks - 1};
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<BucketSlice> slices_of(const GradientBucket& bucket, const ZeroBuffer& buffer) {
  std::vector<BucketSlice> slices;
  for (const int parameter : bucket.parameters) {
    const auto place = std::lower_bound(buffer.parameters.begin(), buffer.parameters.end(), parameter);
    for (const auto& [rank, elements] :
         owners_of(buffer, static_cast<std::size_t>(place - buffer.parameters.begin()))) {
      if (!slices.empty() && slices.back().rank == rank) {
        slices.back().elements += elements;
      } else {
        slices.push_back({rank, elements});
      }
    }
  }
  return slices;
}

std::vector<ZeroReduction> reductions_of(const GradientBucket& bucket, const Layout& layout, const Plan& plan) {
  std::vector<ZeroReduction> reductions;
  ZeroReduction open;
  for (const BucketSlice& slice : slices_of(bucket, layout.zero)) {
    open.elements += slice.elements;
    ++open.slices;
    if (open.elements <= plan.zero.reduce_bucket_size) continue;
    reductions.push_back(std::exchange(open, {}));
  }
  if (open.slices > 0) reductions.push_back(open);
  return reductions;
}

std::int64_t padded_elements(int parameter, const Layout& layout, const Model& model) {
  return part_of(model.parameters[parameter].shape, CutBy::Elements, layout.zero.ranks).full;
}

std::int64_t padded_elements(const GradientBucket& bucket, const Layout& layout, const Model& model) {
  std::int64_t elements = 0;
  for (const int p : bucket.parameters) elements += padded_elements(p, layout, model);
  return elements;
}

std::vector<int> persistent_parameters(const Layout& layout, const Plan& plan) {
  std::vector<int> persistent;
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) {
      if (p.elements <= plan.zero.param_persistence_threshold) persistent.push_back(p.parameter);
    }
  }
  std::sort(persistent.begin(), persistent.end());
  return persistent;
}

std::size_t groups_on_device(const ZeroBuffer& buffer, const Plan& plan) {
  const std::size_t groups = buffer.num_groups();
  if (!plan.cpu_offload) return groups;
  // int((1 - ratio) * groups), in floating point (_create_fp32_partitions).
  return static_cast<std::size_t>((1 - plan.zero.offload_ratio) * static_cast<double>(groups));
}

std::int64_t elements_on_host(const ZeroBuffer& buffer, const Plan& plan) {
  if (!plan.cpu_offload) return 0;
  if (buffer.group_begins.empty()) return buffer.part_elements();
  return buffer.begins.back() - buffer.begins[buffer.group_begins[groups_on_device(buffer, plan)]];
}

namespace {

// PyTorch's AdamW updates the part on the device, whatever the optimizer is.
template <class Wrong>
void check_ratio(const Plan& plan, const Wrong& wrong) {
  if (plan.zero.offload_ratio == 1) return;
  if (traits_of(plan).zero_stage < 3 || !plan.cpu_offload) {
    wrong("zero/offload_ratio", "A part of the optimizer is on the host only with ZeRO-3 and cpu_offload.",
          "Leave it out.");
  } else if (plan.optimizer.kind != OptimizerKind::AdamW) {
    wrong("zero/offload_ratio", "DeepSpeed updates the other part by AdamW, and the plan's optimizer is another one.",
          "Write adamw, or leave it out.");
  }
}

// A block that has run again to its end has let go of its last parameters, whose gradients then meet a parameter of no
// elements. A kept product may not change (torch/utils/checkpoint.py, _VersionWrapper).
template <class Wrong>
void check_recomputation(const Plan& plan, const Model& model, const Wrong& wrong) {
  const Checkpointing& given = plan.checkpointing;
  if (traits_of(plan).zero_stage < 3 || !given.recomputes()) return;
  if (!given.early_stop) {
    wrong("activation_checkpointing/early_stop",
          "DeepSpeed's ZeRO-3 ends with an error if a block runs again to its end: it releases the last parameters "
          "before their backward.",
          "Write true.");
  }
  for (const Checkpointing::Entry& entry : given.entries) {
    const auto changes = [&](const Call& call) {
      return call.module >= 0 && model.modules[call.module].name == entry.module &&
             keeps_what_zero3_changes(model.blocks[call.block], given);
    };
    if (entry.mode != CheckpointMode::Selective || std::none_of(model.calls.begin(), model.calls.end(), changes))
      continue;
    wrong("activation_checkpointing/selective_keep",
          fmt::format("Under ZeRO-3 a linear layer of {} adds its bias in place to a saved tensor, at which PyTorch "
                      "ends with an error.",
                      entry.module),
          "Leave linear out, as save-attention does, or write mode full.");
    return;
  }
}

// DeepSpeed takes each of these in silence, and does nothing.
template <class Wrong>
void check_offload(const Plan& plan, const Wrong& wrong) {
  if (!plan.cpu_offload && !plan.zero.pin_memory) {
    wrong("zero/pin_memory", "Nothing is offloaded that could be pinned.",
          "Leave it out, or write true for cpu_offload.");
  }
  check_ratio(plan, wrong);
  if (!plan.zero.offload_param) return;
  if (traits_of(plan).zero_stage < 3) {
    wrong("zero/offload_param", "ZeRO-1 and 2 keep the parameters whole on each GPU.",
          "Write false, or plan for ZeRO-3.");
  } else if (!plan.cpu_offload) {
    wrong("zero/offload_param", "Parameters on the host are predicted only with the optimizer there.",
          "Write true for cpu_offload.");
  }
}

// groups.py, _create_zero_param_parallel_group. Under offload_param second copies would be on the host.
template <class Wrong>
void check_neighbors(const Plan& plan, const Wrong& wrong) {
  const std::int64_t neighbors = plan.zero.hpz_partition_size;
  if (neighbors == 1) return;
  const std::int64_t ranks = plan.mesh.world_size();
  if (traits_of(plan).zero_stage < 3) {
    wrong("zero/hpz_partition_size", "ZeRO-1 and 2 gather no parameters, and DeepSpeed ignores this.",
          "Leave it out, or plan for ZeRO-3.");
  } else if (ranks == 1) {
    wrong("zero/hpz_partition_size", "One GPU cannot share a second copy.", "Leave it out.");
  } else if (neighbors < ranks && ranks % neighbors != 0) {
    wrong("zero/hpz_partition_size",
          fmt::format("{} GPUs are not groups of {}, and DeepSpeed ends with an error.", ranks, neighbors),
          "Write a divisor of them: the GPUs of a node.");
  } else if (plan.zero.offload_param) {
    wrong("zero/hpz_partition_size", "With offload_param the host has second copies, which is not predicted.",
          "Leave one of them out.");
  }
}

// DeepSpeed casts what is handed to the engine by position, and not what is handed by name.
bool has_floating_input(const Model& model) {
  return std::any_of(model.inputs.begin(), model.inputs.end(), [&](int input) {
    const std::optional<Dtype>& dtype = model.values[input].dtype;
    return dtype && is_floating_point(*dtype) && *dtype != Dtype::Float16;
  });
}

// _configure_master_weights, get_data_types.
template <class Wrong>
void check_precision(const Plan& plan, const Model& model, const Wrong& wrong) {
  const MixedPrecision& precision = plan.mixed_precision;
  const std::optional<Dtype> compute = precision.param_dtype;
  const bool is_16_bit = compute == Dtype::BFloat16 || compute == Dtype::Float16;
  const bool is_mixed = is_16_bit && precision.reduce_dtype == compute;
  const bool is_plain = !compute && !precision.reduce_dtype;
  const bool is_pure = is_plain && plan.parameter_dtype == Dtype::BFloat16;
  if ((!is_mixed && !is_plain) || precision.output_dtype) {
    wrong("mixed_precision", "ZeRO is predicted with 16 bits for parameters and reduction, or with fp32.",
          "Write bfloat16 or float16 for param_dtype and reduce_dtype, or neither.");
  }
  if (is_plain && plan.parameter_dtype == Dtype::Float16) {
    wrong("parameter_dtype",
          "DeepSpeed's optimizer updates fp16 only with fp16_master_weights_and_grads, which keeps fp32 states on the "
          "host and is not predicted.",
          "Write float32, and float16 for param_dtype and reduce_dtype.");
  } else if (plan.parameter_dtype != Dtype::Float32 && !is_pure) {
    wrong("parameter_dtype",
          is_mixed ? "With mixed_precision, ZeRO's optimizer updates an fp32 copy."
                   : "ZeRO's optimizer updates float32 or bfloat16 parameters.",
          "Write float32.");
  }
  if (zero_dtype(plan) != Dtype::Float16 && plan.zero.fp16 != Fp16Options{}) {
    wrong("zero/fp16", "Without fp16 no loss is scaled.", "Leave it out, or write float16 for param_dtype.");
  } else if (plan.zero.fp16.auto_cast && has_floating_input(model)) {
    wrong("zero/fp16/auto_cast",
          "DeepSpeed casts inputs passed by position, not by name: the script's way is not known.",
          "Leave it out, and cast them in the script.");
  }
}

}  // namespace

bool keeps_what_zero3_changes(const Block& block, const Checkpointing& checkpointing) {
  const std::vector<bool> kept = kept_ops(block, checkpointing);
  for (std::size_t o = 0; o < block.ops.size(); ++o) {
    const Op& op = block.ops[o];
    if (!kept[o] || op.kind != OpKind::Linear || op.attributes.transposed_weight || op.parameters.size() < 2) continue;
    if (block.values[op.inputs.front()].shape.size() > 2) return true;
  }
  return false;
}

void add_zero_parts(Layout& layout, const ModelIndex& index, const Plan& plan) {
  layout.zero = make_zero_buffer(index, plan, layout);
  if (traits_of(plan).zero_stage == 3) layout.hooked = hooked_modules(index, plan.mesh);
  layout.buckets = make_zero_buckets(index, plan, layout);
}

Errors check_zero_plan(const Plan& plan, const Model& model) {
  Errors errors;
  const auto wrong = [&](std::string where, std::string what, std::string hint) {
    errors.push_back({std::move(where), std::move(what), std::move(hint)});
  };
  const bool is_first_stage = traits_of(plan).zero_stage == 1;
  if (traits_of(plan).zero_stage == 3 && plan.initialization != Initialization::Meta) {
    wrong("initialization",
          "ZeRO-3 is predicted only with a model made under deepspeed.zero.Init, which shards each module when it is "
          "made.",
          "Write meta.");
  }
  if (plan.mesh.dp_replicate() != 1) {
    wrong("mesh", fmt::format("ZeRO cuts over all ranks, and the mesh has {} copies.", plan.mesh.dp_replicate()),
          fmt::format("Write replicate 1 and shard {}.", plan.mesh.world_size()));
  }
  if (plan.units.size() != 1) {
    wrong("units", fmt::format("ZeRO knows no units, and the plan has {}.", plan.units.size()),
          "Leave the root as the only one.");
  } else if (plan.units[0].reshard_after_forward != ReshardAfterForward{}) {
    wrong("units/0", "ZeRO does not reshard by units.", "Leave reshard_after_forward out.");
  }
  if (plan.forward_prefetch != 0 || plan.backward_prefetch != 1) {
    wrong("prefetch", "ZeRO gathers no units ahead.", "Leave forward_prefetch and backward_prefetch out.");
  }
  check_offload(plan, wrong);
  append(errors, check_nvme(plan));
  check_neighbors(plan, wrong);
  check_recomputation(plan, model, wrong);
  append(errors, check_quantization(plan, model));
  check_precision(plan, model, wrong);
  if (plan.optimizer.states != OptimizerStates::AsParameter) {
    wrong("optimizer/states", "ZeRO updates one flat tensor, with states of its dtype; others are not predicted.",
          "Write as_parameter.");
  }
  if (plan.accumulation > 1 && plan.sync_every_micro_batch == is_first_stage) {
    wrong(
        "sync_every_micro_batch",
        is_first_stage ? "ZeRO-1 reduces gradients in the last micro-batch." : "ZeRO-2 and 3 reduce gradients in each.",
        is_first_stage ? "Write false." : "Write true.");
  }
  const auto is_other = [](const Parameter& parameter) { return !is_floating_point(parameter.dtype); };
  if (std::any_of(model.parameters.begin(), model.parameters.end(), is_other)) {
    wrong("runtime/name", "The model has non-floating-point parameters; DeepSpeed's cast of them is not predicted.",
          "Plan for --runtime fsdp2.");
  }
  return errors;
}

}  // namespace fsdp
