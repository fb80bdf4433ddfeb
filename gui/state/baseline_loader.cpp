#include "gui/state/baseline_loader.h"

#include <utility>

namespace fsdp::gui {

BaselineLoader::BaselineLoader(std::string library, QObject* parent) : QObject(parent), library_(std::move(library)) {}

void BaselineLoader::load(const Inputs& inputs, const QString& name) {
  if (!engine_) {
    engine_ = std::make_unique<Engine>(library_);
    const auto is_asked = [this](std::uint64_t id) { return id == asked_; };
    connect(
        engine_.get(), &Engine::answered, this,
        [this, is_asked](const SnapshotPtr& answer) {
          if (is_asked(answer->id) && !is_before_search(*answer)) best_ = answer;
        },
        Qt::QueuedConnection);
    connect(
        engine_.get(), &Engine::failed, this,
        [this, is_asked](std::uint64_t id, const Errors& errors) {
          if (is_asked(id)) errors_ = errors;
        },
        Qt::QueuedConnection);
    connect(
        engine_.get(), &Engine::finished, this,
        [this, is_asked](std::uint64_t id) {
          if (!is_asked(id)) return;
          is_busy_ = false;
          if (best_)
            emit loaded(best_, name_);
          else
            emit failed(errors_);
        },
        Qt::QueuedConnection);
  }
  name_ = name;
  best_.reset();
  errors_.clear();
  is_busy_ = true;
  asked_ = engine_->ask(inputs);
}

}  // namespace fsdp::gui
