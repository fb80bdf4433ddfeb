#pragma once

// How reports spell enums.

#include <string_view>

#include "core/base/object_reader.h"
#include "core/report/report.h"

namespace fsdp {

inline constexpr EnumName<MemoryCategory> kMemoryCategoryNames[] = {{MemoryCategory::ShardedParam, "Sharded Param"},
                                                                    {MemoryCategory::UnshardedParam, "Unsharded Param"},
                                                                    {MemoryCategory::Buffer, "Buffer"},
                                                                    {MemoryCategory::ShardedGrad, "Sharded Grad"},
                                                                    {MemoryCategory::UnshardedGrad, "Unsharded Grad"},
                                                                    {MemoryCategory::Activation, "Activation"},
                                                                    {MemoryCategory::Temp, "Temp"},
                                                                    {MemoryCategory::AllGather, "All Gather"},
                                                                    {MemoryCategory::ReduceScatter, "Reduce Scatter"},
                                                                    {MemoryCategory::OptState, "OptState"},
                                                                    {MemoryCategory::Inputs, "Inputs"}};
inline constexpr EnumTable<MemoryCategory> kMemoryCategoryTable{"category", kMemoryCategoryNames};

/// All of them: `kProvenanceNames` of core/cluster/cluster.h has those that a file may give.
inline constexpr EnumName<Provenance> kReportedProvenances[] = {{Provenance::Measured, "measured"},
                                                                {Provenance::Published, "published"},
                                                                {Provenance::Assumed, "assumed"},
                                                                {Provenance::Given, "given"},
                                                                {Provenance::Derived, "derived"}};
inline constexpr EnumTable<Provenance> kReportedProvenanceTable{"provenance", kReportedProvenances};

inline constexpr EnumName<CollectiveKind> kCollectiveKindNames[] = {{CollectiveKind::AllGather, "all_gather"},
                                                                    {CollectiveKind::ReduceScatter, "reduce_scatter"},
                                                                    {CollectiveKind::AllReduce, "all_reduce"},
                                                                    {CollectiveKind::Broadcast, "broadcast"},
                                                                    {CollectiveKind::Reduce, "reduce"},
                                                                    {CollectiveKind::AllToAll, "all_to_all"},
                                                                    {CollectiveKind::Send, "send"},
                                                                    {CollectiveKind::Recv, "recv"},
                                                                    {CollectiveKind::Gather, "gather"},
                                                                    {CollectiveKind::Scatter, "scatter"}};
inline constexpr EnumTable<CollectiveKind> kCollectiveKindTable{"collective", kCollectiveKindNames};

/// Without None, which is left out.
inline constexpr EnumName<ReduceOp> kReduceOpNames[] = {
    {ReduceOp::Avg, "avg"}, {ReduceOp::Sum, "sum"}, {ReduceOp::Max, "max"}};
inline constexpr EnumTable<ReduceOp> kReduceOpTable{"reduction", kReduceOpNames};

inline constexpr EnumName<MeshDimension> kMeshDimensionNames[] = {
    {MeshDimension::Shard, "shard"}, {MeshDimension::Replicate, "replicate"}, {MeshDimension::Other, "other"}};
inline constexpr EnumTable<MeshDimension> kMeshDimensionTable{"group", kMeshDimensionNames};

inline constexpr EnumName<Verdict> kVerdictNames[] = {
    {Verdict::Fits, "fits"}, {Verdict::DoesNotFit, "does_not_fit"}, {Verdict::Unknown, "unknown"}};
inline constexpr EnumTable<Verdict> kVerdictTable{"verdict", kVerdictNames};
inline constexpr std::string_view kVerdictSentences[] = {"The device peak and the margin are within the budget.",
                                                         "They are not.", "There is nothing to compare with."};

}  // namespace fsdp
