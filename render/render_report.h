#pragma once

// A report for people: verdict, plan, peak with its reasons, traffic, time, assumptions.

#include <string>

#include "core/report/report.h"
#include "planner/space/plan_sentence.h"
#include "text/document.h"

namespace fsdp::render {

struct View {
  int width = 80;         ///< Columns of a picture and of the line of the peak.
  bool pictures = false;  ///< Draw the memory of the step.
  bool brief = false;     ///< The short answer of render/render_brief.h instead.
  bool verbose = false;   ///< All device terms, live tensors, phases and collectives.
};

/// "1.2 GiB left of a 4.70 GiB safety margin": why a plan that runs is tight; empty if it is not.
std::string tightness_of(const MemoryReport& memory);
/// "2.19 s to 3.4 s", the band of a step; "2.19 s or more: no cost is known of mylib::scan" if it has no upper end.
std::string band_of(const TimeReport& time);

/// FITS or DOES NOT FIT, with the peak and the step time, as one entry. With `no_plan_fits` the report is that of
/// the plan with the least memory.
text::Entry verdict_of(const StepReport& report, bool no_plan_fits = false);

/// "17.8 samples/s · 777 tokens/s per GPU · MFU 9 %": the throughput. Tokens only if the model counts them.
std::string speed_of(const StepReport& report);

/// "data parallel only: ..." for a model that is usually trained with other parallelism as well; otherwise empty.
std::string scope_of(const StepReport& report);

/// Both as entries.
void add_speed(text::Document& document, const StepReport& report);

/// The figures of the verdict as one row of exact numbers for CSV.
text::Table summary_of(const StepReport& report);

/// Host memory of each node, if the plan puts a part of the model there; with its terms if the view is verbose.
void add_host(text::Document& document, const StepReport& report, const View& view);
/// The plan and the moment of its peak. `facts` and `batch_origin` are those of sentence_of.
void add_plan_and_memory(text::Document& document, const StepReport& report, const planner::ModelFacts& facts,
                         const std::string& batch_origin, const View& view);
/// The traffic by kind and the time.
void add_traffic_and_time(text::Document& document, const StepReport& report, const View& view);
void add_assumptions(text::Document& document, const std::vector<std::string>& assumptions);

}  // namespace fsdp::render
