#include "replay/export_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/formats/pickle.h"
#include "simulator/predictor.h"
#include "tests/support/small_models.h"

namespace fsdp::replay {
namespace {

struct Step {
  StepReport report;
  simulator::StepCurves curves;
};

Step small_step() {
  const ModelSpec spec = planner::small_transformer();
  Plan plan;
  plan.mesh = {1, 4};
  for (int layer = 0; layer < 3; ++layer) plan.units.push_back({{"model.layers." + std::to_string(layer)}, {}});
  plan.units.push_back({{""}, {}});
  const auto model = build_model(spec);
  EXPECT_TRUE(model.has_value());
  simulator::Predictor predictor(*model, planner::small_cluster(4, 1, Bytes(std::int64_t{16} << 30)));
  auto report = predictor.report(plan);
  auto curves = predictor.curves(plan);
  EXPECT_TRUE(report.has_value()) << (report ? "" : to_string(report.error().front()));
  return {*std::move(report), *std::move(curves)};
}

TEST(ExportedTrace, HoldsThePeakOfTheStep) {
  const Step step = small_step();
  const Trace trace = trace_of(step.report, step.curves, 3);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 4);
  const simulator::MemoryCurve& curve = *step.curves.find(RunPhase::SteadyStep);
  std::int64_t highest = 0;
  for (const TraceMemory& moment : trace.memory) {
    std::int64_t sum = 0;
    for (const Bytes bytes : moment.live) sum += bytes.count();
    highest = std::max(highest, sum);
  }
  EXPECT_EQ(highest, curve.total[curve.peak()]);
  EXPECT_EQ(trace.memory.back().live, curve.live_at(curve.size() - 1)) << "ends as the step ends";
  EXPECT_LT(trace.memory.size(), curve.size());
}

TEST(ExportedSnapshot, ReadsBackAsTheSameMemory) {
  const Step step = small_step();
  const auto pickle = read_pickle(to_memory_snapshot(step.curves), "step.pickle");
  ASSERT_TRUE(pickle.has_value()) << to_string(pickle.error().front());
  const PickleValue events = pickle->root().find("device_traces")->at(0);
  std::map<std::int64_t, std::int64_t> live;
  std::set<std::string> categories;
  std::int64_t total = 0;
  std::int64_t highest = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const PickleValue event = events.at(i);
    const std::string action(*event.find("action")->as_text());
    const std::int64_t address = *event.find("addr")->as_int();
    const std::int64_t size = *event.find("size")->as_int();
    ASSERT_LT(address, std::int64_t{1} << 53);
    categories.emplace(*event.find("category")->as_text());
    if (action == "alloc") {
      ASSERT_TRUE(live.emplace(address, size).second) << "an address is used once";
      total += size;
      highest = std::max(highest, total);
    } else if (action == "free_completed") {
      ASSERT_EQ(live.at(address), size);
      live.erase(address);
      total -= size;
    }
    const PickleValue frames = *event.find("frames");
    ASSERT_GE(frames.size(), 1u);
    EXPECT_EQ(*frames.at(0).find("filename")->as_text(), "predicted by fsdp-plan");
  }
  const simulator::MemoryCurve& curve = *step.curves.find(RunPhase::SteadyStep);
  EXPECT_EQ(highest, curve.total[curve.peak()]);
  EXPECT_EQ(total, curve.total.back());
  EXPECT_TRUE(categories.contains("unknown")) << "the viewer stops without it";
  EXPECT_TRUE(categories.contains("Activation"));
}

TEST(ExportedTable, HasALineForEachMomentAndItsCategoriesAddUp) {
  const Step step = small_step();
  std::istringstream lines(to_memory_csv(step.curves));
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with("phase,event,seconds,instruction,unit,tensor,change_bytes,live_bytes"));
  const auto columns = std::count(line.begin(), line.end(), ',');
  std::size_t count = 0;
  while (std::getline(lines, line)) {
    ++count;
    if (line.find('"') != std::string::npos) continue;
    ASSERT_EQ(std::count(line.begin(), line.end(), ','), columns) << line;
    std::vector<std::string> cells;
    std::istringstream words(line);
    for (std::string cell; std::getline(words, cell, ',');) cells.push_back(cell);
    std::int64_t sum = 0;
    for (std::size_t c = 10; c < cells.size(); ++c) sum += std::stoll(cells[c]);
    ASSERT_EQ(sum, std::stoll(cells[7])) << line;
  }
  std::size_t moments = 0;
  for (const auto& phase : step.curves.phases) moments += phase.size();
  EXPECT_EQ(count, moments);
}

}  // namespace
}  // namespace fsdp::replay
