#include "core/plan/plan_names.h"
#include "core/report/report_fields.h"

namespace fsdp {

namespace {

constexpr JsonLayout kRow = JsonLayout::OneLine;
constexpr std::string_view kEnds[] = {"steps_reached", "script_ended", "out_of_memory"};
constexpr std::string_view kRoutings[] = {"none", "balanced"};

// Without a file there is no line.
void place_fields(Fields& fields, Like<std::string> auto& file, Like<std::int64_t> auto& line) {
  field_if_any(fields, "file", "The file's path.", file);
  fields.optional_if(!file.empty() && line > 0, "line", "The line in the file.", line, kNatural);
}

}  // namespace

static void fields_of(Fields& fields, Like<PythonFrame> auto& frame) {
  place_fields(fields, frame.file, frame.line);
  field_if_any(fields, "function", "The function it is in.", frame.function);
}

/// A line of Python; omitted if there is none.
static void frame_field(Fields& fields, std::string_view key, FieldDoc doc, Like<PythonFrame> auto& frame) {
  fields.optional_if(!frame.file.empty(), key, doc, frame, kRow);
}

static void fields_of(Fields& fields, Like<PeakRange> auto& range) {
  fields.required("low_bytes", "At least.", range.low, kInBytes);
  fields.required("high_bytes", "At most.", range.high, kInBytes);
}

static void fields_of(Fields& fields, Like<RehearsedRank> auto& rank) {
  fields.required("rank", "Its number.", rank.rank, kNatural);
  fields.required("fits", "At every bound that was run.", rank.fits);
  fields.required("allocated_peak_bytes", "torch.cuda.max_memory_allocated.", rank.allocated, kInBytes);
  fields.required("reserved_peak", "torch.cuda.max_memory_reserved, between the bounds.", rank.reserved, kRow);
  fields.required("device_peak", "Device peak, between the bounds.", rank.device, kRow);
}

static void fields_of(Fields& fields, Like<UnplayedRank> auto& rank) {
  fields.required("rank", "Its number.", rank.rank, kNatural);
  fields.required("why", "A sentence.", rank.why);
}

static void fields_of(Fields& fields, Like<AppliedUnit> auto& unit) {
  fields.required("name", "Its module; empty: the root.", unit.name);
  fields.required("class", "Class of the module.", unit.class_name);
  fields.required("parameters", "Tensors.", unit.parameters, kNatural);
  fields.required("elements", "Elements of all.", unit.elements, kNatural);
}

static void fields_of(Fields& fields, Like<AppliedWrapper> auto& wrapper) {
  fields.required("name", "FSDP2, FSDP1, DDP, DeepSpeed ZeRO-3, plain.", wrapper.name);
  field_if_any(fields, "model", "Class of the model in it.", wrapper.model);
  fields.required("class", "Its class.", wrapper.class_name);
  field_if_any(fields, "version", "Version of its package.", wrapper.version);
  field_if_any(fields, "strategy", "Sharding strategy.", wrapper.strategy);
  field_if_any(fields, "zero_stage", "DeepSpeed's ZeRO stage.", wrapper.zero_stage);
  field_if_any(fields, "param_dtype", "The parameters' dtype in mixed precision.", wrapper.param_dtype);
  field_if_any(fields, "reduce_dtype", "The dtype of reductions in mixed precision.", wrapper.reduce_dtype);
  field_if_any(fields, "buffer_dtype", "The dtype of buffers in mixed precision.", wrapper.buffer_dtype);
  field_if_any(fields, "reshard_after_forward", "true, false or a world size.", wrapper.reshard_after_forward);
  fields.required("offload", "To the host.", wrapper.offload);
  fields.required("autocast", "Types of torch.autocast in forward.", wrapper.autocast);
  fields.required("units", "The units that are gathered and reduced at once.", wrapper.units, kRow);
}

static void fields_of(Fields& fields, Like<AppliedOptimizer> auto& optimizer) {
  fields.required("class", "Its class.", optimizer.class_name);
  field_if_any(fields, "foreach", "As given; missing: PyTorch decides.", optimizer.foreach);
  field_if_any(fields, "fused", "As given; missing: PyTorch decides.", optimizer.fused);
  fields.required("parameters", "Tensors.", optimizer.parameters, kNatural);
}

static void fields_of(Fields& fields, Like<AllocationSite> auto& site) {
  fields_of(fields, site.frame);
  field_if_any(fields, "through", "The functions that the line called.", site.through);
  fields.required("count", "Allocations.", site.count, kNatural);
  fields.required("bytes", "The bytes of all of them.", site.bytes, kInBytes);
}

static void fields_of(Fields& fields, Like<RehearsalWarning> auto& warning) {
  fields.required("kind", "one_unit, untied_weights, ignored_version, ...", warning.kind);
  fields.required("text", "For people.", warning.text);
  place_fields(fields, warning.file, warning.line);
}

static void fields_of(Fields& fields, Like<Readback> auto& readback) {
  fields.required("operation", "nonzero, item, ...", readback.operation);
  place_fields(fields, readback.file, readback.line);
  fields.required("count", "The number of times.", readback.count, kNatural);
  fields.required("steers_sizes", "Whether sizes of tensors follow from it.", readback.steers_sizes);
}

static void fields_of(Fields& fields, Like<RehearsalLimits> auto& limits) {
  fields.required("readbacks", "Values that were read from the device, which computes nothing.", limits.readbacks,
                  kRow);
  fields.required("missing_functions", "Functions of CUDA's libraries that were called and are not there.",
                  limits.missing_functions);
  fields.required("allocator_event_queries", "Above 0: reserved memory depends on when kernels finish.",
                  limits.allocator_event_queries, kNatural);
  fields.required("cudnn_plans", "Times that cuDNN ran.", limits.cudnn_plans, kNatural);
  fields.required("cudnn_workspace_bytes", "Charged for each, a stated term.", limits.cudnn_workspace, kInBytes);
  fields.required("routing", "The experts that tokens went to.", limits.routing, OneOf{"routing", kRoutings});
  fields.required("triton", "Whether Triton was used.", limits.triton);
  fields.required("cuda_graphs", "Whether CUDA graphs were captured.", limits.cuda_graphs);
  fields.required("data_dependent_routing", "Whether sizes depend on values on the device.",
                  limits.data_dependent_routing);
}

static void fields_of(Fields& fields, Like<ScriptError> auto& error) {
  fields.required("type", "Its class.", error.type);
  fields.required("message", "Its message.", error.message);
  fields.required("traceback", "As Python prints it.", error.traceback);
}

static void fields_of(Fields& fields, Like<FailedAllocation> auto& failed) {
  fields.required("bytes", "The requested bytes.", failed.bytes, kInBytes);
  fields.required("phase", "initialization, forward, backward or optimizer.", failed.phase, kStepPhaseTable);
  fields.required("step", "From 1; 0: initialization.", failed.step, kNatural);
  fields.required("module", "The module at work.", failed.module);
  fields.required("device_free_bytes", "The bytes free on the device at that time.", failed.free, kInBytes);
  frame_field(fields, "at", "The line of the script.", failed.at);
  fields.required("stack", "Innermost first.", failed.stack, kRow);
}

static void environment_fields(Fields& fields, Like<Rehearsal> auto& rehearsal) {
  fields.required("python", "Python's version.", rehearsal.python);
  fields.required("torch", "PyTorch's version.", rehearsal.torch);
  field_if_any(fields, "cuda", "The version of CUDA that PyTorch was built for.", rehearsal.cuda);
  fields.required("packages", "The versions of other imported packages.", rehearsal.packages,
                  Keyed{TextKey{&Package::name}, &Package::version, JsonLayout::Lines});
}

static void applied_fields(Fields& fields, Like<Rehearsal> auto& rehearsal) {
  fields.required("wrappers", "Outermost first.", rehearsal.wrappers, JsonLayout::Lines);
  fields.required("parameter_dtypes", "Elements by type.", rehearsal.parameter_dtypes,
                  Keyed{TextKey{&ElementsOfDtype::dtype}, &ElementsOfDtype::elements, kRow, kNatural});
  fields.required("optimizers", "The optimizers that were called.", rehearsal.optimizers, kRow);
  field_if_any(
      fields, "techniques",
      "Other observed techniques: recomputation, accumulation, other kinds of parallelism. Missing: there were none.",
      rehearsal.techniques);
}

/// The run: its end, and its ranks.
static void run_fields(Fields& fields, Like<Rehearsal> auto& rehearsal) {
  fields.required("end", "The reason that it ended.", rehearsal.end, OneOf{"end", kEnds});
  field_if_any(fields, "error", "The out-of-memory error.", rehearsal.error, JsonLayout::Lines);
  field_if_any(fields, "failed_allocation", "The request that ran out of memory.", rehearsal.failed, JsonLayout::Lines);
  fields.required_object("environment", "Versions.", [&](Fields& inner) { environment_fields(inner, rehearsal); });
  fields.required("steps", "Optimizer steps that ended.", rehearsal.steps, kNatural);
  fields.required("rank", "The rank reported: the one that needs most of those run.", rehearsal.rank, kNatural);
  fields.required("both_bounds", "Whether both bounds of event timing were run.", rehearsal.both_bounds);
  fields.required("timing_decides", "Whether a rank fits at one bound only.", rehearsal.timing_decides);
  fields.required("ranks", "All that were run.", rehearsal.ranks, kRow);
  field_if_any(fields, "unplayed_ranks", "Requested ranks without figures. Missing: there are none.",
               rehearsal.unplayed, kRow);
  fields.optional("out_of_memory_errors", "Also those that the script caught.", rehearsal.out_of_memory_errors,
                  kNatural);
  fields.optional("at_end_requested_bytes", "Bytes of live tensors at the end, as asked for.",
                  rehearsal.at_end_requested, kInBytes);
  fields.optional("at_end_allocated_bytes", "torch.cuda.memory_allocated at the end.", rehearsal.at_end_allocated,
                  kInBytes);
}

static void rehearsal_fields(Fields& fields, Like<Rehearsal> auto& rehearsal) {
  fields.required("measured_on", "The device: stub GPU or GPU.", rehearsal.measured_on);
  fields.required("command", "The command as typed.", rehearsal.command);
  run_fields(fields, rehearsal);
  fields.required_object("applied", "The wrapping that was applied to the model, not the one requested.",
                         [&](Fields& inner) { applied_fields(inner, rehearsal); });
  frame_field(fields, "peak_at", "The line of the script.", rehearsal.peak_at);
  fields.required("peak_stack", "The stack at the peak of allocated memory, innermost first.", rehearsal.peak_stack,
                  kRow);
  field_if_any(fields, "categories_at_peak",
               "Requested bytes alive at the peak, by what they are for. Missing: they could not be observed.",
               rehearsal.categories, Keyed{TextKey{&PeakCategory::name}, &PeakCategory::bytes, kRow, kInBytes});
  fields.required("allocations_at_peak",
                  "Memory at the peak by line of Python, largest first; without a file: all smaller ones.",
                  rehearsal.allocations, kRow);
  fields.required("warnings", "Common mistakes and problems that pass without an error.", rehearsal.warnings, kRow);
  fields.required("limits", "The limits of the figures.", rehearsal.limits, JsonLayout::Lines);
}

void fields_of(Fields& fields, Rehearsal& rehearsal) {
  rehearsal_fields(fields, rehearsal);
}
void fields_of(Fields& fields, const Rehearsal& rehearsal) {
  rehearsal_fields(fields, rehearsal);
}

}  // namespace fsdp
