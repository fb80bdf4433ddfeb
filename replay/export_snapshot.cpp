// The pickle that PyTorch's memory viewer reads, written by hand.
//
// The viewer (torch/utils/viz/MemoryViz.js) has a small machine of its own for pickles: protocols 2 to 4, and of their
// operations only those that build dicts, lists, texts and numbers. A snapshot is {"segments": [...], "device_traces":
// [[event, ...]]}; here there are no segments, and each event is one allocation or free of the predicted step. Its code
// has two constraints: numbers are doubles, so addresses must stay below 2^53; and if any event has a "category", one
// must be "unknown", or the viewer stops at a name that it misspells. Lists are filled a thousand items at a time, as
// Python does, because the viewer hands all items of a batch to one call.
//
// A predicted tensor has no address. It gets an unused one, which is enough for the viewer to pair an allocation with
// its free.
//
// Sources: torch/utils/viz/MemoryViz.js (annotate_snapshot, unpickle), torch/csrc/cuda/memory_snapshot.cpp (names of
// keys and actions), Python's pickletools.

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "core/formats/pickle_operations.h"
#include "replay/export_step.h"

namespace fsdp::replay {

namespace {

class PickleWriter {
 public:
  PickleWriter() {
    put(pickle_detail::kProto);
    put(2);
  }

  void begin_dict() {
    put(pickle_detail::kEmptyDict);
    put(pickle_detail::kMark);
  }
  void end_dict() { put(pickle_detail::kSetItems); }

  void begin_list() {
    put(pickle_detail::kEmptyList);
    put(pickle_detail::kMark);
    in_batch_.push_back(0);
  }
  /// Call this after each item of a list.
  void next() {
    constexpr int kBatch = 1000;
    if (++in_batch_.back() < kBatch) return;
    put(pickle_detail::kAppends);
    put(pickle_detail::kMark);
    in_batch_.back() = 0;
  }
  void end_list() {
    put(pickle_detail::kAppends);
    in_batch_.pop_back();
  }

  void value(std::int64_t number) {
    if (number >= 0 && number < 256) {
      put(pickle_detail::kBinInt1);
      put(static_cast<unsigned char>(number));
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
      put(pickle_detail::kBinInt);
      little(static_cast<std::uint64_t>(number), 4);
    } else {
      put(pickle_detail::kLong1);
      put(8);
      little(static_cast<std::uint64_t>(number), 8);
    }
  }

  /// Each text is written once, and then referenced by its place in the memo.
  void value(const std::string& text) {
    const auto [known, is_new] = memo_.try_emplace(text, static_cast<std::uint32_t>(memo_.size()));
    if (!is_new) {
      put(pickle_detail::kLongBinGet);
      little(known->second, 4);
      return;
    }
    put(pickle_detail::kBinUnicode);
    little(text.size(), 4);
    out_ += text;
    put(pickle_detail::kLongBinPut);
    little(known->second, 4);
  }

  template <class T>
  void member(const char* name, const T& content) {
    value(std::string(name));
    value(content);
  }

  std::string take() && {
    put(pickle_detail::kStop);
    return std::move(out_);
  }

 private:
  void put(unsigned char byte) { out_ += static_cast<char>(byte); }
  void little(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) put(static_cast<unsigned char>(number >> (8 * i)));
  }

