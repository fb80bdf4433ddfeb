// Plays a tape once, like the memory walk, and tracks the owner of each storage. A storage of the tape is
//
//   missing -> alive -> freed, by its own Free;
//   alive -> handed out, by EmitGrad or Hold: others release it later, and the tape no longer mentions it.
//
// A shared gradient belongs to the tape until it is unshared. The forward makes outputs and their readers release them;
// if the call itself references one, it releases it once. Each input is released once, or lives until the end of the
// backward.
//
// Not checked: whether the figures are correct.

#include "core/spec/recording_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdp {

namespace {

using Kind = RecordedEvent::Kind;

class RecordingCheck {
 public:
  RecordingCheck(const Block& block, const RecordedTape& tape)
      : block_(block),
        tape_(tape),
        storages_(tape.storage_op.size()),
        is_released_(static_cast<std::size_t>(block.num_inputs), false),
        has_pending_grad_(block.parameters.size(), false) {}

  std::optional<RecordingMistake> run() {
    for (const RecordedOutput& output : tape_.outputs) {
      if (output.kind != RecordedOutput::Kind::Storage) continue;
      Storage& storage = storages_[output.index];
      // The first name of a storage decides whether the call references it.
      if (!storage.is_output) storage.is_kept = output.kept;
      storage.is_output = true;
    }
    for (std::size_t o = 0; o < tape_.forward.size(); ++o) play(tape_.forward[o], "forward", static_cast<int>(o));
    check_outputs();
    has_forward_ = true;
    play(tape_.recompute, "recompute", -1);
    for (std::size_t o = tape_.backward.size(); o-- > 0;) play(tape_.backward[o], "backward", static_cast<int>(o));
    check_end();
    return mistake_;
  }

 private:
  struct Storage {
    bool is_alive = false;
    bool is_handed_out = false;
    bool is_output = false;
    bool is_kept = false;
    bool is_released = false;
    bool is_held = false;
    int shares = 0;
  };

  void wrong(std::string what) {
    if (!mistake_) mistake_ = RecordingMistake{std::move(what), part_, op_, event_};
  }

  void play(const std::vector<RecordedEvent>& events, std::string_view part, int op) {
    part_ = part;
    op_ = op;
    for (event_ = 0; event_ < static_cast<int>(events.size()) && !mistake_; ++event_) play(events[event_]);
  }

  void play(const RecordedEvent& event) {
    switch (event.kind) {
      case Kind::Alloc:
        return make(event.index);
      case Kind::Free:
        return free(event.index);
      case Kind::ParamGrad:
        return make_grad(event.index);
      case Kind::AddGrad:
        if (!has_pending_grad_[event.index]) wrong(fmt::format("Parameter {} has no new gradient.", event.index));
        has_pending_grad_[event.index] = false;
        return;
      case Kind::ReleaseInput:
      case Kind::HoldInput:
        if (is_released_[event.index]) wrong(fmt::format("Input {} was released before.", event.index));
        is_released_[event.index] = true;
        return;
      case Kind::ReleaseOutput:
        return release_output(event.index);
      case Kind::EmitGrad:
      case Kind::Hold:
        return hand_out(event);
      case Kind::ShareGrad:
        if (!is_own(event.index)) return;
        ++storages_[event.index].shares;
        return;
      case Kind::UnshareGrad:
        return unshare(event.index);
      case Kind::Carry:
        return carry(event.index);
      case Kind::ReleaseGrad:
      case Kind::DropGrad:
      case Kind::ForwardGrad:
      case Kind::DropCarried:
      case Kind::Workspace:
        return;
    }
  }

  void make(int index) {
    Storage& storage = storages_[index];
    if (storage.is_alive) return wrong(fmt::format("Storage {} is there already.", index));
    if (storage.is_handed_out) return wrong(fmt::format("Storage {} was handed out before.", index));
    if (storage.is_output && has_forward_) {
      return wrong(fmt::format("Storage {} is an output, which the forward makes.", index));
    }
    storage.is_alive = true;
  }

  /// Whether it is alive and only the tape owns it.
  bool is_own(int index) {
    const Storage& storage = storages_[index];
    if (storage.is_alive && !storage.is_handed_out && !storage.is_output) return true;
    wrong(!storage.is_alive       ? fmt::format("Storage {} is not there.", index)
          : storage.is_handed_out ? fmt::format("Storage {} was handed out before.", index)
                                  : fmt::format("Storage {} is an output, which others hold.", index));
    return false;
  }

  /// It lives from the end of the backward on, after the tape.
  void carry(int index) {
    Storage& storage = storages_[index];
    if (has_forward_) return wrong("Something is carried on from the backward.");
    if (storage.is_alive || storage.is_handed_out) return wrong(fmt::format("Storage {} is there already.", index));
    storage.is_handed_out = true;
  }

  void free(int index) {
    if (!is_own(index)) return;
    if (storages_[index].shares > 0) return wrong(fmt::format("Storage {} is shared.", index));
    storages_[index].is_alive = false;
  }

  void make_grad(int parameter) {
    if (part_ != "backward") return wrong("A gradient is made outside of the backward.");
    if (has_pending_grad_[parameter]) wrong(fmt::format("Parameter {} has a new gradient already.", parameter));
    has_pending_grad_[parameter] = true;
  }

