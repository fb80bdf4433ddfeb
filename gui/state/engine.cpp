#include "gui/state/engine.h"

#include <exception>
#include <utility>

#include "render/render_search.h"

namespace fsdp::gui {

Engine::Engine(std::string library, QObject* parent) : QObject(parent), evaluator_(std::move(library)) {
  qRegisterMetaType<SnapshotPtr>();
  qRegisterMetaType<Errors>();
  qRegisterMetaType<std::uint64_t>("std::uint64_t");
  worker_ = std::thread([this] { work(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  wake_.notify_one();
  worker_.join();
}

std::uint64_t Engine::ask(const Inputs& inputs) {
  const std::uint64_t id = last_id_ += 2;  // Odd numbers are for what is canceled.
  {
    const std::lock_guard lock(mutex_);
    waiting_ = Request{id, inputs};
    newest_ = id;
  }
  wake_.notify_one();
  return id;
}

void Engine::cancel() {
  const std::lock_guard lock(mutex_);
  waiting_.reset();
  newest_ = last_id_ + 1;
}

void Engine::work() {
  while (true) {
    Request request;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return waiting_.has_value() || is_closing_.load(); });
      if (is_closing_) return;
      request = *std::move(waiting_);
      waiting_.reset();
    }
    try {
      answer(request);
    } catch (const std::exception& error) {
      emit failed(request.id,
                  {{"", std::string("The engine failed: ") + error.what(), "Change an input and try again."}});
    }
    emit finished(request.id);
  }
}

void Engine::answer(const Request& request) {
  ++num_started_;
  const auto send = [&](Snapshot snapshot) {
    snapshot.id = request.id;
    emit answered(std::make_shared<const Snapshot>(std::move(snapshot)));
  };
  std::optional<Snapshot> preview = evaluator_.preview(request.inputs);
  const bool has_preview = preview.has_value();
  if (has_preview) send(*std::move(preview));
  Watcher watcher;
  watcher.on_progress = [&](const planner::SearchProgress& progress) {
    emit progressed(QString::fromStdString(render::text_of(progress)));
  };
  watcher.should_stop = [&] { return is_overtaken(request.id); };
  watcher.on_answer = send;
  Result<Snapshot> snapshot = evaluator_.answer(request.inputs, watcher, !has_preview);
  // An abandoned request has an answer already, or a newer request will have one.
  if (is_overtaken(request.id)) return;
  if (snapshot) {
    send(*std::move(snapshot));
  } else {
    emit failed(request.id, snapshot.error());
  }
}

}  // namespace fsdp::gui
