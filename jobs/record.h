// Records: what a store keeps of each of its objects, one in a file of JSON
// that is named by the object's id and has its "owner".
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier::jobs {

inline constexpr std::string_view kRecordEnd = ".json";

// Gets a line for each record that a store cannot read when it is opened. The
// record stays on the disk with what belongs to it, and the rest is served. And
// one for each batch that waits for a disk that fails.
using WarnOfRecord = std::function<void(const std::string& line)>;
void SetAside(const absl::Status& error, const WarnOfRecord& warn);

// In hexadecimal, after `prefix`: the time, so that ids are in the order of
// their objects, and 64 bits that cannot be predicted.
std::string NewId(std::string_view prefix);
// True if NewId may have returned it.
bool IsId(std::string_view prefix, std::string_view id);

// Errors: kUnavailable with the system's reason.
absl::Status MakeFolder(const std::string& path);

// The names in a folder.
// Errors: kUnavailable with the system's reason.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder);

// Returns the id in the name of a record's file; empty if it is no such name.
std::string IdOfRecord(std::string_view prefix, std::string_view name);

// Returns the members of a record. It has `names`, and "owner", a string.
// Errors: as ReadFile; kInvalidArgument naming the file.
absl::StatusOr<json::object> ReadRecord(const std::string& path,
                                        std::vector<std::string_view> names);

// Returns the tenant. Records of earlier versions have none: then the owner.
// REQUIRES: ReadRecord gave it.
std::string TenantOf(const json::object& record);

// Seconds since 1970.
int64_t UnixNow();

}  // namespace espalier::jobs