  void release_output(int index) {
    Storage& storage = storages_[index];
    if (!storage.is_output || !storage.is_kept) {
      return wrong(fmt::format("Storage {} is not an output that the call keeps.", index));
    }
    if (!has_forward_) return wrong(fmt::format("Output storage {} is released in the forward.", index));
    if (storage.is_released) wrong(fmt::format("Output storage {} was released before.", index));
    storage.is_released = true;
  }

  /// In the forward it has one more owner; in the backward that one replaces the call.
  void hold_output(int index) {
    if (has_forward_) return release_output(index);
    Storage& storage = storages_[index];
    if (!storage.is_alive) return wrong(fmt::format("Storage {} is not there.", index));
    if (storage.is_held) wrong(fmt::format("Output storage {} is held already.", index));
    storage.is_held = true;
  }

  void hand_out(const RecordedEvent& event) {
    Storage& storage = storages_[event.index];
    if (event.kind == Kind::EmitGrad && !has_forward_) return wrong("A gradient is handed out before the backward.");
    if (event.kind == Kind::Hold && storage.is_output) return hold_output(event.index);
    if (!is_own(event.index)) return;
    storage.is_handed_out = storage.shares == 0;
    if (event.kind == Kind::Hold && storage.shares > 0) wrong(fmt::format("Storage {} is shared.", event.index));
  }

  void unshare(int index) {
    if (storages_[index].shares == 0) return wrong(fmt::format("Storage {} is not shared.", index));
    if (--storages_[index].shares == 0) storages_[index].is_handed_out = true;
  }

  void check_outputs() {
    part_ = "outputs";
    op_ = -1;
    for (std::size_t o = 0; o < tape_.outputs.size() && !mistake_; ++o) {
      event_ = static_cast<int>(o);
      const RecordedOutput& output = tape_.outputs[o];
      if (output.kind == RecordedOutput::Kind::Storage && !storages_[output.index].is_alive) {
        wrong(fmt::format("The forward does not make storage {}.", output.index));
      }
    }
  }

  void check_end() {
    part_ = "backward";
    op_ = event_ = -1;
    for (std::size_t s = 0; s < storages_.size() && !mistake_; ++s) {
      const Storage& storage = storages_[s];
      if (storage.is_output && storage.is_kept && !storage.is_released) {
        wrong(fmt::format("Output storage {} is kept and never released.", s));
      }
      if (storage.is_alive && !storage.is_output && !storage.is_handed_out) {
        wrong(fmt::format("Storage {} is never freed.", s));
      }
    }
    for (std::size_t i = 0; i < is_released_.size() && !mistake_; ++i) {
      if (!is_released_[i]) wrong(fmt::format("Input {} is never released.", i));
    }
    for (std::size_t p = 0; p < has_pending_grad_.size() && !mistake_; ++p) {
      if (has_pending_grad_[p]) wrong(fmt::format("The gradient of parameter {} never reaches it.", p));
    }
  }

  const Block& block_;
  const RecordedTape& tape_;
  std::vector<Storage> storages_;
  std::vector<bool> is_released_;       // [num inputs]
  std::vector<bool> has_pending_grad_;  // [num parameters]
  std::optional<RecordingMistake> mistake_;
  std::string_view part_;
  int op_ = -1;
  int event_ = -1;
  bool has_forward_ = false;
};

/// Two uses of a parameter by one op: made, made, added, added.
void add_grads_in_turn(const Block& block, std::vector<RecordedEvent>& events) {
  std::vector<bool> is_pending(block.parameters.size(), false);
  std::vector<int> early(block.parameters.size(), 0);
  std::vector<RecordedEvent> in_turn;
  for (const RecordedEvent& event : events) {
    const bool makes = event.kind == Kind::ParamGrad;
    const bool adds = event.kind == Kind::AddGrad;
    if (makes && is_pending[event.index]) {
      in_turn.push_back({.kind = Kind::AddGrad, .index = event.index});
      ++early[event.index];
    }
    if (makes) is_pending[event.index] = true;
    if (adds && early[event.index] > 0) {
      --early[event.index];
      continue;
    }
    if (adds) is_pending[event.index] = false;
    in_turn.push_back(event);
  }
  events = std::move(in_turn);
}

}  // namespace

void complete_recording(const Block& block, RecordedTape& tape) {
  std::vector<bool> is_released(static_cast<std::size_t>(block.num_inputs), false);
  const auto note = [&](const std::vector<RecordedEvent>& events) {
    for (const RecordedEvent& event : events) {
      if (event.kind == Kind::ReleaseInput || event.kind == Kind::HoldInput) is_released[event.index] = true;
    }
  };
  for (const auto& events : tape.forward) note(events);
  note(tape.recompute);
  for (const auto& events : tape.backward) note(events);
  for (auto& events : tape.backward) add_grads_in_turn(block, events);
  const auto last = std::find_if(tape.backward.begin(), tape.backward.end(), [](const auto& e) { return !e.empty(); });
  std::vector<RecordedEvent>& end = last != tape.backward.end() ? *last : tape.forward.back();
  for (int i = 0; i < block.num_inputs; ++i) {
    if (!is_released[i]) end.push_back({.kind = Kind::ReleaseInput, .index = i});
  }
}

std::optional<RecordingMistake> check_recording(const Block& block, const RecordedTape& tape) {
  return RecordingCheck(block, tape).run();
}

}  // namespace fsdp
