#pragma once

// The one seam between a schedule and the network: the collectives of FSDP2, started now and waited for later.

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
  /// `instruction`: the index of the instruction that had started it, where that is not the one at work; -1: it is.
  explicit CollectiveFailure(const std::string& what, std::int64_t instruction = -1)
      : std::runtime_error(what), instruction_(instruction) {}

  std::int64_t instruction() const { return instruction_; }

 private:
  std::int64_t instruction_;
};

/// A collective under way.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns when the result is there; on a GPU at once, where streams wait for each other. Throws CollectiveFailure.
  virtual void wait() = 0;
};

enum class ReduceOp : std::uint8_t { Sum, Average };

/// Ranks that communicate with each other. On a GPU a collective is work of the current stream.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// `input` [S] is the part of `output` [size * S] that belongs to this rank.
  virtual std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  /// `output` [S] becomes this rank's part of the sum over all `input` [size * S]; `input` may be overwritten.
  virtual std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
};

/// How reductions are done on CPUs.
enum class ReduceAlgorithm : std::uint8_t {
  Direct,  ///< Every rank sends each other its part, and adds in the order of the ranks: half of Gloo's bytes.
  Parity,  ///< Gloo's own reduce-scatter, which adds in the order that PyTorch's FSDP2 gets on Gloo: equal bits.
};

/// Where this process stands among those of a run, from the variables of the engine that started it.
struct Launch {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string engine;      ///< "fsdp-plan", "torchrun", "mpirun", "srun", or "" when started by hand.
  std::string store_file;  ///< A file that all ranks see, instead of an address.
  std::string master_address;
  int master_port = 0;
  bool agent_has_store = false;  ///< torchrun's agent serves the store already.
  std::string restart;  ///< Number of the restart, which keys of the store must not cross, as little as those of
  std::string run_id;   ///< another run: what the engine calls this one. May be empty.
};

/// Reads the environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT of torchrun and Ray, else Open MPI's
/// or Slurm's. Error: what is missing or no number.
Result<Launch> read_launch();

/// Makes groups of ranks over Gloo. One process group with its own connections for each group.
class GlooNetwork {
 public:
  /// Waits for all ranks. Throws CollectiveFailure when one does not come in `timeout`.
  GlooNetwork(const Launch& launch, std::chrono::milliseconds timeout, ReduceAlgorithm algorithm);
  ~GlooNetwork();
  GlooNetwork(const GlooNetwork&) = delete;
  GlooNetwork& operator=(const GlooNetwork&) = delete;

  /// The group of these ranks, of which this process is one. All of them call it with the same name.
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& ranks);
  /// Exchanges a text among all ranks: the ranks whose text is not that of rank 0. Throws CollectiveFailure with the
  /// ranks that have not come in time.
  std::vector<int> ranks_that_differ(const std::string& text);
  /// Returns when all ranks have called it.
  void barrier(const std::string& name);
  /// All ranks have made all groups that they will make. Who comes to the store after that finds nobody, and who is
  /// connected to it and no rank is put out. (A store that an engine's agent serves stays as it is.) Throws
  /// CollectiveFailure.
  void end_meeting();
  /// The act of a stranger on the store of this rank that ended the meeting. Empty if there was none.
  std::string intrusion() const;
  /// Returns when no rank asks this one's store for anything any more, or after some seconds. Each rank calls it last,
  /// and uses the network no more. Never throws.
  void leave();
  /// Makes bytes known to all ranks, and waits for those that another has made known. Throws CollectiveFailure.
  void put(const std::string& name, const std::string& bytes);
  std::string get(const std::string& name);
  /// Says to the others that this rank has failed, and waits some seconds for them to say so too: those that did not,
  /// which hang or are no more. Never throws.
  std::vector<int> silent_ranks();

  /// From now on this rank tells the others that it lives, and hears whether they do (executor/network/heartbeat.h).
  void begin_heartbeat(std::chrono::milliseconds patience);
  /// The end of a rank that failed or is not heard any more, in words. Empty: nothing is known, or no
  /// heartbeat.
  std::string lost() const { return listener()(); }
  /// The same, from any thread and for longer than this network lives.
  std::function<std::string()> listener() const;
  /// Tells the others that this rank has failed, if there is a heartbeat. Never throws.
  void say_failed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A stand-in for a group of any size in one process: it moves no bytes between ranks, so that the memory of one rank
/// can be measured alone. What others would have sent is this rank's own.
std::unique_ptr<Group> stand_in_group(int rank, int size);

}  // namespace fsdp::executor
