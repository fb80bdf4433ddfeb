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
  fields.required("step", "The step's number, from 1 on; those before a checkpoint count.", step.number, kNatural);
  fields.required("mean_of", "Steps since the last that was measured, of which the times are the mean.", step.mean_of,
                  kNatural);
  fields.required("loss", "The mean over this rank's micro-batches; null: no finite number.", step.loss,
                  kNullIfNotFinite);
  fields.required("gradient_norm", "The gradient norm; 0 without clipping.", step.gradient_norm, kNullIfNotFinite);
  fields.required("learning_rate", "The rate that the optimizer used.", step.learning_rate);
  fields.required("wall_seconds", "The time that the step took.", step.wall, kInSeconds);
  fields.required("cpu_seconds", "The CPU time of all threads of the process.", step.cpu, kInSeconds);
  fields.optional_if(step.live >= Bytes(0), "live_peak_bytes",
                     "Bytes that tensors ask for. Missing: not observed in this step.", step.live, kInBytes);
  const bool has_allocator = step.segments >= 0;
  fields.optional_if(has_allocator, "allocated_peak_bytes", "The bytes in blocks. Missing: there is no such allocator.",
                     step.allocated, kInBytes);
  fields.optional_if(has_allocator, "reserved_peak_bytes", "The bytes reserved for blocks.", step.reserved, kInBytes);
  fields.optional_if(has_allocator, "segments", "Pieces that the allocator took from the device.", step.segments,
                     kNatural);
  fields.optional_if(has_allocator, "device_bytes", "The bytes that all processes use on the device at the end.",
                     step.device, kInBytes);
}

static void fields_of(Fields& fields, Like<MeasuredEvaluation> auto& evaluation) {
  fields.required("loss", "The mean loss of this rank; null: no finite number.", evaluation.loss, kNullIfNotFinite);
  fields.required("live_peak_bytes", "Bytes that tensors ask for.", evaluation.live, kInBytes);
}

static void fields_of(Fields& fields, Like<TriedBatch> auto& trial) {
  fields.required("batch", "The batch as passed to the script.", trial.batch, kNatural);
  fields.required("fits", "Whether it fits.", trial.fits);
  fields.optional_if(trial.why.empty(), "device_peak_bytes",
                     "The device peak until it ended or ran out of memory. Missing: it could not be rehearsed.",
                     trial.device_peak, kInBytes);
  field_if_any(fields, "why", "The reason that it could not be rehearsed.", trial.why);
}

static void fields_of(Fields& fields, Like<OtherPlan> auto& plan) {
  fields.required("plan", "A label that distinguishes the plan from its neighbors.", plan.label);
  fields.required("device_peak_bytes", "Its device peak.", plan.device_peak, kInBytes);
  fields.required("step", "Its step time. In seconds.", plan.step, kInSeconds);
}

static void fields_of(Fields& fields, Like<RejectedPlan> auto& rejected) {
  fields_of(fields, rejected.plan);
  fields.required("missing_bytes", "The bytes that it lacks.", rejected.missing, kInBytes);
}

