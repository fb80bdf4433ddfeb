// Every combination of a program's changes is applied to the documents and read by the program's reader. A combination
// that the reader refuses is none, and of those with one meaning the one with the fewest keys stays. So the plan of a
// variant is by construction the plan that its file asks for.
//
// A change of meaning is allowed in the choices below alone. "optim: adamw_torch_fused" in place of "sgd" would be
// another optimizer, so it is none.
//
// Not modeled: keys whose values only a search could choose, such as classes to wrap.

#include "planner/jobs/job_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "core/formats/toml_edit.h"
#include "core/formats/yaml_edit.h"
#include "planner/jobs/edited_line.h"
#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

namespace {

/// The choices that may differ. A micro-batch of packed rows is their tokens, and one row alone has no padding.
constexpr std::array kFreeChoices = {
    PlanChoice::Reshard,    PlanChoice::Wrap,         PlanChoice::Checkpoint,    PlanChoice::CheckpointOffload,
    PlanChoice::LossName,   PlanChoice::Batch,        PlanChoice::Packing,       PlanChoice::PaddingMask,
    PlanChoice::Accumulate, PlanChoice::GradientSync, PlanChoice::OptimizerImpl, PlanChoice::Shard,
    PlanChoice::Replicate,  PlanChoice::Offload,      PlanChoice::Prefetch,      PlanChoice::BackwardPrefetch,
    PlanChoice::Strategy,   PlanChoice::GlobalBatch,  PlanChoice::Ddp,
};

bool is_free(PlanChoice choice) {
  return std::find(kFreeChoices.begin(), kFreeChoices.end(), choice) != kFreeChoices.end();
}

/// The documents that have a program's keys, or the launch's: the line, then the file.
struct Layers {
  const JsonDocument* line = nullptr;
  const JsonDocument* file = nullptr;
};

Layers stack_of(const JobLaunch& launch, bool is_of_launch) {
  if (is_of_launch) return {&launch.launch_line, launch.launcher ? &*launch.launcher : nullptr};
  return {&launch.line, launch.file ? &*launch.file : nullptr};
}

/// The value that counts; null if there is none.
const JsonValue* value_in(const Layers& stack, std::string_view key) {
  if (const JsonValue* value = find_in(stack.line->root, key)) return value;
  return stack.file == nullptr ? nullptr : find_in(stack.file->root, key);
}

/// A launch configuration in TRL's package is none of the user's.
bool is_own_file(const JsonDocument* document) {
  return document != nullptr && !document->is_translated;
}

/// The document that gets a key: the one that has it, else the file.
bool goes_to_line(const Layers& stack, std::string_view key) {
  return find_in(stack.line->root, key) != nullptr || !is_own_file(stack.file);
}

std::string plain_text(const JsonValue& value) {
  switch (value.type) {
    case JsonType::Bool:
      return value.boolean ? "true" : "false";
    case JsonType::Array: {
      std::string list;
      for (const JsonValue& each : value.elements) list += (list.empty() ? "" : ", ") + plain_text(each);
      return fmt::format("[{}]", list);
    }
    case JsonType::Null:
    case JsonType::Object:
      return {};
    case JsonType::Number:
    case JsonType::String:
      return value.text;
  }
  return {};
}

std::string text_at(const Layers& stack, std::string_view key) {
  const JsonValue* value = value_in(stack, key);
  return value == nullptr ? std::string() : plain_text(*value);
}

/// "{batch}" and so on.
using Numbers = std::map<std::string_view, std::int64_t>;

std::string filled(std::string_view text, const Numbers& numbers) {
  for (const auto& [name, number] : numbers) {
    if (text == name) return std::to_string(number);
  }
  return std::string(text);
}

constexpr std::string_view kBatchOf = "{batch}";
constexpr std::string_view kAccumulationOf = "{accumulation}";
constexpr std::string_view kSamplesOf = "{samples}";
constexpr std::string_view kCopiesOf = "{copies}";
constexpr std::string_view kShardsOf = "{shards}";

/// The key that a row sets to a placeholder; empty if there is none.
std::string_view key_of(std::string_view settings, std::string_view placeholder) {
  for (const std::string_view part : split(settings, ';')) {
    const std::size_t colon = part.find(": ");
    if (part.ends_with(placeholder))
      return part.substr(part.find_first_not_of(' '), colon - part.find_first_not_of(' '));
  }
  return {};
}

/// The number that a text is; `unset` if it is none from 1 on.
std::int64_t count_of(const std::string& text, std::int64_t unset) {
  const std::optional<double> number = parse_number(text);
  return number && *number >= 1 && *number < 1e9 ? static_cast<std::int64_t>(*number) : unset;
}

/// What a job says about a choice; empty if it says nothing.
std::string text_in(const Job& job, PlanChoice choice) {
  const JobWord* word = word_of(job, choice);
  return word == nullptr ? std::string() : word->text;
}

/// The same as a number; 1 if it says none.
std::int64_t number_in(const Job& job, PlanChoice choice) {
  return count_of(text_in(job, choice), 1);
}

/// Samples of a step on all GPUs.
std::int64_t samples_of(const Job& job, std::int64_t num_gpus) {
  if (!text_in(job, PlanChoice::GlobalBatch).empty()) return number_in(job, PlanChoice::GlobalBatch);
  return number_in(job, PlanChoice::Batch) * number_in(job, PlanChoice::Accumulate) *
         std::max<std::int64_t>(num_gpus, 1);
}

/// Pairs of numbers with a product.
std::vector<std::pair<std::int64_t, std::int64_t>> factors_of(std::int64_t product) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t first = 1; first <= product; ++first) {
    if (product % first == 0) pairs.emplace_back(first, product / first);
  }
  return pairs;
}

