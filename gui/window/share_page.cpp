#include "gui/window/share_page.h"

#include "core/report/device_verdict.h"
#include "gui/charts/export_chart.h"
#include "gui/panels/answer_panel.h"
#include "gui/theme/figure_text.h"
#include "render/render_search.h"

namespace fsdp::gui {

namespace {

constexpr const char* kStyle =
    "body{margin:2rem auto;max-width:75rem;padding:0 1rem;font:15px/1.5 system-ui,sans-serif;color:#1b1f24;"
    "background:#fff}"
    "h1{font-size:1.4rem;margin:0}img{max-width:100%;height:auto;display:block;margin:1.2rem 0;border:1px solid "
    "#d0d7de}"
    "pre{overflow-x:auto;max-height:20rem;background:#f4f5f7;padding:.7rem}"
    "td,th{vertical-align:top;text-align:left;padding:.1rem 1.1rem .1rem 0}";

QString picture_of(PlotWidget& chart) {
  return QString("<img width=\"%1\" alt=\"%2\" src=\"data:image/png;base64,%3\">\n")
      .arg(chart.width())
      .arg((chart.title() + ": " + chart.caption()).toHtmlEscaped(), QString::fromLatin1(png_of(chart).toBase64()));
}

}  // namespace

QString page_to_share(const Inputs& inputs, const Snapshot& shown, std::span<PlotWidget* const> charts) {
  const StepReport& report = shown.report;
  const QString verdict = text_of(render::verdict_cell(report.verdict, is_tight(report)).text);
  const QString title =
      QObject::tr("%1 on %2: %3").arg(text_of(report.model), text_of(shown.cluster.name), verdict).toHtmlEscaped();
  QString page = QString(
                     "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>%1</title><style>%2</style>\n"
                     "<h1>%1</h1>\n")
                     .arg(title, kStyle);
  page += "<p>" +
          QObject::tr("%1 of %2, %3 a step")
              .arg(text_of(report.memory.peaks.device), text_of(report.memory.budget), text_of(report.time.step))
              .toHtmlEscaped() +
          "</p>\n";
  page += "<pre>" + text_of(command_of(inputs, plan_file_of(shown))).toHtmlEscaped() + "</pre>\n";
  for (PlotWidget* chart : charts) page += picture_of(*chart);
  return page + to_html(answer_of(shown)) + "\n</html>\n";
}

}  // namespace fsdp::gui
