// A step as PyTorch's profiler would have recorded it.
//
// Readers recognize a collective by its kernel's name, which begins with "nccl", and its payload by the arguments that
// Kineto adds to such a kernel. Everything else on a stream counts as computation, also the copies in and out of
// FSDP2's buffers, as in a real recording. Slices of one thread may not overlap: a stream is a thread, and starts and
// ends are rounded to nanoseconds before they are subtracted. Perfetto does not stack counters, so every category has
// its own counter beside that of the sum, and chrome://tracing gets one with all of them.
//
// A run on CPU has no NCCL: its collectives are named as PyTorch's profiler names Gloo's, "gloo:all_gather".
//
// Sources: the Trace Event Format; libkineto/src/output_json.cpp (schemaVersion 1, distributedInfo, names of
// arguments); HolisticTraceAnalysis, hta/common/trace_parser.py (required keys) and trace_filter.py ("^nccl").
//
// Not modeled: the CPU's side, its operators and launches.

#include "core/formats/trace_json.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/json_writer.h"

namespace fsdp {

namespace {

// Kineto's thread of a stream is the stream's number; PyTorch's default stream is 7 there.
constexpr std::array<int, kNumStreams> kThreads = {7, 20, 24, 28, 16, 32};
constexpr int kStepThread = 1;
/// The device of a run on CPU (core/cluster/cpu_cluster.cpp, executor/backend_cpu.cpp).
constexpr std::string_view kCpu = "CPU";

std::int64_t nanoseconds(Seconds time) {
  return std::llround(time.count() * 1e9);
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

std::string_view kineto_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float64:
      return "Double";
    case Dtype::Float32:
      return "Float";
    case Dtype::BFloat16:
      return "BFloat16";
    case Dtype::Float16:
      return "Half";
    case Dtype::Int64:
      return "Long";
    case Dtype::Int32:
      return "Int";
    case Dtype::Int16:
      return "Short";
    case Dtype::Int8:
      return "Char";
    case Dtype::UInt8:
      return "Byte";
    case Dtype::Bool:
      return "Bool";
  }
  return "";
}

struct CollectiveNames {
  std::string_view kernel;
  std::string_view call;
};

CollectiveNames names_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllGather:
      return {"ncclDevKernel_AllGather_RING_LL", "_allgather_base"};
    case CollectiveKind::ReduceScatter:
      return {"ncclDevKernel_ReduceScatter_Sum_RING_LL", "_reduce_scatter_base"};
    case CollectiveKind::AllReduce:
      return {"ncclDevKernel_AllReduce_Sum_RING_LL", "allreduce"};
    case CollectiveKind::Broadcast:
      return {"ncclDevKernel_Broadcast_RING_LL", "broadcast"};
    case CollectiveKind::Reduce:
      return {"ncclDevKernel_Reduce_Sum_RING_LL", "reduce"};
    case CollectiveKind::AllToAll:
      return {"ncclDevKernel_SendRecv", "all_to_all"};
    case CollectiveKind::Send:
      return {"ncclDevKernel_SendRecv", "send"};
    case CollectiveKind::Recv:
      return {"ncclDevKernel_SendRecv", "recv"};
    case CollectiveKind::Gather:
      return {"ncclDevKernel_SendRecv", "gather"};
    case CollectiveKind::Scatter:
      return {"ncclDevKernel_SendRecv", "scatter"};
  }
  return {};
}

class TraceWriter {
 public:
  explicit TraceWriter(const Trace& trace)
      : trace_(trace), device_(trace.rank % std::max<std::int64_t>(1, per_node())) {}

  std::string write() {
    json_.begin_object();
    header();
    json_.key("traceEvents");
    json_.begin_array();
    names();
    step();
    for (std::size_t i = 0; i < trace_.events.size(); ++i) slice(i);
    arrows();
    memory();
    json_.end_array();
    json_.end_object();
    return std::move(json_).take();
  }

 private:
  std::int64_t per_node() const { return trace_.gpus_per_node; }
  bool is_on_cpu() const { return trace_.gpu == kCpu; }

  void header() {
    json_.member("schemaVersion", 1);
    json_.member("generator", trace_.kind + " by fsdp-plan");
    json_.member("model", trace_.model);
    json_.member("displayTimeUnit", "ms");
    json_.key("deviceProperties");
    json_.begin_array();
    json_.begin_object(JsonLayout::OneLine);
    json_.member("id", device_);
    json_.member("name", trace_.gpu);
    json_.member("totalGlobalMem", trace_.device_memory.count());
    json_.end_object();
    json_.end_array();
    json_.key("distributedInfo");
    json_.begin_object(JsonLayout::OneLine);
    json_.member("backend", is_on_cpu() ? "gloo" : "nccl");
    json_.member("rank", trace_.rank);
    json_.member("world_size", trace_.world_size);
    json_.end_object();
  }

  void begin(std::string_view phase, std::string_view name, std::string_view category = {}) {
    json_.begin_object(JsonLayout::OneLine);
    json_.member("ph", phase);
    json_.member("name", name);
    if (!category.empty()) json_.member("cat", category);
  }

  void place(std::int64_t process, int thread, std::int64_t at) {
    json_.member("pid", process);
    json_.member("tid", thread);
    json_.member("ts", microseconds(at));
  }

  template <class T>
  void label(std::string_view what, int thread, std::string_view key, const T& value) {
    begin("M", what);
    place(device_, thread, 0);
    json_.key("args");
    json_.begin_object();
    json_.member(key, value);
    json_.end_object();
    json_.end_object();
  }

