#include "core/report/report_json.h"

#include <utility>

#include "core/report/report_fields.h"

namespace fsdp {

std::string to_json(const StepReport& report, const ReportAdditions& additions, const Cluster* cluster) {
  JsonWriter writer;
  writer.begin_object();
  Fields fields(writer);
  report_fields(fields, report, cluster);
  addition_fields(fields, additions);
  writer.end_object();
  return std::move(writer).take();
}

std::string to_json(const Comparison& comparison) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", kReportFormatVersion);
  writer.key("comparison");
  write_json(writer, comparison, JsonLayout::Lines);
  writer.end_object();
  return std::move(writer).take();
}

std::string report_schema() {
  const std::string schema = schema_of_fields(
      [](Fields& fields) {
        StepReport report;
        report_fields(fields, report);
        ReportAdditions additions;
        addition_fields(fields, additions);
      },
      UnknownKeys::Ignore);
  return schema_of_file("report", "Reports of fsdp-plan",
                        "The cost of a training step, predicted or measured. Bytes are integers, times are seconds, "
                        "and nothing depends on the clock or the machine. Keys may be added within a major version.",
                        schema, {});
}

}  // namespace fsdp
