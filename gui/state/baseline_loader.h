#pragma once

// Answers another file, to pin it as the baseline, while the window continues with its own.

#include <QObject>
#include <QString>
#include <memory>
#include <string>

#include "gui/state/engine.h"

namespace fsdp::gui {

class BaselineLoader : public QObject {
  Q_OBJECT

 public:
  /// `library`: the folder of the shipped models.
  explicit BaselineLoader(std::string library, QObject* parent = nullptr);

  bool is_busy() const { return is_busy_; }
  /// Starts to answer, and gives up an answer that is still pending. `name`: the display name.
  void load(const Inputs& inputs, const QString& name);

 signals:
  void loaded(SnapshotPtr baseline, QString name);
  void failed(Errors errors);

 private:
  std::string library_;
  QString name_;
  SnapshotPtr best_;  ///< The last answer so far.
  Errors errors_;
  std::uint64_t asked_ = 0;
  bool is_busy_ = false;
  std::unique_ptr<Engine> engine_;  ///< Made for the first comparison, because a worker costs a thread.
};

}  // namespace fsdp::gui
