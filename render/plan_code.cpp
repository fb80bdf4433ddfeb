// One call of fully_shard for each unit, in the order of the plan; equal units share a loop. The training loop (batch,
// accumulation, optimizer) is no call of FSDP2, so the module's first lines describe it. A plan of DDP is one call
// around the whole model, and none on one GPU. FSDP1 replaces each unit's module by a wrapper, inner ones first: a
// policy would choose modules by class, and some plans have no such policy.
//
// Source: torch/distributed/fsdp/_fully_shard/_fully_shard.py (fully_shard, FSDPModule),
// fully_sharded_data_parallel.py, api.py (MixedPrecision, ShardingStrategy), torch 2.11.

#include "render/plan_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/name_ranges.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "core/plan/torch_version.h"
#include "core/plan/unit_rows.h"
#include "planner/space/plan_sentence.h"
#include "planner/space/strategy_names.h"
#include "planner/trainers/trainers.h"
#include "render/kept_ops_code.h"
#include "render/python_words.h"
#include "render/trainer_notes.h"
#include "text/source_text.h"

namespace fsdp::render {

namespace {

std::string python_of(const ReshardAfterForward& reshard) {
  switch (reshard.kind) {
    case ReshardAfterForward::Kind::Default:
      return "";
    case ReshardAfterForward::Kind::Always:
      return ", reshard_after_forward=True";
    case ReshardAfterForward::Kind::Never:
      return ", reshard_after_forward=False";
    case ReshardAfterForward::Kind::Smaller:
      return fmt::format(", reshard_after_forward={}", reshard.world_size);
  }
  return "";
}

std::string f_string(const NameRange& range, std::string_view variable) {
  return text::python_f_string(range.before, variable, range.after);
}

std::string python_range(std::int64_t first, std::int64_t stop, std::int64_t step) {
  if (step != 1) return fmt::format("range({}, {}, {})", first, stop, step);
  return first == 0 ? fmt::format("range({})", stop) : fmt::format("range({}, {})", first, stop);
}

/// Frozen parts: the largest completely frozen modules, and single parameters.
struct Frozen {
  std::vector<std::string> modules;
  std::vector<std::string> parameters;
};

Frozen frozen_of(const Model& model) {
  // Modules come after their parents.
  std::vector<bool> has_any(model.modules.size(), false);
  std::vector<bool> trains(model.modules.size(), false);
  for (std::size_t m = model.modules.size(); m-- > 0;) {
    for (const int parameter : model.modules[m].parameters) {
      has_any[m] = true;
      if (model.parameters[parameter].trainable) trains[m] = true;
    }
    const int parent = model.modules[m].parent;
    if (parent < 0) continue;
    has_any[parent] = has_any[parent] || has_any[m];
    trains[parent] = trains[parent] || trains[m];
  }
  Frozen frozen;
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const Module& module = model.modules[m];
    const bool is_covered = module.parent >= 0 && !trains[module.parent];
    if (has_any[m] && !trains[m] && !is_covered) frozen.modules.push_back(module.name);
    if (!trains[m]) continue;
    for (const int parameter : module.parameters) {
      if (!model.parameters[parameter].trainable) frozen.parameters.push_back(model.parameters[parameter].name);
    }
  }
  return frozen;
}

/// [lines] The wrapping in a script that calls parts of its model; empty if it calls the whole model.
std::vector<std::string> of_parts(const Plan& plan, const Model& model) {
  const Module& root = model.modules.front();
  if (root.called) return {};
  std::string text = "The script calls parts of the model";
  const bool is_group = root.class_name.find('+') != std::string::npos;
  if (is_group) {
    text += ", which is the torch.nn.ModuleDict of";
    for (const int child : root.children) {
      text += fmt::format("{} {}", child == root.children.front() ? "" : ",", model.modules[child].name);
    }
  }
  if (traits_of(plan).is_wrapper) {
    return {"", text + ".",
            "Make the step, from the first part to the loss, the forward of a module that holds it, and wrap that."};
  }
  return {"",
          text + ". FSDP2 gathers its root in a",
          "forward, so tell it of a step, from the first part to the loss:",
          "",
          "    model.step = types.MethodType(loss_of, model)  # def loss_of(model, batch)",
          "    register_fsdp_forward_method(model, \"step\")  # of torch.distributed.fsdp, after apply_plan",
          "    loss = model.step(batch)"};
}

class CodeWriter {
 public:
  CodeWriter(const Plan& plan, const Model& model, const std::string& source)
      : plan_(plan),
        traits_(traits_of(plan)),
        source_(source),
        frozen_(frozen_of(model)),
        kept_ops_(kept_ops_code(plan, model)),
        quantization_(words_of_quantization(plan, model)),
        liger_(words_of_liger(plan, model)),
        float8_(words_of_float8(plan, model)),
        of_parts_(of_parts(plan, model)) {}