static void fields_of(Fields& fields, Like<SearchAddition> auto& search) {
  fields.required("space", "Plans that the space holds.", search.space, kNatural);
  fields.required("evaluated", "Plans that were predicted in full.", search.evaluated, kNatural);
  fields.required("ruled_out", "Plans that were ruled out, by reason; with evaluated they add up to space.",
                  search.ruled_out,
                  Keyed{TextKey{&PlansRuledOut::reason}, &PlansRuledOut::plans, JsonLayout::Lines, kNatural});
  fields.required(
      "optimality_gap",
      "The most by which a plan that fits may be faster than the named one, relative; 0: proven fastest; null: not "
      "proven, see notes. Plans within 0.02 count as equally fast, and the one that needs least memory is named.",
      search.optimality_gap, kNullIfNotFinite);
  fields.required("best", "A label that distinguishes the plan from its neighbors.", search.best);
  fields.required("pareto", "The fastest plans for their memory, by rising device peak.", search.pareto, kAddedRow);
  fields.required("notes", "Caveats of the answer.", search.notes);
  fields.optional("stopped_early", "Whether a limit ended the search; optimality_gap bounds the loss.",
                  search.stopped_early);
  fields.optional("compared_ties",
                  "Whether all plans within 0.02 of the fastest were compared for their memory; false: a limit ended "
                  "that, and another may need less.",
                  search.compared_ties);
  field_if_any(fields, "refinement", "The difference of the fastest plan that fits from the named one.",
               search.refinement);
  fields.optional("saved_bytes", "The memory that the fastest plan that fits needs more than the named one.",
                  search.saved, kInBytes);
  fields.optional("objective",
                  "The goal of the search: time, the fastest step; memory, the least memory of a GPU, then the fastest "
                  "step; tokens, the most samples a second, which optimality_gap and 0.02 then refer to.",
                  search.objective, OneOf{"objective", kObjectives});
  fields.optional("samples_per_second", "The samples per second of the named plan, over all GPUs.",
                  search.samples_per_second);
}

static void tight_field(Fields& fields, Like<bool> auto& is_tight) {
  fields.optional_if(is_tight, "tight", "It runs, without room to spare.", is_tight);
}

static void fields_of(Fields& fields, Like<PriceAddition> auto& price) {
  fields.required("delta_bytes", "More or less device peak.", price.delta_bytes);
  fields.required("delta_seconds", "More or less step time. In seconds.", price.delta_seconds);
  fields.required("verdict", "Whether it fits with the change.", price.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, price.is_tight);
}

static void fields_of(Fields& fields, Like<RemedyAddition> auto& remedy) {
  fields.required("what", "The change.", remedy.what);
  fields.required("flag", "The option that asks for it.", remedy.flag);
  fields.required("delta_bytes", "More or less device peak.", remedy.delta_bytes);
  fields.required("delta_seconds", "More or less step time. In seconds.", remedy.delta_seconds);
  fields.required("verdict", "Whether it fits with the change.", remedy.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, remedy.is_tight);
  fields.required("priced",
                  "search: a new search ran, and the option gives exactly this. same plan: the reported plan with this "
                  "one change; the option starts a new search, which finds a plan that is at least as fast.",
                  remedy.priced, OneOf{"price", kPricings});
  fields.optional("kind",
                  "free: the same training on the same machine. training: other precision, samples, lengths or trained "
                  "parameters. machine: other machines.",
                  remedy.kind, OneOf{"kind", kRemedyKinds});
  field_if_any(fields, "same_plan",
               "If priced is search: the reported plan with this one change, as explain shows for the plan file. "
               "Missing: it makes no such plan.",
               remedy.same_plan, kAddedRow);
}

static void fields_of(Fields& fields, Like<PolicyRowAddition> auto& row) {
  fields.required("modules", "Their names, rows of them folded; empty: the root.", row.modules);
  fields.required("class", "Their class.", row.class_name);
  fields.required("count", "Their number.", row.count, kNatural);
  fields.required("elements", "The elements of all parameters below each, each parameter once.", row.elements,
                  kNatural);
  fields.required("remaining",
                  "The same less the elements of the units inside; below 0 if a shared parameter was subtracted twice.",
                  row.remaining);
  fields.required("unit", "Whether each is a unit.", row.is_unit);
  fields.required("why", "The reason that each is a unit or not.", row.why);
}

static void fields_of(Fields& fields, Like<PolicyAddition> auto& policy) {
  fields.required("policy", "The policy as in --wrap.", policy.policy);
  fields.required(
      "visited",
      "Its findings at each module that it visited, in order of registration; without modules that have no parameters.",
      policy.visited, kAddedRow);
  fields.required("root_elements", "The elements of parameters in no unit below the root.", policy.root_elements,
                  kNatural);
  fields.required(
      "in_root",
      "Modules that hold them: the topmost without a unit inside, and those with parameters of their own around "
      "units. Empty: the root.",
      policy.in_root);
}

