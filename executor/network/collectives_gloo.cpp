// Collectives over Gloo, PyTorch's CPU backend, through c10d.
//
// All-gather: every rank sends its part to each other rank, straight into the output. Gloo's own goes through a
// full-size temporary. Reduce-scatter: an all-to-all, then a sum in the order of the ranks. Gloo's own is an all-reduce
// on a clone, with twice the bytes; `ReduceAlgorithm::Parity` uses it. For N ranks and S bytes per part each rank sends
// (N - 1) S in our version of either.
//
// A Work of Gloo may live on in a worker thread after wait() has returned, and so may its tensors. So no code relies on
// dropping the last reference: the executor frees buffers through their storage (executor/memory/tensors.h).
//
// Sources: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, torch 2.11; pytorch issues 118911 and 149869 on the
// reduce-scatter.

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/split.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"
#include "executor/network/collectives.h"
#include "executor/network/heartbeat.h"
#include "executor/network/local_address.h"
#include "executor/network/store.h"

namespace fsdp::executor {

namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

void wait_for(Works& works) {
  guarded([&] {
    for (auto& work : works) work->wait();
  });
  works.clear();
}

class PendingWorks final : public Pending {
 public:
  explicit PendingWorks(Works works) : works_(std::move(works)) {}
  void wait() override { wait_for(works_); }

 private:
  Works works_;
};

// The parts of all ranks have arrived; their sum is not computed yet.
class PendingSum final : public Pending {
 public:
  PendingSum(Works works, at::Tensor parts, at::Tensor output, double divisor)
      : works_(std::move(works)), parts_(std::move(parts)), output_(std::move(output)), divisor_(divisor) {}

  void wait() override {
    wait_for(works_);
    const at::Tensor rows = parts_.view({-1, output_.numel()});
    output_.copy_(rows.select(0, 0));
    for (std::int64_t i = 1; i < rows.size(0); ++i) output_.add_(rows.select(0, i));
    empty_storage(parts_);
    if (divisor_ != 1) output_.div_(divisor_);
  }

 private:
  Works works_;
  at::Tensor parts_;
  at::Tensor output_;
  double divisor_;
};

// Gloo has only sums; the average divides afterwards.
class PendingAverage final : public Pending {
 public:
  PendingAverage(Works works, at::Tensor output, double divisor)
      : works_(std::move(works)), output_(std::move(output)), divisor_(divisor) {}

  void wait() override {
    wait_for(works_);
    if (divisor_ != 1) output_.div_(divisor_);
  }

 private:
  Works works_;
  at::Tensor output_;
  double divisor_;
};

class GlooGroup final : public Group {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, ReduceAlgorithm algorithm)
      : gloo_(std::move(gloo)), algorithm_(algorithm) {}

  int rank() const override { return gloo_->getRank(); }
  int size() const override { return gloo_->getSize(); }

  std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return guarded([&] {
      Works works;
      const at::Tensor slots = output.view({size(), -1});
      if (slots.select(0, rank()).data_ptr() != input.data_ptr()) slots.select(0, rank()).copy_(input);
      const int tag = next_tag();
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size();
        const int from = (rank() - step + size()) % size();
        std::vector<at::Tensor> part = {slots.select(0, from)};
        std::vector<at::Tensor> own = {slots.select(0, rank())};
        works.push_back(gloo_->recv(part, from, tag));
        works.push_back(gloo_->send(own, to, tag));
      }
      return std::make_unique<PendingWorks>(std::move(works));
    });
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return guarded([&]() -> std::unique_ptr<Pending> {
      const double divisor = op == ReduceOp::Average ? size() : 1;
      at::Tensor from = input;
      if (algorithm_ == ReduceAlgorithm::Parity) {
        at::Tensor to = output;
        return std::make_unique<PendingAverage>(Works{gloo_->_reduce_scatter_base(to, from)}, output, divisor);
      }
      const CategoryScope buffers(MemoryCategory::ReduceScatter);
      at::Tensor parts = at::empty_like(input);
      std::vector<std::int64_t> equal_parts;
      Works works{gloo_->alltoall_base(parts, from, equal_parts, equal_parts)};
      return std::make_unique<PendingSum>(std::move(works), parts, output, divisor);
    });
  }

  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return guarded([&] {
      std::vector<at::Tensor> tensors = {tensor};
      const double divisor = op == ReduceOp::Average ? size() : 1;
      c10d::AllreduceOptions options;
      return std::make_unique<PendingAverage>(Works{gloo_->allreduce(tensors, options)}, tensor, divisor);
    });
  }

 private:
  int next_tag() { return tag_ = (tag_ + 1) & 0xffffff; }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  ReduceAlgorithm algorithm_;
  int tag_ = 0;
};

