// Doubles the batch until it does not fit, and then halves the gap between the largest that fits and the smallest that
// does not. Memory grows with the batch, except for the caching allocator's rounding: two neighbors may be in the wrong
// order, which would move the answer by as much.
//
// Not modeled: batches that a script refuses, for example because its data is too small. They count as too large, and
// the answer quotes the script's message.

#include "runs/find_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/base/split.h"
#include "text/figures.h"

namespace fsdp::runs {

namespace {

constexpr std::string_view kPlace = "{}";

const BatchTrial* smallest_too_large(const BatchSearch& search) {
  const auto found =
      std::find_if(search.trials.begin(), search.trials.end(), [](const BatchTrial& trial) { return !trial.fits; });
  return found == search.trials.end() ? nullptr : &*found;
}

std::string said_of(const BatchSearch& search) {
  const BatchTrial* beyond = smallest_too_large(search);
  if (!search.largest) {
    if (search.given_up) return "No batch was tried to the end";
    return beyond->why.empty() ? "No batch fits, not even 1" : "No batch is known to fit; 1 could not be rehearsed";
  }
  const std::string text = fmt::format("{} is the largest batch that fits", *search.largest);
  if (search.given_up) return text + ", as far as was tried";
  if (beyond == nullptr) return text + ", and the largest that is tried";
  return text + fmt::format("; {} {}", beyond->batch, beyond->why.empty() ? "does not" : "could not be rehearsed");
}

}  // namespace

BatchSearch find_largest_batch(const TryBatch& try_batch, std::int64_t most) {
  BatchSearch search;
  const auto fits = [&](std::int64_t batch) {
    std::optional<BatchTrial> trial = try_batch(batch);
    search.given_up = !trial;
    if (!trial) return false;
    const bool answer = trial->fits;
    if (answer) search.largest = std::max(search.largest.value_or(0), batch);
    search.trials.push_back(*std::move(trial));
    return answer;
  };
  std::int64_t good = 0;
  std::int64_t bad = 1;
  while (fits(bad)) {
    good = bad;
    if (good == most) break;
    bad = std::min(2 * good, most);
  }
  while (!search.given_up && bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  std::sort(search.trials.begin(), search.trials.end(), [](const auto& a, const auto& b) { return a.batch < b.batch; });
  return search;
}

Result<std::vector<std::string>> batch_words(std::string_view pattern, std::int64_t batch, std::string_view option) {
  if (pattern.find(kPlace) == std::string_view::npos) {
    return failure(std::string(option), fmt::format("\"{}\" has no {{}} where the number goes.", pattern),
                   fmt::format("Write the script's own option: {} '--batch-size {{}}'.", option));
  }
  std::vector<std::string> words;
  for (const std::string_view part : split(pattern, ' ')) {
    if (part.empty()) continue;
    std::string& word = words.emplace_back(part);
    const std::size_t place = word.find(kPlace);
    if (place != std::string::npos) word.replace(place, kPlace.size(), fmt::format("{}", batch));
  }
  return words;
}

std::vector<std::string> with_batch(std::vector<std::string> command, std::string_view pattern, std::int64_t batch) {
  const auto words = batch_words(pattern, batch);
  if (words) command.insert(command.end(), words->begin(), words->end());
  return command;
}

void add_batches(text::Document& document, const BatchSearch& search) {
  const auto rehearsals = text::counted(static_cast<std::int64_t>(search.trials.size()), "rehearsal");
  document.push_back(text::Entry{.label = "BATCH",
                                 .lines = {fmt::format("{} · {}", said_of(search), rehearsals)},
                                 .style = search.largest ? text::Style::Good : text::Style::Bad});
  text::Table table{.name = "batches",
                    .columns = {{"batch", "batch", true}, {"device", "device_peak_bytes", true}, {"", "verdict"}}};
  for (const BatchTrial& trial : search.trials) {
    text::Cell verdict = trial.fits ? text::Cell{"fits", "fits", text::Style::Good}
                                    : text::Cell{"then out of memory", "does_not_fit", text::Style::Bad};
    if (!trial.why.empty()) verdict = text::Cell{trial.why, "not_rehearsed", text::Style::Warning};
    table.rows.push_back(
        {text::cell(trial.batch), trial.why.empty() ? text::cell(trial.device_peak) : text::Cell{"", ""}, verdict});
  }
  document.push_back(std::move(table));
}

void add_batches(ReportAdditions& additions, const BatchSearch& search) {
  std::vector<TriedBatch>& tried = additions.batches.emplace();
  for (const BatchTrial& trial : search.trials) {
    tried.push_back({trial.batch, trial.fits, trial.device_peak, trial.why});
  }
  additions.largest_batch = search.largest;
}

}  // namespace fsdp::runs
