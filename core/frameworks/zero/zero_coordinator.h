#pragma once

// Which parameters ZeRO-3 gathers and lets go when: DeepSpeed's PartitionedParameterCoordinator, call by call.
// zero_coordinator.cpp says how it decides.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/frameworks/zero/zero_drive_reader.h"
#include "core/plan/schedule_writer.h"

namespace fsdp {

/// Keeps what DeepSpeed keeps from one step to the next. Modules are numbered as in `Layout::hooked`.
class ZeroCoordinator {
 public:
  ZeroCoordinator(const Layout& layout, const Plan& plan, std::size_t num_parameters);

  /// Where the schedule of the next step is written. REQUIRES: it lives until the next call.
  void write_to(ScheduleWriter& out) { out_ = &out; }

  /// A forward begins.
  void begin_forward();
  /// A module is about to run, forward or backward.
  void fetch(int module, bool forward);
  /// A module has run.
  void release(int module, bool forward);
  /// A forward that a checkpointed block runs again: what is frozen belongs to the module whose backward asked for it.
  void set_recomputing(bool recomputes) { recomputes_ = recomputes; }
  /// A backward is over: modules whose inputs need no gradient were not left.
  void release_left();
  /// The optimizer's turn.
  void release_all();
  /// Gathers parameters that stay whole again, updated; second copies of what was updated are given up.
  void gather_persistent();
  /// The part of earlier micro-batches that decides on later ones. Nothing: more than is worth comparing.
  struct Remembered {
    std::vector<bool> available;  ///< [parameters]
    std::vector<bool> has_copy;   ///< [parameters]
    std::size_t num_answers = 0;  ///< Modules and places that were asked what may be let go.
    std::size_t num_unknown = 0;  ///< External parameters that no forward has read.

    bool operator==(const Remembered&) const = default;
  };
  /// REQUIRES: between two micro-batches.
  std::optional<Remembered> remembered() const;
  /// The step is over: its schedule says what was read from a drive.
  void end_step() { out_->schedule.drive = drive_.take_counts(); }

 private:
  enum class Status : std::uint8_t { NotAvailable, InFlight, Available };
  enum class Trace : std::uint8_t { Invalid, Record, Complete };
  static constexpr std::int64_t kNever = -10'000'000'000;
  static constexpr int kNoFetch = -1;

  struct State {
    Status status = Status::NotAvailable;
    std::vector<int> active;  // Modules that need it now.
    int fetch = kNoFetch;     // The gather that nobody has asked it of, in `fetches_`.
    std::int64_t fetched_for = kNever;
    std::int64_t elements = 0;
    bool persists = false;
    bool has_copy = false;  // Its neighbors have a second copy (hpZ).
    bool is_trained = true;
    int order = 0;  // DeepSpeed's number of it.
  };
  struct Fetch {
    std::vector<int> parameters;
    int group = -1;
    int left = 0;  // Parameters that nobody has asked for.
    bool is_waited_for = false;
  };
  struct Use {
    int parameter = 0;
    std::int64_t step = 0;
  };

  const std::vector<int>& own(int module) const { return own_[module]; }
  void gather(std::vector<int> parameters);
  void gather_from(std::vector<int> parameters, const RankGroup& ranks);
  void gather_unknown(int module);
  void ask_for(int parameter);
  void take(int parameter);
  void prefetch(int module);
  void read_ahead();
  void release_one(int parameter, std::vector<int>& released);
  void emit_release(std::vector<int> released);
  int gathered_group(std::vector<int> parameters, const RankGroup& ranks);
  int add_group(ParameterGroup group);
  const std::vector<int>& releasable(int module);
  std::vector<int> find_releasable(int module) const;
  void complete_trace();

  const Plan& plan_;
  const RankGroup ranks_;      // All of them, or none where there is one,
  const RankGroup neighbors_;  // and those that share a second copy.
  const bool is_cut_;          // Over more than one rank.
  const bool has_copies_;      // A second time over some of them.
  const bool is_fetched_;      // Parameters come from other ranks, or from the host: else nothing moves.
  ZeroDriveReader drive_;
  ScheduleWriter* out_ = nullptr;
  std::vector<std::vector<int>> own_;      // [modules] In `Model::parameters`.
  std::vector<std::vector<int>> unknown_;  // [modules] Of them, external ones that no forward has read yet.
  std::vector<State> states_;              // [parameters]
  std::vector<Fetch> fetches_;             // For this step.
  std::vector<int> in_flight_;             // Parameters with a fetch, in order.
  Trace trace_ = Trace::Invalid;
  std::vector<int> order_;  // Modules as they were fetched for in the step that was recorded.
  std::vector<Use> uses_;   // Their needs, in order.
  std::deque<Use> queue_;   // Not fetched yet in this micro-batch.
  std::int64_t step_ = 0;   // Modules fetched for so far.
  std::int64_t num_available_ = 0;
  std::vector<int> in_backward_;                  // Modules that were entered and not left, in order.
  std::vector<std::vector<int>> recomputed_for_;  // [modules]
  bool recomputes_ = false;
  std::map<std::pair<int, std::int64_t>, std::vector<int>> releasable_;  // DeepSpeed keeps the first answer.
};

}  // namespace fsdp
