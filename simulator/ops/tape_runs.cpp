// A search plays each tape many thousands of times only to find the maximum of the live bytes. Most events of a tape
// allocate and free storages that no other call, gradient or hook can see. A row of them always changes the sums in the
// same way, so we compute once by how much each pool changes, and how far it rises in between.
//
// A storage counts as seen from outside if any event besides Alloc and Free names it, if an output lies in it, or if it
// is not made once and freed once after that, in the order forward, recomputation, backward. Its events are played one
// by one. Peaks of the sums equal those of the single events. A kept workspace is requested once: by the first request
// in a run of events.

#include "simulator/ops/tape_runs.h"

#include <algorithm>
#include <utility>

namespace fsdp::simulator {

namespace {

using Kind = TapeEvent::Kind;

bool names_own_storage(Kind kind) {
  switch (kind) {
    case Kind::ReleaseOutput:
    case Kind::ShareGrad:
    case Kind::UnshareGrad:
    case Kind::EmitGrad:
    case Kind::HoldOwn:
    case Kind::HoldInForward:
    case Kind::Carry:
      return true;
    case Kind::Alloc:
    case Kind::Free:
    case Kind::AllocParamGrad:
    case Kind::AddParamGrad:
    case Kind::ReleaseInput:
    case Kind::ReleaseGradOut:
    case Kind::ReleaseGradIn:
    case Kind::ForwardGradOut:
    case Kind::EmitInput:
    case Kind::HoldInput:
    case Kind::LeaveAutocast:
    case Kind::DropCarried:
    case Kind::ReleaseParam:
    case Kind::CallUnit:
    case Kind::Benchmark:
    case Kind::Exchange:
    case Kind::Workspace:
      return false;
  }
  return true;
}

/// Storages that others see, and the bytes of the other ones.
class Storages {
 public:
  explicit Storages(const Tape& tape)
      : is_seen(static_cast<std::size_t>(tape.num_storages), false), bytes(is_seen.size(), 0) {
    for (const Storage& output : tape.output) {
      if (output.kind == Storage::Kind::Inside) is_seen[output.index] = true;
    }
    std::vector<bool> is_alive(is_seen.size(), false);
    for (const auto* events : {&tape.forward, &tape.recompute, &tape.backward}) {
      for (const TapeEvent& event : *events) {
        if (event.kind == Kind::Alloc) {
          const std::int64_t rounded = round_up_to_power(event.bytes, PoolBytes::kBlock);
          const bool is_other = bytes[event.storage] != 0 && bytes[event.storage] != rounded;
          if (is_alive[event.storage] || is_other) is_seen[event.storage] = true;
          is_alive[event.storage] = true;
          bytes[event.storage] = rounded;
        } else if (event.kind == Kind::Free) {
          if (!is_alive[event.storage]) is_seen[event.storage] = true;
          is_alive[event.storage] = false;
        } else if (names_own_storage(event.kind)) {
          is_seen[event.storage] = true;
        }
      }
    }
    for (std::size_t s = 0; s < is_seen.size(); ++s) is_seen[s] = is_seen[s] || is_alive[s];
  }

  std::vector<bool> is_seen;        // [num storages]
  std::vector<std::int64_t> bytes;  // [num storages] In blocks.
};

Tape::Runs runs_of(const std::vector<TapeEvent>& events, Tape::Range range, const Storages& storages,
                   const KeptWorkspaces& kept) {
  Tape::Runs result{.of = range, .runs = {}};
  bool is_open = false;
  KeptWorkspaces has = {};
  for (std::int32_t e = range.first; e < range.last; ++e) {
    const TapeEvent& event = events[e];
    if (event.kind == Kind::Workspace) {
      const auto which = static_cast<std::size_t>(event.storage);
      if (kept[which] && std::exchange(has[which], true)) continue;
    }
    const bool is_alloc = event.kind == Kind::Alloc;
    if ((!is_alloc && event.kind != Kind::Free) || storages.is_seen[event.storage]) {
      result.runs.push_back({.event = e});
      is_open = false;
      continue;
    }
    if (!is_open) result.runs.emplace_back();
    is_open = true;
    result.runs.back().add(storages.bytes[event.storage], is_alloc ? 1 : -1);
  }
  return result;
}

Tape::RunsOfPieces runs_of_pieces(const std::vector<TapeEvent>& events, Tape::Range all,
                                  const std::vector<Tape::Range>& parts, const Storages& storages,
                                  const KeptWorkspaces& kept) {
  Tape::RunsOfPieces result = {runs_of(events, all, storages, kept)};
  std::vector<std::int32_t> borders = {0, static_cast<std::int32_t>(events.size())};
  for (const Tape::Range& part : parts) borders.insert(borders.end(), {part.first, part.last});
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  for (std::size_t b = 0; b + 1 < borders.size(); ++b) {
    result.push_back(runs_of(events, {borders[b], borders[b + 1]}, storages, kept));
  }
  return result;
}

/// Counts the tape's own storages by pool, as Tape::kept_bytes and Tape::backward_peak do for both pools together.
class PoolCount {
 public:
  explicit PoolCount(const Tape& tape) : bytes_(static_cast<std::size_t>(tape.num_storages), 0) {}

  void play(const std::vector<TapeEvent>& events) {
    for (const TapeEvent& event : events) {
      if (event.kind == Kind::Alloc) {
        put(event.storage, event.bytes);
      } else if (event.kind == Kind::Free || event.kind == Kind::ReleaseOutput || event.kind == Kind::EmitGrad) {
        put(event.storage, 0);
      }
      peak.small = std::max(peak.small, inside.small);
      peak.large = std::max(peak.large, inside.large);
    }
  }
  void put(std::int32_t storage, std::int64_t bytes) {
    std::int64_t& known = bytes_[static_cast<std::size_t>(storage)];
    inside.add(known, -1);
    inside.add(bytes);
    known = bytes;
  }

  PoolBytes inside;
  PoolBytes peak;

 private:
  std::vector<std::int64_t> bytes_;  // [num storages]
};

void add_pools(Tape& tape) {
  PoolCount count(tape);
  count.play(tape.forward);
  for (const Storage& output : tape.output) {
    if (output.kind == Storage::Kind::Inside) count.put(output.index, 0);
  }
  tape.kept_pools = count.inside;
  count.peak = {};
  count.play(tape.recompute);
  count.play(tape.backward);
  tape.peak_pools = count.peak;
}

}  // namespace

void add_runs(Tape& tape, const KeptWorkspaces& kept) {
  add_pools(tape);
  const Storages storages(tape);
  if (!tape.forward_of_op.empty()) {
    const Tape::Range all{tape.forward_of_op.front().first, tape.forward_of_op.back().last};
    tape.forward_runs = runs_of_pieces(tape.forward, all, tape.forward_of_op, storages, kept);
  }
  const Tape::Range recomputation{0, static_cast<std::int32_t>(tape.recompute.size())};
  tape.recompute_runs = runs_of_pieces(tape.recompute, recomputation, tape.recompute_of_op, storages, kept);
  if (!tape.backward_of_op.empty()) {
    const Tape::Range all{tape.backward_of_op.back().first, tape.backward_of_op.front().last};
    std::vector<Tape::Range> parts = tape.backward_of_op;
    parts.insert(parts.end(), tape.hooks_of_op.begin(), tape.hooks_of_op.end());
    tape.backward_runs = runs_of_pieces(tape.backward, all, parts, storages, kept);
  }
}

}  // namespace fsdp::simulator
