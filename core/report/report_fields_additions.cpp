#include "core/report/report_fields.h"
#include "core/report/report_names.h"

namespace fsdp {

namespace {

constexpr std::string_view kPricings[] = {"search", "same plan"};
constexpr std::string_view kRemedyKinds[] = {"free", "training", "machine"};
constexpr std::string_view kObjectives[] = {"time", "memory", "tokens"};
constexpr JsonLayout kAddedRow = JsonLayout::OneLine;

}  // namespace

static void fields_of(Fields& fields, Like<MeasuredStep> auto& step) {
  fields.required("step", "Its number, from 1 on; those before a checkpoint count.", step.number, kNatural);
  fields.required("mean_of", "Steps since the last that was measured, of which the times are the mean.", step.mean_of,
                  kNatural);
  fields.required("loss", "Of this rank: the mean of its micro-batches; null: no finite number.", step.loss,
                  kNullIfNotFinite);
  fields.required("gradient_norm", "With clipping; else 0.", step.gradient_norm, kNullIfNotFinite);
  fields.required("learning_rate", "That the optimizer has taken.", step.learning_rate);
  fields.required("wall_seconds", "How long it took.", step.wall, kInSeconds);
  fields.required("cpu_seconds", "Of all threads of the process.", step.cpu, kInSeconds);
  fields.optional_if(step.live >= Bytes(0), "live_peak_bytes",
                     "Bytes that tensors ask for. Missing: nothing looked at this step.", step.live, kInBytes);
  const bool has_allocator = step.segments >= 0;
  fields.optional_if(has_allocator, "allocated_peak_bytes", "In blocks. Missing: there is no such allocator.",
                     step.allocated, kInBytes);
  fields.optional_if(has_allocator, "reserved_peak_bytes", "Kept for blocks.", step.reserved, kInBytes);
  fields.optional_if(has_allocator, "segments", "Pieces that the allocator took from the device.", step.segments,
                     kNatural);
  fields.optional_if(has_allocator, "device_bytes", "In use on the device by all processes, at the end.", step.device,
                     kInBytes);
}

static void fields_of(Fields& fields, Like<MeasuredEvaluation> auto& evaluation) {
  fields.required("loss", "The mean loss of this rank; null: no finite number.", evaluation.loss, kNullIfNotFinite);
  fields.required("live_peak_bytes", "Bytes that tensors ask for.", evaluation.live, kInBytes);
}

static void fields_of(Fields& fields, Like<TriedBatch> auto& trial) {
  fields.required("batch", "As the script was given it.", trial.batch, kNatural);
  fields.required("fits", "Whether it does.", trial.fits);
  fields.optional_if(trial.why.empty(), "device_peak_bytes",
                     "Until it ended or ran out of memory. Missing: it could not be rehearsed.", trial.device_peak,
                     kInBytes);
  field_if_any(fields, "why", "Why it could not be rehearsed.", trial.why);
}

static void fields_of(Fields& fields, Like<OtherPlan> auto& plan) {
  fields.required("plan", "A label that distinguishes the plan from its neighbors.", plan.label);
  fields.required("device_peak_bytes", "Its device peak.", plan.device_peak, kInBytes);
  fields.required("step", "Its step time. In seconds.", plan.step, kInSeconds);
}

static void fields_of(Fields& fields, Like<RejectedPlan> auto& rejected) {
  fields_of(fields, rejected.plan);
  fields.required("missing_bytes", "What it lacks.", rejected.missing, kInBytes);
}

static void fields_of(Fields& fields, Like<SearchAddition> auto& search) {
  fields.required("space", "Plans that the space holds.", search.space, kNatural);
  fields.required("evaluated", "Plans that were predicted in full.", search.evaluated, kNatural);
  fields.required("ruled_out", "Plans by the reason why they were not; with evaluated they add up to space.",
                  search.ruled_out,
                  Keyed{TextKey{&PlansRuledOut::reason}, &PlansRuledOut::plans, JsonLayout::Lines, kNatural});
  fields.required("optimality_gap",
                  "How much faster than the named plan one that fits may be, relative; 0: proven fastest; null: not "
                  "proven, see notes. Plans within 0.02 count as equally fast, and the one that needs least memory is "
                  "named.",
                  search.optimality_gap, kNullIfNotFinite);
  fields.required("best", "A label that distinguishes the plan from its neighbors.", search.best);
  fields.required("pareto", "The fastest plans for their memory, by rising device peak.", search.pareto, kAddedRow);
  fields.required("notes", "Caveats of the answer.", search.notes);
  fields.optional("stopped_early", "Whether a limit ended the search; optimality_gap says what that leaves open.",
                  search.stopped_early);
  fields.optional("compared_ties",
                  "Whether all plans within 0.02 of the fastest were compared for their memory; false: a limit ended "
                  "that, and another may need less.",
                  search.compared_ties);
  field_if_any(fields, "refinement", "What the fastest plan that fits has that the named one has not.",
               search.refinement);
  fields.optional("saved_bytes", "What the fastest plan that fits needs more than the named one.", search.saved,
                  kInBytes);
  fields.optional("objective",
                  "What was asked of the plan: time, the fastest step; memory, the least memory of a GPU, then the "
                  "fastest step; tokens, the most samples a second, of which optimality_gap and 0.02 are said then.",
                  search.objective, OneOf{"objective", kObjectives});
  fields.optional("samples_per_second", "What the named plan trains, over all GPUs.", search.samples_per_second);
}

static void tight_field(Fields& fields, Like<bool> auto& is_tight) {
  fields.optional_if(is_tight, "tight", "It runs, without room to spare.", is_tight);
}

static void fields_of(Fields& fields, Like<PriceAddition> auto& price) {
  fields.required("delta_bytes", "More or less device peak.", price.delta_bytes);
  fields.required("delta_seconds", "More or less step time. In seconds.", price.delta_seconds);
  fields.required("verdict", "Whether it fits then.", price.verdict, DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, price.is_tight);
}

static void fields_of(Fields& fields, Like<RemedyAddition> auto& remedy) {
  fields.required("what", "The change.", remedy.what);
  fields.required("flag", "The option that asks for it.", remedy.flag);
  fields.required("delta_bytes", "More or less device peak.", remedy.delta_bytes);
  fields.required("delta_seconds", "More or less step time. In seconds.", remedy.delta_seconds);
  fields.required("verdict", "Whether it fits then.", remedy.verdict, DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, remedy.is_tight);
  fields.required("priced",
                  "search: a new search ran, and the option gives exactly this. same plan: the reported plan with this "
                  "one change; the option starts a new search, which finds a plan that is at least as fast.",
                  remedy.priced, OneOf{"price", kPricings});
  fields.optional("kind",
                  "free: the same training on the same machine. training: precision, samples, lengths or what is "
                  "trained are others then. machine: other machines.",
                  remedy.kind, OneOf{"kind", kRemedyKinds});
  field_if_any(fields, "same_plan",
               "Where priced is search: the reported plan with this one change, as explain has it of the plan file. "
               "Missing: it makes no such plan.",
               remedy.same_plan, kAddedRow);
}

static void fields_of(Fields& fields, Like<PolicyRowAddition> auto& row) {
  fields.required("modules", "Their names, rows of them folded; empty: the root.", row.modules);
  fields.required("class", "Their class.", row.class_name);
  fields.required("count", "How many they are.", row.count, kNatural);
  fields.required("elements", "Of all parameters below each, each parameter once.", row.elements, kNatural);
  fields.required(
      "remaining",
      "The same less the elements of the units inside; below 0 where a shared parameter was subtracted twice.",
      row.remaining);
  fields.required("unit", "Whether each is a unit.", row.is_unit);
  fields.required("why", "Why, or why not.", row.why);
}

static void fields_of(Fields& fields, Like<PolicyAddition> auto& policy) {
  fields.required("policy", "As --wrap says it.", policy.policy);
  fields.required("visited",
                  "What it found at each module that it visited, in order of registration; without modules that have "
                  "no parameters.",
                  policy.visited, kAddedRow);
  fields.required("root_elements", "Of parameters in no unit below the root.", policy.root_elements, kNatural);
  fields.required(
      "in_root",
      "Modules that hold them: the topmost without a unit inside, and those with parameters of their own around "
      "units. Empty: the root.",
      policy.in_root);
}

static void fields_of(Fields& fields, Like<ExplainAddition> auto& explain) {
  fields.required("binding", "Which moment, unit and term decide the peak.", explain.binding);
  fields.required("rejected", "The nearest faster plans that do not fit.", explain.rejected, kAddedRow);
  fields.required("remedies", "Changes, each predicted again.", explain.remedies, kAddedRow);
  field_if_any(fields, "wrap", "How an auto-wrap policy of PyTorch chose the units. Of plan with --wrap size or class.",
               explain.wrap, JsonLayout::Lines);
}

static void fields_of(Fields& fields, Like<MachineAddition> auto& machine) {
  fields.required("machine", "Its name.", machine.machine);
  fields.required("gpus", "In all.", machine.gpus, kNatural);
  field_if_any(fields, "why_not", "Why what was asked makes no sense on it. Missing: it does.", machine.why_not);
  const bool is_asked = machine.why_not.empty();
  fields.optional_if(is_asked, "verdict", "Of the best plan on it.", machine.verdict,
                     DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, machine.is_tight);
  fields.optional_if(is_asked, "step", "Its step time. In seconds.", machine.step, kInSeconds);
  fields.optional_if(is_asked, "samples", "Of its step, over all GPUs.", machine.samples, kNatural);
  fields.optional_if(is_asked, "device_peak_bytes", "Its device peak.", machine.device_peak, kInBytes);
  fields.optional_if(is_asked, "samples_per_second", "Over all GPUs.", machine.samples_per_second);
  fields.optional_if(is_asked, "gpu_seconds_per_sample", "GPUs x step / samples.", machine.gpu_seconds_per_sample);
  field_if_any(fields, "price_per_hour", "Of all GPUs, by --price.", machine.price_per_hour);
  field_if_any(fields, "price_per_sample", "In the currency of --price.", machine.price_per_sample);
}

static void fields_of(Fields& fields, Like<RuntimeAddition> auto& runtime) {
  fields.required("runtime", "Its name, as --runtime takes it.", runtime.runtime);
  field_if_any(fields, "why_not", "Why what was asked cannot be had of it. Missing: it can.", runtime.why_not);
  const bool is_asked = runtime.why_not.empty();
  fields.optional_if(is_asked, "verdict", "Of its best plan.", runtime.verdict,
                     DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, runtime.is_tight);
  fields.optional_if(is_asked, "plan", "A label that distinguishes that plan from others.", runtime.plan);
  fields.optional_if(is_asked, "step", "Its step time. In seconds.", runtime.step, kInSeconds);
  fields.optional_if(is_asked, "samples", "Of its step, over all GPUs.", runtime.samples, kNatural);
  fields.optional_if(is_asked, "device_peak_bytes", "Its device peak.", runtime.device_peak, kInBytes);
  fields.optional_if(is_asked, "needed_bytes", "Its device peak and the safety margin.", runtime.needed, kInBytes);
  fields.optional_if(is_asked, "sent_per_gpu_bytes", "In a step, by the GPU that sends most.", runtime.sent_per_gpu,
                     kInBytes);
  fields.optional_if(is_asked, "collectives", "Of a step.", runtime.collectives, kNatural);
  fields.optional_if(is_asked, "host_bytes", "Of a node; 0: nothing of the model is kept there.", runtime.host,
                     kInBytes);
}

static void fields_of_additions(Fields& fields, Like<ReportAdditions> auto& additions) {
  field_if_any(fields, "steps", "Those of fsdp-exec.", additions.steps, kAddedRow);
  field_if_any(fields, "evaluation", "What fsdp-exec measured on data that was held out.", additions.evaluation,
               kAddedRow);
  field_if_any(fields, "comparison",
               "The report compared with another one. Of rehearse and execute, and alone of compare.",
               additions.comparison, JsonLayout::Lines);
  field_if_any(fields, "assumptions", "Of execute: what its prediction rests on.", additions.assumptions);
  field_if_any(fields, "batches", "Of rehearse --find-batch: what came of each batch that was tried, smallest first.",
               additions.batches, JsonLayout::Lines);
  field_if_any(fields, "largest_batch", "That fits. Missing: not even 1 does.", additions.largest_batch, kNatural);
  field_if_any(fields, "machines", "Of plan, of several machines: the best plan on each, the best machine first.",
               additions.machines, kAddedRow);
  field_if_any(fields, "runtimes", "Of plan, of several frameworks: the best plan of each, the best one first.",
               additions.runtimes, kAddedRow);
  field_if_any(fields, "search", "How the plan was found. Only of plan.", additions.search, JsonLayout::Lines);
  field_if_any(fields, "explain", "Why. Of plan and explain.", additions.explain, JsonLayout::Lines);
}

void addition_fields(Fields& fields, ReportAdditions& additions) {
  fields_of_additions(fields, additions);
}
void addition_fields(Fields& fields, const ReportAdditions& additions) {
  fields_of_additions(fields, additions);
}

}  // namespace fsdp
