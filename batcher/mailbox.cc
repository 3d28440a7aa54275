#include "batcher/mailbox.h"

namespace espalier {

std::shared_ptr<Mailbox> Mailbox::Create(
    const boost::asio::any_io_executor& executor,
    std::function<void()> on_end) {
  std::shared_ptr<Mailbox> mailbox(new Mailbox(std::move(on_end)));
  mailbox->link_ = std::make_unique<ContextLink>(
      executor, [weak = std::weak_ptr<Mailbox>(mailbox)] {
        if (const auto self = weak.lock()) self->OnContextEnd();
      });
  return mailbox;
}

Mailbox::Mailbox(std::function<void()> on_end) : on_end_(std::move(on_end)) {}

std::unique_ptr<WakeTimer> Mailbox::MakeTimer(std::function<void()> on_time) {
  std::unique_ptr<WakeTimer> timer;
  link_->WithExecutor([&](const boost::asio::any_io_executor& executor) {
    timer = std::make_unique<WakeTimer>(executor, std::move(on_time));
  });
  return timer;
}

void Mailbox::Enqueue(std::list<Work> work) noexcept {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (has_ended_) return;
    posted_.splice(posted_.end(), work);
    if (std::exchange(is_scheduled_, true)) return;
  }
  Schedule();
}

void Mailbox::Schedule() {
  UntilThereIsMemory(
      [this] { link_->Post([self = shared_from_this()] { self->Run(); }); });
}

// As in a strand: work posted meanwhile waits behind the context's other
// handlers.
void Mailbox::Run() {
  std::list<Work> batch;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    batch.swap(posted_);
  }
  while (!batch.empty()) {
    batch.front()();
    batch.pop_front();  // destroyed before the next one runs
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_scheduled_ = !posted_.empty();
    if (!is_scheduled_) return;
  }
  Schedule();
}

void Mailbox::OnContextEnd() {
  std::list<Work> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_ended_ = true;
    dropped.swap(posted_);
  }
  on_end_();
}

}  // namespace espalier
