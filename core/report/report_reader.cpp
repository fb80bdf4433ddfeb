#include "core/report/report_reader.h"

#include <utility>

#include "core/report/report_fields.h"

namespace fsdp {

Result<StepReport> read_report(const JsonDocument& document) {
  JsonErrors errors(document);
  StepReport report;
  ReportAdditions additions;
  ObjectReader object(document.root, errors);
  Fields fields(object, UnknownKeys::Ignore);
  report_fields(fields, report);
  addition_fields(fields, additions);
  object.finish(UnknownKeys::Ignore);
  return std::move(errors).result(std::move(report));
}

Result<StepReport> read_report_file(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  return read_report(document);
}

}  // namespace fsdp
