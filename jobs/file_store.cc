#include "jobs/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "jobs/record.h"
#include "openai/error.h"

namespace espalier::jobs {
namespace {

absl::Status SystemError(std::string_view what, const std::string& path) {
  return MakeError(absl::StatusCode::kUnavailable, "cannot ", what, " ", path,
                   ": ", std::strerror(errno));
}

absl::Status NoFile(std::string_view id) {
  return NotFound("there is no file ", BytesInQuotes(id));
}

absl::StatusOr<int64_t> SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error) return static_cast<int64_t>(size);
  return MakeError(absl::StatusCode::kUnavailable, "cannot read ", path, ": ",
                   error.message());
}

}  // namespace

Upload::Upload(FileStore* store, std::string tenant, std::string id,
               AppendedFile content)
    : store_(store),
      tenant_(std::move(tenant)),
      id_(std::move(id)),
      content_(std::move(content)) {}

Upload::~Upload() {
  {
    const std::lock_guard<std::mutex> lock(store_->mutex_);
    if (is_added_) return;
    store_->num_files_.GiveBack(tenant_, 1);
    store_->num_bytes_.GiveBack(tenant_, num_reserved_);
  }
  RemoveFile(store_->PathOf(id_)).IgnoreError();
}

absl::Status Upload::Append(std::string_view bytes) {
  const int64_t count = std::ssize(bytes);
  const int64_t most = store_->limits_.max_file_bytes;
  if (content_.size() + count > most) {
    return openai::RefuseField("file",
                               Concat("file must have at most ", most,
                                      " bytes (--max-file-mib), got more"));
  }
  {
    const std::lock_guard<std::mutex> lock(store_->mutex_);
    RETURN_IF_ERROR(store_->num_bytes_.Check(tenant_, count));
    store_->num_bytes_.Take(tenant_, count);
    num_reserved_ += count;
  }
  return content_.Append(bytes);
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Open(
    const std::string& folder, const FileLimits& limits,
    const WarnOfRecord& warn) {
  RETURN_IF_ERROR(MakeFolder(folder));
  auto store = std::make_unique<FileStore>(folder + "/files", limits);
  RETURN_IF_ERROR(store->Lock(folder + "/lock"));
  RETURN_IF_ERROR(MakeFolder(store->folder_));
  RETURN_IF_ERROR(store->Load(warn));
  return store;
}

FileStore::FileStore(std::string folder, const FileLimits& limits)
    : folder_(std::move(folder) + "/"),
      limits_(limits),
      num_files_("files", "--max-files", limits.max_files),
      num_bytes_("bytes of files", "--max-files-mib", limits.max_total_bytes) {}

FileStore::~FileStore() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

absl::Status FileStore::Lock(const std::string& path) {
  lock_fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                  S_IRUSR | S_IWUSR);
  if (lock_fd_ < 0) return SystemError("open", path);
  if (flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return SystemError("lock", path);
  return FailedPrecondition("another server uses ", path);
}

absl::Status FileStore::Load(const WarnOfRecord& warn) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder_));
  std::set<std::string> kept;
  for (const std::string& name : names) {
    const std::string id = IdOfRecord(kFilePrefix, name);
    if (id.empty()) continue;
    absl::StatusOr<Entry> entry = ReadEntry(id);
    if (!entry.ok()) {
      SetAside(entry.status(), warn);
      kept.insert(id);
      continue;
    }
    if (!std::filesystem::exists(PathOf(id))) {
      RETURN_IF_ERROR(RemoveFile(RecordOf(id)));
      continue;
    }
    kept.insert(id);
    num_files_.Take(entry->tenant, 1);
    num_bytes_.Take(entry->tenant, entry->file.num_bytes);
    files_[id] = *std::move(entry);
  }
  for (const std::string& name : names) {
    const bool is_left = (IsId(kFilePrefix, name) && !kept.contains(name)) ||
                         name.ends_with(kNextEnd);
    if (is_left) RETURN_IF_ERROR(RemoveFile(folder_ + name));
  }
  return absl::OkStatus();
}

absl::StatusOr<FileStore::Entry> FileStore::ReadEntry(
    const std::string& id) const {
  const std::string path = RecordOf(id);
  ASSIGN_OR_RETURN(const json::object record, ReadRecord(path, {"file"}));
  absl::StatusOr<openai::StoredFile> file =
      openai::ReadStoredFile(record.at("file"));
  if (!file.ok()) return Annotate(file.status(), path);
  if (file->id != id || file->num_bytes < 0) {
    return InvalidArgument(path, " is no record of ", id);
  }
  return Entry{.owner = std::string(record.at("owner").as_string()),
               .tenant = TenantOf(record),
               .file = *std::move(file)};
}

absl::StatusOr<std::unique_ptr<Upload>> FileStore::BeginUpload(
    std::string_view tenant) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    RETURN_IF_ERROR(num_files_.Check(tenant, 1));
    num_files_.Take(tenant, 1);
  }
  const std::string id = NewId(kFilePrefix);
  absl::StatusOr<AppendedFile> content = AppendedFile::Open(PathOf(id), 0);
  if (!content.ok()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_files_.GiveBack(tenant, 1);
    return content.status();
  }
  return std::unique_ptr<Upload>(
      new Upload(this, std::string(tenant), id, *std::move(content)));
}

