#pragma once

// The facts of each optimizer, one row a kind. A new optimizer is a row here, its class in
// python/fsdp_plan_runner/optimizers.py, a kernel in executor/training/optimizer.cpp if fsdp-exec is to run it, and a
// rule in the simulator if it makes temporaries that no other has. Muon updates DTensors by products of its own and
// stands beside a row (`Optimizer::muon`).

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "core/plan/plan.h"

namespace fsdp {

/// How a step updates the parameters; simulator/memory/memory_walk_optimizer.h has the temporaries of each.
enum class UpdateRule : std::uint8_t {
  Torch,         ///< As `Optimizer::implementation` says.
  Kernel,        ///< One kernel for each tensor, and nothing beside the states.
  Compiled,      ///< Kernels of torch.compile for each tensor, which pass moments to each other if they are coded.
  Factors,       ///< transformers' Adafactor: tensor by tensor in fp32.
  TorchFactors,  ///< torch.optim.Adafactor: tensor by tensor in the parameter's dtype.
  OneList,       ///< One list of temporaries as large as the parameters.
};

/// How a library keeps the moments of large tensors: a code for each element, and an fp32 scale for each block.
struct CodedStates {
  std::int64_t bits = 0;                           ///< Bits of a code. 0: no moment is coded.
  std::int64_t block = 0;                          ///< Elements that share a scale.
  static constexpr std::int64_t kSmallest = 4096;  ///< Tensors of fewer elements are not coded.
  bool needs_whole_blocks = false;                 ///< Neither are tensors that the block does not divide.
  std::int64_t table = 0;                          ///< Bytes of the values of the codes, on the device.
  bool shares_tables = false;             ///< All tensors share the table of each moment; else each tensor has its own.
  bool scales_last = false;               ///< Scales are made after the codes of all moments of the tensor.
  bool trainer_skips_embeddings = false;  ///< transformers' Trainer leaves embeddings out (GlobalOptimManager).
  /// Bytes of an element in the tensors that one compiled kernel passes to the next, for each moment.
  std::array<std::int64_t, 2> passed = {};

  constexpr bool codes(std::int64_t elements) const {
    return bits > 0 && elements >= kSmallest && (!needs_whole_blocks || elements % block == 0);
  }
};

/// Passes over memory in an update.
struct OptimizerPasses {
  /// Reads and writes of each element, in tensors of the parameter's dtype (simulator/time/plan_times.cpp).
  double fused = 0;
  double list = 0;             ///< As foreach and the loop make it: an operation after the other.
  double without_moments = 0;  ///< If `moments_need_momentum` and there is none.
  /// The above leave out the moments, which are read and written once, as they are kept.
  bool without_states = false;
  double scratch = 0;  ///< Passes over fp32 temporaries as large as the parameter.
};

/// Why a combination fails in the library, or is not predicted, and the nearest that works.
struct OptimizerRefusal {
  std::string_view why = {};   ///< A sentence without the optimizer's name. Empty: it works.
  std::string_view hint = {};  ///< A sentence.
};

struct OptimizerRow {
  OptimizerKind kind = OptimizerKind::AdamW;
  std::string_view name;          ///< In files and on the command line: "adamw".
  std::string_view class_name;    ///< In its module, and for people: "AdamW".
  std::string_view sentence;      ///< In schemas: its module and class, "torch.optim.AdamW".
  std::string_view library = {};  ///< And its release: "bitsandbytes 0.50.2". Empty: PyTorch.

  // The states.
  std::array<std::string_view, 2> moments = {};  ///< Names of tensors like the parameter; empty: no more.
  bool moments_need_momentum = false;            ///< It has the option momentum, and no moment if that is 0.
  bool counts_steps = false;      ///< The number of steps of each parameter is a state: a tensor if it is fused.
  bool has_small_states = false;  ///< Libraries keep its moments in bfloat16.
  CodedStates coded = {};
  bool has_float_states = false;  ///< Moments that are not coded are in fp32; else in the parameter's dtype.
  bool pages_states = false;      ///< Large moments are in unified memory (`is_paged`).
  OptimizerKind in_8_bits = OptimizerKind::AdamW;              ///< The same with 8-bit states. AdamW: none.
  OptimizerKind in_8_bits_of_dtensors = OptimizerKind::AdamW;  ///< The same for parameters that are DTensors.

  // The update.
  UpdateRule update = UpdateRule::Torch;
  bool decouples_decay = false;  ///< Weight decay scales the parameter; else a new tensor is gradient + decay.
  bool takes_roots = false;  ///< A root of the second moment: a temporary of foreach; root and quotient of the loop.
  bool has_betas = false;    ///< Options betas and eps.
  bool has_fused_shards = false;  ///< Its fused kernel takes DTensors.
  OptimizerPasses passes = {};
  std::string_view options = {};  ///< Arguments beside lr and weight_decay that the prediction assumes, in Python.