static void fields_of(Fields& fields, Like<ExplainAddition> auto& explain) {
  fields.required("binding", "The moment, unit and term that decide the peak.", explain.binding);
  fields.required("rejected", "The nearest faster plans that do not fit.", explain.rejected, kAddedRow);
  fields.required("remedies", "Changes, each predicted again.", explain.remedies, kAddedRow);
  field_if_any(fields, "wrap",
               "The units that an auto-wrap policy of PyTorch chose, and why. Only in the answer of plan with --wrap "
               "size or class.",
               explain.wrap, JsonLayout::Lines);
}

static void fields_of(Fields& fields, Like<MachineAddition> auto& machine) {
  fields.required("machine", "Its name.", machine.machine);
  fields.required("gpus", "The total number of GPUs.", machine.gpus, kNatural);
  field_if_any(fields, "why_not", "The reason that the request makes no sense on it. Missing: it does.",
               machine.why_not);
  const bool is_asked = machine.why_not.empty();
  fields.optional_if(is_asked, "verdict", "The verdict of the best plan on it.", machine.verdict,
                     DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, machine.is_tight);
  fields.optional_if(is_asked, "step", "Its step time. In seconds.", machine.step, kInSeconds);
  fields.optional_if(is_asked, "samples", "The samples of its step, over all GPUs.", machine.samples, kNatural);
  fields.optional_if(is_asked, "device_peak_bytes", "Its device peak.", machine.device_peak, kInBytes);
  fields.optional_if(is_asked, "samples_per_second", "The samples per second, over all GPUs.",
                     machine.samples_per_second);
  fields.optional_if(is_asked, "gpu_seconds_per_sample", "GPUs x step / samples.", machine.gpu_seconds_per_sample);
  field_if_any(fields, "price_per_hour", "The price of all GPUs per hour, by --price.", machine.price_per_hour);
  field_if_any(fields, "price_per_sample", "The price per sample in the currency of --price.",
               machine.price_per_sample);
}

static void fields_of(Fields& fields, Like<RuntimeAddition> auto& runtime) {
  fields.required("runtime", "Its name, as --runtime takes it.", runtime.runtime);
  field_if_any(fields, "why_not", "The reason that it cannot meet the request. Missing: it can.", runtime.why_not);
  const bool is_asked = runtime.why_not.empty();
  fields.optional_if(is_asked, "verdict", "The verdict of its best plan.", runtime.verdict,
                     DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, runtime.is_tight);
  fields.optional_if(is_asked, "plan", "A label that distinguishes that plan from others.", runtime.plan);
  fields.optional_if(is_asked, "step", "Its step time. In seconds.", runtime.step, kInSeconds);
  fields.optional_if(is_asked, "samples", "The samples of its step, over all GPUs.", runtime.samples, kNatural);
  fields.optional_if(is_asked, "device_peak_bytes", "Its device peak.", runtime.device_peak, kInBytes);
  fields.optional_if(is_asked, "needed_bytes", "Its device peak and the safety margin.", runtime.needed, kInBytes);
  fields.optional_if(is_asked, "sent_per_gpu_bytes", "The bytes sent in a step by the GPU that sends most.",
                     runtime.sent_per_gpu, kInBytes);
  fields.optional_if(is_asked, "collectives", "The collectives of a step.", runtime.collectives, kNatural);
  fields.optional_if(is_asked, "host_bytes", "The host memory of a node; 0: nothing of the model is there.",
                     runtime.host, kInBytes);
}

static void fields_of(Fields& fields, Like<ChangeAddition> auto& change) {
  field_if_any(fields, "file", "The file. Missing: the line that starts the training.", change.file);
  fields.required("key", "The key, or the option of the line.", change.key);
  field_if_any(fields, "old", "Its value in the file. Missing: it is not there.", change.before);
  fields.required("new", "The value to write.", change.after);
}

