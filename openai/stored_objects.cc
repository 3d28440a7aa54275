#include "openai/stored_objects.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/json_scan.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "openai/batch_lines.h"
#include "openai/error.h"
#include "openai/token_names.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kStatusNames[kNumBatchStatuses] = {
    "validating", "in_progress", "finalizing", "completed",
    "failed",     "cancelling",  "cancelled",  "expired"};
constexpr int64_t kMaxWindowHours = 24 * 30;
constexpr size_t kMaxWindowBytes = 4;  // "720h"
// As OpenAI's API has them: members, and characters of each.
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataKey = 64;
constexpr size_t kMaxMetadataValue = 512;

json::value OrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}
json::value OrNull(int64_t time) {
  return time == 0 ? json::value(nullptr) : json::value(time);
}

std::string ReachedName(size_t status) {
  return Concat(kStatusNames[status], "_at");
}

// Reads members of an object that a store wrote.
class StoredReader {
 public:
  explicit StoredReader(const json::value& value)
      : object_(value.is_object() ? &value.get_object() : nullptr) {
    if (object_ == nullptr) status_ = InvalidArgument("it is no object");
  }

  // Null ones are left as they are.
  template <typename T>
  void Read(std::string_view name, T* out) {
    if (!status_.ok()) return;
    const json::value* const value = object_->if_contains(name);
    if (value == nullptr) {
      status_ = InvalidField(FieldName{name}, " is not there");
    } else if (!value->is_null() && !Take(*value, out)) {
      status_ = WrongType(name, Wanted(out), *value);
    }
  }
  const json::value* Find(std::string_view name) const {
    return object_ == nullptr ? nullptr : object_->if_contains(name);
  }
  void Fail(std::string_view message) {
    if (status_.ok()) status_ = InvalidArgument(message);
  }
  const absl::Status& status() const { return status_; }

 private:
  const json::object* const object_;
  absl::Status status_;
};

