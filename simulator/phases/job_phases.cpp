// A job loads weights, steps, evaluates, saves and resumes. For P numbers in L tensors, of which l(t) have rank 0's
// part, in o bytes each, on a node of g ranks:
//
//   phase               device, beside what always lives there         host of the first node, beside training's
//   loading             rank 0 sends: one whole tensor at a time       one model (o P); else g models
//   first, later steps  the prediction of a step
//   evaluation          the forward of a step, without saved tensors
//   saving, whole       one whole tensor at a time; before it is       o P on rank 0, and o t more for each tied name
//                       gathered, its padded part, if it is padded
//                       or comes from the host; FSDP1: one unit in
//                       its original dtype
//   saving, sharded     nothing                                        weights and states of the ranks' parts, if the
//                                                                      save is asynchronous
//   resuming, whole     gradients of zeros, states and temporaries of  o P and the states of P on rank 0
//                       one update; then one whole tensor at a time
//   resuming, sharded   the same update                                one tensor at a time
//
// Rank 0 sends the weights (transformers' cpu_ram_efficient_loading, set_model_state_dict with broadcast_from_rank0) to
// ranks that made the model on the meta device. Each rank of any other plan reads the whole model.
//
// A tied parameter has a line of the state dict, and a copy on the host, for each of its names.
//
// The allocator serves evaluation and saving after the steps, with the segments that they left. Loading and resuming
// come first in a run, and are predicted without steps before them.
//
// Sources: torch/distributed/checkpoint/state_dict.py (_get_model_state_dict, _maybe_full_or_cpu_state_dict,
// _load_model_state_dict, _init_optim_state), torch/distributed/_state_dict_utils.py (_gather_state_dict: each tensor
// gathered, copied to the host on rank 0 and dropped; _broadcast_tensors), torch/distributed/tensor/placement_types.py
// (Shard._to_replicate_tensor), torch/distributed/fsdp/_state_dict_utils.py (FSDP1: _full_pre_state_dict_hook unshards
// a unit in full precision), torch 2.11; accelerate 1.15, utils/fsdp_utils.py (save_fsdp_model,
// fsdp2_load_full_state_dict); transformers 5.24, modeling_utils.py (load_state_dict: the local rank 0 reads).
//
// Not modeled: pages of memory-mapped files, which the kernel takes back; the writer's buffers of 10 MB; generation;
// on the device, resuming with an optimizer of another library or Muon, and phases of ZeRO and SimpleFSDP.

#include "simulator/phases/job_phases.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "simulator/memory/device_terms.h"
#include "simulator/memory/host_memory.h"
#include "simulator/prepared/host_of_others.h"

