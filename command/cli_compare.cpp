// compare: two report files, term by term.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "command/cli_commands.h"
#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/report/compare.h"
#include "core/report/report_json.h"
#include "core/report/report_reader.h"
#include "render/render_comparison.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

text::Entry verdict_of_comparison(const Comparison& comparison, const std::optional<double>& tolerance) {
  const ComparedTerm& worst = comparison.terms.front();
  std::string line =
      worst.difference() == 0
          ? fmt::format("{} compared", text::counted(static_cast<std::int64_t>(comparison.terms.size()), "term"))
          : fmt::format("{}: {}", worst.name, render::relative_text(worst));
  if (!tolerance) {
    return {.label = worst.difference() == 0 ? "EQUAL" : "WORST", .lines = {std::move(line)}};
  }
  const bool within = is_within(comparison, *tolerance);
  line += fmt::format(" · tolerance {:g} %", *tolerance * 100);
  return {.label = within ? "WITHIN" : "OUTSIDE",
          .lines = {std::move(line)},
          .style = within ? text::Style::Good : text::Style::Bad};
}

/// The columns' names for two files: the files' own names if these are short and differ.
std::pair<std::string, std::string> column_names(const std::string& first, const std::string& second) {
  constexpr std::size_t kMost = 16;
  const auto name = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const std::string a = name(first);
  const std::string b = name(second);
  if (a == b || a.size() > kMost || b.size() > kMost) return {"first", "second"};
  return {a, b};
}

}  // namespace

CommandResult compare_command(const CommandLine& line, const Output& output) {
  Errors errors = check_outputs(line, {Option::Output});
  const std::optional<double> tolerance = OptionReader(line, errors).share(Option::Tolerance);
  const auto predicted = read_report_file(line.arguments[0]);
  const auto measured = read_report_file(line.arguments[1]);
  for (const auto* report : {&predicted, &measured}) {
    if (!*report) errors.insert(errors.end(), report->error().begin(), report->error().end());
  }
  if (!errors.empty()) return input_failure(std::move(errors));

  const Comparison comparison = compare(*predicted, *measured);
  const ExitCode code = !tolerance || is_within(comparison, *tolerance) ? kExitYes : kExitNo;
  const std::string json = to_json(comparison);
  const auto written = write_output_file(line, json);
  if (!written) return tl::unexpected(written.error());
  if (prints_json(line, output)) {
    output.console.out << json;
    return code;
  }
  text::Document document = {verdict_of_comparison(comparison, tolerance)};
  if (!output.quiet) {
    const double mark = tolerance.value_or(std::numeric_limits<double>::infinity());
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    if (predicted->kind == "predicted" && measured->kind == "measured") {
      render::add_comparison(document, comparison, mark, kAll);
    } else {
      const auto [first, second] = column_names(line.arguments[0], line.arguments[1]);
      render::add_comparison(document, comparison, mark, kAll, first, second);
    }
  }
  output.print(document);
  return code;
}

}  // namespace fsdp::command
