// A run whose micro-batches have different lengths, put together from runs of one length each.
//
// The memory walk knows one model, and so one length. We walk the first steps of each length and cut their requests
// where a micro-batch arrives. A piece then has all requests from the arrival of one micro-batch to that of the next,
// and the run of lengths a, b, c is: initialization and first arrival of a, the first step's piece of a, the second
// step's of b, the steady one of c, and so on.
//
// Between pieces live the parameters, gradients, optimizer states and workspaces, whose sizes are those of every
// length, and the inputs of the micro-batch before, which the loader's next batch replaces. All of them have the same
// number at each length, because the numbers of a plan (memory_ids.h) depend on the model's lists and not on its sizes.
// Two things need care:
//
//   storages of calls  An op may make more tensors at another length, as a loss in pieces does. A storage that the
//                      first recorded length lacks gets a number of its own after all others.
//   inputs             Two places take turns. The player swaps them in a piece that was recorded in the other turn.
//
// With more than kNumMicroBatches micro-batches the walk has the first, the second and the last; the others are as the
// second.
//
// Sources: the loop that python/fsdp_plan_runner trains, run with lengths that differ
// (tests/rehearsal/lengths_test.py).
//
// Not modeled: batches without padding among padded ones, for which transformers makes no mask; memory that
// record_stream holds back, which is in the safety margin.

#include "simulator/lengths/recorded_lengths.h"

#include <algorithm>
#include <cassert>

#include "core/frameworks/layout.h"
#include "core/model/model_index.h"
#include "simulator/prepared/prediction.h"
#include "simulator/time/plan_times.h"

namespace fsdp::simulator {

namespace {

/// Whether a micro-batch arrives in the action that begins at the mark.
bool loads_inputs(const TraceSink& trace, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const MemoryEvent& event = trace.events()[i];
    if (!event.is_free() && event.category == MemoryCategory::Inputs) return true;
  }
  return false;
}

}  // namespace

RecordedLengths::RecordedLengths(const Cluster& cluster, const Plan& plan, std::int64_t rank)
    : cluster_(cluster), plan_(plan), rank_(rank), mesh_(mesh_costs(cluster, plan.mesh)) {}

int RecordedLengths::common_id(const MemoryIds& ids, int id) {
  if (has_base_numbers_) return id;
  const CallTensor found = find_call(ids, id);
  if (found.call < 0) return id;
  const auto call = static_cast<std::size_t>(found.call);
  const int common = base_.call_base[call] + found.storage;
  if (common < base_.call_base[call + 1]) return common;
  const auto [place, is_new] = beyond_.try_emplace({found.call, found.storage}, 0);
  if (is_new) place->second = base_.total + static_cast<int>(beyond_.size()) - 1;
  return place->second;
}

std::shared_ptr<const std::vector<RunEvent>> RecordedLengths::share(std::vector<RunEvent> events) {
  for (const auto& known : known_) {
    if (*known == events) return known;
  }
  known_.push_back(std::make_shared<const std::vector<RunEvent>>(std::move(events)));
  return known_.back();
}

EventPiece RecordedLengths::piece_of(const MemoryIds& ids, std::size_t begin, std::size_t end) {
  EventPiece piece;
  std::vector<RunEvent> events;
  events.reserve(end - begin);
  const std::vector<std::size_t>& returns = trace_.cache_returns();
  auto next_return = std::lower_bound(returns.begin(), returns.end(), begin);
  for (std::size_t i = begin; i <= end; ++i) {
    for (; next_return != returns.end() && *next_return == i && i < end; ++next_return) {
      events.push_back({.kind = RunEventKind::ReturnCache});
    }
    if (i == end) break;
    const MemoryEvent& event = trace_.events()[i];
    const int id = common_id(ids, event.id);
    if (event.is_free()) {
      events.push_back({.id = id, .kind = RunEventKind::Free});
      continue;
    }
    events.push_back({.id = id, .stream = event.stream, .kind = RunEventKind::Alloc});
    piece.bytes.push_back(event.bytes);
    if (is_input(id)) piece.turn = (id - base_.inputs_base()) % 3;
  }
  piece.events = share(std::move(events));
  return piece;
}

// The pieces of one step.
std::vector<EventPiece> RecordedLengths::pieces_of(const MemoryIds& ids, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> cuts = {begin};
  const std::vector<std::size_t>& marks = trace_.marks();
  for (std::size_t m = 0; m < marks.size(); ++m) {
    if (marks[m] <= begin || marks[m] >= end) continue;
    const std::size_t action_end = m + 1 < marks.size() ? std::min(marks[m + 1], end) : end;
    if (loads_inputs(trace_, marks[m], action_end)) cuts.push_back(marks[m]);
  }
  cuts.push_back(end);
  std::vector<EventPiece> pieces;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) pieces.push_back(piece_of(ids, cuts[i], cuts[i + 1]));
  return pieces;
}

Result<void> RecordedLengths::record(std::int64_t length, const Model& model, bool with_start) {
  if (has(length, with_start)) return {};
  Plan plan = plan_;
  plan.dimensions = model.dimensions;
  const ModelIndex index = index_of(model);
  TapeLibrary library(index);
  const std::int64_t rank = plan.mesh.coordinate_of(MeshAxis::DpShard, rank_);
  FSDP_TRY(const PreparedPlan prepared, prepare(index, cluster_, plan, mesh_, library, rank, PreparedFor::Walk));
  if (base_.total == 0) {
    base_ = prepared.ids;
    inputs_end_ = base_.inputs_base() + 3 * base_.num_inputs;
  }
  has_base_numbers_ = prepared.ids.call_base == base_.call_base;
  trace_.reset();
  MemoryWalk<TraceSink> walk(prepared.walk_input(), trace_);
  walk.initialize();
  walk.load_first_batch();
  std::vector<std::size_t> ends = {trace_.events().size()};
  for (int step = 0; step < kNumSteps; ++step) {
    if (!with_start && step + 1 == kNumSteps) {
      // Nothing reads the first steps, and a short list stays in the processor's cache.
      trace_.reset();
      ends = {0};
    }
    walk.step();
    ends.push_back(trace_.events().size());
  }
  returns_cache_ = returns_cache_ || !trace_.cache_returns().empty();
  LengthEvents& events = lengths_[length];
  if (with_start) {
    events.initialization = piece_of(prepared.ids, 0, ends[0]);
    events.first = pieces_of(prepared.ids, ends[0], ends[1]);
    events.second = pieces_of(prepared.ids, ends[1], ends[2]);
  }
  events.steady = pieces_of(prepared.ids, *(ends.end() - 2), ends.back());
  return {};
}

}  // namespace fsdp::simulator