namespace fsdp::simulator {

namespace {

using TensorGroups = std::vector<std::vector<std::int64_t>>;

std::int64_t element_size(const Layout& layout, int p) {
  return size_of(layout.parameter_dtype[static_cast<std::size_t>(p)]).count();
}

/// Rank 0 sends the weights to the others.
bool is_sent(const Plan& plan) {
  return plan.initialization == Initialization::Meta && traits_of(plan).wraps_units && plan.mesh.dp_shard() > 1 &&
         !traits_of(plan).has_flat_parameters;
}

/// A parameter, and each of its other names.
template <class Visit>
void each_name(const Model& model, const Visit& visit) {
  for (int p = 0; p < static_cast<int>(model.parameters.size()); ++p) {
    for (std::size_t name = 0; name <= model.parameters[static_cast<std::size_t>(p)].tied_names.size(); ++name)
      visit(p);
  }
}

std::vector<const ShardedParameter*> shards_of(const Model& model, const Layout& layout) {
  std::vector<const ShardedParameter*> shards(model.parameters.size(), nullptr);
  for (const ShardedUnit& unit : layout.units) {
    for (const ShardedParameter& p : unit.parameters) shards[static_cast<std::size_t>(p.parameter)] = &p;
  }
  return shards;
}

// ---- host -----------------------------------------------------------------------------------------------------------

struct HostBytes {
  std::int64_t model = 0;   ///< All weights, once,
  std::int64_t file = 0;    ///< and with tied ones for each name.
  std::int64_t states = 0;  ///< Those of all of them.
  std::int64_t part = 0;    ///< A rank's weights, with tied ones for each name, and states.
};

HostBytes host_bytes(const Plan& plan, const Model& model, const Layout& layout) {
  HostBytes bytes;
  const std::vector<const ShardedParameter*> shards = shards_of(model, layout);
  const auto states = [&](std::int64_t elements, std::int64_t size) {
    const MomentBytes moment = moment_bytes(plan.optimizer, elements, size);
    return num_moments(plan.optimizer) * (moment.values + moment.scales);
  };
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    const std::int64_t elements = num_elements(model.parameters[p].shape);
    const std::int64_t size = element_size(layout, static_cast<int>(p));
    bytes.model += elements * size;
    if (!model.parameters[p].receives_gradient) continue;
    bytes.states += states(elements, size);
    if (shards[p] != nullptr) bytes.part += states(shards[p]->local_elements, size);
  }
  each_name(model, [&](int p) {
    const auto index = static_cast<std::size_t>(p);
    bytes.file += num_elements(model.parameters[index].shape) * element_size(layout, p);
    if (shards[index] != nullptr) bytes.part += shards[index]->local_elements * element_size(layout, p);
  });
  for (const Buffer& buffer : model.buffers) {
    if (buffer.persistent) bytes.file += num_elements(buffer.shape) * size_of(buffer.dtype).count();
  }
  return bytes;
}

// What training keeps there before its first step.
HostMemory before_steps(const HostMemory& training) {
  HostMemory host{.budget = training.budget};
  for (const DeviceTerm& term : training.terms) {
    if (term.name == "shards" || term.name == "processes") add_host_term(host, term);
  }
  return host;
}

HostMemory with(HostMemory host, std::string name, std::int64_t bytes, std::string source) {
  add_host_term(host, {std::move(name), Bytes(bytes), Provenance::Derived, std::move(source)});
  return host;
}

class HostPhases {
 public:
  HostPhases(const Cluster& cluster, const Plan& plan, const Model& model, const Layout& layout, Bytes inputs)
      : plan_(plan),
        ranks_(cluster.gpus_per_node),
        bytes_(host_bytes(plan, model, layout)),
        training_(host_memory_in_training(cluster, plan, layout, inputs)),
        empty_(before_steps(training_)) {}

  JobPhaseNeed of(JobPhase phase) const {
    JobPhaseNeed need{.phase = phase};
    need.how = how(phase);
    need.host = host(phase);
    return need;
  }

 private:
  std::string how(JobPhase phase) const {
    switch (phase) {
      case JobPhase::Loading:
        return is_sent(plan_) ? "the first rank of a node reads the weights, and rank 0 sends each tensor"
                              : "each rank reads the whole model";
      case JobPhase::FirstStep:
        return "makes the optimizer's states";
      case JobPhase::SteadyStep:
        return "";
      case JobPhase::Evaluation:
        return "a forward without gradients, with its loss";
      case JobPhase::SavingWhole:
        return traits_of(plan_).has_flat_parameters
                   ? "a unit is gathered at a time; rank 0 keeps all weights on the host"
                   : "a tensor is gathered at a time; rank 0 keeps all weights on the "
                     "host";
      case JobPhase::SavingParts:
        return "asynchronous: each rank's weights and states are copied to the host first";
      case JobPhase::ResumingWhole:
        return "rank 0 reads all weights and states, and sends each tensor";
      case JobPhase::ResumingParts:
        return "each rank reads its part; an update by zeros makes the states";
      case JobPhase::Generation:
        return "";
    }
    return "";
  }

