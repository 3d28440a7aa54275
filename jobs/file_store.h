// FileStore: the files of clients, in a folder on disk that outlives the
// server. Each belongs to an owner, and is found by that owner alone.
//
//   FOLDER/files/file-63d0...       the content
//   FOLDER/files/file-63d0....json  {"owner", "tenant", "file"}
//
// A file is named by a random id; what a client calls it is a value in its
// record and never part of a path. A content without a record, or a record
// without a content, is what a call that was cut off has left: it is removed
// when the store is opened.
//
// Thread safety: any thread calls anything.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/durable_file.h"
#include "jobs/record.h"
#include "jobs/tenant_shares.h"
#include "openai/stored_objects.h"

namespace espalier::jobs {

inline constexpr std::string_view kFilePrefix = "file-";

// Shared by tenants (tenant_shares.h).
struct FileLimits {
  int64_t max_files = 10'000;
  int64_t max_file_bytes = int64_t{200} << 20;  // an upload
  int64_t max_total_bytes = int64_t{10} << 30;  // results included
};

class FileStore;

// A file on its way into a store. It is removed unless it is added.
class Upload {
 public:
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // Errors: kInvalidArgument beyond max_file_bytes, kResourceExhausted beyond
  // max_total_bytes, kUnavailable with the system's reason.
  absl::Status Append(std::string_view bytes);

 private:
  friend class FileStore;
  Upload(FileStore* store, std::string tenant, std::string id,
         AppendedFile content);

  FileStore* const store_;  // outlives it
  const std::string tenant_;
  const std::string id_;
  AppendedFile content_;
  int64_t num_reserved_ = 0;  // bytes, of the store
  bool is_added_ = false;
};

class FileStore {
 public:
  // The folder is made if there is none; its last part alone.
  // Errors: kUnavailable with the system's reason; kFailedPrecondition if
  // another store has it open.
  static absl::StatusOr<std::unique_ptr<FileStore>> Open(
      const std::string& folder, const FileLimits& limits,
      const WarnOfRecord& warn = nullptr);
  // Use Open.
  FileStore(std::string folder, const FileLimits& limits);
  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  const FileLimits& limits() const { return limits_; }

  // `tenant`: the tenant whose share of the limits it uses; empty: no shares.
  // Errors: kResourceExhausted beyond max_files; kUnavailable.
  absl::StatusOr<std::unique_ptr<Upload>> BeginUpload(
      std::string_view tenant = "");
  // The upload becomes a file.
  // Errors: kUnavailable.
  absl::StatusOr<openai::StoredFile> Add(std::string_view owner,
                                         std::string_view filename,
                                         std::string_view purpose,
                                         Upload* upload);
  // Takes the file at `path`, which is moved, under this id, whatever the
  // limits. A call that was cut off or failed may be made again: nothing is
  // done if the file is neither at `path` nor moved already. Errors:
  // kUnavailable.
  absl::Status Adopt(std::string_view owner, std::string_view tenant,
                     const std::string& id, std::string_view filename,
                     std::string_view purpose, const std::string& path);

  // Errors: kNotFound unless the owner has it.
  absl::StatusOr<openai::StoredFile> Find(std::string_view owner,
                                          std::string_view id) const;
  // Oldest first.
  std::vector<openai::StoredFile> List(std::string_view owner) const;
  // Errors: as Find; kFailedPrecondition while it is held; kUnavailable.
  absl::Status Remove(std::string_view owner, std::string_view id);

  // A file that is held is not removed.
  // REQUIRES: Hold comes before Release.
  // Errors: as Find.
  absl::Status Hold(std::string_view owner, const std::string& id);
  void Release(const std::string& id);

  // REQUIRES: `id` is of a file.
  std::string PathOf(std::string_view id) const;

  // Counts bytes that are not of files, such as of results on their way: false
  // if `bytes` more are beyond max_total_bytes, which then are not counted.
  bool Reserve(std::string_view tenant, int64_t bytes);
  void GiveBack(std::string_view tenant, int64_t bytes);

 private:
  friend class Upload;
  struct Entry {
    std::string owner;
    std::string tenant;
    openai::StoredFile file;
  };

  absl::Status Lock(const std::string& path);
  absl::Status Load(const WarnOfRecord& warn);
  absl::StatusOr<Entry> ReadEntry(const std::string& id) const;
  std::string RecordOf(std::string_view id) const;
  absl::Status WriteRecord(const Entry& entry);
  const Entry* FindEntry(std::string_view owner, std::string_view id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string folder_;  // DIR/files/
  const FileLimits limits_;
  int lock_fd_ = -1;
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> files_ ABSL_GUARDED_BY(mutex_);
  std::multiset<std::string> held_ ABSL_GUARDED_BY(mutex_);
  TenantShares num_files_ ABSL_GUARDED_BY(mutex_);  // uploads included
  TenantShares num_bytes_ ABSL_GUARDED_BY(mutex_);  // reserved ones included
};

}  // namespace espalier::jobs
