#pragma once

// The first page: open a file, continue with a recent one, or begin with an example.

#include <QComboBox>
#include <QLabel>
#include <QListWidget>
#include <QSpinBox>
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
  /// The machine for a model that names none (gui/state/machine.h); initially the shown one.
  QStringList machine() const;
  void set_machine(const QStringList& options);
  /// Shows the errors of a file that could not be opened.
  void show_errors(const QString& text);

 signals:
  void example_chosen(int example);
  void model_chosen(QString name);
  void file_chosen(QString path);
  void open_wanted();

 protected:
  /// Return presses the button that has the focus, as Space does.
  void keyPressEvent(QKeyEvent* event) override;

 private:
  void add_title(QVBoxLayout& column);
  void add_start(QVBoxLayout& column, const std::string& library);
  void add_machine(QVBoxLayout& column, const std::string& library);
  void add_examples(QVBoxLayout& column);
  void take_gpu(const QString& text);
  void show_machine();

  Inputs machine_;  ///< Its choices about machines.
  QComboBox* gpu_;
  QSpinBox* gpus_;
  QSpinBox* nodes_;
  QListWidget* recent_;
  QLabel* recent_title_;
  QLabel* errors_;
};

}  // namespace fsdp::gui
