#include "core/formats/trace_json.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/json_document.h"

namespace fsdp {
namespace {

/// An all-gather from 0 to 4 ms, whose layer computes from 3 ms on: the last millisecond is exposed.
Trace small_trace() {
  Trace trace;
  trace.model = "two_layers";
  trace.gpu = "T4";
  trace.device_memory = Bytes(16) * (std::int64_t{1} << 30);
  trace.rank = 5;
  trace.world_size = 8;
  trace.gpus_per_node = 4;
  trace.step = Seconds(0.010);
  trace.events.push_back({.stream = Stream::AllGather,
                          .name = "layers.0",
                          .unit = "layers.0",
                          .phase = StepPhase::Forward,
                          .start = Seconds(0),
                          .end = Seconds(0.004),
                          .exposed = Seconds(0.001),
                          .payload = StreamPayload{.dtype = Dtype::BFloat16, .bytes = Bytes(8000), .group_size = 8}});
  trace.events.push_back({.name = "layers.0",
                          .unit = "layers.0",
                          .phase = StepPhase::Forward,
                          .start = Seconds(0.004),
                          .end = Seconds(0.0100000004),
                          .waits_for = {0}});
  BytesByCategory live{};
  live[static_cast<std::size_t>(MemoryCategory::ShardedParam)] = Bytes(100);
  trace.memory.push_back({Seconds(0), live, Bytes(2048)});
  live[static_cast<std::size_t>(MemoryCategory::Activation)] = Bytes(50);
  trace.memory.push_back({Seconds(0.005), live, Bytes(2048)});
  return trace;
}

std::string text_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value == nullptr ? "" : value->text;
}

std::vector<JsonValue> events_of(const JsonDocument& document, std::string_view phase) {
  std::vector<JsonValue> found;
  for (const JsonValue& event : document.root.find("traceEvents")->elements) {
    if (text_of(event, "ph") == phase) found.push_back(event);
  }
  return found;
}

JsonDocument parsed(const Trace& trace) {
  Result<JsonDocument> document = parse_json(to_chrome_trace(trace), "trace.json");
  EXPECT_TRUE(document.has_value()) << (document ? "" : to_string(document.error().front()));
  return document ? *std::move(document) : JsonDocument{};
}

TEST(ChromeTrace, NamesRankAndWorldAsKinetoDoes) {
  const JsonDocument document = parsed(small_trace());
  EXPECT_EQ(document.root.find("schemaVersion")->integer, 1);
  const JsonValue& world = *document.root.find("distributedInfo");
  EXPECT_EQ(world.find("rank")->integer, 5);
  EXPECT_EQ(world.find("world_size")->integer, 8);
  EXPECT_EQ(text_of(world, "backend"), "nccl");
  const JsonValue& device = document.root.find("deviceProperties")->elements.front();
  EXPECT_EQ(device.find("id")->integer, 1) << "rank 5 is the second of its node of four";
  EXPECT_EQ(device.find("totalGlobalMem")->integer, std::int64_t{16} << 30);
}

TEST(ChromeTrace, TraceOnCpuNamesGlooAndNotNccl) {
  Trace trace = small_trace();
  trace.gpu = "CPU";
  const JsonDocument document = parsed(trace);
  EXPECT_EQ(text_of(*document.root.find("distributedInfo"), "backend"), "gloo");
  EXPECT_EQ(text_of(events_of(document, "X").at(1), "name"), "gloo:all_gather(predicted)");
}

TEST(ChromeTrace, CollectiveHasTheNameAndArgumentsThatReadersExpect) {
  const JsonDocument document = parsed(small_trace());
  const JsonValue gather = events_of(document, "X").at(1);
  EXPECT_EQ(text_of(gather, "name"), "ncclDevKernel_AllGather_RING_LL(predicted)");
  EXPECT_EQ(text_of(gather, "cat"), "kernel");
  EXPECT_EQ(gather.find("dur")->integer, 4000);
  const JsonValue& args = *gather.find("args");
  EXPECT_EQ(text_of(args, "Collective name"), "_allgather_base");
  EXPECT_EQ(args.find("Out msg nelems")->integer, 4000) << "8000 bytes of bfloat16";
  EXPECT_EQ(args.find("In msg nelems")->integer, 500) << "one of eight shards";
  EXPECT_EQ(text_of(args, "dtype"), "BFloat16");
  EXPECT_EQ(args.find("Group size")->integer, 8);
  EXPECT_EQ(text_of(args, "FSDP unit"), "layers.0");
  EXPECT_DOUBLE_EQ(args.find("algbw GB/s")->real, 0.002) << "8000 bytes in 4 ms";
  EXPECT_EQ(args.find("exposed us")->integer, 1000);
}

TEST(ChromeTrace, NamesTheRoot) {
  Trace trace = small_trace();
  trace.events.push_back({.start = Seconds(0.01), .end = Seconds(0.011)});
  trace.events.push_back({.name = "copy-in ", .start = Seconds(0.011), .end = Seconds(0.012)});
  const std::vector<JsonValue> events = events_of(parsed(trace), "X");
  EXPECT_EQ(text_of(events.at(3), "name"), "root");
  EXPECT_EQ(text_of(events.at(4), "name"), "copy-in root");
}

TEST(ChromeTrace, WritesTimesToTheNanosecond) {
  const JsonDocument document = parsed(small_trace());
  const JsonValue compute = events_of(document, "X").at(2);
  EXPECT_DOUBLE_EQ(compute.find("ts")->real, 4000);
  EXPECT_DOUBLE_EQ(compute.find("dur")->real, 6000) << "0.4 ns more is rounded away";
}

TEST(ChromeTrace, ArrowsBeginInsideTheAwaitedEvent) {
  const JsonDocument document = parsed(small_trace());
  const JsonValue from = events_of(document, "s").at(0);
  const JsonValue to = events_of(document, "f").at(0);
  EXPECT_EQ(from.find("id")->integer, to.find("id")->integer);
  EXPECT_DOUBLE_EQ(from.find("ts")->real, 3999.999);
  EXPECT_DOUBLE_EQ(to.find("ts")->real, 4000);
  EXPECT_NE(from.find("tid")->integer, to.find("tid")->integer);
  EXPECT_EQ(text_of(to, "bp"), "e");
}

TEST(ChromeTrace, CountersFollowEachCategoryAndTheSum) {
  const JsonDocument document = parsed(small_trace());
  std::map<std::string, std::vector<std::int64_t>> counters;
  for (const JsonValue& counter : events_of(document, "C")) {
    counters[text_of(counter, "name")].push_back(counter.find("args")->members.front().value.integer);
  }
  EXPECT_EQ(counters["live bytes"], (std::vector<std::int64_t>{100, 150}));
  EXPECT_EQ(counters["Sharded Param"], (std::vector<std::int64_t>{100}));
  EXPECT_EQ(counters["Activation"], (std::vector<std::int64_t>{0, 50}));
  EXPECT_EQ(counters["reserved bytes"], (std::vector<std::int64_t>{2048}));
  EXPECT_EQ(counters["live bytes by category"].size(), 2u);
}

TEST(ChromeTrace, GivesEveryStreamItsOwnThread) {
  const JsonDocument document = parsed(Trace{});
  std::set<std::int64_t> threads;
  for (const JsonValue& label : events_of(document, "M")) {
    if (text_of(label, "name") == "thread_name") threads.insert(label.find("tid")->integer);
  }
  EXPECT_EQ(threads.size(), static_cast<std::size_t>(kNumStreams) + 1);
}

}  // namespace
}  // namespace fsdp