/// All combinations of a source's changes.
class Variants {
 public:
  Variants(const JobSource& source, const VariantLimits& limits) : source_(source), limits_(limits) {}

  Result<std::vector<JobVariant>> all() {
    FSDP_TRY(given_, source_.program->read(source_.launch));
    add_choices(source_.program->changes, false);
    if (source_.of_launch || source_.launch.launcher) add_choices(source_.program->launch_changes, true);
    found_.push_back({{}, given_});
    by_meaning_.emplace(meaning_of(given_), 0);
    std::vector<KeySetting> settings;
    combine(0, settings);
    for (JobVariant& variant : found_) drop_what_has_no_effect(variant);
    return std::move(found_);
  }

 private:
  using Way = std::vector<KeySetting>;

  /// The ways of each choice, without the present one.
  void add_choices(std::span<const KeyChange> changes, bool is_of_launch) {
    for (std::size_t c = 0; c < changes.size(); ++c) {
      if (c == 0 || changes[c].choice != changes[c - 1].choice) choices_.emplace_back();
      for (const Numbers& numbers : numbers_of(changes[c].settings, is_of_launch)) {
        Way way = way_of(changes[c].settings, numbers, is_of_launch);
        if (!way.empty()) choices_.back().push_back(std::move(way));
      }
    }
  }

  /// The numbers that a row's placeholders stand for; one empty set if it has none.
  std::vector<Numbers> numbers_of(std::string_view settings, bool is_of_launch) const {
    std::vector<Numbers> all;
    const Layers stack = stack_of(source_.launch, is_of_launch);
    if (const std::string_view batch = key_of(settings, kBatchOf); !batch.empty()) {
      const std::int64_t now = count_of(text_at(stack, batch), source_.program->batch_unset);
      const std::string_view accumulation = key_of(settings, kAccumulationOf);
      const std::int64_t world = std::max<std::int64_t>(limits_.num_gpus, 1);
      const std::int64_t steps = accumulation.empty()
                                     ? std::max<std::int64_t>(samples_of(given_, world) / world / now, 1)
                                     : count_of(text_at(stack, accumulation), 1);
      const auto add = [&](std::int64_t rows, std::int64_t times) {
        all.push_back({{kBatchOf, rows}, {kAccumulationOf, times}, {kSamplesOf, rows * times * world}});
      };
      if (limits_.batch || limits_.accumulation) {
        add(limits_.batch.value_or(now), limits_.accumulation.value_or(steps));
      } else {
        for (const auto& [first, second] : factors_of(now * steps)) add(first, second);
      }
      return all;
    }
    if (!key_of(settings, kCopiesOf).empty()) {
      for (const auto& [first, second] : factors_of(limits_.num_gpus)) {
        if (second > 1) all.push_back({{kCopiesOf, first}, {kShardsOf, second}});
      }
      return all;
    }
    return {{}};
  }

  /// The settings of a row that are no values of now.
  Way way_of(std::string_view settings, const Numbers& numbers, bool is_of_launch) const {
    const Layers stack = stack_of(source_.launch, is_of_launch);
    Way way;
    for (std::string_view part : split(settings, ';')) {
      part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
      const bool adds = part.starts_with('+');
      if (adds) part.remove_prefix(1);
      const std::size_t colon = part.find(": ");
      const std::string key(part.substr(0, colon));
      JsonValue value = value_of(filled(part.substr(colon + 2), numbers));
      const JsonValue* now = value_in(stack, key);
      if (adds) value = with_element(now, value);
      const bool is_now = now != nullptr && plain_text(*now) == plain_text(value);
      if (!is_now) way.push_back({key, std::move(value), is_of_launch});
    }
    return way;
  }

