// Another model is prepared as a plan of its own, without an optimizer, and its forward is that of an evaluation
// (evaluation.cpp). Its tensors are numbered before those of the trained model, so the numbers of the latter do not
// depend on the plan that holds the former.
//
// What lives on a rank, for a model of P numbers in o bytes on N ranks:
//
//   between forwards   o P / N padded, or o P if each GPU has it whole; nothing if it is offloaded; its buffers
//   in its forward     an all-gather's output and the parameters of one unit (all of the model, if it is one unit),
//                      and the activations of a moment: nothing is saved for a backward
//   after it           log-probabilities of all tokens in float32, until the backward of the micro-batch is over
//
// In time a forward is a stretch of the compute stream that waits for its own gathers: they do not overlap with the
// trained model's.
//
// FSDP1 keeps what its root has gathered, and every unit with SHARD_GRAD_OP: those are gathered in the first step
// alone.
//
// Sources: those of core/frameworks/other_models.cpp; torch/distributed/fsdp/_fully_shard/_fsdp_state.py
// (FSDPCommContext: a root has streams of its own), torch/distributed/fsdp/_runtime_utils.py (_init_streams), torch
// 2.11.
//
// Not modeled: log-probabilities of a part of the vocabulary, or entropies that a trainer keeps; overlap of the first
// gather with the end of the trained model's forward.

#include "simulator/phases/other_models.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/frameworks/layout.h"
#include "core/frameworks/other_models.h"
#include "core/model/model_index.h"
#include "simulator/memory/block_sums.h"
#include "simulator/memory/host_memory.h"
#include "simulator/phases/evaluation.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kBytesOfLogProbability = 4;

// Without the gathers of units that an earlier forward has left gathered.
Schedule without_gathers(const Schedule& forward, const std::vector<int>& units) {
  Schedule later;
  for (std::size_t begin = 0; begin < forward.instructions.size();) {
    const Action action = action_at(forward.instructions, begin);
    const Instruction& main = forward.instructions[action.main];
    const bool is_gather = main.kind == InstructionKind::Unshard || main.kind == InstructionKind::WaitForUnshard;
    begin = action.end;
    if (is_gather && std::find(units.begin(), units.end(), main.unit) != units.end()) continue;
    later.instructions.insert(later.instructions.end(),
                              forward.instructions.begin() + static_cast<std::ptrdiff_t>(action.begin),
                              forward.instructions.begin() + static_cast<std::ptrdiff_t>(action.end));
  }
  return later;
}

// Its plan as that of one forward, for names and times.
PreparedPlan seen_as_forward(const PreparedPlan& held, const EvaluationForward& forward, const Schedule& steady) {
  PreparedPlan seen = held;
  seen.index = forward.input().index;
  seen.tapes = *forward.input().tapes;
  seen.times = forward.times();
  seen.ids = *forward.input().ids;
  seen.schedule = steady;
  if (seen.costs.on_host) {
    seen.on_host = host_times(steady, *seen.index->model, seen.layout, seen.plan, seen.costs);
  }
  return seen;
}

}  // namespace

// One model under one plan. Refers to itself: not moved.
class OneOther {
 public:
  OneOther(const OtherModel& options, const Model& built, const Plan& trained, const Cluster& cluster)
      : model_(held_model(options, built)),
        index_(index_of(model_)),
        library_(index_),
        plan_(plan_of_other(options, model_, trained)),
        mesh_(mesh_costs(cluster, plan_.mesh)),
        cluster_(cluster),
        is_read_once_(trained.initialization == Initialization::Meta && !options.offload) {}