  HostMemory host(JobPhase phase) const {
    switch (phase) {
      case JobPhase::Loading:
        return is_sent(plan_) ? with(empty_, "model of the first rank", bytes_.model, "read before it is sent")
                              : with(empty_, "models", ranks_ * bytes_.model, "whole on each rank of the node");
      case JobPhase::FirstStep:
      case JobPhase::SteadyStep:
      case JobPhase::Evaluation:
        return training_;
      case JobPhase::SavingWhole:
        return with(training_, "gathered weights", bytes_.file, "on rank 0, tied ones for each name");
      case JobPhase::SavingParts:
        if (plan_.cpu_offload) return training_;
        return with(training_, "copies of parts", ranks_ * bytes_.part, "weights and states of the node's ranks");
      case JobPhase::ResumingWhole:
        return with(empty_, "weights and states", bytes_.file + bytes_.states, "read by rank 0");
      case JobPhase::ResumingParts:
      case JobPhase::Generation:
        return training_;
    }
    return training_;
  }

  const Plan& plan_;
  std::int64_t ranks_;
  HostBytes bytes_;
  HostMemory training_;
  HostMemory empty_;
};

// ---- device ---------------------------------------------------------------------------------------------------------

/// The tensors of a gathered state dict, in its order.
TensorGroups gathered(const Plan& plan, const Model& model, const Layout& layout) {
  TensorGroups groups;
  const std::int64_t ranks = layout.mesh.dp_shard();
  if (ranks == 1 || layout.is_replicated) return groups;
  const std::vector<const ShardedParameter*> shards = shards_of(model, layout);
  each_name(model, [&](int p) {
    const ShardedParameter* shard = shards[static_cast<std::size_t>(p)];
    if (shard == nullptr) return;
    const std::int64_t size = element_size(layout, p);
    std::vector<std::int64_t> group;
    if (plan.cpu_offload) group.push_back(shard->local_elements * size);
    if (shard->local_elements < shard->shard_elements) group.push_back(shard->shard_elements * size);
    group.push_back(ranks * shard->shard_elements * size);
    groups.push_back(std::move(group));
  });
  return groups;
}

/// The whole tensors that rank 0 sends.
TensorGroups sent(const Model& model, const Layout& layout) {
  TensorGroups groups;
  each_name(model, [&](int p) {
    groups.push_back({num_elements(model.parameters[static_cast<std::size_t>(p)].shape) * element_size(layout, p)});
  });
  return groups;
}

TensorGroups sent_states(const Plan& plan, const Model& model, const Layout& layout) {
  TensorGroups groups;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    if (!model.parameters[p].receives_gradient) continue;
    const std::int64_t bytes = num_elements(model.parameters[p].shape) * element_size(layout, static_cast<int>(p));
    for (std::int64_t m = 0; m < num_moments(plan.optimizer); ++m) groups.push_back({bytes});
  }
  return groups;
}

constexpr int kMostOfGroup = 3;

class DevicePhases {
 public:
  DevicePhases(const PreparedPlan& prepared, const AllocatorSettings& settings, const EvaluationForward* evaluation)
      : prepared_(prepared), settings_(settings), evaluation_(evaluation) {
    outside_ = outside_terms(*prepared.cluster, prepared.plan);
    for (const DeviceTerm& term : outside_) sum_outside_ += term.bytes;
  }

  /// Peaks by phase. `total`: the allocator's limit. False if it runs out of memory.
  bool walk(Bytes total, std::array<std::optional<MemoryPeaks>, kNumJobPhases>& peaks) {
    peaks_ = &peaks;
    bool survives = true;
    if (loads()) survives = run(total, [&](Walk& walk, Sink& sink) { load(walk, sink); }) && survives;
    return run(total, [&](Walk& walk, Sink& sink) { evaluate_and_save(walk, sink); }) && survives;
  }

  Bytes margin_of(const MemoryPeaks& peaks) const {
    return margin(peaks.reserved, outside_, prepared_.plan) + convolution_workspace(prepared_);
  }
  Bytes outside() const { return sum_outside_; }