  static JsonValue with_element(const JsonValue* list, const JsonValue& element) {
    JsonValue longer;
    longer.type = JsonType::Array;
    if (list != nullptr && list->type == JsonType::Array) longer.elements = list->elements;
    const bool has_it = std::any_of(longer.elements.begin(), longer.elements.end(),
                                    [&](const JsonValue& each) { return each.text == element.text; });
    if (!has_it) longer.elements.push_back(element);
    return longer;
  }

  void combine(std::size_t choice, std::vector<KeySetting>& settings) {
    if (choice == choices_.size()) return add(settings);
    combine(choice + 1, settings);
    for (const Way& way : choices_[choice]) {
      settings.insert(settings.end(), way.begin(), way.end());
      combine(choice + 1, settings);
      settings.resize(settings.size() - way.size());
    }
  }

  void add(const std::vector<KeySetting>& settings) {
    if (settings.empty()) return;
    const Result<Job> job = read_with(settings);
    if (!job || !differs_freely(*job) || !trains_as_much(*job)) return;
    const auto [known, is_new] = by_meaning_.emplace(meaning_of(*job), found_.size());
    if (is_new) {
      found_.push_back({settings, *job});
    } else if (found_[known->second].settings.size() > settings.size()) {
      found_[known->second] = {settings, *job};
    }
  }

  void drop_what_has_no_effect(JobVariant& variant) const {
    const std::string meaning = meaning_of(variant.job);
    for (std::size_t s = variant.settings.size(); s-- > 0;) {
      std::vector<KeySetting> fewer = variant.settings;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(s));
      const Result<Job> job = read_with(fewer);
      if (job && meaning_of(*job) == meaning) variant = {std::move(fewer), *job};
    }
  }

  Result<Job> read_with(const std::vector<KeySetting>& settings) const {
    JobLaunch launch = source_.launch;
    for (const KeySetting& setting : settings) {
      const bool is_on_line = goes_to_line(stack_of(launch, setting.is_of_launch), setting.key);
      JsonDocument& line = setting.is_of_launch ? launch.launch_line : launch.line;
      std::optional<JsonDocument>& file = setting.is_of_launch ? launch.launcher : launch.file;
      set_value(is_on_line ? line.root : file->root, setting.key, setting.value);
    }
    return source_.program->read(launch);
  }

  static std::string meaning_of(const Job& job) {
    std::string meaning = job.model;
    for (const JobWord& word : job.words) meaning += fmt::format("\n{} {}", place_of(word.choice), word.text);
    return meaning;
  }

  /// A program may round the samples of a step to whole micro-batches.
  bool trains_as_much(const Job& job) const {
    const bool counts_rows = text_in(job, PlanChoice::Packing).empty() || !text_in(job, PlanChoice::Batch).empty();
    return limits_.batch || limits_.accumulation || !counts_rows ||
           samples_of(job, limits_.num_gpus) == samples_of(given_, limits_.num_gpus);
  }

  bool differs_freely(const Job& job) const {
    const auto is_kept = [&](const JobWord& word) {
      return is_free(word.choice) || text_in(job, word.choice) == text_in(given_, word.choice);
    };
    return std::all_of(job.words.begin(), job.words.end(), is_kept) &&
           std::all_of(given_.words.begin(), given_.words.end(), is_kept);
  }

  const JobSource& source_;
  VariantLimits limits_;
  Job given_;
  std::vector<std::vector<Way>> choices_;  ///< [choices][ways]
  std::vector<JobVariant> found_;
  std::map<std::string, std::size_t> by_meaning_;
};

/// The path of a key as a file spells it: axolotl's "fsdp_config.fsdp_offload_params" is also
/// "fsdp_config.offload_params". `read` has the names that the reader uses, with the places of `as_written`.
std::string spelled(const JsonValue& as_written, const JsonValue& read, std::string_view key) {
  const std::string_view name = key.substr(0, key.find('.'));
  for (std::size_t m = 0; m < read.members.size() && m < as_written.members.size(); ++m) {
    if (read.members[m].key != name) continue;
    const JsonMember& member = as_written.members[m];
    if (name.size() == key.size()) return member.key;
    return member.key + "." + spelled(member.value, read.members[m].value, key.substr(name.size() + 1));
  }
  return std::string(key);
}