absl::StatusOr<openai::StoredFile> FileStore::Add(std::string_view owner,
                                                  std::string_view filename,
                                                  std::string_view purpose,
                                                  Upload* upload) {
  RETURN_IF_ERROR(upload->content_.Sync());
  const openai::StoredFile file = {.id = upload->id_,
                                   .filename = std::string(filename),
                                   .purpose = std::string(purpose),
                                   .num_bytes = upload->content_.size(),
                                   .created_at = UnixNow()};
  const Entry entry = {std::string(owner), upload->tenant_, file};
  const absl::Status written = WriteRecord(entry);
  if (!written.ok()) {
    // It may be there nonetheless, and the content is not.
    RemoveFile(RecordOf(file.id)).IgnoreError();
    return written;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  files_[file.id] = entry;
  upload->is_added_ = true;
  return file;
}

absl::Status FileStore::Adopt(std::string_view owner, std::string_view tenant,
                              const std::string& id, std::string_view filename,
                              std::string_view purpose,
                              const std::string& path) {
  // Also if it was moved before the call was cut off.
  const std::string content = PathOf(id);
  const bool is_moved = !std::filesystem::exists(path);
  if (is_moved && (Find(owner, id).ok() || !std::filesystem::exists(content))) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t num_bytes, SizeOf(is_moved ? content : path));
  const openai::StoredFile file = {.id = id,
                                   .filename = std::string(filename),
                                   .purpose = std::string(purpose),
                                   .num_bytes = num_bytes,
                                   .created_at = UnixNow()};
  const Entry adopted = {std::string(owner), std::string(tenant), file};
  // The record comes first, as a content without one is removed. It syncs the
  // folder, too.
  RETURN_IF_ERROR(WriteRecord(adopted));
  if (!is_moved) RETURN_IF_ERROR(MoveFile(path, content));
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [entry, is_new] = files_.insert({id, adopted});
  if (is_new) num_files_.Take(tenant, 1);
  if (!is_new) num_bytes_.GiveBack(tenant, entry->second.file.num_bytes);
  num_bytes_.Take(tenant, num_bytes);
  entry->second = adopted;
  return absl::OkStatus();
}

absl::Status FileStore::WriteRecord(const Entry& entry) {
  return ReplaceFile(RecordOf(entry.file.id),
                     WriteJson({{"owner", entry.owner},
                                {"tenant", entry.tenant},
                                {"file", openai::ToJson(entry.file)}}));
}

const FileStore::Entry* FileStore::FindEntry(std::string_view owner,
                                             std::string_view id) const {
  const auto found = files_.find(id);
  if (found == files_.end() || found->second.owner != owner) return nullptr;
  return &found->second;
}

absl::StatusOr<openai::StoredFile> FileStore::Find(std::string_view owner,
                                                   std::string_view id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Entry* const entry = FindEntry(owner, id);
  if (entry == nullptr) return NoFile(id);
  return entry->file;
}

std::vector<openai::StoredFile> FileStore::List(std::string_view owner) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<openai::StoredFile> files;
  for (const auto& [id, entry] : files_) {
    if (entry.owner == owner) files.push_back(entry.file);
  }
  return files;
}

absl::Status FileStore::Remove(std::string_view owner, std::string_view id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Entry* const entry = FindEntry(owner, id);
  if (entry == nullptr) return NoFile(id);
  if (held_.contains(std::string(id))) {
    return FailedPrecondition("the file ", BytesInQuotes(id),
                              " is the input of a batch that has not ended: "
                              "cancel the batch first");
  }
  RETURN_IF_ERROR(RemoveFile(RecordOf(id)));
  const absl::Status removed = RemoveFile(PathOf(id));
  num_files_.GiveBack(entry->tenant, 1);
  num_bytes_.GiveBack(entry->tenant, entry->file.num_bytes);
  files_.erase(std::string(id));
  return removed;
}

absl::Status FileStore::Hold(std::string_view owner, const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (FindEntry(owner, id) == nullptr) return NoFile(id);
  held_.insert(id);
  return absl::OkStatus();
}

void FileStore::Release(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = held_.find(id);
  if (found != held_.end()) held_.erase(found);
}

bool FileStore::Reserve(std::string_view tenant, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!num_bytes_.Check(tenant, bytes).ok()) return false;
  num_bytes_.Take(tenant, bytes);
  return true;
}

void FileStore::GiveBack(std::string_view tenant, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  num_bytes_.GiveBack(tenant, bytes);
}

std::string FileStore::PathOf(std::string_view id) const {
  return folder_ + std::string(id);
}

std::string FileStore::RecordOf(std::string_view id) const {
  return PathOf(id) + std::string(kRecordEnd);
}

}  // namespace espalier::jobs
