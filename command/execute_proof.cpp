// python/fsdp_proof runs and judges the trials: there, several programs, each of which may fail without losing the
// others' results, are rows. This process only waits. The request has the facts that only this program knows: the
// prediction, the expanded model for PyTorch, and the driver's name of the card.

#include "command/execute_proof.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "command/cli_plan_file.h"
#include "command/cli_values.h"
#include "core/base/files.h"
#include "core/base/json_document.h"
#include "core/base/json_writer.h"
#include "core/cluster/cpu_cluster.h"
#include "core/spec/captured_model.h"
#include "core/version.h"
#include "render/result_json.h"
#include "runs/child_process.h"
#include "runs/execute_ranks.h"
#include "runs/keeper.h"
#include "runs/rehearse_environment.h"
#include "runs/rehearse_plan.h"
#include "runs/rehearse_run.h"
#include "runs/rehearse_settings.h"
#include "simulator/predictor.h"

namespace fsdp::command {

namespace {

constexpr std::int64_t kProofSteps = 6;
constexpr double kDefaultTimeoutSeconds = 300;
constexpr const char* kDefaultFolder = "proof";
constexpr Seconds kBetweenProofLooks{0.2};

/// Options without a use in a proof, beside those that are passed to fsdp-exec.
constexpr Option kOfOtherRuns[] = {
    Option::Memory, Option::Calibration, Option::Tolerance, Option::ChromeTrace,
    Option::Device, Option::Ranks,       Option::Output,
};

void refuse_what_is_of_other_runs(const CommandLine& line, OptionReader& reader) {
  const auto refuse = [&](Option option) {
    if (line.has(option)) reader.fail(option, "A proof has no use for it.", "Leave it out.");
  };
  for (const Option option : kOfOtherRuns) refuse(option);
  for (const OptionInfo& info : handed_on()) {
    if (info.option != Option::Seed) refuse(info.option);
  }
}

struct ProofRun {
  runs::Given given;
  std::string program;  ///< fsdp-exec.
  std::string torch;    ///< A Python with torch; may be empty.
  std::string why_no_torch;
  runs::RehearsalPlaces places;
  std::string folder;
  std::int64_t steps = kProofSteps;
  std::int64_t seed = 0;
  double timeout = kDefaultTimeoutSeconds;
};

std::optional<ProofRun> read_proof(const CommandLine& line, const std::string& library, Errors& errors) {
  OptionReader reader(line, errors);
  ProofRun proof;
  refuse_what_is_of_other_runs(line, reader);
  proof.steps = std::max<std::int64_t>(2, reader.count(Option::Steps).value_or(kProofSteps));
  proof.seed = reader.count(Option::Seed, 0).value_or(0);
  proof.timeout = reader.time(Option::Timeout).value_or(Seconds(kDefaultTimeoutSeconds)).count();
  const auto gpus = reader.count(Option::Gpus);
  proof.program = reader.keep(runs::find_executor()).value_or("");
  proof.places = runs::rehearsal_places_of_process();
  auto given = reader.keep(read_planned(line.arguments.front(), library));
  if (!given) return std::nullopt;
  proof.given = *std::move(given);
  if (auto refused = refuse_captured(proof.given.spec)) errors.push_back(*std::move(refused));
  if (auto other = refuse_other_frameworks(proof.given.file.plan, "a proof trains"))
    errors.push_back(*std::move(other));
  const std::int64_t ranks = proof.given.file.plan.mesh.world_size();
  if (gpus && *gpus != ranks) {
    reader.fail(Option::Gpus, fmt::format("The plan is for {} ranks.", ranks),
                fmt::format("Plan again with --gpus {}, or leave it out.", *gpus));
  }
  // Without PyTorch all but its own trials can run; a named Python has to work.
  Result<std::string> torch = runs::find_torch_python(line.value(Option::Python).value_or(""), proof.places);
  if (torch) {
    proof.torch = *std::move(torch);
  } else if (line.has(Option::Python)) {
    append(errors, torch.error());
  } else {
    proof.why_no_torch = to_string(torch.error().front());
  }
  proof.given.cluster =
      proof.given.file.cluster ? *proof.given.file.cluster : cpu_cluster(static_cast<int>(ranks), Bytes(1));
  std::error_code error;
  proof.folder = std::filesystem::absolute(line.value(Option::RunFolder).value_or(kDefaultFolder), error).string();
  if (!line.has(Option::Force) && std::filesystem::exists(proof.folder + "/proof.json", error)) {
    reader.fail(Option::RunFolder, fmt::format("{} has a proof already.", proof.folder),
                "Name another, or add --force.");
  }
  if (!errors.empty()) return std::nullopt;
  return proof;
}

std::string request_text(const ProofRun& proof, bool is_predicted) {
  const auto absolute = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::absolute(path, ignored).string();
  };
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", "1.0");
  writer.member("fsdp_plan", kVersion);
  writer.member("program", proof.program);
  writer.member("torch", proof.torch);
  writer.member("why_no_torch", proof.why_no_torch);
  writer.member("python_path", proof.places.python);
  writer.member("stub", proof.places.stub);
  writer.member("plan", absolute(proof.given.path));
  writer.member("model", proof.given.model.name);
  writer.member("shard", proof.given.file.plan.mesh.dp_shard());
  writer.member("replicate", proof.given.file.plan.mesh.dp_replicate());
  writer.member("steps", proof.steps);
  writer.member("seed", proof.seed);
  writer.member("timeout_seconds", proof.timeout);
  writer.member("is_predicted", is_predicted);
  const Gpu& gpu = proof.given.cluster.gpu;
  writer.member("planned_card", is_predicted ? runs::driver_name(gpu) : std::string());
  // All names that a driver may use.
  std::vector<std::string> names;
  if (is_predicted) names = gpu.aliases;
  if (is_predicted) names.insert(names.end(), {gpu.name, runs::driver_name(gpu)});
  writer.member("names_of_planned_card", names);
  writer.end_object();
  return std::move(writer).take();
}

Result<void> write_request(const ProofRun& proof) {
  std::error_code error;
  std::filesystem::create_directories(proof.folder, error);
  if (error) return failure(proof.folder, fmt::format("The folder cannot be made: {}.", error.message()), "");
  for (const char* name : {"proof.json", "proof.html", "log"})
    std::filesystem::remove(proof.folder + "/" + name, error);
  const auto write = [&](const char* name, const std::string& text) {
    return write_file_atomically(proof.folder + "/" + name, text, Overwrite::Allow);
  };
  const bool is_predicted = proof.given.file.cluster.has_value();
  if (is_predicted) {
    simulator::Predictor predictor(proof.given.model, proof.given.cluster);
    FSDP_TRY(const StepReport predicted, predictor.report(proof.given.file.plan, 0));
    if (auto done = write("predicted.json", render::to_json(predicted, &proof.given.cluster)); !done) return done;
  }
  if (auto done = write("job.json", runs::job_text(proof.given, proof.steps)); !done) return done;
  return write("request.json", request_text(proof, is_predicted));
}

/// Prints the trials' messages as they come. Returns the exit code of fsdp_proof; negative if interrupted.
Result<int> run_trials(const ProofRun& proof, const Output& output, runs::Supervision& supervision) {
  const std::string log = proof.folder + "/log";
  runs::ChildCommand command{.words = {proof.torch.empty() ? "python3" : proof.torch, "-B", "-m", "fsdp_proof",
                                       proof.folder + "/request.json"},
                             .output = log};
  command.environment = {{"PYTHONPATH", proof.places.python}, {"PYTHONUNBUFFERED", "1"}};
  FSDP_TRY(runs::ChildProcess process, runs::ChildProcess::start(command));
  std::streamoff shown = 0;
  const auto show = [&] {
    const std::string text = runs::output_from(log, shown);
    const std::size_t whole = text.rfind('\n') + 1;
    if (!output.quiet) output.console.err << text.substr(0, whole) << std::flush;
    shown += static_cast<std::streamoff>(whole);
  };
  for (;;) {
    const int signal = supervision.wait(kBetweenProofLooks);
    if (signal != 0) {
      process.signal_session(SIGKILL);
      return -1;
    }
    show();
    const auto status = process.poll();
    if (!status) continue;
    show();
    return status->signal != 0 ? kExitRun : status->code;
  }
}

}  // namespace

CommandResult proof_command(const CommandLine& line, const Output& output) {
  Errors errors;
  const std::optional<ProofRun> proof = read_proof(line, output.console.library, errors);
  if (!errors.empty() || !proof) return input_failure(std::move(errors));
  const Result<void> written = write_request(*proof);
  if (!written) return input_failure(written.error());
  runs::Supervision supervision;
  const Result<int> code = run_trials(*proof, output, supervision);
  supervision.kill_descendants();
  if (!code) return tl::unexpected(Failure{code.error(), kExitRun});
  if (*code < 0) return interrupted(output);
  if (*code == kExitInput) return input_failure({{"", runs::output_from(proof->folder + "/problem"), ""}});
  const std::string json = runs::output_from(proof->folder + "/proof.json");
  if (json.empty() || (*code != kExitYes && *code != kExitNo)) {
    return tl::unexpected(
        Failure{{{proof->folder + "/log", "The trials have ended without a result.", "It says why."}}, kExitRun});
  }
  if (prints_json(line, output)) {
    output.console.out << json;
  } else {
    output.console.out << runs::output_from(proof->folder + "/verdict");
  }
  return *code == kExitYes ? kExitYes : kExitNo;
}

}  // namespace fsdp::command
