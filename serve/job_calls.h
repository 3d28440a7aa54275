// JobCalls: the calls of /v1/files and /v1/batches.
//
// The functions that return the body of an answer may wait for the disk: Do
// runs them on a thread of its own.
//
// Thread safety: any thread calls anything.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "http/exchange.h"
#include "jobs/batches.h"
#include "jobs/file_store.h"
#include "serve/job_options.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

struct JobCall {
  std::string owner = {};
  std::string tenant = {};  // tenant whose limits apply
  std::string id = {};      // in the path
  std::string query = {};
  std::string body = {};
};

class JobCalls {
 public:
  // Errors: as jobs::FileStore::Open and jobs::Batches::Open.
  static absl::StatusOr<std::unique_ptr<JobCalls>> Open(
      const JobOptions& options);
  // Use Open.
  JobCalls() = default;

  // Errors: as jobs::Batches::Start.
  absl::Status Start(jobs::RunCall run) {
    return batches_->Start(std::move(run));
  }
  // Batches run no more from now on. Calls are still answered.
  void StopBatches() { batches_->Stop(); }
  // As StopBatches; and calls fail.
  void Stop();

  using Answer = absl::StatusOr<std::string> (JobCalls::*)(const JobCall&);
  boost::asio::awaitable<absl::StatusOr<std::string>> Do(Answer answer,
                                                         JobCall call);
  // Reads the body of POST /v1/files as it arrives. A file that is not added
  // leaves nothing.
  boost::asio::awaitable<absl::StatusOr<std::string>> AddFile(
      std::string owner, std::string tenant, http::Exchange& exchange);
  using Content = std::shared_ptr<std::ifstream>;
  boost::asio::awaitable<absl::StatusOr<Content>> OpenFile(JobCall call);
  // The next bytes; empty at the end.
  // Errors: kUnavailable.
  boost::asio::awaitable<absl::StatusOr<std::string>> ReadPiece(
      Content content);

  absl::StatusOr<std::string> ListFiles(const JobCall& call);
  absl::StatusOr<std::string> File(const JobCall& call);
  absl::StatusOr<std::string> RemoveFile(const JobCall& call);
  absl::StatusOr<std::string> CreateBatch(const JobCall& call);
  absl::StatusOr<std::string> ListBatches(const JobCall& call);
  absl::StatusOr<std::string> Batch(const JobCall& call);
  absl::StatusOr<std::string> CancelBatch(const JobCall& call);

 private:
  std::unique_ptr<jobs::FileStore> files_;
  std::unique_ptr<jobs::Batches> batches_;
  // As many may wait as requests of the engine do.
  WorkerThread filing_{"read and write files", /*max_waiting=*/1024};
};

}  // namespace espalier::serve