static void fields_of(Fields& fields, Like<UseAddition> auto& use) {
  fields.required("changes", "The keys to change. Empty: the file is as fast as any that its trainer can run.",
                  use.changes, kAddedRow);
  fields.required("verdict", "The verdict of the changed job.", use.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, use.is_tight);
  fields.required("step", "Its step time. In seconds.", use.step, kInSeconds);
  fields.required("device_peak_bytes", "Its device peak.", use.device_peak, kInBytes);
  field_if_any(fields, "environment", "The variable that it needs beside its files. Missing: none.", use.environment);
  field_if_any(fields, "line", "The words of the changed line. Missing: the line stays.", use.line);
}

static void fields_of(Fields& fields, Like<SpreadAddition> auto& spread) {
  fields.required("least", "The least.", spread.least, kNatural);
  fields.required("median", "The median.", spread.median, kNatural);
  fields.required("p95", "The figure that 95 of 100 do not exceed.", spread.p95, kNatural);
  fields.required("most", "The most.", spread.most, kNatural);
}

static void fields_of(Fields& fields, Like<LengthRowAddition> auto& row) {
  fields.required("what", "The change, or \"as planned\".", row.what);
  field_if_any(fields, "how", "The setting that makes it. Missing: the plan as it is.", row.how);
  fields.required("verdict", "Whether all drawn GPUs come to the end.", row.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, row.is_tight);
  fields.required("reserved_peak_bytes", "The most that the allocator of any of them reserves.", row.reserved,
                  kInBytes);
  fields.required("allocated_peak_bytes", "The most in blocks.", row.allocated, kInBytes);
  fields.required("flushes",
                  "How often the allocator returns its cache in all steps, on the GPU where it does most often: "
                  "num_alloc_retries of torch.cuda.memory_stats.",
                  row.flushes, kNatural);
  fields.required("flushes_per_100_steps", "The same in a hundred steps.", row.flushes_per_100);
  fields.optional_if(row.num_out > 0, "gpus_out_of_memory", "The drawn GPUs that run out of memory. Missing: none.",
                     row.num_out, kNatural);
  fields.optional_if(row.num_out > 0, "first_out_of_memory_step", "The first step, from 1 on, in which one does.",
                     row.first_out, kNatural);
  fields.required("padding", "The share of padding in the tokens of all batches.", row.padding);
}

static void fields_of(Fields& fields, Like<LengthsAddition> auto& lengths) {
  fields.required("verdict", "Whether the plan survives the drawn batches, and the longest one.", lengths.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, lengths.is_tight);
  fields.required("samples", "The lengths in the file.", lengths.samples, kNatural);
  fields.optional_if(lengths.limit > 0, "limit", "Longer ones are cut to so many tokens. Missing: none are.",
                     lengths.limit, kNatural);
  fields.required("cut", "The number of them that are cut.", lengths.num_cut, kNatural);
  fields.required("steps", "The steps that each drawn GPU runs.", lengths.steps, kNatural);
  fields.required("seed", "The seed of the order of the samples.", lengths.seed, kNatural);
  fields.required("micro_batch", "The rows of a batch.", lengths.batch, kNatural);
  fields.required("accumulation", "The batches of a step.", lengths.accumulation, kNatural);
  fields.required("drawn_gpus", "The GPUs whose batches were drawn.", lengths.drawn_gpus, kNatural);
  fields.required("probability_out_of_memory",
                  "The probability that some GPU of the job runs out of memory within the steps.", lengths.probability);
  fields.required("sample_tokens", "The lengths of the file, after the cut.", lengths.sample_tokens, kAddedRow);
  fields.required("batch_tokens", "The lengths of the padded batches.", lengths.batch_tokens, kAddedRow);
  fields.required("reserved_bytes", "The highest reserved memory of each step.", lengths.reserved, kAddedRow);
  fields.required("allocated_bytes", "The highest allocated memory of each step.", lengths.allocated, kAddedRow);
  fields.required("longest", "The longest length that a batch can have.", lengths.longest, kNatural);
  fields.required("reserved_at_longest_bytes", "Reserved memory without a limit, if every batch had it.",
                  lengths.at_longest, kInBytes);
  fields.required("longest_is_out_of_memory", "Whether such batches run out of memory.", lengths.longest_is_out);
  fields.required("outside_bytes", "Device memory outside of the allocator.", lengths.outside, kInBytes);
  fields.required("margin_bytes", "The safety margin on top of planned.", lengths.margin, kInBytes);
  fields.required("planned", "The plan as it is, on all drawn GPUs.", lengths.planned, kAddedRow);
  fields.required("changes",
                  "The drawn GPU that needs most: as planned, then with one change each. Empty: not asked for.",
                  lengths.changes, kAddedRow);
}

