#pragma once

// The evaluator on a thread of its own.
//
// Requests coalesce. The running evaluation finishes, then the newest request runs; those between never start. So a
// dragged slider repaints at the speed of the evaluator. Only the work after the answer (the search for a better plan,
// remedies, the front) is given up as soon as a new request arrives.

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

  /// Requests an answer to these inputs. Returns the id of its snapshots.
  std::uint64_t ask(const Inputs& inputs);

  /// Gives up the running search; the answers so far remain.
  void cancel();

  /// Number of started evaluations; requests that coalesced are not counted.
  std::int64_t num_started() const { return num_started_.load(); }

 signals:
  /// Emitted from the worker, queued, in the order in which the answers were made; ids never fall.
  void answered(fsdp::gui::SnapshotPtr snapshot);
  /// The inputs of this id have no answer.
  void failed(std::uint64_t id, fsdp::Errors errors);
  /// "searching: 12,345 of 73,530 plans ruled out or predicted"
  void progressed(QString text);
  /// The request of this id is done.
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
