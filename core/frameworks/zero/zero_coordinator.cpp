// ZeRO-3's decisions.
//
// Each module gathers its own parameters before its forward and its backward, in one collective, and releases them
// afterwards. The first micro-batch of a run records the order in which modules request parameters. From then on
//
//   ahead     after each module, what the next ones need is gathered, up to prefetch_bucket_size elements (the last
//             parameter may exceed it), while no more than max_live_parameters are there
//   reuse     what one of the next max_reuse_distance elements' modules needs again is not let go; neither is what a
//             prefetch has passed over because it was there
//   persist   parameters of at most param_persistence_threshold elements stay, until the optimizer updates them
//
// Each parameter of a gather that a module requests has an event on the gathers' stream; at most two events are open:
// LimitGathers.
//
// A gather of several parameters has one output. The first request copies all of them out, and the last request frees
// the output. For one parameter the output is the parameter.
//
// With hpZ (hpz_partition_size) DeepSpeed keeps a second copy of each released parameter, cut over some neighbors, and
// gathers from it until the optimizer updates the parameter: the first time in a step from all ranks, then within a
// node. It always gathers frozen parameters from neighbors. Parameters with a second copy and those without are two
// gathers.
//
// DeepSpeed asks once for each module and place which parameters it may release, and keeps the answer for the rest of
// the run (an lru_cache), even where a later micro-batch would get another one.
//
// Sources: deepspeed/runtime/zero/partitioned_param_coordinator.py, parameter_offload.py (hooks),
// partition_parameters.py (all_gather_coalesced, _partition), stage3.py (invalidate_secondary_tensor), DeepSpeed
// 0.19.8.
//
// Not modeled: leaf modules (z3_leaf_module), a trace that a later step breaks, the order of Python's sets.

#include "core/frameworks/zero/zero_coordinator.h"

#include <algorithm>
#include <utility>

namespace fsdp {

ZeroCoordinator::ZeroCoordinator(const Layout& layout, const Plan& plan, std::size_t num_parameters)
    : plan_(plan),
      ranks_(layout.mesh.group_along(MeshAxis::DpShard)),
      neighbors_(ranks_along(MeshAxis::DpShard, std::min(plan.zero.hpz_partition_size, layout.zero.ranks))),
      is_cut_(layout.zero.ranks > 1),
      has_copies_(is_cut_ && plan.zero.hpz_partition_size > 1),
      is_fetched_(is_cut_ || plan.zero.offload_param),
      drive_(layout, plan, num_parameters),
      states_(num_parameters),
      recomputed_for_(layout.hooked.size()) {
  for (const ShardedUnit& module : layout.hooked) {
    std::vector<int>& own = own_.emplace_back();
    std::vector<int>& unknown = unknown_.emplace_back();
    for (const ShardedParameter& p : module.parameters) {
      own.push_back(p.parameter);
      if (p.is_external) unknown.push_back(p.parameter);
    }
  }
  const std::vector<int>& trained = layout.zero.parameters;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    states_[p].is_trained = std::binary_search(trained.begin(), trained.end(), static_cast<int>(p));
  }
  for (const ShardedUnit& unit : layout.units) {
    int order = 0;
    for (const ShardedParameter& p : unit.parameters) {
      State& state = states_[p.parameter];
      state.order = order++;
      state.elements = p.elements;
      state.persists = p.elements <= plan.zero.param_persistence_threshold;
      state.has_copy = has_copies_;  // deepspeed.zero.Init makes it.
    }
  }
}

void ZeroCoordinator::begin_forward() {
  std::vector<int> released;
  for (const int p : std::vector<int>(in_flight_)) {
    take(p);
    release_one(p, released);
  }
  emit_release(std::move(released));
  if (trace_ == Trace::Record) complete_trace();
  if (trace_ == Trace::Invalid) trace_ = Trace::Record;
  queue_.assign(uses_.begin(), uses_.end());
  for (State& state : states_) state.fetched_for = kNever;
  step_ = 0;
  num_available_ = 0;
}

std::optional<ZeroCoordinator::Remembered> ZeroCoordinator::remembered() const {
  const auto is_busy = [](const State& state) { return !state.active.empty(); };
  const bool is_left =
      in_flight_.empty() && in_backward_.empty() && std::none_of(states_.begin(), states_.end(), is_busy) &&
      std::all_of(recomputed_for_.begin(), recomputed_for_.end(), [](const auto& p) { return p.empty(); });
  if (trace_ != Trace::Complete || !is_left || drive_.has_any()) return std::nullopt;
  Remembered result{.num_answers = releasable_.size()};
  for (const State& state : states_) {
    result.available.push_back(state.status == Status::Available);
    result.has_copy.push_back(state.has_copy);
  }
  for (const std::vector<int>& unknown : unknown_) result.num_unknown += unknown.size();
  return result;
}

void ZeroCoordinator::complete_trace() {
  trace_ = Trace::Complete;
  for (std::size_t step = 0; step < order_.size(); ++step) {
    std::vector<int> needed = own(order_[step]);
    std::sort(needed.begin(), needed.end(), [&](int a, int b) { return states_[a].order < states_[b].order; });
    for (const int p : needed) uses_.push_back({p, static_cast<std::int64_t>(step)});
  }
}

