// Traces of any size. The file is read in pieces, and only one event at a time is parsed: a scanner that knows strings
// and braces cuts the objects out of the array "traceEvents", so that a trace of gigabytes costs only the memory of the
// stored events.
//
// We store the work of the device (categories "kernel", "gpu_memcpy", "gpu_memset") and the allocations ("[memory]"
// instants of Kineto, counters of ours). The name of a kernel gives its kind, as in other tools: "nccl" and the kind of
// collective; copies; everything else computes.
//
// Sources: libkineto/src/output_json.cpp (names and arguments of events), core/formats/trace_json.cpp (ours).

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "core/base/json_document.h"
#include "core/base/parse_units.h"
#include "gui/overlay/overlay_reader.h"

namespace fsdp::gui {

namespace {

// Cuts the elements of the array "traceEvents", or of a file that is an array, out of pieces of text.
class EventScanner {
 public:
  template <class Take>
  void feed(std::string_view piece, const Take& take) {
    for (const char c : piece) step(c, take);
  }
  bool has_found_events() const { return has_found_; }

 private:
  template <class Take>
  void step(char c, const Take& take) {
    if (in_object_) object_ += c;
    if (in_string_) {
      if (is_escaped_)
        is_escaped_ = false;
      else if (c == '\\')
        is_escaped_ = true;
      else if (c == '"')
        in_string_ = false;
      else if (!in_object_ && depth_ == 1)
        word_ += c;
      return;
    }
    switch (c) {
      case '"':
        in_string_ = true;
        if (!in_object_) word_.clear();
        return;
      case '{':
      case '[':
        ++depth_;
        if (c == '[' && !in_events_ && (depth_ == 1 || (depth_ == 2 && word_ == "traceEvents"))) {
          in_events_ = has_found_ = true;
          events_depth_ = depth_;
        } else if (c == '{' && in_events_ && depth_ == events_depth_ + 1) {
          in_object_ = true;
          object_ = "{";
        }
        return;
      case '}':
      case ']':
        if (in_object_ && depth_ == events_depth_ + 1) {
          in_object_ = false;
          take(object_);
        }
        if (in_events_ && depth_ == events_depth_ && c == ']') in_events_ = false;
        --depth_;
        return;
      default:
        return;
    }
  }

  int depth_ = 0;
  int events_depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool in_object_ = false;
  bool in_events_ = false;
  bool has_found_ = false;
  std::string word_;  // The last string at the top level: the key of the next value.
  std::string object_;
};

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr) return {};
  return value->text;
}

std::optional<double> number_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == JsonType::Number) return value->real;
  if (value->type != JsonType::String) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(value->text.c_str(), &end);
  return end == value->text.c_str() ? std::nullopt : std::optional(number);
}

struct Held {
  double time = 0;  // Seconds.
  std::int64_t allocated = 0;
};

struct CategoryChange {
  double time = 0;
  std::size_t category = 0;
  std::int64_t bytes = 0;
};

class TraceCollector {
 public:
  explicit TraceCollector(std::size_t most) : most_(most) {}

  void take(const std::string& text) {
    const Result<JsonDocument> document = parse_json(text, "trace");
    if (!document) {
      ++broken_;
      return;
    }
    const JsonValue& event = document->root;
    const std::string phase = text_of(event, "ph");
    const std::string category = text_of(event, "cat");
    const std::string name = text_of(event, "name");
    const std::optional<double> at = number_of(event, "ts");
    if (!at) return;
    const double time = *at * 1e-6;
    const bool is_on_device = category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
    if (phase == "X" && name.starts_with("ProfilerStep#")) {
      steps_.emplace_back(time, time + number_of(event, "dur").value_or(0) * 1e-6);
    } else if (phase == "X" && is_on_device) {
      take_kernel(event, name, category, time);
    } else if (phase == "C") {
      take_counter(event, name, time);
    } else if (name == "[memory]") {
      take_allocation(event, time);
    }
  }

  Result<Overlay> finish(const std::string& path) {
    if (events_.empty() && held_.empty()) {
      return failure(path, "The trace has nothing that ran on a GPU, and no memory.",
                     "Record it with ProfilerActivity.CUDA, and with profile_memory=True for memory.");
    }
    Overlay overlay;
    overlay.name = std::filesystem::path(path).filename();
    overlay.source = "trace";
    const auto [begin, end] = last_step();
    overlay.step = Seconds(end - begin);
    cut_events(begin, end, overlay);
    overlay.knows_traffic = std::any_of(overlay.events.begin(), overlay.events.end(),
                                        [](const StreamEvent& event) { return event.payload.has_value(); });
    cut_memory(begin, end, overlay);
    make_report(overlay);
    return overlay;
  }

