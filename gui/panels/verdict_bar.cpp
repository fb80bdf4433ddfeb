#include "gui/panels/verdict_bar.h"

#include <QHBoxLayout>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/parse_units.h"
#include "core/report/device_verdict.h"
#include "gui/panels/comparison_panel.h"
#include "gui/theme/figure_text.h"
#include "render/render_report.h"

namespace fsdp::gui {

namespace {

constexpr int kSideMargin = 12;
constexpr int kRowSpacing = 16;
constexpr int kNever = std::numeric_limits<int>::max();

QString percent(double share) {
  return QString::number(share * 100, 'f', share < 0.1 ? 1 : 0) + QStringLiteral(" %");
}

/// "  ·  measured on CPU: live peak 12.4 MiB, exactly as predicted for CPU"
QString measured_text(const Snapshot& shown, const Overlay& overlay) {
  const MeasuredComparison measured = measured_figures(shown, overlay);
  const bool is_cpu = was_on_cpu(overlay);
  const QString where = is_cpu ? VerdictBar::tr("measured on CPU") : VerdictBar::tr("measured");
  if (measured.is_of_another) return VerdictBar::tr("  ·  %1: of another model or plan").arg(text_of(overlay.name));
  if (!measured.live_peak || measured.live_peak->measured <= 0) return {};
  const QString peak = text_of(Bytes(measured.live_peak->measured));
  const double off = measured.live_peak->relative() * 100;
  const QString share = QString::number(std::abs(off), 'f', 2) + QStringLiteral(" %");
  const QString how = off == 0  ? VerdictBar::tr("exactly as predicted")
                      : off > 0 ? VerdictBar::tr("predicted %1 more").arg(share)
                                : VerdictBar::tr("predicted %1 less").arg(share);
  const QString for_cpu = is_cpu && overlay.own ? VerdictBar::tr(" for CPU") : QString();
  return VerdictBar::tr("  ·  %1: live peak %2, %3%4").arg(where, peak, how, for_cpu);
}

/// "The NVMe drives of a node lack 200 GiB. · ": the memory missing outside of the devices. Empty if nothing is
/// missing.
QString missing_outside_text(const MemoryReport& memory) {
  QString text;
  if (memory.host && memory.host->missing() > Bytes(0)) {
    text += VerdictBar::tr("The host memory of a node lacks %1.  ·  ").arg(text_of(memory.host->missing()));
  }
  if (memory.drive && memory.drive->missing() > Bytes(0)) {
    text += VerdictBar::tr("The NVMe drives of a node lack %1.  ·  ").arg(text_of(memory.drive->missing()));
  }
  return text;
}

/// " (2.19–9.39 s)": the band of a step. Empty if it is unknown. Without an upper end: " (2.19 s or more)".
QString band_text(const TimeReport& time) {
  if (!time.without_cost.empty()) return VerdictBar::tr(" (%1 or more)").arg(text_of(time.low));
  if (time.low <= Seconds(0) || time.high <= time.low) return {};
  QString low = text_of(time.low);
  const QString high = text_of(time.high);
  const QString unit = high.section(' ', 1);
  if (low.endsWith(' ' + unit)) low.chop(unit.size() + 1);
  return QString(" (%1\u2013%2)").arg(low, high);
}

}  // namespace

VerdictBar::VerdictBar(AppState& state, QWidget* parent) : QWidget(parent), state_(state) {
  setObjectName("verdict");
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(kSideMargin, 8, kSideMargin, 6);
  column->setSpacing(4);
  column->addLayout(make_figures());
  column->addLayout(make_moment());
  column->addLayout(make_suggestions());
  connect(&state_, &AppState::snapshot_changed, this, &VerdictBar::show_state);
  connect(&state_, &AppState::baseline_changed, this, &VerdictBar::show_state);
  connect(&state_, &AppState::measured_changed, this, &VerdictBar::show_state);
  connect(&state_, &AppState::stale_changed, this, &VerdictBar::show_state);
  connect(&state_, &AppState::busy_changed, this, &VerdictBar::show_busy);
  connect(&state_, &AppState::inputs_changed, this, [this] { search_->setVisible(state_.inputs().kept.has_value()); });
  connect(&state_, &AppState::inputs_changed, this, &VerdictBar::show_state);
  search_->hide();
  connect(&state_, &AppState::progressed, this, [this](const QString& text) { progress_text_->setText(text); });
  show_state();
  show_busy();
}

QLayout* VerdictBar::make_figures() {
  auto* row = new QHBoxLayout;
  row->setSpacing(kRowSpacing);
  verdict_ = new QLabel(this);
  verdict_->setObjectName("verdict_word");
  QFont font = verdict_->font();
  font.setPointSizeF(font.pointSizeF() * 1.7);
  font.setBold(true);
  verdict_->setFont(font);
  row->addWidget(verdict_);
  bar_ = new BudgetBar(this);
  row->addWidget(bar_, 1);
  peak_ = add_figure(*row, tr("Device peak"),
                     tr("Highest memory of the device: what the allocator reserves, and what "
                        "the process holds outside of it"));
  headroom_ = add_figure(*row, tr("Headroom"), tr("Memory left after the safety margin, or missing with it"));
  step_ = add_figure(*row, tr("Step time"),
                     tr("One optimizer step, with all its micro-batches; in brackets the band in which it may lie"));
  exposed_ = add_figure(*row, tr("Exposed comm."), tr("Time in which the compute stream waits for communication"));
  host_ = add_figure(*row, tr("Host RAM per node"), {});
  host_.title->parentWidget()->hide();
  return row;
}

QLayout* VerdictBar::make_moment() {
  moment_ = new QPushButton(this);
  moment_->setObjectName("binding_moment");
  moment_->setFlat(true);
  moment_->setCursor(Qt::PointingHandCursor);
  moment_->setStyleSheet("text-align: left; padding: 1px 0px;");
  moment_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
  connect(moment_, &QPushButton::clicked, this, &VerdictBar::peak_clicked);
  auto* line = new QHBoxLayout;
  line->addWidget(moment_, 1);
  assumes_ = new QToolButton(this);
  assumes_->setObjectName("assumptions");
  assumes_->setAutoRaise(true);
  assumes_->setCursor(Qt::PointingHandCursor);
  connect(assumes_, &QToolButton::clicked, this, &VerdictBar::assumptions_wanted);
  line->addWidget(assumes_);
  return line;
}

QLayout* VerdictBar::make_suggestions() {
  auto* below = new QHBoxLayout;
  suggestions_ = new SuggestionRow(state_, this);
  below->addWidget(suggestions_, 1);
  search_ = new QPushButton(tr("Search again"), this);
  search_->setObjectName("search_again");
  search_->setToolTip(tr("Exactly this plan is predicted. Look for the best plan with these settings"));
  connect(search_, &QPushButton::clicked, this, [this] { state_.set_kept(false); });
  below->addWidget(search_, 0, Qt::AlignTop);
  progress_text_ = new QLabel(this);
  progress_ = new QProgressBar(this);
  progress_->setRange(0, 0);
  progress_->setMaximumWidth(90);
  progress_->setMaximumHeight(12);
  progress_->setTextVisible(false);
  progress_->setAccessibleName(tr("The planner is working"));
  stop_ = new QToolButton(this);
  stop_->setObjectName("stop_search");
  stop_->setText(tr("Stop"));
  stop_->setToolTip(tr("Stop the search and keep what was found so far"));
  stop_->setAccessibleName(tr("Stop the search"));
  connect(stop_, &QToolButton::clicked, this, [this] { state_.cancel_search(); });
  below->addWidget(progress_text_);
  below->addWidget(progress_);
  below->addWidget(stop_);
  return below;
}

VerdictBar::Figure VerdictBar::add_figure(QHBoxLayout& row, const QString& title, const QString& help) {
  auto* box = new QWidget(this);
  auto* column = new QVBoxLayout(box);
  column->setContentsMargins(0, 0, 0, 0);
  column->setSpacing(0);
  Figure figure{new QLabel(title, box), new QLabel(box), new QLabel(box)};
  QFont small = figure.title->font();
  small.setPointSizeF(small.pointSizeF() * 0.85);
  figure.title->setFont(small);
  figure.delta->setFont(small);
  QFont strong = figure.value->font();
  strong.setBold(true);
  figure.value->setFont(strong);
  figure.value->setTextInteractionFlags(Qt::TextSelectableByMouse);
  figure.value->setAccessibleName(title);
  box->setToolTip(help);
  column->addWidget(figure.title);
  column->addWidget(figure.value);
  column->addWidget(figure.delta);
  figure.delta->hide();
  row.addWidget(box);
  return figure;
}

void VerdictBar::set_theme(const Theme& theme) {
  theme_ = theme;
  bar_->set_theme(theme);
  for (const Figure& figure : figures()) set_text_color(*figure.title, theme.text_weak);
  set_text_color(*progress_text_, theme.text_weak);
  suggestions_->set_theme(theme);
  show_state();
}

void VerdictBar::show_delta(QLabel& label, const QString& text, double change) {
  label.setVisible(state_.baseline() != nullptr);
  if (!state_.baseline()) return;
  label.setText(change == 0 ? tr("as pinned") : text);
  label.setToolTip(state_.baseline_name().isEmpty() ? tr("Against the pinned baseline")
                                                    : tr("Against the baseline %1").arg(state_.baseline_name()));
  set_text_color(label, change == 0 ? theme_.text_weak : change < 0 ? theme_.good : theme_.bad);
}

void VerdictBar::show_figures(const Snapshot& shown) {
  const StepReport& report = shown.report;
  const MemoryReport& memory = report.memory;
  const Bytes headroom = memory.budget - memory.margin - memory.peaks.device;
  const double share = ratio(memory.peaks.device, memory.budget);
  peak_text_ = tr("%1 of %2 (%3)").arg(text_of(memory.peaks.device), text_of(memory.budget), percent(share));
  peak_short_ = text_of(memory.peaks.device);
  const QString title = headroom < Bytes(0) ? tr("Missing, with %1 margin") : tr("Headroom after %1 margin");
  headroom_.title->setText(title.arg(text_of(memory.margin)));
  headroom_.value->setText(text_of(headroom < Bytes(0) ? -headroom : headroom));
  // No card was named: the speed is that of the stand-in.
  step_.title->setText(is_stand_in(shown.cluster.gpu)
                           ? tr("Step time, like %1").arg(text_of(card_of(shown.cluster.gpu)))
                           : tr("Step time"));
  step_.value->setText(text_of(report.time.step) + band_text(report.time));
  const bool is_open = !report.time.without_cost.empty();
  const QString most = is_open ? tr("an unknown time, for no cost is known of %1")
                                     .arg(QString::fromStdString(report.time.without_cost.front()))
                               : text_of(report.time.high);
  step_.value->setToolTip(
      tr("The step may take from %1 to %2; %3").arg(text_of(report.time.low), most, text_of(render::speed_of(report))));
  const double exposed = report.time.step.count() > 0 ? report.time.exposed_communication / report.time.step : 0;
  QString waits_text = tr("%1 (%2)").arg(text_of(report.time.exposed_communication), percent(exposed));
  // The GPU also waits for the CPU, which is in no share of communication.
  if (report.plan.cpu_offload) waits_text += tr(", CPU optimizer %1").arg(text_of(report.time.optimizer));
  exposed_.value->setText(waits_text);
  show_host(memory);
  if (!state_.baseline()) {
    for (const Figure& figure : figures()) figure.delta->hide();
    return;
  }
  const StepReport& before = state_.baseline()->report;
  const Bytes peak = memory.peaks.device - before.memory.peaks.device;
  show_delta(*peak_.delta, signed_text_of(peak), static_cast<double>(peak.count()));
  const Bytes before_headroom = before.memory.budget - before.memory.margin - before.memory.peaks.device;
  show_delta(*headroom_.delta, signed_text_of(headroom - before_headroom),
             -static_cast<double>((headroom - before_headroom).count()));
  const Seconds step = report.time.step - before.time.step;
  show_delta(*step_.delta, signed_text_of(step), step.count());
  const Seconds waits = report.time.exposed_communication - before.time.exposed_communication;
  show_delta(*exposed_.delta, signed_text_of(waits), waits.count());
}

// A plan that offloads to the host needs memory there as much as on its GPUs.
void VerdictBar::show_host(const MemoryReport& memory) {
  has_host_ = memory.host.has_value();
  if (!has_host_) return;
  const HostMemory& host = *memory.host;
  host_.value->setText(host.budget ? tr("%1 of %2").arg(text_of(host.needed), text_of(*host.budget))
                                   : tr("needs %1").arg(text_of(host.needed)));
  host_.title->parentWidget()->setToolTip(
      host.budget
          ? tr("Memory of a node that offload takes; %1 more are kept free as a margin").arg(text_of(host.margin))
          : tr("Memory of a node that offload takes. It is not checked: set Host RAM per node"));
  if (!state_.baseline()) return;
  const std::optional<HostMemory>& before = state_.baseline()->report.memory.host;
  const Bytes more = host.needed - (before ? before->needed : Bytes(0));
  show_delta(*host_.delta, signed_text_of(more), static_cast<double>(more.count()));
}

std::array<VerdictBar::Figure, 5> VerdictBar::figures() const {
  return {peak_, headroom_, step_, exposed_, host_};
}

void VerdictBar::show_state() {
  const SnapshotPtr shown = state_.snapshot();
  // Only the bar, not the whole widget: a first search can be stopped before there is an answer.
  bar_->setEnabled(shown != nullptr);
  moment_->setEnabled(shown != nullptr);
  if (!shown) {
    verdict_->setText(state_.has_model() ? tr("Looking …") : QString());
    set_text_color(*verdict_, theme_.text_weak);
    moment_text_.clear();
    for (const Figure& figure : {headroom_, step_, exposed_}) figure.value->setText(QStringLiteral("–"));
    has_host_ = false;
    peak_text_ = peak_short_ = QStringLiteral("–");
    assumes_->hide();
    show_what_has_room();
    show_moment();
    suggestions_->show_suggestions();
    return;
  }
  const bool fits = shown->report.verdict == Verdict::Fits;
  const bool tight = is_tight(shown->report);
  // A word and a sign: some people cannot see the color.
  verdict_->setText(shown->stage == Stage::Guess ? tr("Looking …")
                    : tight                      ? QStringLiteral("! FITS, TIGHT")
                    : fits                       ? QStringLiteral("✓ FITS")
                                                 : QStringLiteral("✗ DOES NOT FIT"));
  const bool is_stale = state_.is_stale() || !state_.errors().empty();
  set_text_color(*verdict_, is_stale ? theme_.text_weak : tight ? theme_.warn : fits ? theme_.good : theme_.bad);
  const QString not_ready = shown->stage == Stage::Guess ? tr("A plain plan, until the search has found the best one")
                                                         : tr("The answer to earlier inputs; the newest is not ready");
  verdict_->setToolTip(is_stale ? not_ready : QString());
  for (const Figure& figure : figures()) {
    set_text_color(*figure.value, is_stale ? theme_.text_weak : theme_.text);
  }
  bar_->show_report(shown->report.memory, state_.baseline() ? &state_.baseline()->report : nullptr);
  show_figures(*shown);
  const PeakMoment& peak = shown->report.memory.peak;
  QString moment;
  const MemoryReport& memory = shown->report.memory;
  const QString outside = missing_outside_text(memory);
  if (!outside.isEmpty()) {
    moment = outside;
  } else if (tight) {
    moment = tr("Runs without room to spare: %1.  ·  ").arg(text_of(render::tightness_of(memory)));
  }
  moment += tr("Peak in %1, at %2").arg(text_of(std::string(name_of(peak.phase))), text_of(peak.instruction));
  if (!peak.op.empty()) moment += tr(" (%1)").arg(text_of(peak.op));
  if (state_.measured()) moment += measured_text(*shown, *state_.measured());
  moment_text_ = moment;
  moment_->setToolTip(moment + "\n" + text_of(shown->explanation.binding) + "\n" + tr("Click to go there."));
  moment_->setAccessibleName(moment);
  set_text_color(*moment_, theme_.accent);
  show_what_has_room();
  show_assumptions(*shown);
  suggestions_->show_suggestions();
}

void VerdictBar::show_assumptions(const Snapshot& shown) {
  const std::size_t count = shown.report.assumptions.size();
  const Gpu& gpu = shown.cluster.gpu;
  const QString link = text_of(format_bandwidth(shown.cluster.intra_node.bandwidth.value));
  assumes_->setAccessibleName(tr("Assumes %1, %2 between GPUs  ·  see all %3").arg(text_of(gpu.name), link).arg(count));
  QStringList lines;
  for (const std::string& each : shown.report.assumptions) lines << text_of(each);
  assumes_->setToolTip(lines.join('\n') + "\n" + tr("Click to read them with the whole answer."));
  assumes_->setVisible(count > 0);
  show_moment();
}

void VerdictBar::show_moment() {
  constexpr int kNarrow = 760;
  assumes_->setText(width() < kNarrow ? tr("Assumes …") : assumes_->accessibleName());
  const int beside = assumes_->isHidden() ? 0 : assumes_->sizeHint().width() + 8;
  const int room = std::max(40, width() - 28 - beside);
  moment_->setText(moment_->fontMetrics().elidedText(moment_text_, Qt::ElideRight, room));
}

void VerdictBar::show_busy() {
  const bool is_busy = state_.is_busy();
  progress_->setVisible(is_busy);
  stop_->setVisible(is_busy && !state_.inputs().kept);
  if (!is_busy) progress_text_->clear();
}

void VerdictBar::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  show_what_has_room();
  show_moment();
}