  // Where it fails.
  OptimizerRefusal on_dtensors = {};         ///< On parameters that are DTensors,
  OptimizerRefusal on_16_bit_dtensors = {};  ///< if they have 16 bits.
  OptimizerRefusal on_host = {};             ///< On parameters in host memory.

  // The trainers.
  bool has_cpu_adam = false;           ///< On the host DeepSpeed updates it by DeepSpeedCPUAdam.
  std::string_view hugging_face = {};  ///< TrainingArguments.optim, without "_fused"; empty: it has no name there.
  std::string_view torchtitan = {};    ///< Its name in torchtitan's [optimizer]; empty: torchtitan lacks it.
};

inline constexpr std::string_view kBitsAndBytes = "bitsandbytes 0.50.2";
inline constexpr std::string_view kTorchAo = "torchao 0.18.0";

/// A row of bitsandbytes. `bits` 8 or 32; `moments` 2 (Adam) or 1 (Lion).
constexpr OptimizerRow bnb_row(OptimizerKind kind, std::string_view name, std::string_view class_name,
                               std::string_view sentence, std::string_view hugging_face, int bits, int moments,
                               bool is_paged) {
  OptimizerRow row{.kind = kind,
                   .name = name,
                   .class_name = class_name,
                   .sentence = sentence,
                   .library = kBitsAndBytes,
                   .moments = {"state1", moments == 2 ? "state2" : ""},
                   .has_float_states = true,
                   .pages_states = is_paged,
                   .update = UpdateRule::Kernel,
                   .decouples_decay = true,
                   .takes_roots = moments == 2,
                   .has_betas = true,
                   .passes = {.fused = 3, .list = 3, .without_states = true},
                   .hugging_face = hugging_face};
  if (bits == 8)
    row.coded = {.bits = 8,
                 .block = 256,
                 .table = 1024,
                 .shares_tables = true,
                 .scales_last = true,
                 .trainer_skips_embeddings = true};
  row.on_dtensors = bits == 8 || is_paged
                        ? OptimizerRefusal{"its update fails on DTensors: it \"got mixed torch.Tensor and DTensor\"",
                                           "Plan with --optimizer adamw_torch_8bit, or with --runtime fsdp1 or ddp."}
                        : OptimizerRefusal{
                              "its update fails on DTensors: optimizer_update_32bit \"does not have a sharding "
                              "strategy registered\"",
                              "Plan with --optimizer adamw_torch_8bit, or with --runtime fsdp1 or ddp."};
  if (is_paged) {
    row.on_host = {"its states are not paged on the host",
                   "Plan with the optimizer of the same name without \"paged_\"."};
  }
  return row;
}

/// A row of torchao.
constexpr OptimizerRow ao_row(OptimizerKind kind, std::string_view name, std::string_view class_name,
                              std::string_view sentence, std::string_view hugging_face, CodedStates coded) {
  coded.needs_whole_blocks = true;
  return {.kind = kind,
          .name = name,
          .class_name = class_name,
          .sentence = sentence,
          .library = kTorchAo,
          .moments = {"exp_avg", "exp_avg_sq"},
          .coded = coded,
          .update = UpdateRule::Compiled,
          .decouples_decay = true,
          .takes_roots = true,
          .has_betas = true,
          .passes = {.fused = 3, .list = 3, .without_states = true},
          .on_16_bit_dtensors = {"its update fails on DTensors of 16 bits: its states lack aten.view.dtype",
                                 "Plan with --precision mixed, whose parameters are in fp32, or with --runtime ddp."},
          .on_host = {"the temporaries of its kernels on the host are not predicted",
                      "Plan with --optimizer adamw, or with --offload no."},
          .hugging_face = hugging_face};
}

/// Sources: torch/optim/{adamw,adam,sgd,_adafactor}.py, torch 2.11; "aten._fused_sgd_.default does not have a sharding
/// strategy registered" of the same; deepspeed/ops/adam/cpu_adam.py; transformers 5.24.0, training_args.py
/// (OptimizerNames), trainer_optimizer.py and optimization.py; torchtitan, components/optimizer.py; bitsandbytes
/// 0.50.2, optim/optimizer.py (init_state, update_step, get_state_buffer) and functional.py; torchao 0.18.0,
/// optim/adam.py and subclass_*.py; schedulefree 1.4.1, adamw_schedulefree.py.
///
/// transformers makes AdamW4bit with blocks of 256, and torchao by itself with 128: so it has no name there.
inline constexpr OptimizerRow kOptimizerRows[] = {
    {.kind = OptimizerKind::AdamW,
     .name = "adamw",
     .class_name = "AdamW",
     .sentence = "torch.optim.AdamW",
     .moments = {"exp_avg", "exp_avg_sq"},
     .counts_steps = true,
     .has_small_states = true,
     .in_8_bits = OptimizerKind::BnbAdamW8bit,
     .in_8_bits_of_dtensors = OptimizerKind::AoAdamW8bit,
     .decouples_decay = true,
     .takes_roots = true,
     .has_betas = true,
     .has_fused_shards = true,
     .passes = {.fused = 7, .list = 18},
     .has_cpu_adam = true,
     .hugging_face = "adamw_torch",
     .torchtitan = "AdamW"},
    {.kind = OptimizerKind::Adam,
     .name = "adam",
     .class_name = "Adam",
     .sentence = "torch.optim.Adam",
     .moments = {"exp_avg", "exp_avg_sq"},
     .counts_steps = true,
     .has_small_states = true,
     .in_8_bits = OptimizerKind::BnbAdam8bit,
     .takes_roots = true,
     .has_betas = true,
     .has_fused_shards = true,
     .passes = {.fused = 7, .list = 18},
     .has_cpu_adam = true,
     .torchtitan = "Adam"},
    {.kind = OptimizerKind::Sgd,
     .name = "sgd",
     .class_name = "SGD",
     .sentence = "torch.optim.SGD",
     .moments = {"momentum_buffer"},
     .moments_need_momentum = true,
     .passes = {.fused = 5, .list = 5, .without_moments = 3}},
    bnb_row(OptimizerKind::BnbAdamW8bit, "adamw_8bit", "AdamW8bit", "bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit", 8,
            2, false),
    bnb_row(OptimizerKind::BnbAdam8bit, "adam_8bit", "Adam8bit", "bitsandbytes.optim.Adam8bit", "", 8, 2, false),
    bnb_row(OptimizerKind::BnbPagedAdamW, "paged_adamw_32bit", "PagedAdamW", "bitsandbytes.optim.PagedAdamW",
            "paged_adamw_32bit", 32, 2, true),
    bnb_row(OptimizerKind::BnbPagedAdamW8bit, "paged_adamw_8bit", "PagedAdamW8bit", "bitsandbytes.optim.PagedAdamW8bit",
            "paged_adamw_8bit", 8, 2, true),
    bnb_row(OptimizerKind::BnbLion, "lion_32bit", "Lion", "bitsandbytes.optim.Lion", "lion_32bit", 32, 1, false),
    bnb_row(OptimizerKind::BnbLion8bit, "lion_8bit", "Lion8bit", "bitsandbytes.optim.Lion8bit", "lion_8bit", 8, 1,
            false),
    bnb_row(OptimizerKind::BnbPagedLion, "paged_lion_32bit", "PagedLion", "bitsandbytes.optim.PagedLion",
            "paged_lion_32bit", 32, 1, true),
    bnb_row(OptimizerKind::BnbPagedLion8bit, "paged_lion_8bit", "PagedLion8bit", "bitsandbytes.optim.PagedLion8bit",
            "paged_lion_8bit", 8, 1, true),
    ao_row(OptimizerKind::AoAdamW8bit, "adamw_torch_8bit", "AdamW8bit", "torchao.optim.AdamW8bit", "adamw_torch_8bit",
           {.bits = 8, .block = 256, .table = 1024, .passed = {4}}),
    ao_row(OptimizerKind::AoAdamW4bit, "adamw_torch_4bit", "AdamW4bit", "torchao.optim.AdamW4bit", "",
           {.bits = 4, .block = 128, .table = 64, .passed = {4, 8}}),
    ao_row(OptimizerKind::AoAdamWFp8, "adamw_torch_fp8", "AdamWFp8", "torchao.optim.AdamWFp8", "",
           {.bits = 8, .block = 256, .passed = {1}}),
    {.kind = OptimizerKind::Adafactor,
     .name = "adafactor",
     .class_name = "Adafactor",
     .sentence = "transformers.optimization.Adafactor",
     .library = "transformers 5.24.0",
     .moments = {"exp_avg_sq"},
     .has_float_states = true,
     .update = UpdateRule::Factors,
     .decouples_decay = true,
     // In fp32: casts of parameter and gradient, the square and its sum with eps, two means, the estimate, its products
     // with the gradient, its norm and the rate, the decay, the negative and the sum.
     .passes = {.fused = 6, .list = 6, .without_states = true, .scratch = 23},
     .options = ", scale_parameter=False, relative_step=False",
     .on_dtensors = {"its update fails on DTensors: aten.add_.Tensor \"got mixed torch.Tensor and DTensor\"",
                     "Plan with --runtime ddp or fsdp1, or with --optimizer adamw_torch_8bit."},
     .on_host = {"the temporaries of its update on the host are not predicted", "Plan with --optimizer adamw."},
     .hugging_face = "adafactor"},
    {.kind = OptimizerKind::TorchAdafactor,
     .name = "adafactor_torch",
     .class_name = "Adafactor",
     .sentence = "torch.optim.Adafactor",
     .moments = {"variance"},
     .update = UpdateRule::TorchFactors,
     .decouples_decay = true,
     .passes = {.fused = 17, .list = 17, .without_states = true},
     .on_dtensors = {"its update fails on DTensors: \"in-place operations that require placement changes are not "
                     "supported\" (aten.pow_ of a norm)",
                     "Plan with --runtime ddp or fsdp1, or with --optimizer adamw_torch_8bit."},
     .on_host = {"the temporaries of its update on the host are not predicted", "Plan with --optimizer adamw."}},
    {.kind = OptimizerKind::ScheduleFreeAdamW,
     .name = "schedule_free_adamw",
     .class_name = "AdamWScheduleFree",
     .sentence = "schedulefree.AdamWScheduleFree",
     .library = "schedulefree 1.4.1",
     .moments = {"z", "exp_avg_sq"},
     .update = UpdateRule::OneList,
     .decouples_decay = true,
     .has_betas = true,
     .passes = {.fused = 31, .list = 31},
     .on_host = {"its lists of temporaries on the host are not predicted", "Plan with --optimizer adamw."},
     .hugging_face = "schedule_free_adamw"},
};

static_assert(
    [] {
      bool good = std::size(kOptimizerRows) == kNumOptimizerKinds;
      for (int i = 0; i < kNumOptimizerKinds && good; ++i)
        good = kOptimizerRows[i].kind == static_cast<OptimizerKind>(i);
      return good;
    }(),
    "a row for each kind, in order");

/// The row of a kind.
constexpr const OptimizerRow& optimizer_row(OptimizerKind kind) {
  return kOptimizerRows[static_cast<std::size_t>(kind)];
}
constexpr const OptimizerRow& optimizer_row(const Optimizer& optimizer) {
  return optimizer_row(optimizer.kind);
}

/// The number of state tensors for each updated tensor.
constexpr std::int64_t num_moments(const Optimizer& optimizer) {
  const OptimizerRow& row = optimizer_row(optimizer);
  if (row.moments_need_momentum && optimizer.momentum == 0) return 0;
  return row.moments[0].empty() ? 0 : row.moments[1].empty() ? 1 : 2;
}

/// Whether the update makes a new gradient for weight decay.
constexpr bool adds_decay(const Optimizer& optimizer) {
  return !optimizer_row(optimizer).decouples_decay && optimizer.weight_decay != 0;
}

/// True if Optimizer::implementation decides how the update is computed: PyTorch's optimizers with foreach and fused.
constexpr bool has_torch_kernels(const Optimizer& optimizer) {
  return optimizer_row(optimizer).update == UpdateRule::Torch;
}

/// Whether a moment of a tensor is in unified memory: bitsandbytes' get_state_buffer pages from 100,000 elements on.
constexpr bool pages_moment(const Optimizer& optimizer, std::int64_t elements) {
  return optimizer_row(optimizer).pages_states && elements >= 100'000;
}

/// Bytes of a moment of `elements` elements, whose parameter has `element_size` bytes.
struct MomentBytes {
  std::int64_t values = 0;  ///< The moment, or its codes.
  std::int64_t scales = 0;
  std::int64_t table = 0;  ///< The tensor's own.
};
constexpr MomentBytes moment_bytes(const Optimizer& optimizer, std::int64_t elements, std::int64_t element_size) {
  const OptimizerRow& row = optimizer_row(optimizer);
  const CodedStates& coded = row.coded;
  if (coded.codes(elements)) {
    return {elements * coded.bits / 8, 4 * ((elements + coded.block - 1) / coded.block),
            coded.shares_tables ? 0 : coded.table};
  }
  if (row.has_float_states) return {4 * elements};
  return {elements * (optimizer.states == OptimizerStates::BFloat16 ? 2 : element_size)};
}

/// Turns an optimizer into one with 8-bit states of its own.
constexpr void use_8_bit_states(Optimizer& optimizer, OptimizerKind kind) {
  optimizer.kind = kind;
  optimizer.implementation = OptimizerImplementation::Foreach;
  optimizer.states = OptimizerStates::AsParameter;
}

/// The largest number of bytes that a moment has for each element of every tensor, to bound plans from below.
constexpr double least_moment_bytes(const Optimizer& optimizer, std::int64_t element_size) {
  const OptimizerRow& row = optimizer_row(optimizer);
  const bool is_factored = row.update == UpdateRule::Factors || row.update == UpdateRule::TorchFactors;
  if (row.pages_states || is_factored) return 0;
  if (row.coded.bits > 0) return static_cast<double>(row.coded.bits) / 8;
  if (row.has_float_states) return 4;
  return static_cast<double>(optimizer.states == OptimizerStates::BFloat16 ? 2 : element_size);
}

}  // namespace fsdp
