#include "render/render_brief.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "render/render_report.h"
#include "text/terminal.h"

namespace fsdp::render {
namespace {

constexpr Bytes mib(std::int64_t count) {
  return Bytes(count << 20);
}

/// Seven categories of which none is small, and 2.58 GiB of overhead: what Qwen3-TTS has on four GPUs of 16 GiB.
MemoryReport many_terms() {
  MemoryReport memory;
  const auto set = [&](MemoryCategory category, Bytes bytes) {
    memory.at_peak[static_cast<std::size_t>(category)] = bytes;
  };
  set(MemoryCategory::UnshardedParam, mib(3615));
  set(MemoryCategory::Activation, mib(3103));
  set(MemoryCategory::OptState, mib(1823));
  set(MemoryCategory::Temp, mib(1372));
  set(MemoryCategory::ShardedParam, mib(920));
  set(MemoryCategory::UnshardedGrad, mib(22));
  const Bytes live = mib(3615 + 3103 + 1823 + 1372 + 920 + 22);
  memory.peaks.reserved = live + mib(2642);
  memory.peaks.device = memory.peaks.reserved + mib(396);
  memory.peak.instruction = "Backward talker.code_predictor.model.layers.4";
  memory.phases = {{RunPhase::SteadyStep, memory.peaks}};
  return memory;
}

struct Term {
  std::string name;
  double mib = 0;
};

/// The terms after the colon: "OptState 1.78 GiB".
std::vector<Term> terms_of(const std::string& text) {
  std::vector<Term> terms;
  std::string rest = text.substr(text.find(": ") + 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(", "), rest.size());
    const std::string term = rest.substr(0, comma);
    rest = comma == rest.size() ? "" : rest.substr(comma + 2);
    const std::size_t unit = term.rfind(' ');
    const std::size_t number = term.rfind(' ', unit - 1);
    const double scale = term.substr(unit + 1) == "GiB" ? 1024 : 1;
    terms.push_back({term.substr(0, number), scale * std::stod(term.substr(number + 1, unit - number - 1))});
  }
  return terms;
}

TEST(Peak, NamesTermsLargerThanTheRest) {
  for (const int columns : {44, 52, 72, 112}) {
    for (const std::size_t lines : {1, 2, 3}) {
      const std::vector<Term> terms = terms_of(peak_of(many_terms(), false, columns, lines));
      if (terms.back().name != "other") continue;
      for (std::size_t i = 0; i + 1 < terms.size(); ++i) {
        EXPECT_GE(terms[i].mib * 1.005, terms.back().mib) << terms[i].name << " in " << lines << " x " << columns;
      }
    }
  }
  // Two lines would name two of eight terms, and leave 7.02 GiB to "other".
  const std::string text = peak_of(many_terms(), false, 72, 2);
  EXPECT_NE(text.find("allocator overhead 2.58 GiB, OptState 1.78 GiB"), std::string::npos) << text;
}

TEST(Peak, IsOneTermIfThereIsOnlyOne) {
  MemoryReport memory;
  memory.at_peak[static_cast<std::size_t>(MemoryCategory::Activation)] = mib(100);
  memory.peaks.reserved = memory.peaks.device = mib(100);
  memory.peak.phase = StepPhase::Forward;
  EXPECT_EQ(peak_of(memory, false, 20, 1), "forward: Activation 100 MiB");
}

StepReport fast_step() {
  StepReport report;
  report.plan.mesh = {1, 4};
  report.plan.dimensions = {{"batch", 8}};
  report.time.step = Seconds(2);
  report.time.tokens_per_second_per_gpu = 776.6;
  report.time.mfu = 0.0926;
  return report;
}

TEST(Speed, IsInSamplesTokensAndMfu) {
  StepReport report = fast_step();
  // 8 samples on each of 4 GPUs in 2 s.
  EXPECT_EQ(speed_of(report), "16 samples/s · 777 tokens/s per GPU · MFU 9 %");
  report.time.step = Seconds(0.001);
  EXPECT_EQ(speed_of(report), "32,000 samples/s · 777 tokens/s per GPU · MFU 9 %");
  report.time.tokens_per_second_per_gpu = 0;
  EXPECT_EQ(speed_of(report), "32,000 samples/s · MFU 9 %") << "a model of images";
  report.time.step = Seconds(0);
  EXPECT_EQ(speed_of(report), "");
}

TEST(Scope, IsPrintedForLargeModels) {
  StepReport report = fast_step();
  report.parameters = 405'853'388'800;
  EXPECT_EQ(scope_of(report), "data parallel only: no tensor, pipeline or expert parallelism");
  report.plan.mesh.ep = 8;
  EXPECT_EQ(scope_of(report), "data and expert parallel: no tensor or pipeline parallelism");
  report.plan.mesh = {1, 1};
  EXPECT_EQ(scope_of(report), "") << "one GPU has nothing to split";
  report.plan.mesh = {1, 8};
  report.parameters = 8'030'261'248;
  EXPECT_EQ(scope_of(report), "");
}

}  // namespace
}  // namespace fsdp::render