void ZeroCoordinator::fetch(int module, bool forward) {
  if (trace_ == Trace::Record) order_.push_back(module);
  if (!forward && std::find(in_backward_.begin(), in_backward_.end(), module) == in_backward_.end()) {
    in_backward_.push_back(module);
  }
  gather_unknown(module);
  gather(own(module));
  for (const int p : own(module)) {
    State& state = states_[p];
    if (std::find(state.active.begin(), state.active.end(), module) == state.active.end()) {
      state.active.push_back(module);
    }
    if (recomputes_ && forward && !in_backward_.empty() && !state.is_trained) {
      recomputed_for_[in_backward_.back()].push_back(p);
    }
    if (state.fetch != kNoFetch) ask_for(p);
  }
  if (trace_ == Trace::Complete) prefetch(module);
  ++step_;
}

void ZeroCoordinator::prefetch(int module) {
  std::size_t missing = 0;
  for (const int p : own(module)) missing += states_[p].fetched_for < step_ ? 1 : 0;
  std::vector<int> passed;
  while (!queue_.empty() && passed.size() < missing) {
    const Use use = queue_.front();
    queue_.pop_front();
    states_[use.parameter].fetched_for = use.step;
    if (std::find(passed.begin(), passed.end(), use.parameter) == passed.end()) passed.push_back(use.parameter);
  }
  const std::int64_t most = std::min(plan_.zero.max_live_parameters - num_available_, plan_.zero.prefetch_bucket_size);
  if (plan_.zero.prefetch_bucket_size == 0) return;
  std::vector<int> ahead;
  std::int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const Use use = queue_.front();
    if (drive_.is_away(use.parameter)) break;  // It is read ahead first, and gathered ahead then.
    queue_.pop_front();
    State& state = states_[use.parameter];
    state.fetched_for = std::max(state.fetched_for, use.step);
    const bool is_new = std::find(ahead.begin(), ahead.end(), use.parameter) == ahead.end();
    if (!is_new || state.status != Status::NotAvailable) continue;
    ahead.push_back(use.parameter);
    elements += state.elements;
  }
  gather(std::move(ahead));
  read_ahead();
}

// Twice as much of what comes next as is being gathered, while there are buffers.
void ZeroCoordinator::read_ahead() {
  if (!drive_.has_any()) return;
  std::int64_t in_flight = 0;
  for (const int p : in_flight_) in_flight += states_[p].elements;
  std::vector<int> wanted;
  std::int64_t considered = 0;
  for (const Use& use : queue_) {
    if (considered > 2 * in_flight || static_cast<std::int64_t>(wanted.size()) >= drive_.free_buffers()) break;
    if (drive_.is_away(use.parameter)) wanted.push_back(use.parameter);
    considered += states_[use.parameter].elements;
  }
  drive_.read_ahead(wanted);
}

void ZeroCoordinator::gather(std::vector<int> parameters) {
  std::erase_if(parameters, [&](int p) { return states_[p].status != Status::NotAvailable; });
  const auto rest =
      std::stable_partition(parameters.begin(), parameters.end(), [&](int p) { return states_[p].has_copy; });
  gather_from({parameters.begin(), rest}, neighbors_);
  gather_from({rest, parameters.end()}, ranks_);
}

void ZeroCoordinator::gather_from(std::vector<int> parameters, const RankGroup& ranks) {
  if (parameters.empty()) return;
  std::sort(parameters.begin(), parameters.end(), [&](int a, int b) { return states_[a].order < states_[b].order; });
  for (const int p : parameters) {
    State& state = states_[p];
    state.status = Status::InFlight;
    state.fetch = static_cast<int>(fetches_.size());
    num_available_ += state.elements;
    in_flight_.push_back(p);
  }
  Fetch fetch{.parameters = parameters, .left = static_cast<int>(parameters.size())};
  if (is_fetched_) {
    fetch.group = gathered_group(std::move(parameters), ranks);
    // A persistent parameter is never cut again: its buffer is free at once.
    for (const int p : fetch.parameters) {
      if (states_[p].persists) drive_.release(p);
    }
    out_->emit({.kind = InstructionKind::FetchParameters, .ranks = ranks, .group = fetch.group});
  }
  fetches_.push_back(std::move(fetch));
}

int ZeroCoordinator::gathered_group(std::vector<int> parameters, const RankGroup& ranks) {
  const std::int64_t read = drive_.need(parameters);
  return add_group({.parameters = std::move(parameters), .ranks = ranks, .drive_bytes = read});
}

int ZeroCoordinator::add_group(ParameterGroup group) {
  out_->schedule.groups.push_back(std::move(group));
  return static_cast<int>(out_->schedule.groups.size()) - 1;
}

