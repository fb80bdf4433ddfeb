#include "gui/state/remedy.h"

#include <utility>
#include <vector>

#include "gui/state/plan_edit.h"
#include "render/choice_words.h"

namespace fsdp::gui {

using planner::Option;

namespace {

/// Whether the options leave it open which GPU it is: --gpus 4 --mem 16G.
bool has_unnamed_gpus(const Inputs& inputs) {
  const auto has = [&](Option option) { return text_of(inputs, option).has_value(); };
  return has(Option::Gpus) && has(Option::Memory) && !has(Option::GpuName) && !has(Option::ClusterFile);
}

}  // namespace

Result<Inputs> with_remedy(const Inputs& inputs, const planner::Remedy& remedy, const Snapshot& shown) {
  // The model first: options that take many words would swallow it.
  std::vector<std::string> words = {inputs.model};
  for (std::string& word : planner::words_of(remedy.change)) words.push_back(std::move(word));
  FSDP_TRY(const planner::CommandLine line, planner::parse_command_line(words));
  Inputs changed = inputs;
  // What a search priced is found by a search.
  if (remedy.is_searched) changed.kept.reset();
  if (!remedy.is_searched && !inputs.kept) changed = with_kept(inputs, plan_file_of(shown));
  // Other memory brings another card to stand in, which the options find by themselves.
  const bool finds_card = !inputs.kept && line.has(Option::Memory) && has_unnamed_gpus(changed);
  if (changed.kept && finds_card) changed.kept->cluster.reset();
  if (inputs.kept && line.has(Option::GpuName)) {
    // Priced with its own links in a node of its own.
    for (const Option old : {Option::IntraLinkName, Option::IntraBandwidth, Option::NetworkName, Option::NicBandwidth,
                             Option::GpusPerNic, Option::HostMemory}) {
      changed.options.erase(old);
    }
  }
  for (const planner::OptionInfo& info : planner::options()) {
    const std::vector<std::string>& texts = line.all(info.option);
    if (texts.empty()) continue;
    if (info.many) {
      std::vector<std::string>& all = changed.options[info.option];
      all.insert(all.end(), texts.begin(), texts.end());
    } else if (info.option == Option::SetDimension) {
      for (const std::string& text : texts) {
        const std::size_t equals = text.find('=');
        changed = with_dimension(std::move(changed), text.substr(0, equals), text.substr(equals + 1));
      }
    } else if (changed.kept && is_about_plan(info.option)) {
      if (!shown.model) continue;
      FSDP_TRY(changed.kept->plan,
               with_choice(changed.kept->plan, info.option, texts.back(), *shown.model, shown.cluster));
      changed = with_option(std::move(changed), info.option, texts.back());
    } else {
      changed = with_option(std::move(changed), info.option, texts.back());
    }
  }
  return changed;
}

}  // namespace fsdp::gui