json::value ErrorsToJson(const std::vector<BatchError>& errors) {
  if (errors.empty()) return nullptr;
  json::array data;
  for (const BatchError& error : errors) {
    data.push_back({{"code", error.code},
                    {"message", error.message},
                    {"param", OrNull(error.param)},
                    {"line", error.line ? json::value(*error.line)
                                        : json::value(nullptr)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

void ReadErrors(StoredReader* batch, std::vector<BatchError>* errors) {
  const json::value* const list = batch->Find("errors");
  if (list == nullptr || !list->is_object()) return;
  const json::value* const data = list->get_object().if_contains("data");
  if (data == nullptr || !data->is_array()) return batch->Fail("errors.data");
  for (const json::value& item : data->get_array()) {
    StoredReader reader(item);
    BatchError& error = errors->emplace_back();
    reader.Read("code", &error.code);
    reader.Read("message", &error.message);
    reader.Read("param", &error.param);
    int64_t line = 0;
    reader.Read("line", &line);
    if (line > 0) error.line = line;
    if (!reader.status().ok()) batch->Fail(Message(reader.status()));
  }
}

// "24h": whole hours. SimpleAtoi would take zeros without end.
absl::Status ReadWindow(BatchOrder* order) {
  const std::string& window = order->completion_window;
  int64_t hours = 0;
  const bool is_good =
      window.ends_with('h') && window.size() <= kMaxWindowBytes &&
      absl::SimpleAtoi(window.substr(0, window.size() - 1), &hours) &&
      hours >= 1 && hours <= kMaxWindowHours;
  if (!is_good) {
    return InvalidArgument("completion_window must be 1h to ", kMaxWindowHours,
                           "h, such as \"24h\", got ", ShownInQuotes(window));
  }
  order->window_seconds = hours * 3600;
  return absl::OkStatus();
}

absl::Status ReadMetadata(const JsonText& json, json::object* metadata) {
  ASSIGN_OR_RETURN(const json::value value, ReadAny("metadata", json));
  if (!value.is_object()) return WrongType("metadata", "an object", json.text);
  *metadata = value.get_object();
  if (metadata->size() > kMaxMetadata) {
    return InvalidField("`metadata` must have at most ", Limit(kMaxMetadata),
                        " members", Got(metadata->size()));
  }
  for (const auto& [key, member] : *metadata) {
    const size_t key_size = CountCharacters(key);
    if (key_size > kMaxMetadataKey) {
      return InvalidArgument("a key of metadata must have at most ",
                             kMaxMetadataKey, " characters, got ", key_size);
    }
    const std::string name = Concat("metadata.", Shown(key));
    if (!member.is_string()) return WrongType(name, "a string", member);
    const size_t value_size = CountCharacters(member.get_string());
    if (value_size > kMaxMetadataValue) {
      return InvalidField(FieldName{name}, " must have at most ",
                          Limit(kMaxMetadataValue), " characters",
                          Got(value_size));
    }
  }
  return absl::OkStatus();
}

// Returns the error with the path that it names as `param`, or else `field`.
absl::Status OfField(std::string_view field, const absl::Status& error) {
  if (error.ok()) return error;
  const std::optional<FieldError> wrong = FieldErrorOf(error);
  return WithParam(error, wrong && !wrong->path.empty() ? wrong->path : field);
}

absl::Status ReadOrderField(const std::string& key, const JsonText& value,
                            BatchOrder* order) {
  if (value.is_null()) return absl::OkStatus();
  if (key == "endpoint") return Read(key, value, &order->endpoint);
  if (key == "input_file_id") return Read(key, value, &order->input_file_id);
  if (key == "completion_window") {
    return Read(key, value, &order->completion_window);
  }
  if (key == "metadata") return ReadMetadata(value, &order->metadata);
  return InvalidArgument(ShownInQuotes(key),
                         " is not supported for a batch, got ",
                         Shown(value.text));
}

}  // namespace

json::object ToJson(const StoredFile& file) {
  return {{"id", file.id},
          {"object", "file"},
          {"bytes", file.num_bytes},
          {"created_at", file.created_at},
          {"expires_at", nullptr},
          {"filename", file.filename},
          {"purpose", file.purpose},
          {"status", "processed"},
          {"status_details", nullptr}};
}

absl::StatusOr<StoredFile> ReadStoredFile(const json::value& value) {
  StoredReader reader(value);
  StoredFile file;
  reader.Read("id", &file.id);
  reader.Read("bytes", &file.num_bytes);
  reader.Read("created_at", &file.created_at);
  reader.Read("filename", &file.filename);
  reader.Read("purpose", &file.purpose);
  if (!reader.status().ok()) return reader.status();
  return file;
}

std::string_view NameOf(BatchStatus status) {
  return kStatusNames[static_cast<size_t>(status)];
}

bool IsFinal(BatchStatus status) {
  return status == BatchStatus::kCompleted || status == BatchStatus::kFailed ||
         status == BatchStatus::kCancelled || status == BatchStatus::kExpired;
}

json::object ToJson(const Batch& batch) {
  json::object json = {
      {"id", batch.id},
      {"object", "batch"},
      {"endpoint", batch.endpoint},
      {"errors", ErrorsToJson(batch.errors)},
      {"input_file_id", batch.input_file_id},
      {"completion_window", batch.completion_window},
      {"status", NameOf(batch.status)},
      {"output_file_id", OrNull(batch.output_file_id)},
      {"error_file_id", OrNull(batch.error_file_id)},
      {"created_at", batch.created_at},
      {"expires_at", batch.expires_at},
      {"request_counts",
       {{"total", batch.num_calls},
        {"completed", batch.num_completed},
        {"failed", batch.num_failed}}},
      {"metadata", batch.metadata.empty() ? json::value(nullptr)
                                          : json::value(batch.metadata)}};
  for (size_t i = 1; i < kNumBatchStatuses; ++i) {
    json[ReachedName(i)] = OrNull(batch.reached_at[i]);
  }
  return json;
}

absl::StatusOr<Batch> ReadStoredBatch(const json::value& value) {
  StoredReader reader(value);
  Batch batch;
  std::string status;
  reader.Read("id", &batch.id);
  reader.Read("endpoint", &batch.endpoint);
  reader.Read("input_file_id", &batch.input_file_id);
  reader.Read("completion_window", &batch.completion_window);
  reader.Read("status", &status);
  reader.Read("output_file_id", &batch.output_file_id);
  reader.Read("error_file_id", &batch.error_file_id);
  reader.Read("created_at", &batch.created_at);
  reader.Read("expires_at", &batch.expires_at);
  reader.Read("metadata", &batch.metadata);
  for (size_t i = 1; i < kNumBatchStatuses; ++i) {
    reader.Read(ReachedName(i), &batch.reached_at[i]);
  }
  ReadErrors(&reader, &batch.errors);
  if (const json::value* const counts = reader.Find("request_counts")) {
    StoredReader count_reader(*counts);
    count_reader.Read("total", &batch.num_calls);
    count_reader.Read("completed", &batch.num_completed);
    count_reader.Read("failed", &batch.num_failed);
    if (!count_reader.status().ok()) reader.Fail("request_counts");
  }
  const auto* const name = std::ranges::find(kStatusNames, status);
  if (name == std::end(kStatusNames)) reader.Fail("status is not known");
  if (!reader.status().ok()) return reader.status();
  batch.status = static_cast<BatchStatus>(name - std::begin(kStatusNames));
  return batch;
}

absl::StatusOr<BatchOrder> ReadBatchOrder(std::string_view body) {
  const auto ignore = [](int, std::string_view, const JsonText&) {};
  ASSIGN_OR_RETURN(const JsonText json, ScanJson(body, 0, ignore));
  if (!json.is_object()) return WrongType("the body", "an object", json.text);
  BatchOrder order;
  order.completion_window = "24h";
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {.text = items.value(),
                            .max_members = json.max_members};
    const std::string key = Unquoted(items.key());
    RETURN_IF_ERROR(OfField(key, ReadOrderField(key, value, &order)));
  }
  if (order.input_file_id.empty()) {
    return RefuseField("input_file_id",
                       "input_file_id must be there, got nothing");
  }
  RETURN_IF_ERROR(OfField("endpoint", CheckBatchEndpoint(order.endpoint)));
  RETURN_IF_ERROR(OfField("completion_window", ReadWindow(&order)));
  return order;
}

absl::StatusOr<ListQuery> ReadListQuery(std::string_view query,
                                        int64_t max_limit,
                                        int64_t default_limit) {
  ListQuery list = {.limit = default_limit};
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view field = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t sign = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, sign);
    const std::string_view value =
        field.substr(std::min(sign + 1, field.size()));
    if (name == "limit") {
      if (!absl::SimpleAtoi(ToAbsl(value), &list.limit) || list.limit < 1 ||
          list.limit > max_limit) {
        return RefuseField("limit", Concat("limit must be in [1, ", max_limit,
                                           "], got ", BytesInQuotes(value)));
      }
    } else if (name == "after") {
      list.after = value;
    } else if (name == "purpose") {
      list.purpose = value;
    } else if (name == "order") {
      if (value != "asc" && value != "desc") {
        return RefuseField("order", Concat("order must be asc or desc, got ",
                                           BytesInQuotes(value)));
      }
      list.is_ascending = value == "asc";
    }
  }
  return list;
}

absl::StatusOr<std::string> WriteList(std::vector<json::object> objects,
                                      const ListQuery& query) {
  if (!query.is_ascending) std::ranges::reverse(objects);
  auto begin = objects.begin();
  if (!query.after.empty()) {
    begin = std::ranges::find_if(objects, [&](const json::object& object) {
      return object.at("id") == json::string_view(query.after);
    });
    if (begin == objects.end()) {
      return WithParam(
          NotFound("after: there is no ", BytesInQuotes(query.after)), "after");
    }
    ++begin;
  }
  const int64_t count = std::min<int64_t>(query.limit, objects.end() - begin);
  json::array data(begin, begin + count);
  const json::value first = count > 0 ? data.front().at("id") : nullptr;
  const json::value last = count > 0 ? data.back().at("id") : nullptr;
  return WriteJson({{"object", "list"},
                    {"data", std::move(data)},
                    {"first_id", first},
                    {"last_id", last},
                    {"has_more", begin + count < objects.end()}});
}

}  // namespace espalier::openai
