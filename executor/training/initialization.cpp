// On a GPU:
//
//   meta     to_empty walks the modules, children first: shards of their true size, buffers; a unit whose shards need
//            padding then copies them into padded ones
//   device   buffers and unsharded parameters, in the order of the model; then each unit cuts its shards out and drops
//            them
//   cpu      the same unit by unit, with the buffers of its modules
//
// Sources: torch.nn.Module.to_empty, torch/distributed/fsdp/_fully_shard/_fully_shard.py (FSDPModule._apply),
// _fsdp_param.py (_init_sharded_param, reset_sharded_param), torch 2.11.

#include "executor/training/initialization.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "executor/kernels/constants.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

class Initializer {
 public:
  Initializer(const ModelIndex& index, const Plan& plan, const Layout& layout,
              std::vector<std::unique_ptr<RunningUnit>>& units, c10::Device device)
      : index_(index), model_(*index.model), plan_(plan), layout_(layout), units_(units), device_(device) {}

  Buffers run() {
    if (device_.is_cpu()) {
      for (auto& unit : units_) make_shards(*unit);
      make_all_buffers();
      return std::move(buffers_);
    }
    switch (plan_.initialization) {
      case Initialization::Meta:
        to_empty(0);
        break;
      case Initialization::Device:
        make_all_buffers();
        make_whole_parameters();
        for (auto& unit : units_) cut(*unit);
        break;
      case Initialization::Cpu:
        for (std::size_t u = 0; u < units_.size(); ++u) {
          for (const ParameterState& state : units_[u]->parameters()) make_whole(state);
          move_buffers(layout_.units[u]);
          cut(*units_[u]);
        }
        break;
    }
    return std::move(buffers_);
  }

 private:
  bool is_on_host() const { return plan_.cpu_offload && !device_.is_cpu(); }

  static void make_shards(RunningUnit& unit) {
    for (ParameterState& state : unit.parameters()) unit.make_shard(state);
  }

  void make_all_buffers() {
    for (std::size_t b = 0; b < model_.buffers.size(); ++b) add_buffer(static_cast<int>(b));
  }

  // Its values are made on the host, so that there are no temporaries on the device.
  void add_buffer(int b) {
    const Buffer& buffer = model_.buffers[b];
    const CategoryScope category(MemoryCategory::Buffer);
    const at::Tensor values = make_buffer(model_, buffer);
    if (device_.is_cpu()) {
      buffers_[buffer.name] = values;
      return;
    }
    at::Tensor made = at::empty(buffer.shape, values.options().device(device_));
    made.copy_(values);
    buffers_[buffer.name] = std::move(made);
  }

  // ---- meta

  void to_empty(int module) {
    for (const int child : model_.modules[module].children) to_empty(child);
    for (const int parameter : index_.own_parameters[module]) make_local(parameter);
    for (const int buffer : index_.buffers[module]) add_buffer(buffer);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const std::vector<int>& modules = layout_.units[u].modules;
      if (std::find(modules.begin(), modules.end(), module) != modules.end()) pad(*units_[u]);
    }
  }

  void make_local(int parameter) {
    RunningUnit& unit = *units_[layout_.unit_of_parameter[parameter]];
    ParameterState& state = unit.parameter(parameter);
    if (is_on_host() || state.layout.local_elements == state.layout.shard_elements) return unit.make_shard(state);
    const CategoryScope category(MemoryCategory::ShardedParam);
    unpadded_[parameter] =
        at::empty({state.layout.local_elements}, at::TensorOptions().dtype(state.dtype).device(device_));
  }

  void pad(RunningUnit& unit) {
    for (ParameterState& state : unit.parameters()) {
      const auto local = unpadded_.find(state.layout.parameter);
      if (local == unpadded_.end()) continue;
      unit.make_shard(state);
      unpadded_.erase(local);
    }
  }

  // ---- device and cpu

  void make_whole_parameters() {
    std::vector<const ParameterState*> all;
    for (auto& unit : units_) {
      for (const ParameterState& state : unit->parameters()) all.push_back(&state);
    }
    std::sort(all.begin(), all.end(), [](const ParameterState* a, const ParameterState* b) {
      return a->layout.parameter < b->layout.parameter;
    });
    for (const ParameterState* state : all) make_whole(*state);
  }

  void make_whole(const ParameterState& state) {
    const CategoryScope category(MemoryCategory::ShardedParam);
    whole_[state.layout.parameter] =
        at::empty({state.layout.elements}, at::TensorOptions().dtype(state.dtype).device(device_));
  }

  void cut(RunningUnit& unit) {
    make_shards(unit);
    for (const ParameterState& state : unit.parameters()) whole_.erase(state.layout.parameter);
  }

  // The buffers of a unit's modules and of all below them that no earlier unit has moved.
  void move_buffers(const ShardedUnit& unit) {
    for (const int top : unit.modules) {
      for (int module = top; module <= index_.last_descendant[top]; ++module) {
        for (const int buffer : index_.buffers[module]) {
          if (!buffers_.contains(model_.buffers[buffer].name)) add_buffer(buffer);
        }
      }
    }
  }

  const ModelIndex& index_;
  const Model& model_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<std::unique_ptr<RunningUnit>>& units_;
  c10::Device device_;
  Buffers buffers_;
  std::map<int, at::Tensor> unpadded_;  // By parameter.
  std::map<int, at::Tensor> whole_;
};

}  // namespace

Buffers make_shards_and_buffers(const ModelIndex& index, const Plan& plan, const Layout& layout,
                                std::vector<std::unique_ptr<RunningUnit>>& units, c10::Device device) {
  return Initializer(index, plan, layout, units, device).run();
}

}  // namespace fsdp::executor
