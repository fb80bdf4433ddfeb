#pragma once

// The tapes of a model: recorded once for each kind of call, shared by all its layers, kept between predictions.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/model_index.h"
#include "core/plan.h"
#include "simulator/op_rules.h"
#include "simulator/roofline.h"
#include "simulator/tape.h"
#include "simulator/timeline.h"

namespace fsdp::simulator {

/// A tape with its durations.
struct TimedTape {
  Tape tape;
  CallTimes times;
  std::optional<Error> refusal;  ///< PyTorch would not run the call as the runtime asks.
};

/// What tapes depend on beside the call and its checkpoint mode.
struct TapeSettings {
  OpRuleContext rules;
  std::vector<OpKind> selective_keep;
  bool every_second_linear = true;
  bool early_stop = true;
  ComputeCosts costs;

  bool operator==(const TapeSettings&) const = default;
};

class TapeLibrary {
 public:
  explicit TapeLibrary(const ModelIndex& index);

  /// The tape of a call. Stays where it is for the library's life.
  const TimedTape& tape(const TapeSettings& settings, int call, CheckpointMode mode);

 private:
  struct CallClass {
    int block = 0;
    TapeContext context;  // Without the mode.
  };
  struct Shelf {
    TapeSettings settings;
    std::vector<std::unique_ptr<KernelProgram>> programs;  // [num blocks]
    std::vector<std::unique_ptr<TimedTape>> tapes;         // [num classes * modes]
  };

  Shelf& shelf_of(const TapeSettings& settings);
  int class_of(int call);

  const ModelIndex& index_;
  std::vector<CallClass> classes_;
  std::vector<int> class_of_call_;  // [num_calls]
  std::vector<std::unique_ptr<Shelf>> shelves_;
};

}  // namespace fsdp::simulator
