#pragma once

// The names that plan files, model specs and the command line use for the choices of a plan: one table per enum.

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "core/base/object_reader.h"
#include "core/plan/framework_traits.h"
#include "core/plan/loss_table.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "core/plan/step_phase.h"

namespace fsdp {

/// The frameworks by one of their names.
template <std::string_view FrameworkTraits::*kName>
constexpr auto framework_names() {
  std::array<EnumName<Framework>, kFrameworkTraits.size()> names{};
  for (std::size_t f = 0; f < names.size(); ++f) names[f] = {kFrameworkTraits[f].framework, kFrameworkTraits[f].*kName};
  return names;
}

inline constexpr auto kFrameworks = framework_names<&FrameworkTraits::plan_name>();
inline constexpr EnumTable<Framework> kFrameworkTable{"runtime", kFrameworks};

/// The names that people type.
inline constexpr auto kRuntimes = framework_names<&FrameworkTraits::option>();
inline constexpr EnumTable<Framework> kRuntimeTable{"runtime", kRuntimes};

inline constexpr EnumName<BackwardPrefetch> kBackwardPrefetches[] = {
    {BackwardPrefetch::Pre, "pre"},
    {BackwardPrefetch::Post, "post"},
    {BackwardPrefetch::None, "none"},
};
inline constexpr EnumTable<BackwardPrefetch> kBackwardPrefetchTable{"backward prefetch", kBackwardPrefetches};

inline constexpr EnumName<CheckpointMode> kCheckpointModes[] = {
    {CheckpointMode::None, "none"},     {CheckpointMode::Selective, "selective"}, {CheckpointMode::Full, "full"},
    {CheckpointMode::Nested, "nested"}, {CheckpointMode::Reentrant, "reentrant"},
};
inline constexpr EnumTable<CheckpointMode> kCheckpointModeTable{"checkpoint mode", kCheckpointModes};

inline constexpr auto kOptimizerKinds = [] {
  std::array<EnumName<OptimizerKind>, std::size(kOptimizerRows)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = {kOptimizerRows[i].kind, kOptimizerRows[i].name};
  return names;
}();
inline constexpr EnumTable<OptimizerKind> kOptimizerKindTable{"optimizer", kOptimizerKinds};
/// Members of an optimizer's schema that stand between two fields.
inline constexpr std::string_view kOnlySgdHasMomentum =
    R"(, "anyOf": [{"properties": {"momentum": {"const": 0}}}, {"properties": {"kind": {"const": "sgd"}}, "required": ["kind"]}])";

inline constexpr EnumName<OptimizerImplementation> kOptimizerImplementations[] = {
    {OptimizerImplementation::Foreach, "foreach"},
    {OptimizerImplementation::Fused, "fused"},
    {OptimizerImplementation::ForLoop, "for_loop"},
};
inline constexpr EnumTable<OptimizerImplementation> kOptimizerImplementationTable{"optimizer implementation",
                                                                                  kOptimizerImplementations};

inline constexpr EnumName<OptimizerStates> kOptimizerStates[] = {
    {OptimizerStates::AsParameter, "as_parameter"},
    {OptimizerStates::BFloat16, "bfloat16"},
};
inline constexpr EnumTable<OptimizerStates> kOptimizerStatesTable{"precision of the optimizer states",
                                                                  kOptimizerStates};

inline constexpr EnumName<Initialization> kInitializations[] = {
    {Initialization::Meta, "meta"},
    {Initialization::Cpu, "cpu"},
    {Initialization::Device, "device"},
};
inline constexpr EnumTable<Initialization> kInitializationTable{"initialization", kInitializations};

inline constexpr EnumName<StepPhase> kStepPhases[] = {
    {StepPhase::Forward, "forward"},
    {StepPhase::Backward, "backward"},
    {StepPhase::Optimizer, "optimizer"},
    {StepPhase::Initialization, "initialization"},
    {StepPhase::Evaluation, "evaluation"},
    {StepPhase::Saving, "saving"},
    {StepPhase::Unknown, ""},
};
inline constexpr EnumTable<StepPhase> kStepPhaseTable{"phase", kStepPhases};

inline constexpr EnumName<RmsNormImplementation> kRmsNormImplementations[] = {
    {RmsNormImplementation::WrittenOut, "written_out"},
    {RmsNormImplementation::Composite, "composite"},
    {RmsNormImplementation::Fused, "fused"},
};
inline constexpr EnumTable<RmsNormImplementation> kRmsNormTable{"RMSNorm implementation", kRmsNormImplementations};

inline constexpr auto kLosses = [] {
  std::array<EnumName<LossKind>, std::size(kLossRows)> names{};
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = {kLossRows[i].kind, kLossRows[i].name};
  return names;
}();
inline constexpr EnumTable<LossKind> kLossTable{"loss", kLosses};

inline constexpr EnumName<RotaryImplementation> kRotaryImplementations[] = {
    {RotaryImplementation::Halves, "halves"},
    {RotaryImplementation::HalvesSeqFirst, "halves_seq_first"},
    {RotaryImplementation::Complex, "complex"},
};
inline constexpr EnumTable<RotaryImplementation> kRotaryTable{"rotary implementation", kRotaryImplementations};

inline constexpr EnumName<AttentionBackend> kAttentionBackends[] = {
    {AttentionBackend::Automatic, "automatic"},
    {AttentionBackend::Flash, "flash"},
    {AttentionBackend::MemoryEfficient, "memory_efficient"},
    {AttentionBackend::Cudnn, "cudnn"},
    {AttentionBackend::Math, "math"},
    {AttentionBackend::Eager, "eager"},
    {AttentionBackend::FlashAttn, "flash_attn"},
};
inline constexpr EnumTable<AttentionBackend> kAttentionBackendTable{"attention backend", kAttentionBackends};
inline constexpr EnumName<PackedAttention> kPackedAttentions[] = {
    {PackedAttention::FlashAttn, "flash_attn"},
    {PackedAttention::Varlen, "varlen"},
    {PackedAttention::Sdpa, "sdpa"},
    {PackedAttention::Flex, "flex"},
};
inline constexpr EnumTable<PackedAttention> kPackedAttentionTable{"attention of packed rows", kPackedAttentions};

}  // namespace fsdp
