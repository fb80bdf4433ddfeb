#include "core/report/report.h"

namespace fsdp {

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::ShardedParam:
      return "Sharded Param";
    case MemoryCategory::UnshardedParam:
      return "Unsharded Param";
    case MemoryCategory::Buffer:
      return "Buffer";
    case MemoryCategory::ShardedGrad:
      return "Sharded Grad";
    case MemoryCategory::UnshardedGrad:
      return "Unsharded Grad";
    case MemoryCategory::Activation:
      return "Activation";
    case MemoryCategory::Temp:
      return "Temp";
    case MemoryCategory::AllGather:
      return "All Gather";
    case MemoryCategory::ReduceScatter:
      return "Reduce Scatter";
    case MemoryCategory::OptState:
      return "OptState";
    case MemoryCategory::Inputs:
      return "Inputs";
  }
  return {};
}

std::string_view name_of(Provenance provenance) {
  switch (provenance) {
    case Provenance::Measured:
      return "measured";
    case Provenance::Published:
      return "published";
    case Provenance::Assumed:
      return "assumed";
    case Provenance::Given:
      return "given";
    case Provenance::Derived:
      return "derived";
  }
  return {};
}

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllGather:
      return "all_gather";
    case CollectiveKind::ReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::AllReduce:
      return "all_reduce";
    case CollectiveKind::Broadcast:
      return "broadcast";
    case CollectiveKind::Reduce:
      return "reduce";
    case CollectiveKind::AllToAll:
      return "all_to_all";
    case CollectiveKind::Send:
      return "send";
    case CollectiveKind::Recv:
      return "recv";
    case CollectiveKind::Gather:
      return "gather";
    case CollectiveKind::Scatter:
      return "scatter";
  }
  return {};
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::None:
      return "";
    case ReduceOp::Avg:
      return "avg";
    case ReduceOp::Sum:
      return "sum";
  }
  return "";
}

std::string_view name_of(MeshDimension dimension) {
  switch (dimension) {
    case MeshDimension::Shard:
      return "shard";
    case MeshDimension::Replicate:
      return "replicate";
    case MeshDimension::Other:
      return "other";
  }
  return {};
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Fits:
      return "fits";
    case Verdict::DoesNotFit:
      return "does_not_fit";
    case Verdict::Unknown:
      return "unknown";
  }
  return {};
}

}  // namespace fsdp