 private:
  using Sink = AllocatorSink;
  using Walk = MemoryWalk<Sink>;

  int first_free_id() const { return evaluation_ != nullptr ? evaluation_->end_of_ids() : prepared_.ids.total; }

  // Whole tensors are sent to units' shards, or copied by each rank to its own model.
  bool loads() const { return traits_of(prepared_.plan).wraps_units && !prepared_.layout.has_flat_units(); }

  template <class Act>
  bool run(Bytes total, const Act& act) {
    CachingAllocator allocator;
    allocator.reset({.total = total}, settings_);
    Sink sink(first_free_id() + kMostOfGroup, allocator);
    Walk walk(prepared_.short_walk_input(), sink);
    walk.initialize();
    act(walk, sink);
    return !sink.has_failed();
  }

  template <class Act>
  void measure(JobPhase phase, Sink& sink, const Act& act) {
    sink.reset_peak();
    act();
    (*peaks_)[static_cast<std::size_t>(phase)] = MemoryPeaks{.live = sink.peak_live(),
                                                             .allocated = sink.peak_allocated(),
                                                             .reserved = sink.peak_reserved(),
                                                             .device = sink.peak_reserved() + sum_outside_};
  }

  void load(Walk& walk, Sink& sink) {
    const Plan& plan = prepared_.plan;
    const Model& model = *prepared_.index->model;
    if (is_sent(plan)) {
      measure(JobPhase::Loading, sink, [&] { walk.visit(sent(model, prepared_.layout), first_free_id()); });
    }
    if (!has_torch_kernels(plan.optimizer) || plan.optimizer.muon) return;
    measure(JobPhase::ResumingParts, sink, [&] { walk.update_zeros(); });
    const MemoryPeaks update = *(*peaks_)[static_cast<std::size_t>(JobPhase::ResumingParts)];
    measure(JobPhase::ResumingWhole, sink,
            [&] { walk.visit(sent_states(plan, model, prepared_.layout), first_free_id()); });
    MemoryPeaks& whole = *(*peaks_)[static_cast<std::size_t>(JobPhase::ResumingWhole)];
    whole = {std::max(whole.live, update.live), std::max(whole.allocated, update.allocated),
             std::max(whole.reserved, update.reserved), std::max(whole.device, update.device)};
  }

  void evaluate_and_save(Walk& walk, Sink& sink) {
    walk.load_first_batch();
    for (int step = 0; step < kNumSteps && !sink.has_failed(); ++step) walk.step();
    if (sink.has_failed()) return;  // A step that ran out of memory ends in its midst.
    if (evaluation_ != nullptr) {
      measure(JobPhase::Evaluation, sink, [&] { walk.evaluate(evaluation_->input(), evaluation_->schedule()); });
    }
    if (sink.has_failed()) return;
    if (prepared_.layout.updates_parts() || prepared_.layout.gathers_each_read) return;
    measure(JobPhase::SavingWhole, sink, [&] {
      if (prepared_.layout.has_flat_units()) return gather_flat_units(walk);
      if (evaluation_ != nullptr && !prepared_.layout.is_replicated) walk.reshard(evaluation_->left_unsharded());
      walk.visit(gathered(prepared_.plan, *prepared_.index->model, prepared_.layout), first_free_id());
    });
    measure(JobPhase::SavingParts, sink, [] {});
  }

  // A unit that is unsharded in full precision stays so; one in param_dtype is freed before it is gathered
  // (_get_padded_unsharded_flat_param).
  void gather_flat_units(Walk& walk) {
    const Layout& layout = prepared_.layout;
    const std::vector<int> left = evaluation_ == nullptr ? std::vector<int>{} : evaluation_->left_unsharded();
    for (int u = static_cast<int>(layout.units.size()) - 1; u >= 0; --u) {
      const ShardedUnit& unit = layout.units[static_cast<std::size_t>(u)];
      if (unit.parameters.empty() || layout.mesh.dp_shard() == 1) continue;
      const bool is_left = std::find(left.begin(), left.end(), u) != left.end();
      if (is_left && unit.param_dtype == unit.original_dtype) continue;
      if (is_left) walk.reshard({u});
      walk.visit({{unit.full_elements * size_of(unit.original_dtype).count()}}, first_free_id());
    }
  }