  std::string out_;
  std::vector<int> in_batch_;
  std::unordered_map<std::string, std::uint32_t> memo_;
};

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const simulator::StepCurves& curves) : curves_(curves) {}

  std::string write() {
    pickle_.begin_dict();
    pickle_.value(std::string("segments"));
    pickle_.begin_list();
    pickle_.end_list();
    pickle_.value(std::string("device_traces"));
    pickle_.begin_list();
    pickle_.begin_list();
    for (std::size_t p = 0; p < curves_.phases.size(); ++p) {
      if (curves_.phases[p].phase == RunPhase::SteadyStep) events(p);
    }
    pickle_.end_list();
    pickle_.next();
    pickle_.end_list();
    pickle_.end_dict();
    return std::move(pickle_).take();
  }

 private:
  struct Place {
    std::int64_t address = 0;
    std::int64_t bytes = 0;
    MemoryCategory category = MemoryCategory::Temp;
  };

  void events(std::size_t phase) {
    frames_ = {"predicted by fsdp-plan", 0, "nothing: tells the viewer of a category that it asks for"};
    event("alloc", {next_address(0), 0}, "unknown", 0);
    for (const simulator::StepCurves::Held& held : curves_.at_begin[phase]) {
      live_[held.tensor] = {next_address(held.bytes), held.bytes, held.category};
      describe("alive before the step", 0, held.tensor, held.bytes);
      event("alloc", live_[held.tensor], std::string(name_of(held.category)), 0);
    }
    const simulator::MemoryCurve& curve = curves_.phases[phase];
    for (std::size_t i = 1; i < curve.size(); ++i) {
      const std::int32_t tensor = curve.tensor[i];
      const std::int64_t time = std::llround(curve.time[i].count() * 1e6);
      const bool is_alloc = curve.change[i] > 0;
      if (curve.change[i] == 0) continue;
      if (is_alloc) live_[tensor] = {next_address(curve.change[i]), curve.change[i], curves_.category[phase][i]};
      const Place place = live_[tensor];
      const simulator::CurveInstruction* step = curves_.instruction_at(phase, i);
      describe(step == nullptr ? "before the step" : step->name, curve.instruction[i], tensor, place.bytes);
      const std::string category(name_of(place.category));
      if (is_alloc) {
        event("alloc", place, category, time);
      } else {
        event("free_requested", place, category, time);
        event("free_completed", place, category, time);
        live_.erase(tensor);
      }
    }
  }

  std::int64_t next_address(std::int64_t bytes) {
    const std::int64_t address = next_;
    next_ += std::max<std::int64_t>(512, (bytes + 511) / 512 * 512);
    return address;
  }

  void describe(const std::string& instruction, std::int32_t number, std::int32_t tensor, std::int64_t bytes) {
    frames_ = {"predicted by fsdp-plan", std::max(0, number), instruction};
    const auto [known, is_new] = words_.try_emplace(std::pair(tensor, bytes));
    if (is_new) known->second = {curves_.name_of(tensor), curves_.formula_of(tensor, bytes)};
    tensor_ = &known->second;
  }

  void frame(const std::string& file, std::int64_t line, const std::string& name) {
    pickle_.begin_dict();
    pickle_.member("filename", file);
    pickle_.member("line", line);
    pickle_.member("name", name);
    pickle_.end_dict();
    pickle_.next();
  }

  void event(const char* action, const Place& place, const std::string& category, std::int64_t time) {
    pickle_.begin_dict();
    pickle_.member("action", std::string(action));
    pickle_.member("addr", place.address);
    pickle_.member("size", place.bytes);
    pickle_.member("stream", std::int64_t{0});
    pickle_.member("time_us", time);
    pickle_.member("category", category);
    pickle_.value(std::string("frames"));
    pickle_.begin_list();
    frame(frames_.file, frames_.line, frames_.name);
    if (tensor_ != nullptr) {
      frame("tensor", 0, tensor_->name);
      if (!tensor_->formula.empty()) frame("bytes", 0, tensor_->formula);
    }
    pickle_.end_list();
    pickle_.end_dict();
    pickle_.next();
  }

  struct Frame {
    std::string file;
    std::int64_t line = 0;
    std::string name;
  };
  struct Words {
    std::string name;
    std::string formula;
  };

  const simulator::StepCurves& curves_;
  PickleWriter pickle_;
  std::map<std::int32_t, Place> live_;
  std::map<std::pair<std::int32_t, std::int64_t>, Words> words_;
  const Words* tensor_ = nullptr;
  Frame frames_;
  std::int64_t next_ = std::int64_t{1} << 32;
};

}  // namespace

std::string to_memory_snapshot(const simulator::StepCurves& curves) {
  return SnapshotWriter(curves).write();
}

}  // namespace fsdp::replay
