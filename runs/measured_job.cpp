#include "runs/measured_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/environment.h"
#include "core/base/files.h"
#include "runs/rehearse_command.h"
#include "runs/rehearse_report.h"

namespace fsdp::runs {

namespace {

MemoryPeaks unknown_peaks() {
  return {Bytes(-1), Bytes(-1), Bytes(-1), Bytes(-1)};
}

std::vector<DeviceTerm> terms_of(const RehearsalRecord& record) {
  const MemoryPeaks& peaks = record.memory.peaks;
  return {{"reserved by PyTorch's allocator", peaks.reserved, Provenance::Measured,
           "the allocator of torch " + record.seen.torch},
          {"outside of it", peaks.device - peaks.reserved, Provenance::Measured,
           "what all processes held of the GPU at the end of a step: contexts, NCCL, libraries"}};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> measured_environment(const MeasuredJob& job) {
  const std::string path = environment_variable("PYTHONPATH");
  std::vector<std::pair<std::string, std::string>> result = {{"PYTHONPATH", path_list(job.python + "/hook", path)},
                                                             {"FSDP_MEASURE_FOLDER", job.folder},
                                                             {"FSDP_MEASURE_STEPS", fmt::format("{}", job.steps)}};
  if (!job.apply.empty()) {
    result.emplace_back("FSDP_MEASURE_APPLY", job.apply);
    result.emplace_back("FSDP_MEASURE_APPLY_NAME", job.apply_name);
  }
  return result;
}

Result<std::vector<RehearsalRecord>> read_measured(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("rank-")) paths.push_back(entry.path().string());
  }
  std::vector<RehearsalRecord> records;
  for (const std::string& path : paths) {
    FSDP_TRY(const JsonDocument document, read_json_file(path));
    FSDP_TRY(RehearsalRecord record, read_record(document));
    records.push_back(std::move(record));
  }
  std::sort(records.begin(), records.end(),
            [](const RehearsalRecord& a, const RehearsalRecord& b) { return a.job.rank < b.job.rank; });
  return records;
}

StepReport report_of(const MeasuredJob& job, const RehearsalRecord& record) {
  StepReport report = report_of(record);
  report.runtime = "pytorch";
  const std::string script = read_launch(job.command).script;
  report.model = script.substr(script.rfind('/') + 1);
  report.gpu = record.gpu.empty() ? "CPU" : record.gpu;
  if (record.gpu.empty()) {
    report.memory.peaks = unknown_peaks();
    report.verdict = Verdict::Unknown;
  } else {
    report.memory.device_terms = terms_of(record);
  }
  report.time.step = record.step;
  report.time.exposed_communication = record.exposed_communication;
  return report;
}

}  // namespace fsdp::runs
