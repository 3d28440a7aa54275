#include "batcher/context_link.h"

#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <unordered_set>

namespace espalier {

namespace asio = boost::asio;

// State that the links of one context share; outlives the context.
class ContextGate {
 public:
  static std::shared_ptr<ContextGate> Of(asio::execution_context& context);

  void Add(const std::shared_ptr<ContextLink::Entry>& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_open_) {
      entries_.insert(entry);
    } else {
      entry->ends.reset();
    }
  }

  void Remove(const std::shared_ptr<ContextLink::Entry>& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.erase(entry);
    entry->ends.reset();
  }

  // Called at the context's end.
  void Close() {
    std::unordered_set<std::shared_ptr<ContextLink::Entry>> entries;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_open_ = false;
      entries.swap(entries_);
      for (const auto& entry : entries) entry->ends.reset();
    }
    for (const auto& entry : entries) entry->on_end();
  }

  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  bool is_open_ = true;
  std::unordered_set<std::shared_ptr<ContextLink::Entry>> entries_;
};

namespace {

// Calls the gate when its context ends. asio shuts services down first, the
// youngest first, and the context's own scheduler is the oldest.
class GateService : public asio::execution_context::service {
 public:
  static asio::execution_context::id id;

  explicit GateService(asio::execution_context& context) : service(context) {}

  const std::shared_ptr<ContextGate>& gate() const { return gate_; }

 private:
  void shutdown() override { gate_->Close(); }

  const std::shared_ptr<ContextGate> gate_ = std::make_shared<ContextGate>();
};

asio::execution_context::id GateService::id;

}  // namespace

std::shared_ptr<ContextGate> ContextGate::Of(asio::execution_context& context) {
  return asio::use_service<GateService>(context).gate();
}

ContextLink::ContextLink(const Executor& executor, std::function<void()> on_end)
    : gate_(ContextGate::Of(asio::query(executor, asio::execution::context))),
      entry_(std::make_shared<Entry>(
          Entry{.ends = Ends{.executor = executor, .held = {}},
                .on_end = std::move(on_end)})) {
  gate_->Add(entry_);
}

ContextLink::~ContextLink() { gate_->Remove(entry_); }

std::mutex& ContextLink::mutex() const { return gate_->mutex(); }

void ContextLink::Hold() {
  const std::lock_guard<std::mutex> lock(mutex());
  if (!entry_->ends.has_value()) return;
  entry_->ends->held = asio::prefer(entry_->ends->executor,
                                    asio::execution::outstanding_work.tracked);
}

void ContextLink::Release() {
  const std::lock_guard<std::mutex> lock(mutex());
  if (entry_->ends.has_value()) entry_->ends->held.reset();
}

}  // namespace espalier
