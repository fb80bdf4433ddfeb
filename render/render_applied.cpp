#include "render/render_applied.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/figures.h"

namespace fsdp::render {

namespace {

constexpr std::size_t kMostAppliedRows = 6;
constexpr std::size_t kMostModels = 4;

/// Equal units: "16 x LlamaDecoderLayer".
struct AppliedUnits {
  AppliedUnit unit;
  std::int64_t count = 0;
};

std::vector<AppliedUnits> rows_of(const std::vector<AppliedUnit>& units) {
  std::vector<AppliedUnits> rows;
  for (const AppliedUnit& unit : units) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const AppliedUnits& row) {
      return row.unit.class_name == unit.class_name && row.unit.parameters == unit.parameters &&
             row.unit.elements == unit.elements;
    });
    if (same == rows.end()) {
      rows.push_back({unit, 1});
    } else {
      ++same->count;
    }
  }
  return rows;
}

std::string units_text(const AppliedWrapper& wrapper) {
  std::string text;
  const std::vector<AppliedUnits> rows = rows_of(wrapper.units);
  for (std::size_t i = 0; i < rows.size() && i < kMostAppliedRows; ++i) {
    const AppliedUnits& row = rows[i];
    const std::string times = row.count == 1 ? "" : fmt::format("{} x ", row.count);
    text += fmt::format("{}{}{} ({}, {})", i == 0 ? "" : " · ", times, row.unit.class_name,
                        text::counted(row.unit.parameters, "tensor"), elements_text(row.unit.elements));
  }
  if (rows.size() > kMostAppliedRows) text += " · …";
  return text;
}

std::string wrapper_text(const AppliedWrapper& wrapper) {
  std::string text = wrapper.name == "plain" ? "no wrapper" : wrapper.name;
  if (!wrapper.strategy.empty()) text += " " + wrapper.strategy;
  if (!wrapper.model.empty()) text += " of " + wrapper.model;
  if (!wrapper.units.empty()) text += ", " + text::counted(static_cast<std::int64_t>(wrapper.units.size()), "unit");
  if (wrapper.reshard_after_forward == "true") text += ", resharded after forward";
  if (wrapper.reshard_after_forward == "false") text += ", kept unsharded after forward";
  std::vector<std::string> dtypes;
  if (!wrapper.param_dtype.empty()) dtypes.push_back("computes in " + wrapper.param_dtype);
  if (!wrapper.reduce_dtype.empty()) dtypes.push_back("reduces in " + wrapper.reduce_dtype);
  if (!wrapper.buffer_dtype.empty()) dtypes.push_back("buffers in " + wrapper.buffer_dtype);
  if (!dtypes.empty()) text += fmt::format(" · {}", fmt::join(dtypes, ", "));
  if (!wrapper.autocast.empty()) text += fmt::format(" · autocast {}", fmt::join(wrapper.autocast, ", "));
  if (wrapper.offload) text += " · offloaded to the host";
  return text;
}

bool is_plain(const AppliedWrapper& wrapper) {
  return wrapper.name == "plain";
}

/// The classes of several models without a wrapper: "Linear (3), Embedding". Empty if there are fewer than two.
std::string plain_models(const std::vector<AppliedWrapper>& wrappers) {
  std::vector<std::pair<std::string, int>> models;
  int total = 0;
  for (const AppliedWrapper& wrapper : wrappers) {
    if (!is_plain(wrapper)) continue;
    ++total;
    const auto same =
        std::find_if(models.begin(), models.end(), [&](const auto& model) { return model.first == wrapper.model; });
    if (same == models.end()) {
      models.emplace_back(wrapper.model, 1);
    } else {
      ++same->second;
    }
  }
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(models.size(), kMostModels); ++i) {
    texts.push_back(models[i].second == 1 ? models[i].first
                                          : fmt::format("{} ({})", models[i].first, models[i].second));
  }
  if (models.size() > kMostModels) texts.push_back(fmt::format("{} more", models.size() - kMostModels));
  return total > 1 ? fmt::format("{}", fmt::join(texts, ", ")) : "";
}

std::string parameters_text(const StepReport& report) {
  std::string text = elements_text(report.parameters) + " parameters";
  text += report.trainable_parameters == report.parameters
              ? ", all trainable"
              : fmt::format(", {} trainable", elements_text(report.trainable_parameters));
  const std::vector<ElementsOfDtype>& dtypes = report.rehearsal->parameter_dtypes;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    text += i == 0 ? " · " : ", ";
    text +=
        dtypes.size() == 1 ? dtypes[i].dtype : fmt::format("{} {}", dtypes[i].dtype, elements_text(dtypes[i].elements));
  }
  return text;
}