/// How long the rank that serves the store waits for the others, which are done as well.
constexpr std::chrono::seconds kForThoseWhoLeave{10};

/// A hash by which ranks compare the text, so that neither its contents nor its length are sent.
std::string digest_of(const std::string& text) {
  constexpr std::uint64_t kPrime = 0x100000001b3;  // FNV-1a.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return fmt::format("{} {:016x}", text.size(), hash);
}

// GLOO_SOCKET_IFNAME chooses the interface, as for PyTorch.
std::shared_ptr<::gloo::transport::Device> make_device(const Launch& launch) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    const std::vector<std::string> here = network_interfaces();
    if (std::find(here.begin(), here.end(), interface) == here.end()) {
      throw CollectiveFailure(
          fmt::format("GLOO_SOCKET_IFNAME names \"{}\", and no interface of this machine with an "
                      "address is called so. It has {}",
                      interface, fmt::join(here, ", ")));
    }
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  const Result<std::string> own =
      local_address_towards(launch.store_file.empty() ? launch.master_address : "127.0.0.1");
  if (!own) throw CollectiveFailure(to_string(own.error().front()));
  return c10d::ProcessGroupGloo::createDeviceForHostname(*own);
}

}  // namespace

struct GlooNetwork::State {
  Launch launch;
  std::chrono::milliseconds timeout{0};
  ReduceAlgorithm algorithm = ReduceAlgorithm::Direct;
  MeetingPlace place;
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<Heartbeat> heartbeat;
};

GlooNetwork::GlooNetwork(const Launch& launch, std::chrono::milliseconds timeout, ReduceAlgorithm algorithm)
    : state_(std::make_unique<State>()) {
  guarded([&] {
    state_->launch = launch;
    state_->timeout = timeout;
    state_->algorithm = algorithm;
    state_->place = make_store(launch, timeout);
    state_->device = make_device(launch);
  });
}

GlooNetwork::~GlooNetwork() = default;

std::unique_ptr<Group> GlooNetwork::group(const std::string& name, const std::vector<int>& ranks) {
  return guarded([&] {
    int own = -1;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == state_->launch.rank) own = static_cast<int>(i);
    }
    auto options = c10d::ProcessGroupGloo::Options::create(state_->timeout);
    options->devices.push_back(state_->device);
    const auto store = c10::make_intrusive<c10d::PrefixStore>(name, state_->place.store);
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, own, static_cast<int>(ranks.size()), options);
    return std::make_unique<GlooGroup>(std::move(gloo), state_->algorithm);
  });
}

std::vector<int> GlooNetwork::ranks_that_differ(const std::string& text) {
  const int world_size = state_->launch.world_size;
  const auto key = [](int rank) { return fmt::format("text/{}", rank); };
  guarded([&] { state_->place.store->set(key(state_->launch.rank), digest_of(text)); });
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(key(rank));
  try {
    state_->place.store->wait(keys, state_->timeout);
  } catch (const std::exception&) {
    std::string missing;
    for (int rank = 0; rank < world_size; ++rank) {
      if (!guarded([&] { return state_->place.store->check({key(rank)}); })) missing += fmt::format(" rank {},", rank);
    }
    if (!missing.empty()) missing.pop_back();
    throw CollectiveFailure(
        fmt::format("not there after {:.0f} s:{}", std::chrono::duration<double>(state_->timeout).count(), missing));
  }
  return guarded([&] {
    std::vector<int> differing;
    const std::string first = state_->place.store->get_to_str(key(0));
    for (int rank = 1; rank < world_size; ++rank) {
      if (state_->place.store->get_to_str(key(rank)) != first) differing.push_back(rank);
    }
    return differing;
  });
}