  // Numbers its tensors from `first` on. Returns the number after the last.
  Result<int> prepare(std::int64_t rank, int root, int first) {
    const std::int64_t own_rank = plan_.mesh.dp_shard() > 1 ? rank : 0;
    auto prepared = simulator::prepare(index_, cluster_, plan_, mesh_, library_, own_rank);
    if (!prepared) return tl::unexpected(std::move(prepared).error());
    held_ = *std::move(prepared);
    renumber(first);
    forward_.emplace(model_, held_);
    steady_ = without_gathers(forward_->schedule(), forward_->left_unsharded());
    seen_ = seen_as_forward(held_, *forward_, steady_);
    sums_ = sums_of(held_.layout, plan_.mixed_precision);
    walk_.held = held_.walk_input();
    walk_.held.root = root;
    if (plan_.runtime.framework == Framework::Fsdp2) walk_.held.sums = &sums_;
    walk_.forward = forward_->input();
    walk_.forward.root = root;
    walk_.forward.shares_batch = true;
    walk_.first = &forward_->schedule();
    walk_.steady = &steady_;
    walk_.result = forward_->end_of_ids();
    walk_.result_bytes = kBytesOfLogProbability * model_.tokens_per_step;
    return walk_.result + 1;
  }

  const OtherWalk& walk() const { return walk_; }

  PreparedOther other() const {
    PreparedOther other{.name = model_.name, .held = &held_, .forward = &seen_, .mesh = &mesh_};
    other.time = seen_.timeline(mesh_);
    other.host = held_on_host(cluster_, plan_, held_.layout);
    // Other ranks allocate what only the first of a node fills (transformers' cpu_ram_efficient_loading).
    if (is_read_once_) other.host.making = Bytes(other.host.making.count() / cluster_.gpus_per_node);
    return other;
  }

 private:
  void renumber(int first) {
    std::vector<int> num_storages;
    for (const Tape* tape : held_.tapes) num_storages.push_back(tape->num_storages);
    held_.ids = number_tensors(model_, plan_, held_.layout, num_storages, first);
  }

  Model model_;
  ModelIndex index_;
  TapeLibrary library_;
  Plan plan_;
  MeshCosts mesh_;
  const Cluster& cluster_;
  bool is_read_once_;
  PreparedPlan held_;
  std::optional<EvaluationForward> forward_;
  Schedule steady_;
  PreparedPlan seen_;
  LayoutSums sums_;
  OtherWalk walk_;
};

class OtherModels::Made {
 public:
  Made(std::vector<Plan> plans, std::int64_t rank) : plans_(std::move(plans)), rank_(rank) {}

  bool is_for(const std::vector<Plan>& plans, std::int64_t rank) const { return rank == rank_ && plans == plans_; }

  Result<void> make(const Plan& trained, const Model& model, const Cluster& cluster) {
    for (std::size_t i = 0; i < trained.also.size(); ++i) {
      all_.push_back(std::make_unique<OneOther>(trained.also[i], model.beside[i], trained, cluster));
      FSDP_TRY(others_.num_ids, all_.back()->prepare(rank_, static_cast<int>(i) + 1, others_.num_ids));
      others_.walks.push_back(all_.back()->walk());
      others_.models.push_back(all_.back()->other());
      const TimelineResult& time = others_.models.back().time;
      others_.times.push_back({others_.models.back().name, time.step, time.compute, time.exposed});
    }
    return {};
  }

  const PreparedOthers& others() const { return others_; }

 private:
  std::vector<Plan> plans_;
  std::int64_t rank_;
  std::vector<std::unique_ptr<OneOther>> all_;
  PreparedOthers others_;
};

OtherModels::OtherModels(const Model& model, const Cluster& cluster) : model_(model), cluster_(cluster) {}
OtherModels::~OtherModels() = default;

Result<const PreparedOthers*> OtherModels::of(const Plan& plan, std::int64_t rank) {
  if (plan.also.empty() && model_.beside.empty()) return nullptr;
  if (plan.also.size() != model_.beside.size()) {
    return failure("--also", "The model was built without the other models of the plan.");
  }
  std::vector<Plan> plans;
  for (std::size_t i = 0; i < plan.also.size(); ++i) {
    plans.push_back(plan_of_other(plan.also[i], model_.beside[i], plan));
  }
  for (const auto& made : made_) {
    if (made->is_for(plans, rank)) return &made->others();
  }
  auto made = std::make_unique<Made>(std::move(plans), rank);
  if (auto done = made->make(plan, model_, cluster_); !done) return tl::unexpected(std::move(done).error());
  work_ += made->others().num_ids;
  made_.push_back(std::move(made));
  return &made_.back()->others();
}

}  // namespace fsdp::simulator