static void fields_of(Fields& fields, Like<PhaseAddition> auto& phase) {
  fields.required("phase",
                  "loading, first_step, steady_step, evaluation, saving_whole, saving_parts, resuming_whole or "
                  "resuming_parts.",
                  phase.phase);
  fields.required("how", "What happens.", phase.how);
  fields.required("verdict", "Whether device and host have room for it.", phase.verdict,
                  DescribedNames{kVerdictTable, kVerdictSentences});
  tight_field(fields, phase.is_tight);
  field_if_any(fields, "live_peak_bytes", "The highest bytes of tensors. Missing: not predicted.", phase.live,
               kInBytes);
  field_if_any(fields, "allocated_peak_bytes", "The same in the allocator's blocks.", phase.allocated, kInBytes);
  field_if_any(fields, "reserved_peak_bytes", "The same in its segments.", phase.reserved, kInBytes);
  field_if_any(fields, "device_peak_bytes", "The same with the memory outside of the allocator.", phase.device,
               kInBytes);
  field_if_any(fields, "margin_bytes", "The safety margin on top of it.", phase.margin, kInBytes);
  fields.required("host_bytes", "The host memory of the node that needs most.", phase.host, kInBytes);
  field_if_any(fields, "host_missing_bytes", "The host memory that it lacks. Missing: its memory is not known.",
               phase.host_missing, kInBytes);
}

static void fields_of_additions(Fields& fields, Like<ReportAdditions> auto& additions) {
  field_if_any(fields, "steps", "The steps of fsdp-exec.", additions.steps, kAddedRow);
  field_if_any(fields, "evaluation", "The measurements of fsdp-exec on validation data.", additions.evaluation,
               kAddedRow);
  field_if_any(fields, "comparison",
               "The comparison with another report. Printed by rehearse and execute, and alone by compare.",
               additions.comparison, JsonLayout::Lines);
  field_if_any(fields, "assumptions", "The assumptions of execute's prediction.", additions.assumptions);
  field_if_any(fields, "batches", "The outcome of each batch that rehearse --find-batch tried, smallest first.",
               additions.batches, JsonLayout::Lines);
  field_if_any(fields, "largest_batch", "The largest batch that fits. Missing: not even 1 fits.",
               additions.largest_batch, kNatural);
  field_if_any(fields, "machines",
               "The best plan on each of several machines, the best machine first. Only in the answer of plan.",
               additions.machines, kAddedRow);
  field_if_any(fields, "runtimes",
               "The best plan of each of several frameworks, the best one first. Only in the answer of plan.",
               additions.runtimes, kAddedRow);
  field_if_any(fields, "lengths",
               "A run whose batches differ in length. Only in the answers of plan and simulate with --lengths.",
               additions.lengths, JsonLayout::Lines);
  field_if_any(fields, "search", "The search that found the plan. Only in the answer of plan.", additions.search,
               JsonLayout::Lines);
  field_if_any(fields, "explain", "The explanation, in the answers of plan and explain.", additions.explain,
               JsonLayout::Lines);
  field_if_any(fields, "use",
               "What to change in the trainer's own files. Only in the answer of plan about such a file or line.",
               additions.use, JsonLayout::Lines);
  field_if_any(
      fields, "job_phases",
      "The phases of the plan's job, in order. Only in the answers of plan, simulate and explain with --phases.",
      additions.job_phases, kAddedRow);
}

void addition_fields(Fields& fields, ReportAdditions& additions) {
  fields_of_additions(fields, additions);
}
void addition_fields(Fields& fields, const ReportAdditions& additions) {
  fields_of_additions(fields, additions);
}

}  // namespace fsdp
