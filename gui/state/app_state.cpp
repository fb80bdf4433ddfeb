#include "gui/state/app_state.h"

#include <QUndoCommand>
#include <utility>

#include "gui/state/remedy.h"

namespace fsdp::gui {

namespace {

/// A stale picture is not marked for a shorter time, which would only flicker.
constexpr int kStaleAfterMilliseconds = 150;

}  // namespace

/// One step of undo: the whole inputs before and after, which are small.
class InputsChange : public QUndoCommand {
 public:
  InputsChange(AppState& state, Inputs before, Inputs after, const QString& text, int merge_key)
      : QUndoCommand(text), state_(state), before_(std::move(before)), after_(std::move(after)), key_(merge_key) {}

  void undo() override { state_.apply(before_); }
  void redo() override { state_.apply(after_); }
  int id() const override { return key_ > 0 ? key_ : -1; }
  bool mergeWith(const QUndoCommand* other) override {
    const auto* later = dynamic_cast<const InputsChange*>(other);
    if (later == nullptr || later->key_ != key_) return false;
    after_ = later->after_;
    setObsolete(after_ == before_);
    return true;
  }

 private:
  AppState& state_;
  Inputs before_;
  Inputs after_;
  int key_;
};

AppState::AppState(std::string library, QObject* parent)
    : QObject(parent), library_(std::move(library)), engine_(library_) {
  stale_timer_.setSingleShot(true);
  stale_timer_.setInterval(kStaleAfterMilliseconds);
  connect(&stale_timer_, &QTimer::timeout, this, [this] { set_stale(true); });
  connect(&engine_, &Engine::answered, this, &AppState::take, Qt::QueuedConnection);
  connect(&engine_, &Engine::failed, this, &AppState::fail, Qt::QueuedConnection);
  connect(&engine_, &Engine::progressed, this, &AppState::progressed, Qt::QueuedConnection);
  connect(
      &engine_, &Engine::finished, this,
      [this](std::uint64_t id) {
        if (id != asked_) return;
        set_busy(false);
        const bool is_answered = snapshot_ && snapshot_->id == id && !is_before_search(*snapshot_);
        if (!is_answered && errors_.empty())
          fail(id, {{"", "The search was stopped.", "Search again, or change something."}});
      },
      Qt::QueuedConnection);
}

void AppState::change(const Inputs& inputs, const QString& text, int merge_key) {
  if (inputs == inputs_) return;
  undo_.push(new InputsChange(*this, inputs_, inputs, text, merge_key));
}

void AppState::open(const Inputs& inputs) {
  engine_.cancel();
  undo_.clear();
  undo_.setClean();
  snapshot_.reset();
  measured_.reset();
  emit snapshot_changed();
  emit measured_changed();
  oldest_ = asked_ + 1;
  apply(inputs);
}

void AppState::apply(const Inputs& inputs) {
  inputs_ = inputs;
  emit inputs_changed();
  if (inputs_.model.empty()) return;
  asked_ = engine_.ask(inputs_);
  set_busy(true);
  if (snapshot_ && !stale_timer_.isActive()) stale_timer_.start();
}

void AppState::take(const SnapshotPtr& snapshot) {
  // An outdated answer is still newer than the shown one: it is shown, and stays marked as stale.
  if (snapshot->id < oldest_) return;
  snapshot_ = snapshot;
  const bool is_newest = snapshot->id == asked_;
  if (is_newest && !is_before_search(*snapshot)) {
    stale_timer_.stop();
    set_stale(false);
  }
  if (snapshot->stage == Stage::Guess) set_stale(true);
  if (is_newest && !errors_.empty()) {
    errors_.clear();
    emit errors_changed();
  }
  emit snapshot_changed();
}

void AppState::fail(std::uint64_t id, const Errors& errors) {
  if (id != asked_) return;
  stale_timer_.stop();
  set_stale(snapshot_ != nullptr);
  errors_ = errors;
  emit errors_changed();
}

void AppState::set_busy(bool is_busy) {
  if (is_busy_ == is_busy) return;
  is_busy_ = is_busy;
  emit busy_changed();
}

void AppState::set_stale(bool is_stale) {
  if (is_stale_ == is_stale) return;
  is_stale_ = is_stale;
  emit stale_changed();
}

void AppState::set_kept(bool is_kept) {
  if (is_kept == inputs_.kept.has_value()) return;
  if (!is_kept) {
    Inputs searched = inputs_;
    searched.kept.reset();
    change(searched, tr("search again"));
  } else if (snapshot_) {
    change(with_kept(inputs_, plan_file_of(*snapshot_)), tr("keep this plan"));
  }
}

void AppState::keep_plan(const Plan& plan, const QString& text) {
  if (!snapshot_) return;
  // The machines of the inputs remain options over the machines of the first kept plan.
  std::optional<Cluster> cluster = inputs_.kept ? inputs_.kept->cluster : std::optional(snapshot_->cluster);
  change(with_kept(inputs_, {plan, std::move(cluster)}), text);
}

void AppState::apply_remedy(const planner::Remedy& remedy) {
  if (!snapshot_) return;
  const Result<Inputs> changed = with_remedy(inputs_, remedy, *snapshot_);
  if (changed) {
    change(*changed, QString::fromStdString(remedy.what));
  } else {
    report_errors(changed.error());
  }
}

void AppState::pin_baseline() {
  set_baseline(snapshot_);
}

void AppState::set_baseline(SnapshotPtr baseline, const QString& name) {
  baseline_ = std::move(baseline);
  baseline_name_ = name;
  emit baseline_changed();
}

void AppState::report_errors(const Errors& errors) {
  errors_ = errors;
  emit errors_changed();
}

void AppState::set_measured(OverlayPtr measured) {
  measured_ = std::move(measured);
  emit measured_changed();
}

}  // namespace fsdp::gui