 private:
  static Stream stream_of(const std::string& name, const std::string& category) {
    // Our own traces have these names.
    if (name.starts_with("gradients of ")) return Stream::ToHost;
    if (category != "kernel") return Stream::Copy;
    if (!name.starts_with("nccl") && !name.starts_with("gloo:")) return Stream::Compute;
    const auto says = [&](std::string_view word) { return name.find(word) != std::string::npos; };
    if (says("AllGather") || says("all_gather") || says("allgather")) return Stream::AllGather;
    if (says("ReduceScatter") || says("reduce_scatter")) return Stream::ReduceScatter;
    return Stream::AllReduce;
  }

  void take_kernel(const JsonValue& event, const std::string& name, const std::string& category, double time) {
    if (events_.size() >= most_) return;
    StreamEvent kernel{.stream = stream_of(name, category), .name = name, .start = Seconds(time)};
    const JsonValue* given = event.find("args");
    const bool is_copy_in = name.starts_with("copy-in ") && given != nullptr && number_of(*given, "stream") == 16.0;
    if (is_copy_in) kernel.stream = Stream::Copy;
    kernel.end = Seconds(time + number_of(event, "dur").value_or(0) * 1e-6);
    if (const JsonValue* args = event.find("args"); args != nullptr && kernel.stream != Stream::Compute) {
      kernel.unit = text_of(*args, "FSDP unit");
      if (kernel.unit == "root") kernel.unit.clear();
      const double bytes = number_of(*args, "payload bytes").value_or(0);
      const double in = number_of(*args, "In msg nelems").value_or(0);
      const double out = number_of(*args, "Out msg nelems").value_or(0);
      const std::optional<Dtype> dtype = dtype_of(text_of(*args, "dtype"));
      if (dtype && (in > 0 || out > 0)) {
        const double full = bytes > 0 ? bytes : std::max(in, out) * static_cast<double>(size_of(*dtype).count());
        const CollectiveKind kind = kernel.stream == Stream::AllGather       ? CollectiveKind::AllGather
                                    : kernel.stream == Stream::ReduceScatter ? CollectiveKind::ReduceScatter
                                                                             : CollectiveKind::AllReduce;
        kernel.payload = StreamPayload{kind, *dtype, Bytes(std::llround(full)), MeshDimension::Other,
                                       std::llround(number_of(*args, "Group size").value_or(1))};
      }
    }
    events_.push_back(std::move(kernel));
  }

  static std::optional<Dtype> dtype_of(const std::string& name) {
    static const std::map<std::string, Dtype> kNames = {{"Float", Dtype::Float32},  {"BFloat16", Dtype::BFloat16},
                                                        {"Half", Dtype::Float16},   {"Byte", Dtype::UInt8},
                                                        {"Double", Dtype::Float64}, {"Long", Dtype::Int64}};
    const auto found = kNames.find(name);
    return found == kNames.end() ? std::nullopt : std::optional(found->second);
  }

  void take_counter(const JsonValue& event, const std::string& name, double time) {
    const JsonValue* args = event.find("args");
    if (args == nullptr || args->members.empty() || held_.size() + changes_.size() >= most_) return;
    const auto bytes = static_cast<std::int64_t>(args->members.front().value.real);
    if (name == "live bytes") held_.push_back({time, bytes});
    for (std::size_t c = 0; c < kNumMemoryCategories; ++c) {
      if (name == name_of(static_cast<MemoryCategory>(c))) changes_.push_back({time, c, bytes});
    }
  }

  void take_allocation(const JsonValue& event, double time) {
    const JsonValue* args = event.find("args");
    if (args == nullptr || held_.size() >= most_) return;
    // 1 is CUDA; allocations on the CPU are recorded, too.
    if (number_of(*args, "Device Type").value_or(1) != 1) return;
    if (const auto total = number_of(*args, "Total Allocated"))
      held_.push_back({time, static_cast<std::int64_t>(*total)});
  }

  std::pair<double, double> last_step() {
    std::sort(steps_.begin(), steps_.end());
    if (!steps_.empty() && steps_.back().second > steps_.back().first) {
      // The end of the recording often cuts the last step; the one before is whole.
      const std::size_t last = steps_.size() > 1 ? steps_.size() - 2 : 0;
      return steps_[last];
    }
    double begin = 1e300;
    double end = -1e300;
    for (const StreamEvent& event : events_) {
      begin = std::min(begin, event.start.count());
      end = std::max(end, event.end.count());
    }
    for (const Held& held : held_) {
      begin = std::min(begin, held.time);
      end = std::max(end, held.time);
    }
    return {begin, end};
  }

