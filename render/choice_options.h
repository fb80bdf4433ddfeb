#pragma once

// How options make choices: their names beside the first, and whether they take one word or many. The command and the
// window read the same options.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "planner/plan_choices.h"

namespace fsdp::planner {

struct ChoiceOption {
  PlanChoice choice = PlanChoice::Gpus;
  std::string_view names;   ///< "--gpus,--nproc-per-node": the first is the choice's place.
  std::string_view value;   ///< "N"
  bool repeatable = false;  ///< May be given several times.
  bool many = false;        ///< Takes all words up to the next option.
};

inline constexpr ChoiceOption kChoiceOptions[kNumPlanChoices] = {
    ChoiceOption{PlanChoice::Gpus, "--gpus,--nproc-per-node", "N"},
    ChoiceOption{PlanChoice::Nodes, "--nodes,--nnodes", "N"},
    ChoiceOption{PlanChoice::GpuName, "--gpu", "NAME"},
    ChoiceOption{PlanChoice::Memory, "--mem,--memory", "SIZE"},
    ChoiceOption{PlanChoice::ClusterFile, "--cluster", "FILE|NAME"},
    ChoiceOption{PlanChoice::IntraLinkName, "--intra-link", "KIND"},
    ChoiceOption{PlanChoice::IntraBandwidth, "--intra-bandwidth", "RATE"},
    ChoiceOption{PlanChoice::BusBandwidth, "--bus-bandwidth", "RATE"},
    ChoiceOption{PlanChoice::NetworkName, "--network", "KIND"},
    ChoiceOption{PlanChoice::NicBandwidth, "--nic-bandwidth", "RATE"},
    ChoiceOption{PlanChoice::GpusPerNic, "--gpus-per-nic", "N"},
    ChoiceOption{PlanChoice::Sharp, "--sharp", "yes|no"},
    ChoiceOption{PlanChoice::NcclVersion, "--nccl-version", "VERSION"},
    ChoiceOption{PlanChoice::NcclAlgorithms, "--nccl-algo", "LIST"},
    ChoiceOption{PlanChoice::NcclProtocols, "--nccl-proto", "LIST"},
    ChoiceOption{PlanChoice::NodeSpread, "--node-spread", "SHARE"},
    ChoiceOption{PlanChoice::HostMemory, "--host-mem", "SIZE"},
    ChoiceOption{PlanChoice::NvmeBandwidth, "--nvme-bandwidth", "RATE"},
    ChoiceOption{PlanChoice::NvmeCapacity, "--nvme-capacity", "SIZE"},
    ChoiceOption{PlanChoice::Recipe, "--recipe", "NAME"},
    ChoiceOption{PlanChoice::Batch, "--batch", "N"},
    ChoiceOption{PlanChoice::Sequence, "--seq", "N"},
    ChoiceOption{PlanChoice::GlobalBatch, "--global-batch", "N"},
    ChoiceOption{PlanChoice::Accumulate, "--accumulate", "N"},
    ChoiceOption{PlanChoice::SetDimension, "--set", "NAME=VALUE", true},
    ChoiceOption{PlanChoice::Trainable, "--trainable", "PATTERN...", true, true},
    ChoiceOption{PlanChoice::Freeze, "--freeze,--frozen", "PATTERN...", true, true},
    ChoiceOption{PlanChoice::Precision, "--precision", "NAME"},
    ChoiceOption{PlanChoice::ReduceDtype, "--reduce-dtype", "DTYPE"},
    ChoiceOption{PlanChoice::OptimizerName, "--optimizer", "NAME"},
    ChoiceOption{PlanChoice::OptimizerImpl, "--optimizer-impl", "NAME"},
    ChoiceOption{PlanChoice::OptimizerStatesName, "--optimizer-state-dtype", "NAME"},
    ChoiceOption{PlanChoice::Clip, "--clip-grad-norm", "NORM"},
    ChoiceOption{PlanChoice::Initialization, "--initialization", "WHERE"},
    ChoiceOption{PlanChoice::Flavor, "--flavor", "NAME"},
    ChoiceOption{PlanChoice::CrossEntropy, "--cross-entropy", "NAME"},
    ChoiceOption{PlanChoice::AllocConf, "--alloc-conf", "TEXT"},
    ChoiceOption{PlanChoice::Torch, "--torch", "VERSION"},
    ChoiceOption{PlanChoice::Runtime, "--runtime", "NAME"},
    ChoiceOption{PlanChoice::DeepSpeedFile, "--deepspeed", "FILE"},
    ChoiceOption{PlanChoice::Strategy, "--strategy", "NAME"},
    ChoiceOption{PlanChoice::Shard, "--shard", "N"},
    ChoiceOption{PlanChoice::Replicate, "--replicate", "N"},
    ChoiceOption{PlanChoice::Reshard, "--reshard", "WHAT"},
    ChoiceOption{PlanChoice::Wrap, "--wrap", "WHAT"},
    ChoiceOption{PlanChoice::WrapEnds, "--wrap-ends", "yes|no"},
    ChoiceOption{PlanChoice::Checkpoint, "--activation-checkpointing", "WHAT"},
    ChoiceOption{PlanChoice::Offload, "--offload", "yes|no|nvme"},
    ChoiceOption{PlanChoice::GradientSync, "--gradient-sync", "WHEN"},
    ChoiceOption{PlanChoice::Prefetch, "--prefetch", "N"},
    ChoiceOption{PlanChoice::BackwardPrefetch, "--backward-prefetch", "N"},
    ChoiceOption{PlanChoice::ReduceScatterBuffers, "--reduce-scatter-buffers", "N"},
    ChoiceOption{PlanChoice::SeparateReduceScatter, "--separate-reduce-scatter", "yes|no"},
};

constexpr const ChoiceOption& option_words_of(PlanChoice choice) {
  return kChoiceOptions[static_cast<std::size_t>(choice)];
}

/// The choices of a plan from options: the texts of each choice that is made.
using ChoiceTexts = std::map<PlanChoice, std::vector<std::string>>;

struct ChoiceWords {
  ChoiceTexts texts;
  std::vector<std::string> rest;  ///< The other words, in their order.
};

/// Takes the options of a plan out of the words of a command line. Errors: an option without its value, and one that is
/// given twice and counts once.
Result<ChoiceWords> take_choices(std::span<const std::string> words);

}  // namespace fsdp::planner