void GlooNetwork::barrier(const std::string& name) {
  guarded([&] {
    const std::string key = "barrier/" + name;
    const std::int64_t came = state_->place.store->add(key, 1);
    if (came == state_->launch.world_size) state_->place.store->set(key + "/all", std::string("yes"));
    state_->place.store->wait({key + "/all"}, state_->timeout);
  });
}

// The remaining connections are those that the ranks have named: a stranger in that list has ended the run, and nobody
// can fill the memory of rank 0 from then on. The request in between ensures that the store's own thread has finished
// accepting connections.
void GlooNetwork::end_meeting() {
  guarded([&] {
    constexpr std::size_t kMostEnds = 2;  // The store's own, and the heartbeat's.
    State& state = *state_;
    if (!state.launch.store_file.empty() || state.launch.agent_has_store) return;
    const auto key = [](int rank) { return fmt::format("ends/{}", rank); };
    std::vector<std::string> own = own_ends(state.place.door ? state.place.door->port() : state.launch.master_port);
    own.resize(std::min(own.size(), kMostEnds));
    state.place.store->set(key(state.launch.rank), fmt::format("{}", fmt::join(own, "\n")));
    barrier("met");
    if (!state.place.door) return;
    state.place.door->close();
    std::set<std::string> ends;
    for (int rank = 0; rank < state.launch.world_size; ++rank) {
      const std::string text = state.place.store->get_to_str(key(rank));
      const std::vector<std::string_view> said = split(text, '\n');
      ends.insert(said.begin(), said.begin() + static_cast<std::ptrdiff_t>(std::min(said.size(), kMostEnds)));
    }
    if (const std::string problem = state.place.door->put_out_others(ends); !problem.empty()) {
      throw CollectiveFailure(problem);
    }
  });
}

std::string GlooNetwork::intrusion() const {
  return state_->place.door ? state_->place.door->problem() : std::string();
}

// The store ends with rank 0, and a request of a slower rank would fail. A set gets no reply, so nobody waits for rank
// 0 after it.
void GlooNetwork::leave() {
  if (state_->heartbeat) state_->heartbeat->end();
  const auto key = [](int rank) { return fmt::format("left/{}", rank); };
  try {
    if (state_->launch.rank != 0) {
      state_->place.store->set(key(state_->launch.rank), std::string("yes"));
      return;
    }
    std::vector<std::string> others;
    for (int rank = 1; rank < state_->launch.world_size; ++rank) others.push_back(key(rank));
    if (!others.empty()) state_->place.store->wait(others, kForThoseWhoLeave);
  } catch (const std::exception&) {
    // A rank that died meanwhile, or an agent's store that ended first: no harm.
  }
}

void GlooNetwork::put(const std::string& name, const std::string& bytes) {
  guarded([&] { state_->place.store->set("bytes/" + name, bytes); });
}

std::string GlooNetwork::get(const std::string& name) {
  return guarded([&] { return state_->place.store->get_to_str("bytes/" + name); });
}

void GlooNetwork::begin_heartbeat(std::chrono::milliseconds patience) {
  guarded([&] {
    // Requests of one connection wait for each other.
    state_->heartbeat = std::make_shared<Heartbeat>(state_->place.store->clone(), state_->launch.rank,
                                                    state_->launch.world_size, patience);
  });
}

std::function<std::string()> GlooNetwork::listener() const {
  return [heartbeat = state_->heartbeat] { return heartbeat ? heartbeat->lost() : std::string(); };
}

void GlooNetwork::say_failed() {
  if (state_->heartbeat) state_->heartbeat->say_failed();
}

std::vector<int> GlooNetwork::silent_ranks() {
  return executor::silent_ranks(state_->place.store, state_->launch);
}

}  // namespace fsdp::executor