  void cut_events(double begin, double end, Overlay& overlay) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const StreamEvent& a, const StreamEvent& b) { return a.start < b.start; });
    std::map<Stream, Seconds> free_at;
    for (StreamEvent& event : events_) {
      if (event.start.count() < begin || event.start.count() >= end) continue;
      event.start -= Seconds(begin);
      event.end -= Seconds(begin);
      // Several streams of the device share a lane here; an overlapping event is drawn after the earlier one.
      event.start = std::max(event.start, free_at[event.stream]);
      if (event.end <= event.start) continue;
      free_at[event.stream] = event.end;
      overlay.events.push_back(std::move(event));
    }
  }

  void cut_memory(double begin, double end, Overlay& overlay) {
    const auto by_time = [](const auto& a, const auto& b) { return a.time < b.time; };
    std::stable_sort(held_.begin(), held_.end(), by_time);
    std::stable_sort(changes_.begin(), changes_.end(), by_time);
    std::array<std::int64_t, kNumMemoryCategories> live{};
    std::size_t change = 0;
    for (const Held& held : held_) {
      while (change < changes_.size() && changes_[change].time <= held.time) {
        live[changes_[change].category] = changes_[change].bytes;
        ++change;
      }
      if (held.time < begin || held.time > end) continue;
      overlay.time.push_back(held.time - begin);
      overlay.allocated.push_back(held.allocated);
      if (changes_.empty()) continue;
      for (std::size_t c = 0; c < live.size(); ++c) overlay.live[c].push_back(live[c]);
    }
  }

  static void make_report(Overlay& overlay) {
    StepReport report;
    report.kind = "measured";
    report.memory.peaks = {Bytes(-1), Bytes(-1), Bytes(-1), Bytes(-1)};
    report.receives_gradient_parameters = -1;
    report.buffers = Bytes(-1);
    if (!overlay.allocated.empty()) {
      const auto peak = std::max_element(overlay.allocated.begin(), overlay.allocated.end());
      report.memory.peaks.allocated = Bytes(*peak);
      const auto moment = static_cast<std::size_t>(peak - overlay.allocated.begin());
      for (std::size_t c = 0; c < overlay.live.size(); ++c) {
        if (!overlay.live[c].empty()) report.memory.at_peak[c] = Bytes(overlay.live[c][moment]);
      }
    }
    report.time.step = overlay.step;
    for (const StreamEvent& event : overlay.events) {
      if (event.stream == Stream::Compute) report.time.compute += event.end - event.start;
      if (!event.payload) continue;
      TrafficTotal& total = report.traffic.totals[static_cast<std::size_t>(event.payload->kind)];
      ++total.count;
      total.payload += event.payload->bytes;
    }
    overlay.report = std::move(report);
  }

  std::size_t most_;
  std::size_t broken_ = 0;
  std::vector<StreamEvent> events_;
  std::vector<Held> held_;
  std::vector<CategoryChange> changes_;
  std::vector<std::pair<double, double>> steps_;
};

}  // namespace

Result<Overlay> read_trace_overlay(const std::string& path, const OverlayLimits& limits,
                                   const OverlayProgress& progress) {
  std::error_code error;
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (size > limits.trace_bytes) {
    return failure(path, "The trace is too large: " + format_bytes(Bytes(size)) + ".",
                   "At most " + format_bytes(Bytes(limits.trace_bytes)) + "; record fewer steps.");
  }
  std::ifstream file(path, std::ios::binary);
  EventScanner scanner;
  TraceCollector collector(limits.events);
  std::string piece(std::size_t{1} << 20, '\0');
  std::int64_t done = 0;
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount()));
    if (count == 0) break;
    scanner.feed(std::string_view(piece).substr(0, count), [&](const std::string& text) { collector.take(text); });
    done += static_cast<std::int64_t>(count);
    if (progress && !progress(static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, size)))) {
      return failure(path, "Reading was stopped.");
    }
  }
  if (!scanner.has_found_events()) {
    return failure(path, "The file has no \"traceEvents\".", "Give a file of torch.profiler or fsdp-plan export.");
  }
  return collector.finish(path);
}

}  // namespace fsdp::gui
