#pragma once

// The evaluator on a thread of its own.
//
// Requests coalesce: what runs is finished, then the newest request runs, and those between are never started; so a
// slider that is dragged repaints at the speed of the evaluator and no faster. Only what comes after the answer (the
// search for a better plan, remedies, the front) is given up as soon as somebody asks for something else.

#include <QObject>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gui/state/evaluate.h"
#include "gui/state/inputs.h"
#include "gui/state/snapshot.h"

namespace fsdp::gui {

class Engine : public QObject {
  Q_OBJECT

 public:
  explicit Engine(std::string library, QObject* parent = nullptr);
  ~Engine() override;

  /// Asks for an answer to these inputs. Returns the id that its snapshots will have.
  std::uint64_t ask(const Inputs& inputs);

  /// Gives up the running search; what was answered so far stays.
  void cancel();

  /// Answers that the evaluator was started for, so far: what coalescing leaves out is not counted.
  std::int64_t num_started() const { return num_started_.load(); }

 signals:
  /// From the worker, queued: in the order in which the answers were made; ids never fall.
  void answered(fsdp::gui::SnapshotPtr snapshot);
  /// The inputs of this id have no answer.
  void failed(std::uint64_t id, fsdp::Errors errors);
  /// "searching: 12,345 of 73,530 plans ruled out or predicted"
  void progressed(QString text);
  /// The request of this id needs nothing more.
  void finished(std::uint64_t id);

 private:
  struct Request {
    std::uint64_t id = 0;
    Inputs inputs;
  };

  void work();
  void answer(const Request& request);
  bool is_overtaken(std::uint64_t id) const { return newest_.load() != id || is_closing_.load(); }

  Evaluator evaluator_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Request> waiting_;        // Guarded by mutex_.
  std::atomic<std::uint64_t> newest_{0};  // Id of the newest request, or one above it after cancel().
  std::atomic<bool> is_closing_{false};
  std::atomic<std::int64_t> num_started_{0};
  std::uint64_t last_id_ = 0;
  std::thread worker_;
};

}  // namespace fsdp::gui

Q_DECLARE_METATYPE(fsdp::gui::SnapshotPtr)