  std::string write() {
    head();
    line("def apply_plan(model):");
    if (!traits_.wraps_units) {
      line(R"(    """Wraps the model, which is on the process's GPU. Call it before the optimizer is made.""")");
      if (plan_.lora) adapters();
      parameters();
      checkpointing();
      autocast();
      line(plan_.mesh.world_size() == 1 ? "    return model" : fmt::format("    return {}", ddp_call()));
      return std::move(text_);
    }
    if (traits_.has_flat_parameters) {
      line(R"(    """Wraps the model. Call it once in each process, before the optimizer is made.""")");
      if (plan_.lora) adapters();
      parameters();
      checkpointing();
      autocast();
      flat_options();
      units();
      line("    return FullyShardedDataParallel(model, **options)  # the root");
      return std::move(text_);
    }
    line(R"(    """Shards the model. Call it once in each process, before the optimizer is made.""")");
    mesh();
    if (plan_.lora) adapters();
    parameters();
    checkpointing();
    autocast();
    units();
    prefetch();
    reductions();
    line("    return model");
    return std::move(text_);
  }

 private:
  /// The module with the name in a variable: PEFT has the model inside its own.
  std::string module_named(std::string_view variable) const {
    return fmt::format("{}.get_submodule({})", plan_.lora ? "model.get_base_model()" : "model", variable);
  }

  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }

  void head() {
    const bool checkpoints = !plan_.checkpointing.entries.empty();
    line(text::python_docstring(opening()));
    line("");
    if (checkpoints) line("import functools\n");
    const bool names_torch = !policy_options().empty() || plan_.parameter_dtype || plan_.mixed_precision.autocast ||
                             !kept_ops_.empty() || plan_.checkpointing.offload_inputs;
    if (names_torch || traits_.has_flat_parameters) line("import torch");
    if (traits_.has_flat_parameters) {
      flat_imports();
    } else if (traits_.wraps_units) {
      line("from torch.distributed.device_mesh import init_device_mesh");
      line(fmt::format("from torch.distributed.fsdp import {}{}fully_shard",
                       plan_.cpu_offload ? "CPUOffloadPolicy, " : "",
                       policy_options().empty() ? "" : "MixedPrecisionPolicy, "));
    } else if (plan_.mesh.world_size() > 1) {
      line("from torch.nn.parallel import DistributedDataParallel");
    }
    if (checkpoints) {
      line(fmt::format("from torch.utils.checkpoint import {}checkpoint{}",
                       kept_ops_.empty() ? "" : "CheckpointPolicy, ",
                       kept_ops_.empty() ? "" : ", create_selective_checkpoint_contexts"));
    }
    if (plan_.lora) line("from peft import LoraConfig, get_peft_model");
    if (plan_.mixed_precision.float_outputs) line("from accelerate.utils import convert_outputs_to_fp32");
    const bool is_reentrant = plan_.checkpointing.has(CheckpointMode::Reentrant);
    const bool has_functions = !kept_ops_.empty() || plan_.checkpointing.offload_inputs || is_reentrant;
    line(has_functions ? "" : "\n");
    for (const std::string& each : kept_ops_) line(each);
    if (plan_.checkpointing.offload_inputs) {
      line("\ndef keep_inputs_on_host(checkpointed):");
      line("    def forward(*args, **kwargs):");
      line("        with torch.autograd.graph.save_on_cpu(pin_memory=True):");
      line("            return checkpointed(*args, **kwargs)\n");
      line("    return forward\n\n");
    }
    if (is_reentrant) call_as_reentrant();
  }

  // As blocks of transformers call it: around the hooks of the module, for which it takes a class.
  void call_as_reentrant() {
    line("\ndef call_as_reentrant(block):");
    line("    kind = type(block)\n");
    line("    class Checkpointed(kind):");
    line("        def __call__(self, *args, **options):");
    line("            call = functools.partial(kind.__call__, self, **options)");
    line("            return checkpoint(call, *args, use_reentrant=True)\n");
    line("    Checkpointed.__name__ = kind.__name__");
    line("    block.__class__ = Checkpointed\n\n");
  }

  /// [lines] The text before the code: how to call it, and the loop's duties.
  std::vector<std::string> opening() const {
    std::vector<std::string> lines = {
        fmt::format("{} of {}, for torchrun with {} processes in all.", plan_.model, source_, plan_.mesh.world_size()),
        "", "    model = apply_plan(model)  # before the optimizer is made"};
    if (plan_.quantization) {
      lines.insert(lines.begin() + 2,
                   {"Load the model with this quantization_config, and without prepare_model_for_kbit_training, which "
                    "makes",
                    "embeddings, head and norms float32:", "", fmt::format("    {}", quantization_), ""});
    }
    if (plan_.liger) {
      lines.insert(lines.begin() + 2, {"Give the model Liger's kernels first:", "", fmt::format("    {}", liger_), ""});
    }
    if (plan_.float8) {
      lines.insert(lines.begin() + 2, {"Convert the layers first:", "", fmt::format("    {}", float8_), ""});
    }
    if (plan_.optimizer.muon) {
      lines.push_back(fmt::format(
          "    ...  # torch.optim.Muon of the script's matrices, and {} of the rest, as the script has them",
          python_optimizer(plan_.optimizer)));
    } else {
      lines.push_back(fmt::format("    optimizer = {}(model.parameters(), {})", python_optimizer(plan_.optimizer),
                                  python_optimizer_options(plan_.optimizer)));
    }
    lines.emplace_back("");
    for (const std::vector<std::string>& more : {loop(), of_parts_})
      lines.insert(lines.end(), more.begin(), more.end());
    lines.emplace_back("");
    return lines;
  }

  /// [lines] A step's inputs and actions.
  std::vector<std::string> loop() const {
    std::vector<std::string> lines = {
        fmt::format("A step takes {} of {} on each GPU",
                    plan_.accumulation == 1 ? "one micro-batch" : fmt::format("{} micro-batches", plan_.accumulation),
                    sizes_of(plan_.dimensions))};
    const auto add = [&](std::string text) {
      lines.back() += ';';
      lines.push_back(std::move(text));
    };
    if (const Loss& loss = plan_.runtime.implementations.loss; loss != Loss{}) {
      add(fmt::format("its loss is {}", words_of_loss(loss)));
    }
    if (plan_.float8 && plan_.float8->precompute) {
      add("after optimizer.step(), torchao.float8.precompute_float8_dynamic_scale_for_fsdp(model)");
    }
    if (plan_.packing) add(fmt::format("a micro-batch is {}", words_of_packing(plan_)));
    if (plan_.mixed_precision.autocast) {
      add(fmt::format("a loss outside model.forward is under torch.autocast(\"cuda\", dtype=torch.{}), too",
                      name_of(*plan_.mixed_precision.autocast)));
    }
    if (plan_.accumulation > 1 && !plan_.sync_every_micro_batch) {
      add(traits_.is_wrapper ? "with model.no_sync() around forward and backward of all but the last of them"
                             : "model.set_requires_gradient_sync(False) before all but the last of them");
    }
    if (plan_.optimizer.clip_grad_norm && traits_.has_flat_parameters) {
      add(fmt::format("model.clip_grad_norm_({:g}) before optimizer.step()", *plan_.optimizer.clip_grad_norm));
    } else if (plan_.optimizer.clip_grad_norm) {
      add(fmt::format("gradients are clipped to a norm of {:g}", *plan_.optimizer.clip_grad_norm));
    }
    for (const OtherModel& other : plan_.also) {
      add(fmt::format("the forward of {} under torch.no_grad() comes {} that of the model", other.file,
                      other.turn == OtherTurn::Before ? "before" : "after"));
    }
    if (!plan_.runtime.allocator_settings.empty()) add(environment_of(plan_));
    lines.back() += '.';
    return lines;
  }

  std::string ddp_call() const {
    const std::string arguments = planner::ddp_arguments(plan_.ddp);
    return fmt::format("DistributedDataParallel(model{}{})", arguments.empty() ? "" : ", ", arguments);
  }

  // ---- FSDP1 -------------------------------------------------------------------------------------------------------

  bool is_hybrid() const { return plan_.mesh.dp_replicate() > 1 && plan_.mesh.dp_shard() > 1; }

  std::string_view backward_prefetch() const {
    switch (plan_.fsdp1.backward_prefetch) {
      case BackwardPrefetch::Pre:
        return "BackwardPrefetch.BACKWARD_PRE";
      case BackwardPrefetch::Post:
        return "BackwardPrefetch.BACKWARD_POST";
      case BackwardPrefetch::None:
        break;
    }
    return "None";
  }

  void flat_imports() {
    if (is_hybrid()) line("from torch.distributed.device_mesh import init_device_mesh");
    line(fmt::format("from torch.distributed.fsdp import {}{}FullyShardedDataParallel, {}ShardingStrategy",
                     plan_.fsdp1.backward_prefetch == BackwardPrefetch::None ? "" : "BackwardPrefetch, ",
                     plan_.cpu_offload ? "CPUOffload, " : "", policy_options().empty() ? "" : "MixedPrecision, "));
  }

  void flat_options() {
    const auto option = [&](std::string_view name, std::string_view value) {
      line(fmt::format("        {}={},", name, value));
    };
    const auto truth = [](bool is_true) { return is_true ? "True" : "False"; };
    line("    options = dict(");
    option("sharding_strategy", fmt::format("ShardingStrategy.{}", planner::flat_strategy_of(plan_)));
    option("device_id", "torch.cuda.current_device()");
    option("backward_prefetch", backward_prefetch());
    option("forward_prefetch", truth(plan_.fsdp1.forward_prefetch));
    option("limit_all_gathers", truth(plan_.fsdp1.limit_all_gathers));
    option("use_orig_params", truth(plan_.fsdp1.use_orig_params));
    if (const std::string policy = policy_options(); !policy.empty()) {
      option("mixed_precision", fmt::format("MixedPrecision({})", policy));
    }
    if (plan_.cpu_offload) option("cpu_offload", "CPUOffload(offload_params=True)");
    if (is_hybrid()) {
      option("device_mesh", fmt::format(R"(init_device_mesh("cuda", ({}, {}), mesh_dim_names=("replicate", "shard")))",
                                        plan_.mesh.dp_replicate(), plan_.mesh.dp_shard()));
    }
    line("    )\n");
    if (plan_.units.size() == 1) return;
    line("    def wrap(name):");
    line("        parent, _, last = name.rpartition(\".\")");
    line(fmt::format("        wrapper = FullyShardedDataParallel({}, **options)", module_named("name")));
    line(fmt::format("        setattr({}, last, wrapper)\n", module_named("parent")));
  }

  // ---- FSDP2 -------------------------------------------------------------------------------------------------------

  void mesh() {
    if (plan_.mesh.dp_replicate() == 1) {
      line(fmt::format(R"(    mesh = init_device_mesh("cuda", ({},), mesh_dim_names=("shard",)))",
                       plan_.mesh.dp_shard()));
    } else {
      line(fmt::format(R"(    mesh = init_device_mesh("cuda", ({}, {}), mesh_dim_names=("replicate", "shard")))",
                       plan_.mesh.dp_replicate(), plan_.mesh.dp_shard()));
    }
    const std::string policy = policy_options();
    if (!policy.empty()) line(fmt::format("    policy = MixedPrecisionPolicy({})", policy));
    if (prefetches()) line("    units = []");
    line("");
    line("    def shard(*names, **options):");
    const std::string_view root = plan_.lora ? " if name else model" : "";
    line(fmt::format("        modules = [{}{} for name in names]", module_named("name"), root));
    line(fmt::format("        fully_shard(modules if len(modules) > 1 else modules[0], mesh=mesh{}{}, **options)",
                     policy.empty() ? "" : ", mp_policy=policy",
                     plan_.cpu_offload ? ", offload_policy=CPUOffloadPolicy()" : ""));
    if (prefetches()) line("        units.append(modules[0])");
    line("");
  }

  bool prefetches() const { return plan_.forward_prefetch > 0 || plan_.backward_prefetch > 1; }

  /// The arguments that differ from PyTorch's defaults.
  std::string policy_options() const {
    const MixedPrecision& given = plan_.mixed_precision;
    std::string options;
    const auto add = [&](std::string_view name, const std::optional<Dtype>& dtype) {
      if (dtype) options += fmt::format("{}{}=torch.{}", options.empty() ? "" : ", ", name, name_of(*dtype));
    };
    add("param_dtype", given.param_dtype);
    add("reduce_dtype", given.reduce_dtype);
    add("output_dtype", given.output_dtype);
    if (traits_.has_flat_parameters) {
      add("buffer_dtype", plan_.fsdp1.buffer_dtype);
      if (options.empty()) return options;
      const auto truth = [](bool is_true) { return is_true ? "True" : "False"; };
      // By default, FSDP1 casts only the inputs of the root.
      return options + fmt::format(", cast_forward_inputs={}, cast_root_forward_inputs={}",
                                   truth(given.cast_forward_inputs), truth(plan_.fsdp1.cast_root_forward_inputs));
    }
    if (!given.cast_forward_inputs) options += fmt::format("{}cast_forward_inputs=False", options.empty() ? "" : ", ");
    return options;
  }

  void each_of(const std::vector<std::string>& names) {
    line("    for name in (");
    for (const NameRow& row : name_rows(names)) {
      if (row.range) {
        line(fmt::format("        *({} for i in {}),", f_string(*row.range, "i"),
                         python_range(row.range->first, row.range->last + 1, row.range->step)));
      } else {
        line(fmt::format("        {},", text::quoted_text(row.single)));
      }
    }
    line("    ):");
  }

  /// PEFT puts the model into another one, below "base_model.model".
  void adapters() {
    if (plan_.lora->input_grads) line("    model.enable_input_require_grads()");
    line(fmt::format("    model = get_peft_model(model, {}, autocast_adapter_dtype=False)\n", python_of(*plan_.lora)));
  }

  void parameters() {
    if (!frozen_.modules.empty() && !plan_.lora) {
      each_of(frozen_.modules);
      line("        model.get_submodule(name).requires_grad_(False)\n");
    }
    if (!frozen_.parameters.empty() && !plan_.lora) {
      each_of(frozen_.parameters);
      line("        model.get_parameter(name).requires_grad_(False)\n");
    }
    if (!plan_.parameter_dtype) return;
    line("    for parameter in model.parameters():  # what the optimizer trains");
    const bool is_all = frozen_.modules.empty() && frozen_.parameters.empty();
    // Frozen parameters stay in the dtype in which they were loaded.
    if (!is_all) line("        if parameter.requires_grad:");
    line(fmt::format("        {}parameter.data = parameter.data.to(torch.{})\n", is_all ? "" : "    ",
                     name_of(*plan_.parameter_dtype)));
  }

  void checkpointing() {
    if (plan_.checkpointing.entries.empty()) return;
    line("    for module in model.modules():");
    line("        config = getattr(module, \"config\", None)");
    line("        if getattr(config, \"use_cache\", False):");
    line("            config.use_cache = False  # transformers: a cache would grow again when a block runs again");
    checkpointed(CheckpointMode::Full, "");
    checkpointed(CheckpointMode::Nested, "");
    reentrant();
    checkpointed(CheckpointMode::Selective, ", context_fn=kept_ops");
  }

  // As accelerate does it: inside the wrapper.
  void autocast() {
    if (!plan_.mixed_precision.autocast) return;
    const std::string forward = fmt::format("torch.autocast(\"cuda\", dtype=torch.{})(model.forward)",
                                            name_of(*plan_.mixed_precision.autocast));
    const bool is_copied = plan_.mixed_precision.float_outputs;
    line(fmt::format("    model.forward = {}\n",
                     is_copied ? fmt::format("convert_outputs_to_fp32({})", forward) : forward));
  }

  void checkpointed(CheckpointMode mode, std::string_view options) {
    const std::vector<std::string> names = plan_.checkpointing.modules(mode);
    if (names.empty()) return;
    each_of(names);
    line(fmt::format("        block = {}", module_named("name")));
    if (mode == CheckpointMode::Nested) {
      line("        for child in block.children():");
      line("            child.forward = functools.partial(checkpoint, child.forward, use_reentrant=False)");
    }
    const std::string checkpointed =
        fmt::format("functools.partial(checkpoint, block.forward, use_reentrant=False{}{})", options,
                    plan_.checkpointing.early_stop ? "" : ", early_stop=False");
    line(fmt::format("        block.forward = {}\n", plan_.checkpointing.offload_inputs
                                                         ? fmt::format("keep_inputs_on_host({})", checkpointed)
                                                         : checkpointed));
  }

  void reentrant() {
    const std::vector<std::string> names = plan_.checkpointing.modules(CheckpointMode::Reentrant);
    if (names.empty()) return;
    each_of(names);
    line(fmt::format("        block = {}", module_named("name")));
    line("        call_as_reentrant(block)\n");
  }

  void units() {
    std::size_t next = 0;
    for (const UnitRow& row : fold_units(plan_.units)) {
      std::vector<std::string> names;
      for (std::int64_t i = 0; i < row.count; ++i) {
        const std::vector<std::string>& of_unit = plan_.units[next++].modules;
        names.insert(names.end(), of_unit.begin(), of_unit.end());
      }
      unit_row(row, name_rows(names), names);
    }
  }

  void unit_row(const UnitRow& row, const std::vector<NameRow>& folded, const std::vector<std::string>& names) {
    const bool wraps = traits_.has_flat_parameters;
    if (wraps && names.front().empty()) return;  // The function returns the root.
    const std::string reshard = wraps ? "" : python_of(row.reshard_after_forward);
    const std::string_view call = wraps ? "wrap" : "shard";
    if (wraps && (folded.size() != 1 || !folded.front().range)) {
      for (const std::string& name : names) line(fmt::format("    wrap({})", text::quoted_text(name)));
      return;
    }
    if (row.count == 1 || folded.size() != 1 || !folded.front().range) {
      std::string arguments;
      for (const std::string& name : names) arguments += (arguments.empty() ? "" : ", ") + text::quoted_text(name);
      return line(fmt::format("    {}({}{}){}", call, arguments, reshard, names.front().empty() ? "  # the root" : ""));
    }
    const NameRange& range = *folded.front().range;
    const std::int64_t stop = range.last + 1;
    const std::int64_t stride = range.step * row.modules_per_unit;
    if (row.modules_per_unit == 1) {
      line(fmt::format("    for i in {}:", python_range(range.first, stop, stride)));
      return line(fmt::format("        {}({}{})", call, f_string(range, "i"), reshard));
    }
    line(fmt::format("    for first in {}:", python_range(range.first, stop, stride)));
    const std::string step = range.step == 1 ? "" : fmt::format(", {}", range.step);
    line(fmt::format("        shard(*({} for i in range(first, min(first + {}, {}){})){})", f_string(range, "i"),
                     stride, stop, step, reshard));
  }

  void prefetch() {
    const auto ask = [&](std::string_view setter, std::string_view order, std::int64_t count) {
      line(fmt::format("    ordered = {}", order));
      line("    for i, unit in enumerate(ordered[:-1]):");
      line(fmt::format("        unit.{}(ordered[i + 1 : i + {}])", setter, count + 1));
    };
    if (plan_.forward_prefetch > 0) {
      ask("set_modules_to_forward_prefetch", "[units[-1], *units[:-1]]", plan_.forward_prefetch);
    }
    if (plan_.backward_prefetch > 1) {
      ask("set_modules_to_backward_prefetch", "[units[-1], *units[-2::-1]]", plan_.backward_prefetch);
    }
  }

  void reductions() {
    if (plan_.reduce_scatter_buffers != 1) {
      line(fmt::format("    model.set_reduce_scatter_max_input_buffers({})", plan_.reduce_scatter_buffers));
    }
    if (plan_.separate_reduce_scatter_group) line("    model.set_separate_reduce_scatter_group()");
  }

  const Plan& plan_;
  const FrameworkTraits& traits_;
  const std::string& source_;
  Frozen frozen_;
  std::vector<std::string> kept_ops_;
  std::string quantization_;
  std::string liger_;
  std::string float8_;
  std::vector<std::string> of_parts_;
  std::string text_;
};

}  // namespace

Errors unsaid_of_code(const Plan& plan, const Model& model) {
  if (has_passes(model)) {
    return {{"/model", "The script trains its models by turns, and the Python function is for one model.",
             "Run the plan in the script: fsdp-plan run plan.json -- python train.py."}};
  }
  if (traits_of(plan).gathers_each_read) {
    return {{"/runtime/name", "Plans of SimpleFSDP are not written as Python.",
             fmt::format("It is one call, data_parallel(model, mesh, mode=\"{}\"), and fsdp-plan rehearse trains it.",
                         planner::mode_of_mesh(plan.mesh))}};
  }
  if (traits_of(plan).zero_stage > 0) {
    return {{"/runtime/name", "Plans of DeepSpeed are not written as Python.",
             "Write --to deepspeed, or plan with --runtime fsdp2."}};
  }
  Errors errors = unsaid_of_kept_ops(plan, model);
  if (plan.cuda_graphs) {
    errors.push_back({"/cuda_graphs", "The training loop captures CUDA graphs, and not a function that shards a model.",
                      "Plan with --cuda-graphs no, or export it to torchtitan."});
  }
  if (plan.optimizer.states != OptimizerStates::AsParameter) {
    errors.push_back({"/optimizer/states", "PyTorch's optimizers keep their states in the parameters' dtype.",
                      "Plan with --optimizer-state-dtype as_parameter."});
  }
  return errors;
}

Result<std::string> plan_code(const Plan& plan, const Model& model, const std::string& source) {
  Errors errors = unsaid_of_code(plan, model);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return CodeWriter(plan, model, source).write();
}

}  // namespace fsdp::render