// Parameters that a forward reads of modules that do not run are not known to be its own before it first reads them:
// then each is gathered by itself, and from there on with the others.
void ZeroCoordinator::gather_unknown(int module) {
  std::vector<int> unknown = std::exchange(unknown_[module], {});
  std::erase_if(unknown, [&](int p) { return states_[p].status != Status::NotAvailable; });
  if (unknown.empty()) return;
  for (const int p : unknown) states_[p].status = Status::Available;
  if (!is_fetched_) return;
  const int group = gathered_group(std::move(unknown), ranks_);
  out_->emit({.kind = InstructionKind::GatherParameters, .ranks = ranks_, .group = group});
}

// The CPU waits if it has run ahead of too many parameters that were asked for.
void ZeroCoordinator::ask_for(int parameter) {
  const Fetch& fetch = fetches_[static_cast<std::size_t>(states_[parameter].fetch)];
  if (is_fetched_) out_->emit({.kind = InstructionKind::LimitGathers, .group = fetch.group});
  take(parameter);
}

// A request for one parameter of a gather waits for all of them.
void ZeroCoordinator::take(int parameter) {
  Fetch& fetch = fetches_[std::exchange(states_[parameter].fetch, kNoFetch)];
  std::erase(in_flight_, parameter);
  if (!std::exchange(fetch.is_waited_for, true)) {
    for (const int p : fetch.parameters) states_[p].status = Status::Available;
    if (is_fetched_) out_->emit({.kind = InstructionKind::WaitForParameters, .group = fetch.group});
  }
  if (--fetch.left > 0 || !is_fetched_) return;
  ParameterGroup& group = out_->schedule.groups[fetch.group];
  group.last = parameter;
  if (group.parameters.size() > 1) out_->emit({.kind = InstructionKind::DropFetched, .group = fetch.group});
}

void ZeroCoordinator::release(int module, bool forward) {
  std::vector<int> may_go = trace_ == Trace::Complete ? releasable(module) : own(module);
  std::vector<int> parameters = own(module);
  if (!forward) {
    for (const int p : recomputed_for_[module]) {
      if (!states_[p].persists) may_go.push_back(p);
      parameters.push_back(p);
    }
    recomputed_for_[module].clear();
    std::erase(in_backward_, module);
  }
  std::vector<int> released;
  for (const int p : parameters) {
    std::erase(states_[p].active, module);
    if (std::find(may_go.begin(), may_go.end(), p) != may_go.end()) release_one(p, released);
  }
  emit_release(std::move(released));
}

const std::vector<int>& ZeroCoordinator::releasable(int module) {
  const auto [place, is_new] = releasable_.try_emplace({module, step_});
  if (is_new) place->second = find_releasable(module);
  return place->second;
}

std::vector<int> ZeroCoordinator::find_releasable(int module) const {
  std::vector<int> may_go;
  for (const int p : own(module)) {
    if (!states_[p].persists && states_[p].fetched_for <= step_) may_go.push_back(p);
  }
  std::int64_t passed = 0;
  for (auto step = static_cast<std::size_t>(step_); step < order_.size() && !may_go.empty(); ++step) {
    if (passed >= plan_.zero.max_reuse_distance) break;
    for (const int p : own(order_[step])) {
      std::erase(may_go, p);
      passed += states_[p].elements;
    }
  }
  return may_go;
}

void ZeroCoordinator::release_one(int parameter, std::vector<int>& released) {
  State& state = states_[parameter];
  if (state.status != Status::Available || !state.active.empty()) return;
  state.status = Status::NotAvailable;
  drive_.release(parameter);
  state.has_copy = has_copies_;
  num_available_ -= state.elements;
  released.push_back(parameter);
}

void ZeroCoordinator::emit_release(std::vector<int> released) {
  if (released.empty() || !is_fetched_) return;
  const int group = add_group({.parameters = std::move(released)});
  out_->emit({.kind = InstructionKind::ReleaseParameters, .group = group});
}

void ZeroCoordinator::release_left() {
  std::vector<int> released;
  while (!in_backward_.empty()) {
    const int module = in_backward_.back();
    in_backward_.pop_back();
    std::vector<int> parameters = own(module);
    std::vector<int>& recomputed = recomputed_for_[module];
    parameters.insert(parameters.end(), recomputed.begin(), recomputed.end());
    recomputed.clear();
    for (const int p : parameters) {
      std::erase(states_[p].active, module);
      if (!states_[p].persists) release_one(p, released);
    }
  }
  emit_release(std::move(released));
}

void ZeroCoordinator::release_all() {
  std::vector<int> released;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    State& state = states_[p];
    if (state.fetch != kNoFetch) take(static_cast<int>(p));
    state.active.clear();
    release_one(static_cast<int>(p), released);
  }
  emit_release(std::move(released));
}

void ZeroCoordinator::gather_persistent() {
  std::vector<int> persistent;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    if (states_[p].is_trained) states_[p].has_copy = false;
    if (!states_[p].persists) continue;
    states_[p].status = Status::Available;
    persistent.push_back(static_cast<int>(p));
  }
  fetches_.clear();
  if (persistent.empty() || !is_fetched_) return;
  const int group = gathered_group(std::move(persistent), ranks_);
  out_->emit({.kind = InstructionKind::GatherParameters, .ranks = ranks_, .group = group});
}

}  // namespace fsdp
