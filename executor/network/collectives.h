#pragma once

// The interface between a schedule and the network: FSDP2's collectives, started now and awaited later.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/report/report.h"

namespace fsdp::executor {

/// A collective that failed: a rank that died, a time-out, a broken link.
class CollectiveFailure : public std::runtime_error {
 public:
  /// `instruction`: the index of the instruction that had started it. Defaults to -1, the current instruction.
  explicit CollectiveFailure(const std::string& what, std::int64_t instruction = -1)
      : std::runtime_error(what), instruction_(instruction) {}

  std::int64_t instruction() const { return instruction_; }

 private:
  std::int64_t instruction_;
};

/// A collective in progress.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns when the result is available; on a GPU at once, because streams wait for each other. Throws
  /// CollectiveFailure.
  virtual void wait() = 0;
};

enum class ReduceOp : std::uint8_t { Sum, Average };

/// Ranks that communicate with each other. On a GPU a collective is work of the current stream.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// `input` [S] is this rank's part of `output` [size * S].
  virtual std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  /// `output` [S] becomes this rank's part of the sum over all `input` [size * S]; `input` may be overwritten.
  virtual std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
};

/// How reductions are done on CPUs.
enum class ReduceAlgorithm : std::uint8_t {
  Direct,  ///< Every rank sends each other its part, and adds in the order of the ranks: half of Gloo's bytes.
  Parity,  ///< Gloo's own reduce-scatter, which adds in the same order as PyTorch's FSDP2 over Gloo: equal bits.
};

/// This process's place in a run, from the variables of the engine that started it.
struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string engine;      ///< "fsdp-plan", "torchrun", "mpirun", "srun", or "" if started by hand.
  std::string store_file;  ///< A file that all ranks see, instead of an address.
  std::string master_address;
  int master_port = 0;
  bool agent_has_store = false;  ///< torchrun's agent serves the store already.
  std::string restart;           ///< Number of the restart. Keys of the store include it, and also
  std::string run_id;            ///< the engine's name of this run. May be empty.
};

/// Reads the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT of torchrun and Ray, else Open MPI's
/// or Slurm's. Error: each variable that is missing or not a number.
Result<Launch> read_launch();

/// Makes groups of ranks over Gloo. Each group is one process group with its own connections.
class GlooNetwork {
 public:
  /// Waits for all ranks. Throws CollectiveFailure if one does not come within `timeout`.
  GlooNetwork(const Launch& launch, std::chrono::milliseconds timeout, ReduceAlgorithm algorithm);
  ~GlooNetwork();
  GlooNetwork(const GlooNetwork&) = delete;
  GlooNetwork& operator=(const GlooNetwork&) = delete;

  /// The group of these ranks, which include this process. All of them call it with the same name.
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& ranks);
  /// Compares a text among all ranks: returns the ranks whose text differs from rank 0's. Throws CollectiveFailure with
  /// the ranks that have not come in time.
  std::vector<int> ranks_that_differ(const std::string& text);
  /// Returns when all ranks have called it.
  void barrier(const std::string& name);
  /// Call when all ranks have made all of their groups. Closes the store to new connections, and disconnects everyone
  /// who is no rank. (A store that an engine's agent serves does not change.) Throws CollectiveFailure.
  void end_meeting();
  /// A stranger's act on this rank's store that ended the meeting. Empty if there was none.
  std::string intrusion() const;
  /// Returns when no rank uses this one's store any more, or after some seconds. Each rank calls it last, and does not
  /// use the network afterwards. Never throws.
  void leave();
  /// Publishes bytes to all ranks, and waits for those that another has published. Throws CollectiveFailure.
  void put(const std::string& name, const std::string& bytes);
  std::string get(const std::string& name);
  /// Tells the others that this rank has failed, and waits some seconds for them to report the same. Returns those that
  /// did not, which hang or have died. Never throws.
  std::vector<int> silent_ranks();

  /// From now on this rank sends heartbeats to the others, and checks theirs (executor/network/heartbeat.h).
  void begin_heartbeat(std::chrono::milliseconds patience);
  /// The end of a rank that failed or is silent, in words. Empty if none is known, or without a heartbeat.
  std::string lost() const { return listener()(); }
  /// The same, from any thread, and also after this network's end.
  std::function<std::string()> listener() const;
  /// Informs the others that this rank has failed, if there is a heartbeat. Never throws.
  void say_failed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A stand-in for a group of any size in one process: it moves no bytes between ranks, so that the memory of one rank
/// can be measured alone. Data of other ranks are replaced by this rank's own.
std::unique_ptr<Group> stand_in_group(int rank, int size);

}  // namespace fsdp::executor
