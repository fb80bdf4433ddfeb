#pragma once

// The names of enums in reports.

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

/// All of them; `kProvenanceNames` of core/cluster/cluster.h has only those of files.
inline constexpr EnumName<Provenance> kReportedProvenances[] = {{Provenance::Measured, "measured"},
                                                                {Provenance::Published, "published"},
                                                                {Provenance::Assumed, "assumed"},
                                                                {Provenance::Given, "given"},
                                                                {Provenance::Derived, "derived"}};
inline constexpr EnumTable<Provenance> kReportedProvenanceTable{"provenance", kReportedProvenances};

inline constexpr EnumName<RunPhase> kRunPhases[] = {{RunPhase::Initialization, "initialization"},
                                                    {RunPhase::FirstStep, "first_step"},
                                                    {RunPhase::SteadyStep, "steady_step"},
                                                    {RunPhase::Evaluation, "evaluation"},
                                                    {RunPhase::Saving, "saving"}};
inline constexpr EnumTable<RunPhase> kRunPhaseTable{"phase", kRunPhases};

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

/// Without None, which is omitted.
inline constexpr EnumName<ReduceOp> kReduceOpNames[] = {
    {ReduceOp::Avg, "avg"}, {ReduceOp::Sum, "sum"}, {ReduceOp::Max, "max"}};
inline constexpr EnumTable<ReduceOp> kReduceOpTable{"reduction", kReduceOpNames};

inline constexpr EnumName<MeshDimension> kMeshDimensionNames[] = {
    {MeshDimension::Shard, "shard"}, {MeshDimension::Replicate, "replicate"}, {MeshDimension::Other, "other"}};
inline constexpr EnumTable<MeshDimension> kMeshDimensionTable{"group", kMeshDimensionNames};

inline constexpr EnumName<Verdict> kVerdictNames[] = {
    {Verdict::Fits, "fits"}, {Verdict::DoesNotFit, "does_not_fit"}, {Verdict::Unknown, "unknown"}};
inline constexpr EnumTable<Verdict> kVerdictTable{"verdict", kVerdictNames};
inline constexpr std::string_view kVerdictSentences[] = {"It runs; with \"tight\", without room to spare.",
                                                         "It runs out of memory.", "There is nothing to compare with."};

/// Without None, which is omitted.
inline constexpr EnumName<Tightness> kTightnessNames[] = {
    {Tightness::Margin, "margin"}, {Tightness::Streams, "streams"}, {Tightness::Flushes, "cache_flushes"}};
inline constexpr EnumTable<Tightness> kTightnessTable{"tightness", kTightnessNames};
inline constexpr std::string_view kTightnessSentences[] = {
    "The device peak is within the budget, but with the margin it is not.",
    "Memory that other streams hold (held_bytes) may be more than is left: the allocator then waits for it.",
    "The allocator has to give back its cache to stay within the budget."};

}  // namespace fsdp