  void names() {
    label("process_name", 0, "name", trace_.gpu + " of rank " + std::to_string(trace_.rank) + " (" + trace_.kind + ")");
    label("process_labels", 0, "labels", "GPU " + std::to_string(device_));
    label("thread_name", kStepThread, "name", "step");
    label("thread_sort_index", kStepThread, "sort_index", 0);
    for (int s = 0; s < kNumStreams; ++s) {
      const int thread = kThreads[s];
      label("thread_name", thread, "name",
            "stream " + std::to_string(thread) + " " + std::string(name_of(static_cast<Stream>(s))));
      label("thread_sort_index", thread, "sort_index", s + 1);
    }
  }

  // HolisticTraceAnalysis splits a trace by these.
  void step() {
    begin("X", "ProfilerStep#0", "user_annotation");
    place(device_, kStepThread, 0);
    json_.member("dur", microseconds(nanoseconds(trace_.step)));
    json_.end_object();
  }

  void slice(std::size_t i) {
    const StreamEvent& event = trace_.events[i];
    const int thread = kThreads[static_cast<std::size_t>(event.stream)];
    const std::int64_t start = nanoseconds(event.start);
    begin("X", slice_name(event), "kernel");
    place(device_, thread, start);
    json_.member("dur", microseconds(nanoseconds(event.end) - start));
    json_.key("args");
    json_.begin_object();
    json_.member("device", device_);
    json_.member("stream", thread);
    json_.member("correlation", i + 1);
    json_.member("External id", i + 1);
    json_.member("FSDP unit", event.unit.empty() ? std::string_view("root") : std::string_view(event.unit));
    json_.member("phase", name_of(event.phase));
    json_.member("micro batch", event.micro_batch);
    if (event.payload) payload(event);
    json_.end_object();
    json_.end_object();
  }

  std::string slice_name(const StreamEvent& event) const {
    if (event.payload) {
      const std::string name = is_on_cpu() ? "gloo:" + std::string(name_of(event.payload->kind))
                                           : std::string(names_of(event.payload->kind).kernel);
      return name + "(" + trace_.kind + ")";
    }
    // The root has no name of its own, neither alone nor after "copy-in ".
    return event.name.empty() || event.name.ends_with(' ') ? event.name + "root" : event.name;
  }

  void payload(const StreamEvent& event) {
    const StreamPayload& payload = *event.payload;
    const std::int64_t full = payload.bytes.count() / size_of(payload.dtype).count();
    const std::int64_t part = full / std::max<std::int64_t>(1, payload.group_size);
    const bool gathers = payload.kind == CollectiveKind::AllGather;
    const bool scatters = payload.kind == CollectiveKind::ReduceScatter;
    json_.member("Collective name", names_of(payload.kind).call);
    json_.member("In msg nelems", gathers ? part : full);
    json_.member("Out msg nelems", scatters ? part : full);
    json_.member("dtype", kineto_dtype(payload.dtype));
    json_.member("Group size", payload.group_size);
    json_.member("Process Group Name", name_of(payload.group));
    json_.member("Process Group Description", "mesh_" + std::string(name_of(payload.group)));
    json_.member("payload bytes", payload.bytes.count());
    json_.member("algbw GB/s", bandwidth_of(event).count() / 1e9);
    json_.member("exposed us", microseconds(nanoseconds(event.exposed)));
  }

  void arrows() {
    std::int64_t number = 0;
    for (const StreamEvent& event : trace_.events) {
      for (const std::int32_t other : event.waits_for) {
        const StreamEvent& source = trace_.events[other];
        // An arrow belongs to the slice around its end; a slice excludes its own last moment.
        const std::int64_t from = std::max(nanoseconds(source.start), nanoseconds(source.end) - 1);
        ++number;
        arrow("s", number, source.stream, from);
        arrow("f", number, event.stream, nanoseconds(event.start));
      }
    }
  }

  void arrow(std::string_view phase, std::int64_t number, Stream stream, std::int64_t at) {
    begin(phase, "waits for", "dependency");
    json_.member("id", number);
    place(device_, kThreads[static_cast<std::size_t>(stream)], at);
    if (phase == "f") json_.member("bp", "e");
    json_.end_object();
  }

  void memory() {
    BytesByCategory last;
    last.fill(Bytes(-1));
    Bytes last_reserved(-1);
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      const TraceMemory& now = trace_.memory[i];
      const std::int64_t at = nanoseconds(now.time);
      Bytes sum;
      for (const Bytes bytes : now.live) sum += bytes;
      if (now.live != last) {
        counter("live bytes", at, "live", sum);
        stack(at, now.live);
      }
      for (std::size_t c = 0; c < now.live.size(); ++c) {
        if (now.live[c] == last[c]) continue;
        counter(name_of(static_cast<MemoryCategory>(c)), at, "bytes", now.live[c]);
      }
      if (now.reserved != last_reserved) counter("reserved bytes", at, "reserved", now.reserved);
      last = now.live;
      last_reserved = now.reserved;
    }
  }

  void counter(std::string_view name, std::int64_t at, std::string_view key, Bytes bytes) {
    begin("C", name);
    place(device_, 0, at);
    json_.key("args");
    json_.begin_object();
    json_.member(key, bytes.count());
    json_.end_object();
    json_.end_object();
  }

  void stack(std::int64_t at, const BytesByCategory& live) {
    begin("C", "live bytes by category");
    place(device_, 0, at);
    json_.key("args");
    json_.begin_object();
    for (std::size_t c = 0; c < live.size(); ++c)
      json_.member(name_of(static_cast<MemoryCategory>(c)), live[c].count());
    json_.end_object();
    json_.end_object();
  }

  const Trace& trace_;
  const std::int64_t device_;
  JsonWriter json_;
};

}  // namespace

std::string to_chrome_trace(const Trace& trace) {
  return TraceWriter(trace).write();
}

}  // namespace fsdp
