#pragma once

// The simulated GPU and its behavior: the environment variables STUB_GPU_*, read once.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::rehearsal {

/// The facts of the card that PyTorch and the libraries above the driver base their choices on.
struct Card {
  std::string name = "NVIDIA H100 80GB HBM3";
  int compute_capability = 90;  ///< 90 is 9.0.
  int sms = 132;
  int l2_bytes = 50 << 20;
  int shared_per_block_bytes = 232448;  ///< The opt-in maximum.
  int shared_per_sm_bytes = 233472;
  int threads_per_sm = 2048;
  int bus_bits = 5120;
  uint64_t total_bytes = uint64_t{81080} << 20;  ///< The total of cudaMemGetInfo.

  int major() const { return compute_capability / 10; }
  int minor() const { return compute_capability % 10; }
};

/// When recorded work counts as finished.
enum class EventTiming {
  Done,  ///< At once.
  Hold,  ///< Only when the host has waited for it.
  Lag,   ///< When that many kernels were launched after it, or the host has waited for it.
};

/// A fault of the card.
enum class Fault {
  Nothing,
  Hang,            ///< A collective never ends, nor does work that waits for it.
  IllegalAddress,  ///< A kernel reads an illegal address: from then on every query of the device returns the error.
  Event,           ///< An event cannot be recorded.
};

/// The events written to stderr.
enum class Trace { Memory, Kernels, Nccl, Calls };

struct Options {
  Card card;
  uint64_t context_bytes = 0;  ///< Device memory of each process's context.
  int devices = 1;
  int first_device = 0;                ///< The number in the node of the first visible card; the addresses encode it.
  std::map<int, uint64_t> nccl_bytes;  ///< Group size to bytes of one communicator.
  uint64_t nccl_bytes_otherwise = 0;   ///< For an unlisted size.
  /// The workspace of each cuDNN plan; nullopt to ask the real cuDNN.
  std::optional<uint64_t> cudnn_workspace_bytes;
  EventTiming events = EventTiming::Done;
  uint64_t event_lag = 0;  ///< Number of kernels, for EventTiming::Lag.
  bool addresses_go_down = false;
  Fault fault = Fault::Nothing;
  uint64_t fault_at = 0;  ///< The number of the collective, kernel or event record at which the fault occurs, counted
                          ///< from 1.
  std::vector<Trace> traces;
};

/// How the parser reads a variable: the environment, or a test's own table.
using Lookup = std::optional<std::string> (*)(const char* name);

/// Reads the variables. Adds a sentence to `errors` for each mistake.
Options parse_options(Lookup lookup, std::vector<std::string>& errors);

/// The options of this process. Mistakes are all printed and end the process with status 3: a rehearsal of the wrong
/// card would be worse than none.
const Options& options();

/// Device memory of a communicator of that many ranks. 0 for one rank, which has no peers.
uint64_t nccl_bytes_of(int ranks);

/// Writes a line to stderr if this kind of trace was asked for.
void trace(Trace which, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace fsdp::rehearsal
