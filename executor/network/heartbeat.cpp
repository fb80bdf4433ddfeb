// Rank r counts under its own key and reads that of rank r + 1, so three requests a beat are enough for any number of
// ranks. A rank whose neighbor is silent, or that has failed itself, writes that under a key that all read. Silence of
// the store counts as well: rank 0 or the engine's agent serves it.
//
// No text is sent, because a stranger could have written it: only a rank, one of two causes, and a duration. A rank
// prints its own failure in its own output. A value of any other form is ignored and overwritten.
//
// The thread is abandoned if a request does not return (as in executor/network/store.cpp).

#include "executor/network/heartbeat.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/split.h"

namespace fsdp::executor {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestBeat{1000};
constexpr int kBeatsInPatience = 4;
constexpr milliseconds kForLastWords{1000};
constexpr const char* kLost = "heartbeat/lost";

std::string heartbeat_key(int rank) {
  return fmt::format("heartbeat/{}", rank);
}

enum class Cause : std::uint8_t { Silent, Failed };

struct Loss {
  Cause cause = Cause::Silent;
  int rank = 0;
  std::int64_t silent_ms = 0;
};

std::string written(const Loss& loss) {
  return fmt::format("{} {} {}", loss.cause == Cause::Silent ? "silent" : "failed", loss.rank, loss.silent_ms);
}

/// nullopt unless it is exactly what a rank would have written.
std::optional<Loss> read_loss(std::string_view text, int world_size) {
  const std::vector<std::string_view> parts = split(text, ' ');
  if (parts.size() != 3) return std::nullopt;
  Loss loss;
  loss.cause = parts[0] == "failed" ? Cause::Failed : Cause::Silent;
  std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), loss.rank);
  std::from_chars(parts[2].data(), parts[2].data() + parts[2].size(), loss.silent_ms);
  if (loss.rank < 0 || loss.rank >= world_size || written(loss) != text) return std::nullopt;
  return loss;
}

std::string describe_loss(const Loss& loss) {
  if (loss.cause == Cause::Failed) return fmt::format("rank {} has failed; its own output has the reason", loss.rank);
  return fmt::format("rank {} has given no sign of life for {:.1f} s", loss.rank,
                     std::chrono::duration<double>(milliseconds(loss.silent_ms)).count());
}

}  // namespace

struct Heartbeat::State {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  milliseconds patience{0};

  mutable std::mutex mutex;
  std::condition_variable wake;
  bool ends = false;
  bool has_ended = false;
  bool has_failed = false;
  std::string lost;
  Clock::time_point answered = Clock::now();

  // Only the thread uses these.
  std::int64_t beats = 0;
  std::string heard;
  Clock::time_point heard_at = Clock::now();

  void run();
  void beat();
  std::optional<Loss> announced();
  void announce(const Loss& loss);
  void listen();
};

void Heartbeat::State::run() {
  const milliseconds between = std::min(kLongestBeat, patience / kBeatsInPatience);
  std::unique_lock lock(mutex);
  while (!ends) {
    const bool failed = has_failed;
    lock.unlock();
    std::string problem;
    try {
      if (failed) {
        announce({Cause::Failed, rank, 0});
      } else {
        beat();
      }
    } catch (const std::exception&) {
      problem = "the store is gone, and with it rank 0 or the agent that serves it";
    }
    lock.lock();
    answered = Clock::now();
    if (lost.empty()) lost = problem;
    if (failed || !problem.empty()) break;
    wake.wait_for(lock, between, [this] { return ends || has_failed; });
  }
  has_ended = true;
  wake.notify_all();
}

void Heartbeat::State::beat() {
  store->set(heartbeat_key(rank), fmt::format("{}", ++beats));
  if (world_size > 1) listen();
  const std::optional<Loss> loss = announced();
  if (!loss) return;
  const std::lock_guard lock(mutex);
  if (lost.empty()) lost = describe_loss(*loss);
}

std::optional<Loss> Heartbeat::State::announced() {
  return store->check({kLost}) ? read_loss(store->get_to_str(kLost), world_size) : std::nullopt;
}

void Heartbeat::State::listen() {
  const int other = (rank + 1) % world_size;
  const std::string now =
      store->check({heartbeat_key(other)}) ? store->get_to_str(heartbeat_key(other)) : std::string();
  if (now != heard) {
    heard = now;
    heard_at = Clock::now();
  } else if (Clock::now() - heard_at > patience) {
    announce({Cause::Silent, other, patience.count()});
  }
}

// The first cause remains, because the other failures follow from it.
void Heartbeat::State::announce(const Loss& loss) {
  if (!announced()) store->set(kLost, written(loss));
}

Heartbeat::Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, milliseconds patience)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->rank = rank;
  state_->world_size = world_size;
  state_->patience = patience;
  std::thread([state = state_] { state->run(); }).detach();
}

Heartbeat::~Heartbeat() {
  end();
}

void Heartbeat::end() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kForLastWords, [this] { return state_->has_ended; });
}

std::string Heartbeat::lost() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->lost.empty() || state_->has_ended) return state_->lost;
  const Clock::duration silent = Clock::now() - state_->answered;
  // The time includes a beat and its wait.
  if (silent < state_->patience + 2 * kLongestBeat) return {};
  return fmt::format("the store, which rank 0 or an agent serves, has not answered for {:.1f} s",
                     std::chrono::duration<double>(silent).count());
}

void Heartbeat::say_failed() {
  std::unique_lock lock(state_->mutex);
  state_->has_failed = true;
  state_->wake.notify_all();
  state_->wake.wait_for(lock, kForLastWords, [this] { return state_->has_ended; });
}

}  // namespace fsdp::executor
