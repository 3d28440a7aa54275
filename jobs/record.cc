#include "jobs/record.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status.h"

namespace espalier::jobs {
namespace {

constexpr size_t kMaxRecordBytes = 1 << 20;
constexpr size_t kIdDigits = 32;

}  // namespace

std::string NewId(std::string_view prefix) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) {
    std::random_device device;
    random = uint64_t{device()} << 32 | device();
  }
  return absl::StrCat(ToAbsl(prefix),
                      absl::Hex(absl::GetCurrentTimeNanos(), absl::kZeroPad16),
                      absl::Hex(random, absl::kZeroPad16));
}

bool IsId(std::string_view prefix, std::string_view id) {
  if (!id.starts_with(prefix)) return false;
  const std::string_view digits = id.substr(prefix.size());
  return digits.size() == kIdDigits &&
         digits.find_first_not_of("0123456789abcdef") == digits.npos;
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kUnavailable, "cannot make the folder ",
                   path, ": ", std::strerror(errno));
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end;
       !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (!error) return names;
  return MakeError(absl::StatusCode::kUnavailable, "cannot read ", folder, ": ",
                   error.message());
}

std::string IdOfRecord(std::string_view prefix, std::string_view name) {
  if (!name.ends_with(kRecordEnd)) return "";
  name.remove_suffix(kRecordEnd.size());
  return IsId(prefix, name) ? std::string(name) : "";
}

absl::StatusOr<json::object> ReadRecord(const std::string& path,
                                        std::vector<std::string_view> names) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxRecordBytes));
  const absl::StatusOr<json::value> record = ParseJson(text);
  names.push_back("owner");
  const bool is_good = record.ok() && record->is_object() &&
                       std::ranges::all_of(names, [&](std::string_view name) {
                         return record->get_object().contains(name);
                       });
  if (!is_good || !record->at("owner").is_string()) {
    return InvalidArgument(path, " is no record of files or batches");
  }
  return record->get_object();
}

std::string TenantOf(const json::object& record) {
  const json::value* const tenant = record.if_contains("tenant");
  const bool has_tenant = tenant != nullptr && tenant->is_string();
  return std::string((has_tenant ? *tenant : record.at("owner")).as_string());
}

void SetAside(const absl::Status& error, const WarnOfRecord& warn) {
  if (warn != nullptr) warn(Message(error) + "; it is left as it is");
}

int64_t UnixNow() { return absl::ToUnixSeconds(absl::Now()); }

}  // namespace espalier::jobs
