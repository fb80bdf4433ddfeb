// What fits or not because of one line.
//
// Sources: accelerate 1.15.0, utils/fsdp_utils.py (fsdp2_prepare_model: bfloat16 parameters are gathered, non-floating
// Params4bit are left out of sharding), accelerator.py (no_sync), utils/dataclasses.py (FullStateDictConfig);
// transformers 5.24.0, trainer.py (_run_epoch: no_sync but for the last micro-batch), masking_utils.py
// (find_packed_sequence_indices: a dense mask of all tokens keeps documents apart without varlen kernels); trl 1.16.0,
// trainer/model_config.py (dtype is float32), sft_trainer.py; torch 2.11, distributed/fsdp/_flat_param.py
// (_validate_tensors_to_flatten); huggingface/transformers issues 43749 and 25107.

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kBytes16 = 2;
constexpr std::int64_t kBytes32 = 4;
/// Parameters from which a whole state dict is worth a word: 16 GB in fp32.
constexpr std::int64_t kManyParameters = 4'000'000'000;

/// Bytes of an element in the dtype in which TRL loads the model; its default is float32. transformers' own is that of
/// the checkpoint, 16 bits.
std::int64_t loaded_bytes(const CheckedRun& run) {
  const std::string dtype = run.trainer("dtype").text();
  if (dtype == "float32") return kBytes32;
  return dtype.empty() && run.is_trl ? kBytes32 : kBytes16;
}

/// Bytes that the other ranks hold of something that is sharded otherwise.
std::int64_t beyond_shard(const CheckedRun& run, std::int64_t bytes) {
  return bytes - bytes / std::max<std::int64_t>(1, run.processes().value_or(1));
}

std::int64_t computed_bytes(const CheckedRun& run) {
  return run.mixed_precision() == "no" ? loaded_bytes(run) : kBytes16;
}

std::string storage_of(const CheckedRun& run) {
  const std::string storage = run.trainer("bnb_4bit_quant_storage").text();
  return storage.empty() ? "uint8" : storage;
}

std::string dtype_of(const CheckedRun& run) {
  const std::string dtype = run.trainer("dtype").text();
  return dtype.empty() ? "float32" : dtype;
}

}  // namespace

void find_every_rank_loads(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp()) return;
  const Setting loading = run.fsdp("cpu_ram_efficient_loading");
  const std::int64_t each = run.processes().value_or(0) / run.machines();
  if (!loading || loading.flag().value_or(true) || each < 2) return;
  Finding& found =
      report.add(Severity::Warning, loading,
                 fmt::format("Each of {} processes on a machine loads the whole model into host memory.", each));
  if (run.model) costs(found, each * loaded_bytes(run) * run.model->parameters, "of host memory on each machine");
  replace(found, loading, "true");
}

void find_gathered_parameters(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp()) return;
  const bool is_version_1 = run.fsdp_version() == 1;
  const Setting at = run.fsdp(is_version_1 && !run.trainer_has_fsdp() ? "sharding_strategy" : "reshard_after_forward");
  const std::string word = at.upper();
  const bool keeps = is_version_1
                         ? word == "SHARD_GRAD_OP" || word == "2" || word == "HYBRID_SHARD_ZERO2" || word == "5"
                         : at.flag() == false;
  if (!keeps) return;
  Finding& found =
      report.add(Severity::Warning, at, "The parameters of all units stay gathered from the forward to the backward.");
  if (run.model) {
    costs(found, beyond_shard(run, computed_bytes(run) * run.model->parameters), "of parameters on each GPU");
  }
  replace(found, at, is_version_1 ? "FULL_SHARD" : "true");
}

void find_unsharded_gradients(const CheckedRun& run, Reporter& report) {
  const Setting steps = run.trainer("gradient_accumulation_steps");
  constexpr std::string_view kEach = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch";
  if (!run.uses_fsdp() || steps.integer().value_or(1) < 2 || run.trainer(kEach).is_on()) return;
  if (run.trains_adapters()) return;  // Their gradients are small.
  Finding& found =
      report.add(Severity::Warning, steps,
                 "Between the micro-batches of a step each GPU holds the gradients of all parameters unreduced.");
  if (run.model) {
    costs(found, beyond_shard(run, computed_bytes(run) * run.model->parameters), "of gradients on each GPU");
  }
  advise(found, fmt::format("Write {}: true, which reduces after each micro-batch.", kEach));
}