/// The files and the line while they are edited.
class Editing {
 public:
  explicit Editing(const JobSource& source)
      : source_(source), words_(source.words), own_(source.own), of_launch_(source.of_launch.value_or(source.own)) {
    for (const auto* document : {&source.launch.file, &source.launch.launcher}) {
      if (*document && is_own_file(&**document)) texts_[(*document)->name] = (*document)->text;
    }
  }

  /// Errors: those of with_key and with_option.
  Result<void> set(const KeySetting& setting, std::string_view beside) {
    const Layers stack = stack_of(source_.launch, setting.is_of_launch);
    KeyEdit edit{
        .file = {}, .key = setting.key, .before = text_at(stack, setting.key), .after = plain_text(setting.value)};
    if (goes_to_line(stack, setting.key)) {
      FSDP_TRY(OptionEdit option,
               with_option(words_, setting.is_of_launch ? of_launch_ : own_, setting.key, setting.value,
                           setting.is_of_launch ? OptionName::Last : source_.program->options));
      own_ = moved(own_, option);
      of_launch_ = moved(of_launch_, option);
      words_ = std::move(option.words);
      edit.key = std::move(option.flag);
      is_line_changed_ = true;
    } else {
      std::string& text = texts_[stack.file->name];
      FSDP_TRY(const JsonDocument given, parse_config(stack.file->text, stack.file->name));
      FSDP_TRY(const JsonDocument now, parse_config(text, stack.file->name));
      const std::string key = spelled(given.root, stack.file->root, setting.key);
      const std::string_view neighbor = beside.substr(beside.rfind('.') + 1);
      const bool is_toml = stack.file->name.ends_with(".toml");
      FSDP_TRY(text, is_toml ? with_toml_key(now, key, setting.value, neighbor)
                             : with_key(now, key, setting.value, neighbor));
      edit.key = key;
      edit.file = stack.file->name;
    }
    edits_.push_back(std::move(edit));
    return {};
  }

  EditedJob result() const {
    EditedJob job{edits_, {}, is_line_changed_ ? words_ : std::vector<std::string>{}};
    for (const auto& [name, text] : texts_) {
      for (const auto* document : {&source_.launch.file, &source_.launch.launcher}) {
        if (*document && (*document)->name == name && (*document)->text != text) {
          job.files.push_back({name, (*document)->text, text});
        }
      }
    }
    return job;
  }

  /// What the files and the line mean now.
  Result<Job> read() const {
    const FileReader edited_file = [&](const std::string& path) {
      const auto known = texts_.find(path);
      return known == texts_.end() ? read_config_file(path) : parse_config(known->second, path);
    };
    if (source_.is_line || is_line_changed_) {
      FSDP_TRY(JobSource again, find_job_line(words_, edited_file));
      again.launch.typed = source_.launch.typed;
      return again.program->read(again.launch);
    }
    FSDP_TRY(std::optional<JobSource> again, find_job(source_.launch.file->name, edited_file));
    if (!again) return failure(source_.launch.file->name, "It is no configuration any more.", "");
    again->launch.typed = source_.launch.typed;
    return again->program->read(again->launch);
  }

 private:
  const JobSource& source_;
  std::map<std::string, std::string> texts_;  ///< By file.
  std::vector<std::string> words_;
  WordRange own_;
  WordRange of_launch_;
  bool is_line_changed_ = false;
  std::vector<KeyEdit> edits_;
};

bool mean_the_same(const Job& a, const Job& b) {
  return a.model == b.model &&
         std::equal(a.words.begin(), a.words.end(), b.words.begin(), b.words.end(),
                    [](const JobWord& x, const JobWord& y) { return x.choice == y.choice && x.text == y.text; });
}

}  // namespace

Result<std::vector<JobVariant>> variants_of(const JobSource& source, const VariantLimits& limits) {
  return Variants(source, limits).all();
}

Result<EditedJob> edited(const JobSource& source, const JobVariant& variant) {
  Editing editing(source);
  std::string_view beside;
  for (const KeySetting& setting : variant.settings) {
    if (const Result<void> done = editing.set(setting, beside); !done) return tl::unexpected(done.error());
    beside = setting.key;
  }
  FSDP_TRY(const Job again, editing.read());
  if (!mean_the_same(again, variant.job)) {
    return failure(source.words.back(), "The changed configuration would not be read as the plan.", "Report this.");
  }
  return editing.result();
}

}  // namespace fsdp::planner