void VerdictBar::show_what_has_room() {
  struct Part {
    QWidget* widget;
    int from;  // The part is shown if the window's work area is wider than this.
  };
  // The first one disappears first: in a narrow window the figures repeat the bar, and the verdict is never cut.
  const Part parts[] = {{bar_, 900},
                        {exposed_.title->parentWidget(), 880},
                        {host_.title->parentWidget(), has_host_ ? 760 : kNever},
                        {headroom_.title->parentWidget(), 740},
                        {step_.title->parentWidget(), 520}};
  const auto width_of = [&](const QWidget* part) {
    return kRowSpacing + (part == bar_ ? bar_->minimumWidth() : part->sizeHint().width());
  };
  peak_.value->setText(peak_text_);
  int needed = 2 * kSideMargin + verdict_->sizeHint().width() + width_of(peak_.title->parentWidget());
  if (needed > width()) peak_.value->setText(peak_short_);
  for (const Part& part : parts) {
    if (width() > part.from) needed += width_of(part.widget);
  }
  for (const Part& part : parts) {
    bool is_shown = width() > part.from;
    if (is_shown && needed > width()) {
      needed -= width_of(part.widget);
      is_shown = false;
    }
    part.widget->setVisible(is_shown);
  }
}

}  // namespace fsdp::gui