void find_full_state_dict(const CheckedRun& run, Reporter& report) {
  const Setting type = run.fsdp("state_dict_type");
  if (!run.uses_fsdp() || (type.upper() != "FULL_STATE_DICT" && !type.is("1"))) return;
  if (!run.model || run.model->parameters < kManyParameters || run.trains_adapters()) return;
  Finding& found = report.add(Severity::Note, type,
                              "Each checkpoint gathers the whole model in the host memory of the first process.");
  costs(found, (run.mixed_precision() == "no" ? loaded_bytes(run) : kBytes32) * run.model->parameters,
        "of host memory of one process");
  replace(found, type, "SHARDED_STATE_DICT");
}

void find_float32_base(const CheckedRun& run, Reporter& report) {
  const bool is_quantized = run.trainer("load_in_4bit").is_on() || run.trainer("load_in_8bit").is_on();
  if (!run.is_trl || !run.trains_adapters() || is_quantized) return;
  const Setting dtype = run.trainer("dtype");
  if (dtype && !dtype.is("float32")) return;
  Finding& found = report.add(Severity::Warning, dtype ? dtype : run.trainer("use_peft"),
                              "The frozen base is loaded in float32, TRL's default, and takes twice the memory.");
  if (run.model) {
    const std::int64_t parts = run.uses_fsdp() || run.zero_stage() == 3 ? run.processes().value_or(1) : 1;
    costs(found, (kBytes32 - kBytes16) * run.model->parameters / std::max<std::int64_t>(1, parts), "on each GPU");
  }
  if (dtype) {
    replace(found, dtype, "bfloat16");
  } else {
    advise(found, "Add dtype: bfloat16.");
  }
}

void find_packing_with_mask(const CheckedRun& run, Reporter& report) {
  const Setting packing = run.trainer("packing");
  const Setting attention = run.trainer("attn_implementation");
  const std::string name = attention ? attention.text() : "sdpa";
  if (!run.is_sft || !packing.is_on() || run.trainer("packing_strategy").is("wrapped")) return;
  if (name != "sdpa" && name != "eager") return;  // Flash and flex attention know the documents.
  constexpr std::int64_t kMost = 1'000'000;       // A larger number is a slip.
  const std::int64_t batch = run.trainer("per_device_train_batch_size").integer().value_or(8);
  const std::int64_t length = run.trainer("max_length").integer().value_or(1024);
  if (batch < 1 || length < 1 || batch > kMost || length > kMost) return;
  const std::int64_t tokens = batch * length;
  Finding& found = report.add(
      Severity::Warning, attention ? attention : packing,
      fmt::format("With {} a mask of {} x {} tokens keeps packed documents apart, and attention computes all of it.",
                  name, tokens, tokens));
  if (name == "sdpa" && tokens < kMost * 1000) costs(found, tokens * tokens, "of mask on each GPU");  // Booleans.
  if (attention) {
    replace(found, attention, "flash_attention_2");
  } else {
    advise(found, "Add attn_implementation: flash_attention_2.");
  }
}

void find_whole_quantized_base(const CheckedRun& run, Reporter& report) {
  const Setting bits = run.trainer("load_in_4bit");
  if (run.fsdp_version() != 2 || !bits.is_on() || storage_of(run) != "uint8") return;
  const Setting storage = run.trainer("bnb_4bit_quant_storage");
  Finding& found = report.add(Severity::Warning, storage ? storage : bits,
                              "FSDP2 shards no integers: accelerate leaves the base in four bits whole on each GPU.");
  if (storage) {
    replace(found, storage, "bfloat16");
  } else {
    advise(found, "Add bnb_4bit_quant_storage: bfloat16.");
  }
}

void find_mixed_quantized_dtypes(const CheckedRun& run, Reporter& report) {
  const Setting bits = run.trainer("load_in_4bit");
  if (run.fsdp_version() != 1 || !run.is_trl || !bits.is_on() || storage_of(run) == dtype_of(run)) return;
  const Setting storage = run.trainer("bnb_4bit_quant_storage");
  Finding& found = report.add(
      Severity::Error, storage ? storage : bits,
      fmt::format("FSDP1 flattens a unit in one dtype, and ends with \"Must flatten tensors with uniform dtype\": the "
                  "four-bit weights are stored as {}, the others as {}.",
                  storage_of(run), dtype_of(run)));
  advise(found, "Write dtype: bfloat16 and bnb_4bit_quant_storage: bfloat16.");
}

}  // namespace fsdp::planner