  const PreparedPlan& prepared_;
  const AllocatorSettings& settings_;
  const EvaluationForward* evaluation_;
  std::vector<DeviceTerm> outside_;
  Bytes sum_outside_;
  std::array<std::optional<MemoryPeaks>, kNumJobPhases>* peaks_ = nullptr;
};

// Phases whose peaks are those of the steps' prediction.
std::optional<MemoryPeaks> predicted_before(JobPhase phase, const MemoryReport& memory) {
  const auto of = [&](RunPhase wanted) -> std::optional<MemoryPeaks> {
    for (const PhasePeaks& peaks : memory.phases) {
      if (peaks.phase == wanted) return peaks.peaks;
    }
    return std::nullopt;
  };
  switch (phase) {
    case JobPhase::Loading:
      return of(RunPhase::Initialization);
    case JobPhase::FirstStep:
      return of(RunPhase::FirstStep);
    case JobPhase::SteadyStep:
      return of(RunPhase::SteadyStep);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<JobPhaseNeed> job_phases_on_host(const Cluster& cluster, const Plan& plan, const Model& model,
                                             const Layout& layout, Bytes inputs) {
  const HostPhases host(cluster, plan, model, layout, inputs);
  std::vector<JobPhaseNeed> phases;
  for (int phase = 0; phase < kNumJobPhases; ++phase) phases.push_back(host.of(static_cast<JobPhase>(phase)));
  return phases;
}

Result<std::vector<JobPhaseNeed>> job_phases(const PreparedPlan& prepared, const MemoryReport& memory,
                                             const EvaluationForward* evaluation, const std::string& no_evaluation) {
  FSDP_TRY(const AllocatorSettings settings, parse_allocator_settings(prepared.plan.runtime.allocator_settings));
  std::vector<JobPhaseNeed> phases = job_phases_on_host(*prepared.cluster, prepared.plan, *prepared.index->model,
                                                        prepared.layout, checkpointed_inputs(prepared.tapes));
  std::array<std::optional<MemoryPeaks>, kNumJobPhases> peaks;
  DevicePhases device(prepared, settings, evaluation);
  device.walk(kEndlessMemory, peaks);
  std::optional<bool> survives;
  for (JobPhaseNeed& need : phases) {
    add_others_to_host(prepared, need.phase == JobPhase::Loading, need.host);
    need.device = peaks[static_cast<std::size_t>(need.phase)];
    if (need.phase == JobPhase::Evaluation && evaluation == nullptr) need.how = no_evaluation;
    if (prepared.plan.mesh.ep > 1 && !predicted_before(need.phase, memory)) {
      // Their state dicts are gathered over two meshes.
      need.device.reset();
      need.how = "not predicted for experts that ranks share";
    }
    const bool is_step = need.phase == JobPhase::FirstStep || need.phase == JobPhase::SteadyStep;
    if (!need.device) need.device = predicted_before(need.phase, memory);
    if (!need.device) continue;
    need.margin = is_step ? memory.margin : device.margin_of(*need.device);
    std::int64_t flushes = memory.cache_flushes;
    if (!is_step && need.device->device > memory.budget) {
      if (!survives) {
        std::array<std::optional<MemoryPeaks>, kNumJobPhases> unused;
        survives = device.walk(memory.budget - device.outside(), unused);
      }
      flushes = *survives ? 0 : -1;
    }
    need.on_device = verdict_of({.budget = memory.budget,
                                 .peak = need.device->device,
                                 .margin = need.margin,
                                 .held = is_step ? memory.held : Bytes(0),
                                 .flushes = flushes});
  }
  return phases;
}

}  // namespace fsdp::simulator
