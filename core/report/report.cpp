#include "core/report/report.h"

#include <algorithm>

#include "core/report/report_names.h"

namespace fsdp {

std::string_view name_of(MemoryCategory category) {
  return name_of(kMemoryCategoryTable, category);
}

std::string_view name_of(Provenance provenance) {
  return name_of(kReportedProvenanceTable, provenance);
}

std::string_view name_of(RunPhase phase) {
  return name_of(kRunPhaseTable, phase);
}

std::string title_of(RunPhase phase) {
  std::string words(name_of(phase));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string name_of(const PeakMoment& moment) {
  return moment.instruction.empty() ? std::string(name_of(moment.phase)) : moment.instruction;
}

std::string_view name_of(CollectiveKind kind) {
  return name_of(kCollectiveKindTable, kind);
}

std::string_view name_of(ReduceOp op) {
  return name_of(kReduceOpTable, op);
}

MeshDimension dimension_of(const RankGroup& ranks) {
  if (ranks.is_along(MeshAxis::DpShard)) return MeshDimension::Shard;
  return ranks.is_along(MeshAxis::DpReplicate) ? MeshDimension::Replicate : MeshDimension::Other;
}

std::string_view name_of(MeshDimension dimension) {
  return name_of(kMeshDimensionTable, dimension);
}

std::string_view name_of(Tightness tightness) {
  return tightness == Tightness::None ? std::string_view() : name_of(kTightnessTable, tightness);
}

std::string_view name_of(Verdict verdict) {
  return name_of(kVerdictTable, verdict);
}

}  // namespace fsdp
