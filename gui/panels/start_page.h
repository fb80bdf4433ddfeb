#pragma once

// What one sees first: open a file, go on with a recent one, or begin with an example.

#include <QLabel>
#include <QListWidget>
#include <QVBoxLayout>
#include <QWidget>
#include <string>
#include <vector>

#include "gui/state/inputs.h"

namespace fsdp::gui {

struct Example {
  QString title;
  QString text;
  Inputs inputs;
};

/// Shipped models on machines that they are usually trained on, and on one that is too small.
std::vector<Example> examples();

class StartPage : public QWidget {
  Q_OBJECT

 public:
  /// `library`: the folder of the shipped models.
  explicit StartPage(const std::string& library, QWidget* parent = nullptr);
  void show_recent(const QStringList& files);
  /// What was wrong with a file that was to be opened.
  void show_errors(const QString& text);

 signals:
  void example_chosen(int example);
  void model_chosen(QString name);
  void file_chosen(QString path);
  void open_wanted();

 private:
  void add_title(QVBoxLayout& column);
  void add_start(QVBoxLayout& column, const std::string& library);
  void add_examples(QVBoxLayout& column);

  QListWidget* recent_;
  QLabel* recent_title_;
  QLabel* errors_;
};

}  // namespace fsdp::gui
