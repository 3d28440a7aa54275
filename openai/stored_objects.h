// The objects of /v1/files and /v1/batches in the JSON of OpenAI's API: files
// that clients upload, and batches of calls, whose results become files. A
// store keeps the same JSON.
//
// Thread safety: values; functions without state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier::openai {

struct StoredFile {
  std::string id;  // "file-..."
  std::string filename;
  std::string purpose;  // "batch", or of results "batch_output"
  int64_t num_bytes = 0;
  int64_t created_at = 0;  // seconds since 1970, as all times here
};

json::object ToJson(const StoredFile& file);
// Errors: kInvalidArgument saying what is wrong, usually naming the member.
absl::StatusOr<StoredFile> ReadStoredFile(const json::value& value);

enum class BatchStatus {
  kValidating,  // its input is checked
  kInProgress,
  kFinalizing,  // its results become files
  kCompleted,
  kFailed,      // its input is wrong, or there is no room for its results
  kCancelling,  // its calls end, and its results become files
  kCancelled,
  kExpired,
};
inline constexpr size_t kNumBatchStatuses = 8;

// Returns the name of a status in JSON, such as "in_progress".
std::string_view NameOf(BatchStatus status);
// True for statuses that no other follows.
bool IsFinal(BatchStatus status);

// An error in a line of a batch's input, or of the batch.
struct BatchError {
  std::string code;
  std::string message;
  std::optional<int64_t> line = {};  // from 1
  std::string param = {};            // member of the line; empty: none
};

struct Batch {
  std::string id;  // "batch_..."
  std::string endpoint;
  std::string input_file_id;
  std::string completion_window;
  json::object metadata;
  int64_t created_at = 0;
  int64_t expires_at = 0;
  BatchStatus status = BatchStatus::kValidating;
  // Time at which it reached each status; 0: it has not. The entry of
  // kValidating is unused: that time is created_at.
  std::array<int64_t, kNumBatchStatuses> reached_at = {};
  std::string output_file_id = {};  // empty: there is none
  std::string error_file_id = {};
  std::vector<BatchError> errors = {};
  int64_t num_calls = 0;
  int64_t num_completed = 0;
  int64_t num_failed = 0;
};

json::object ToJson(const Batch& batch);
// Errors: kInvalidArgument saying what is wrong, usually naming the member.
absl::StatusOr<Batch> ReadStoredBatch(const json::value& value);

// The body of POST /v1/batches.
struct BatchOrder {
  std::string endpoint = {};
  std::string input_file_id = {};
  std::string completion_window = {};
  int64_t window_seconds = 0;
  json::object metadata = {};
};
// Errors: kInvalidArgument naming the field and the value.
absl::StatusOr<BatchOrder> ReadBatchOrder(std::string_view body);

// A part of a list, by the query of a call: "limit=20&after=ID&order=asc". The
// newest object is first by default. Unknown fields are ignored.
struct ListQuery {
  int64_t limit = 0;
  std::string after = {};
  std::string purpose = {};  // files only; filtered by callers, not WriteList
  bool is_ascending = false;
};
// Errors: kInvalidArgument naming the field and the value.
absl::StatusOr<ListQuery> ReadListQuery(std::string_view query,
                                        int64_t max_limit,
                                        int64_t default_limit);

// Returns {"object": "list", "data", "first_id", "last_id", "has_more"} with
// the objects that the query selects.
// REQUIRES: `objects` are sorted, oldest first, and each has an "id".
// Errors: kNotFound if no object has the id `after`.
absl::StatusOr<std::string> WriteList(std::vector<json::object> objects,
                                      const ListQuery& query);

}  // namespace espalier::openai
