// The device peak is the stub GPU's count: PyTorch's reserve, plus the CUDA context and NCCL, which it charges by our
// terms. This file adds the sources of those terms again.
//
// Bytes sent are those of a ring for the three collectives of FSDP; a send counts its payload and a receive nothing;
// others count as one pass of the ring. They are split by links only if all ranks share a node.

#include "runs/rehearse_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "simulator/nccl/collective_cost.h"
#include "text/figures.h"

namespace fsdp::runs {

namespace {

void widen(PeakRange& range, Bytes value, bool is_first) {
  range.low = is_first ? value : std::min(range.low, value);
  range.high = is_first ? value : std::max(range.high, value);
}

/// A row for each rank, ascending.
std::vector<RehearsedRank> rows_of(const std::vector<RankRun>& runs) {
  std::map<std::int64_t, RehearsedRank> rows;
  for (const RankRun& run : runs) {
    const auto [place, is_first] = rows.try_emplace(run.job.rank, RehearsedRank{.rank = run.job.rank});
    RehearsedRank& row = place->second;
    const MemoryPeaks& peaks = run.record->memory.peaks;
    row.fits = row.fits && fits(*run.record);
    row.allocated = std::max(row.allocated, peaks.allocated);
    widen(row.reserved, peaks.reserved, is_first);
    widen(row.device, peaks.device, is_first);
  }
  std::vector<RehearsedRank> result;
  for (auto& [rank, row] : rows) result.push_back(row);
  return result;
}

/// True if some rank fits at one bound and not at the other.
bool does_timing_decide(const std::vector<RankRun>& runs) {
  return std::any_of(runs.begin(), runs.end(), [&](const RankRun& a) {
    return std::any_of(runs.begin(), runs.end(), [&](const RankRun& b) {
      return a.job.rank == b.job.rank && fits(*a.record) != fits(*b.record);
    });
  });
}

std::string runtime_of(const Rehearsal& seen) {
  const std::string name = seen.wrappers.empty() ? "plain" : seen.wrappers.front().name;
  if (name == "plain") return "pytorch";
  if (name.starts_with("DeepSpeed")) return "deepspeed";
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return "pytorch-" + lower;
}

std::string model_of(const Rehearsal& seen, const Launch& launch) {
  for (const AppliedWrapper& wrapper : seen.wrappers) {
    if (!wrapper.model.empty()) return wrapper.model;
  }
  return launch.script.substr(launch.script.rfind('/') + 1);
}

/// Terms with their sources, the reserve first, so that they add up to the device peak.
std::vector<DeviceTerm> device_terms(const RehearsalSettings& settings, const RehearsalRecord& record) {
  std::vector<DeviceTerm> terms(1);
  Bytes outside;
  for (DeviceTerm term : record.memory.device_terms) {
    outside += term.bytes;
    if (term.name == settings.context.name) {
      if (const auto& others = settings.cluster.reserved_memory) {
        term.bytes -= others->value;
        terms.push_back({std::string(kOtherPrograms), others->value, others->provenance, others->source});
      }
      term.provenance = settings.context.provenance;
      term.source = settings.context.source;
    } else if (!settings.nccl.empty() && term.name == settings.nccl.back().term.name) {
      term.provenance = settings.nccl.back().term.provenance;
      term.source = settings.nccl.back().term.source;
    } else {
      term.provenance = Provenance::Measured;
      term.source = "asked of the stub GPU outside PyTorch's allocator";
    }
    terms.push_back(std::move(term));
  }
  terms.front() = {"reserved by PyTorch's allocator", record.memory.peaks.device - outside, Provenance::Measured,
                   "the allocator of torch " + record.seen.torch};
  return terms;
}

Bytes sent_by(const Collective& collective) {
  if (collective.kind == CollectiveKind::Recv) return Bytes(0);
  if (collective.kind == CollectiveKind::Send) return collective.payload;
  return simulator::ring_bytes_sent(collective.kind, collective.payload, static_cast<int>(collective.group_size));
}

TrafficReport traffic_of(const RehearsalRecord& record) {
  TrafficReport traffic;
  traffic.collectives = record.collectives;
  const bool one_node = record.job.local_world_size >= record.job.world_size;
  if (!one_node) traffic.sent_inside_node = traffic.sent_between_nodes = Bytes(-1);
  for (const Collective& collective : record.collectives) {
    TrafficTotal& total = traffic.totals[static_cast<std::size_t>(collective.kind)];
    const Bytes sent = sent_by(collective);
    ++total.count;
    total.payload += collective.payload;
    total.sent_per_rank += sent;
    if (one_node) traffic.sent_inside_node += sent;
  }
  return traffic;
}

/// Adds a note if the launcher started another number of ranks than the machines have.
void note_other_world(const RehearsalSettings& settings, const RecordedJob& job, StepReport& report) {
  if (settings.nccl.empty() || job.world_size == world_size(settings.cluster) || job.world_size == 1) return;
  const bool is_charged = std::any_of(settings.nccl.begin(), settings.nccl.end(),
                                      [&](const CommunicatorMemory& each) { return each.ranks == job.world_size; });
  if (is_charged) return;
  report.assumptions.push_back(
      fmt::format("NCCL's buffers are those of communicators of up to {}, not {}: give --gpus and --nodes.",
                  text::counted(settings.nccl.back().ranks, "rank"), job.world_size));
}

}  // namespace

StepReport report_of(const RehearsalRecord& record) {
  StepReport report{.kind = "measured"};
  report.runtime_version = record.seen.torch.substr(0, record.seen.torch.find('+'));
  report.parameters = record.parameters;
  report.trainable_parameters = record.trainable_parameters;
  report.receives_gradient_parameters = -1;
  report.buffers = Bytes(-1);
  report.gpus_per_node = std::min(record.job.local_world_size, record.job.world_size);
  report.nodes = (record.job.world_size + report.gpus_per_node - 1) / report.gpus_per_node;
  report.memory = record.memory;
  report.traffic = traffic_of(record);
  report.verdict = fits(record) ? Verdict::Fits : Verdict::DoesNotFit;
  if (report.verdict == Verdict::Fits && report.memory.cache_flushes > 0) {
    report.memory.tightness = Tightness::Flushes;
  }
  return report;
}

StepReport measured_report(const RehearsalSettings& settings, const std::vector<RankRun>& runs) {
  assert(!runs.empty());
  const RankRun& worst = *std::min_element(
      runs.begin(), runs.end(), [](const RankRun& a, const RankRun& b) { return needs_more(*a.record, *b.record); });
  const RehearsalRecord& record = *worst.record;

  StepReport report = report_of(record);
  report.runtime = runtime_of(record.seen);
  report.model = model_of(record.seen, settings.launch);
  report.gpu = settings.cluster.gpu.name;
  report.assumptions = settings.assumptions;
  note_other_world(settings, record.job, report);
  report.memory.budget = settings.cluster.gpu.usable_memory.value;
  report.memory.device_terms = device_terms(settings, record);

  Rehearsal seen = record.seen;
  seen.warnings.insert(seen.warnings.end(), worst.writes.begin(), worst.writes.end());
  seen.command = settings.shown_command.empty() ? settings.command : settings.shown_command;
  seen.limits.cudnn_workspace = settings.cudnn_workspace.value_or(Bytes(0));
  seen.limits.routing = settings.routing;
  seen.rank = worst.job.rank;
  seen.ranks = rows_of(runs);
  seen.timing_decides = does_timing_decide(runs);
  seen.both_bounds = runs.size() > seen.ranks.size();
  report.rehearsal = std::move(seen);
  return report;
}

std::vector<RankJob> jobs_at_other_bound(const RehearsalSettings& settings, const std::vector<RankRun>& runs) {
  std::vector<RankJob> jobs;
  if (settings.bound) return jobs;
  for (const RankRun& run : runs) {
    if (run.record->seen.limits.allocator_event_queries > 0) jobs.push_back({run.job.rank, EventBound::Hold});
  }
  return jobs;
}

}  // namespace fsdp::runs
