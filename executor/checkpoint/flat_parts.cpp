#include "executor/checkpoint/flat_parts.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fsdp::executor {

namespace {

// So many rows for each rank, the last ones fewer or none.
void add_own_rows(const std::string& name, const at::Tensor& whole, Group& shard, std::vector<TensorPart>& parts) {
  const std::int64_t rows = whole.size(0);
  const std::int64_t each = (rows + shard.size() - 1) / shard.size();
  const std::int64_t first = std::min(shard.rank() * each, rows);
  const std::int64_t count = std::min(each, rows - first);
  if (count > 0) parts.push_back({name, whole.narrow(0, first, count).clone(), first});
}

struct Known {
  std::int64_t step = 0;
  bool has_first = false;
  bool has_second = false;
};

// A rank that holds nothing of a parameter has no moments of it.
Known known_by_all(const Moments& moments, Group& shard) {
  const at::Tensor own = at::zeros({3}, c10::kLong);
  own[0] = moments.step;
  own[1] = moments.first.defined() ? 1 : 0;
  own[2] = moments.second.defined() ? 1 : 0;
  at::Tensor all = own;
  if (shard.size() > 1) {
    all = at::empty({3 * shard.size()}, c10::kLong);
    shard.all_gather(all, own)->wait();
  }
  const at::Tensor most = all.view({-1, 3}).amax(0);
  return {most[0].item<std::int64_t>(), most[1].item<std::int64_t>() > 0, most[2].item<std::int64_t>() > 0};
}

}  // namespace

bool holds_ranges(const Plan& plan) {
  return is_flat(plan) || is_zero(plan);
}

at::Tensor gather_parts(const at::Tensor& local, const ShardedParameter& layout, const Shape& shape,
                        c10::ScalarType dtype, Group& shard) {
  std::int64_t most = 0;
  for (int rank = 0; rank < shard.size(); ++rank) most = std::max(most, layout.local_elements_of(rank));
  const at::Tensor own = at::zeros({most}, dtype);
  if (local.defined()) own.narrow(0, 0, local.numel()).copy_(local.view({-1}));
  if (shard.size() == 1) return own.view(shape);
  const at::Tensor all = at::empty({shard.size() * most}, dtype);
  shard.all_gather(all, own)->wait();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < shard.size(); ++rank) {
    parts.push_back(all.narrow(0, rank * most, layout.local_elements_of(rank)));
  }
  return at::cat(parts).view(shape);
}

std::vector<MomentPart> moment_parts(Trainer& trainer) {
  std::map<int, std::size_t> index_of;  // By the parameter, of flat ones their first.
  for (std::size_t i = 0; i < trainer.trained().size(); ++i) index_of[trainer.trained()[i]->layout.parameter] = i;
  const bool is_whole = is_flat(trainer.plan()) && !trainer.plan().fsdp1.use_orig_params;
  const std::int64_t rank = trainer.shard_group().rank();
  std::vector<MomentPart> parts;
  for (auto& unit : trainer.units()) {
    for (const ParameterState& state : unit->parameters()) {
      if (!state.parameter->trainable) continue;
      const ShardedParameter& of = state.layout;
      if (trainer.zero() != nullptr) {
        const ZeroEngine::Place place = trainer.zero()->place_of(state);
        parts.push_back({&state, place.index, place.begin});
        continue;
      }
      const ParameterState& updated = is_whole ? unit->parameters().front() : state;
      const bool begins_behind = is_whole && of.local_elements > 0;
      const std::int64_t begin = begins_behind ? std::max<std::int64_t>(0, of.flat_begin - rank * of.flat_shard) : 0;
      parts.push_back({&state, index_of.at(updated.layout.parameter), begin});
    }
  }
  return parts;
}

std::vector<TensorPart> flat_model_parts(Trainer& trainer) {
  std::vector<TensorPart> parts;
  for (auto& unit : trainer.units()) {
    for (const ParameterState& state : unit->parameters()) {
      const at::Tensor whole =
          gather_parts(state.shard, state.layout, state.parameter->shape, state.dtype, trainer.shard_group());
      add_own_rows(state.parameter->name, whole, trainer.shard_group(), parts);
    }
  }
  return parts;
}

std::vector<TensorPart> flat_optimizer_parts(Trainer& trainer, const char* first_name, const char* second_name) {
  Group& shard = trainer.shard_group();
  std::vector<TensorPart> parts;
  for (const MomentPart& part : moment_parts(trainer)) {
    const Moments& moments = trainer.optimizer().moments()[part.index];
    const Known known = known_by_all(moments, shard);
    if (known.step == 0) continue;
    const std::string name = "state." + part.state->parameter->name + ".";
    if (shard.rank() == 0) {
      parts.push_back({name + "step", at::full({}, static_cast<double>(known.step), c10::kFloat), 0});
    }
    const auto add = [&](const at::Tensor& moment, const char* what) {
      const ShardedParameter& of = part.state->layout;
      at::Tensor local;
      if (moment.defined()) local = moment.view({-1}).narrow(0, part.begin, of.local_elements);
      const at::Tensor whole = gather_parts(local, of, part.state->parameter->shape, part.state->dtype, shard);
      add_own_rows(name + what, whole, shard, parts);
    };
    if (known.has_first) add(moments.first, first_name);
    if (known.has_second) add(moments.second, second_name);
  }
  return parts;
}

}  // namespace fsdp::executor
