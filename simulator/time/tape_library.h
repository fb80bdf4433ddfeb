#pragma once

// The tapes of a model: recorded once for each kind of call, shared by all its layers, and reused between predictions.
// tape_library.cpp explains how the memory order of tensors passes from call to call.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "simulator/ops/muon_step.h"
#include "simulator/ops/op_rules.h"
#include "simulator/ops/tape.h"
#include "simulator/ops/tape_runs.h"
#include "simulator/time/roofline.h"
#include "simulator/time/timeline.h"

namespace fsdp::simulator {

/// A tape with its durations.
struct TimedTape {
  Tape tape;
  CallTimes times;
  std::optional<Error> refusal;  ///< The reason why PyTorch would not run the call with the requested implementation.
};

/// The inputs of tapes other than the call and its checkpoint mode.
struct TapeSettings {
  OpRuleContext rules;
  Checkpointing checkpointing;  ///< Without entries. Its saved ops matter only to tapes of selective checkpointing.
  ComputeCosts costs;
  const KernelWorkspaces* workspaces = nullptr;  ///< For a CPU. REQUIRES: it outlives the library.
  std::vector<bool> cast_inputs;                 ///< [num inputs] True if the root casts it to the activations' dtype.
  std::vector<Dtype> parameter_dtypes = {};      ///< [num parameters] As for expand_block().
  KeptWorkspaces kept_workspaces = {};

  bool operator==(const TapeSettings&) const = default;
};

class TapeLibrary {
 public:
  explicit TapeLibrary(const ModelIndex& index);

  /// The tapes of settings that differ only in what selective checkpointing saves. Valid for the library's life.
  class Shelf;
  Shelf& shelf(const TapeSettings& settings);

  /// The tape of a call with FSDP2's hooks inside it, if selective checkpointing saves the ops of `kept`. Valid for the
  /// library's life.
  const TimedTape& tape(const Shelf& shelf, const Checkpointing& kept, int call, CheckpointMode mode,
                        const std::vector<Span>& hooks = {});
  const TimedTape& tape(const TapeSettings& settings, int call, CheckpointMode mode,
                        const std::vector<Span>& hooks = {});

  /// Muon's part of a step. Valid for the library's life. REQUIRES: the plan has Muon.
  const MuonStep& muon_step(const Layout& layout, const Plan& plan, const Cluster& cluster) {
    return muon_steps_.of(*index_.model, layout, plan, cluster);
  }

 private:
  struct CallClass {
    int block = 0;
    int call = 0;         // The first of them.
    TapeContext context;  // Without the mode.
  };
  struct Program {
    int block = 0;
    std::vector<Shape> input_strides;                // [num inputs]
    std::vector<std::optional<Dtype>> input_dtypes;  // [num inputs] Those that differ from the block's.
    std::vector<Dtype> parameter_dtypes;             // [num parameters] If each read makes a copy.
    KernelProgram program;
  };
  struct Recorded {
    CheckpointMode mode = CheckpointMode::None;
    std::vector<OpKind> kept;  // Ops of selective checkpointing.
    bool every_second_linear = false;
    std::vector<Span> hooks;
    std::unique_ptr<TimedTape> tape;
  };
  /// Calls that are equal in everything that their tapes depend on.
  struct Kind {
    int call_class = 0;
    const Program* program = nullptr;
    std::vector<Shape> output_grad_strides;  // [num outputs]
    std::vector<Recorded> recorded;
  };

  int class_of(int call);
  std::vector<NamedWork> works_of(const TapeSettings& settings, int call) const;
  void lay_out(Shelf& shelf);
  const Program* program_of(Shelf& shelf, const Call& call, std::vector<Shape> input_strides,
                            std::vector<std::optional<Dtype>> input_dtypes);
  Kind* kind_of(Shelf& shelf, int call_class, const Program* program, std::vector<Shape> output_grad_strides);
  const TimedTape& tape_of(const Shelf& shelf, Kind& kind, const Checkpointing& kept, CheckpointMode mode,
                           const std::vector<Span>& hooks);
  TimedTape make_tape(const TapeSettings& settings, const Kind& kind, const Checkpointing& kept, CheckpointMode mode,
                      const std::vector<Span>& hooks) const;

  const ModelIndex& index_;
  std::vector<CallClass> classes_;
  std::vector<int> class_of_call_;  // [num_calls]
  std::vector<std::unique_ptr<Shelf>> shelves_;
  MuonSteps muon_steps_;
};

class TapeLibrary::Shelf {
  friend class TapeLibrary;
  TapeSettings settings;
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<std::unique_ptr<Kind>> kinds;
  std::vector<Kind*> kind_of_call;  // [num_calls]
};

}  // namespace fsdp::simulator