std::string optimizer_text(const AppliedOptimizer& optimizer) {
  const std::string name = optimizer.class_name.substr(optimizer.class_name.rfind('.') + 1);
  std::string how;
  if (optimizer.fused.value_or(false)) {
    how = ", fused";
  } else if (optimizer.foreach) {
    how = *optimizer.foreach ? ", foreach" : ", one tensor at a time";
  }
  return fmt::format("{}{}, {}", name, how, text::counted(optimizer.parameters, "tensor"));
}

}  // namespace

std::string elements_text(std::int64_t elements) {
  struct Prefix {
    double size;
    const char* name;
  };
  for (const Prefix& prefix : {Prefix{1e12, "T"}, Prefix{1e9, "G"}, Prefix{1e6, "M"}, Prefix{1e3, "k"}}) {
    const double value = static_cast<double>(elements) / prefix.size;
    if (value < 0.9995) continue;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, prefix.name);
  }
  return fmt::format("{}", elements);
}

void add_applied(text::Document& document, const StepReport& report, bool verbose) {
  const Rehearsal& seen = *report.rehearsal;
  text::Entry entry{.label = "applied"};
  const std::string plain = plain_models(seen.wrappers);
  if (!plain.empty()) {
    // Autocast applies to all of them.
    const std::vector<std::string>& autocast = seen.wrappers.front().autocast;
    entry.lines.push_back("no wrapper of " + plain +
                          (autocast.empty() ? "" : fmt::format(" · autocast {}", fmt::join(autocast, ", "))));
  }
  for (const AppliedWrapper& wrapper : seen.wrappers) {
    if (!plain.empty() && is_plain(wrapper)) continue;
    entry.lines.push_back(wrapper_text(wrapper));
    if (!wrapper.units.empty()) entry.lines.push_back("units: " + units_text(wrapper));
  }
  for (const std::string& technique : seen.techniques) entry.lines.push_back(technique);
  if (report.parameters > 0) entry.lines.push_back(parameters_text(report));
  for (const AppliedOptimizer& optimizer : seen.optimizers) {
    const std::string text = optimizer_text(optimizer);
    if (entry.lines.empty() || entry.lines.back() != text) entry.lines.push_back(text);
  }
  if (entry.lines.empty()) entry.lines.emplace_back("no training was observed");
  document.push_back(std::move(entry));
  if (!verbose) return;
  text::Table table{
      .name = "units",
      .columns = {
          {"unit", "unit"}, {"class", "class"}, {"tensors", "parameters", true}, {"elements", "elements", true}}};
  for (const AppliedWrapper& wrapper : seen.wrappers) {
    for (const AppliedUnit& unit : wrapper.units) {
      table.rows.push_back({unit.name.empty() ? text::Cell{"root", ""} : text::Cell{unit.name}, unit.class_name,
                            text::cell(unit.parameters), text::cell(unit.elements)});
    }
  }
  if (!table.rows.empty()) document.push_back(std::move(table));
}

void add_measured_traffic(text::Document& document, const TrafficReport& traffic, bool verbose) {
  struct Row {
    Collective like;
    std::int64_t count = 0;
    Bytes payload;
  };
  std::vector<Row> rows;
  for (const Collective& each : traffic.collectives) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.like.kind == each.kind && row.like.dtype == each.dtype && row.like.group_size == each.group_size &&
             (!verbose || row.like.phase == each.phase);
    });
    Row& row = same == rows.end() ? rows.emplace_back(Row{.like = each}) : *same;
    ++row.count;
    row.payload += each.payload;
  }
  if (rows.empty()) {
    document.push_back(text::Entry{.label = "traffic", .lines = {"no collectives in a step"}});
    return;
  }
  text::Table table{.name = "traffic",
                    .columns = {{"per step", "kind"},
                                {"dtype", "dtype"},
                                {"ranks", "group_size", true},
                                {"count", "count", true},
                                {"payload", "payload_bytes", true}}};
  if (verbose) table.columns.push_back({"phase", "phase"});
  for (const Row& row : rows) {
    table.rows.push_back({std::string(name_of(row.like.kind)), std::string(name_of(row.like.dtype)),
                          text::cell(row.like.group_size), text::cell(row.count), text::cell(row.payload)});
    if (verbose) table.rows.back().push_back(std::string(name_of(row.like.phase)));
  }
  document.push_back(std::move(table));
}

}  // namespace fsdp::render
