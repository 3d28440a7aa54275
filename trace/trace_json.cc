#include "trace/trace_json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "request/read_json.h"

namespace espalier {
namespace {

// Returns `text` as well-formed UTF-8 for JSON.
json::string Utf8(std::string_view text) {
  if (IsUtf8(text)) return json::string(text.data(), text.size());
  json::string clean;
  for (size_t begin = 0; begin < text.size();) {
    size_t length = std::min<size_t>(4, text.size() - begin);
    while (length > 0 && !IsUtf8(text.substr(begin, length))) --length;
    const std::string_view piece =
        length > 0 ? text.substr(begin, length) : "\xEF\xBF\xBD";
    clean.append(json::string_view(piece.data(), piece.size()));
    begin += std::max<size_t>(length, 1);
  }
  return clean;
}

json::array Pages(const std::vector<PageId>& pages) {
  json::array array;
  for (const PageId page : pages) array.push_back(page.value);
  return array;
}

json::object Fields(const TraceRequest& event) {
  json::object object = {{"event", "request"},
                         {"request", event.request.value}};
  if (event.caller_id) object["id"] = Utf8(*event.caller_id);
  object["strategy"] = Utf8(event.strategy);
  object["params"] = event.params;
  object["prompt_tokens"] =
      json::array(event.prompt_tokens.begin(), event.prompt_tokens.end());
  object["prompt"] = Utf8(event.prompt);
  return object;
}

json::object Fields(const TraceCandidate& event) {
  json::object object = {
      {"event", "candidate"},   {"request", event.request.value},
      {"step", event.step},     {"node", event.node},
      {"parent", event.parent}, {"parent_slot", event.parent_slot}};
  if (event.slot) object["slot"] = *event.slot;
  object["token"] = event.token;
  object["text"] = Utf8(event.text);
  object["log_prob"] = JsonFloat(event.log_prob);
  object["cum_log_prob"] = JsonFloat(event.cum_log_prob);
  if (event.score) object["score"] = JsonFloat(*event.score);
  object["what"] = Name(event.fate);
  object["why"] = Utf8(event.why);
  return object;
}

json::object Fields(const TracePages& event) {
  json::array slots;
  for (const TraceSlotPages& slot : event.slots) {
    slots.push_back({{"slot", slot.slot},
                     {"node", slot.node},
                     {"pages", Pages(slot.pages)}});
  }
  json::object object = {{"event", "pages"},
                         {"request", event.request.value},
                         {"step", event.step},
                         {"shared", Pages(event.shared)},
                         {"slots", std::move(slots)},
                         {"num_held", event.num_held},
                         {"num_pages", event.num_pages}};
  if (!event.cached.empty()) object["cached"] = Pages(event.cached);
  json::array drafts;
  for (const std::vector<PageId>& pages : event.drafts) {
    drafts.push_back(Pages(pages));
  }
  if (!drafts.empty()) object["drafts"] = std::move(drafts);
  if (event.copied.empty()) return object;
  json::array copied;
  for (const TraceCopy& copy : event.copied) {
    copied.push_back({{"from", copy.from.value},
                      {"to", copy.to.value},
                      {"num_tokens", copy.num_tokens}});
  }
  object["copied"] = std::move(copied);
  return object;
}

json::object Fields(const TracePreempted& event) {
  return {{"event", "preempted"},
          {"request", event.request.value},
          {"step", event.step},
          {"num_pages", event.num_pages},
          {"nodes", json::array(event.nodes.begin(), event.nodes.end())}};
}

json::object Fields(const TraceResumed& event) {
  return {{"event", "resumed"},
          {"request", event.request.value},
          {"step", event.step},
          {"num_cached_tokens", event.num_cached_tokens},
          {"num_fed_tokens", event.num_fed_tokens},
          {"num_loaded_tokens", event.num_loaded_tokens}};
}

json::object Fields(const TraceLegal& event) {
  json::array rows;
  for (const TraceLegalRow& row : event.rows) {
    json::object object = {{"node", row.node},
                           {"state", row.state},
                           {"room", row.room},
                           {"num_legal", row.num_legal}};
    if (row.legal_log_mass) {
      object["legal_log_mass"] = JsonFloat(*row.legal_log_mass);
    }
    rows.push_back(std::move(object));
  }
  return {{"event", "legal"},
          {"request", event.request.value},
          {"rows", std::move(rows)}};
}

json::object Fields(const TraceEnd& event) {
  json::array hypotheses;
  for (const TraceHypothesis& hypothesis : event.hypotheses) {
    hypotheses.push_back({{"node", hypothesis.node},
                          {"score", JsonFloat(hypothesis.score)},
                          {"finish_reason", Utf8(hypothesis.finish_reason)}});
  }
  json::object object = {{"event", "end"},
                         {"request", event.request.value},
                         {"hypotheses", std::move(hypotheses)}};
  if (event.error) {
    object["error"] = {{"code", CodeName(event.error->code())},
                       {"message", Utf8(Message(*event.error))}};
  }
  return object;
}

// Truncates a file; true for a pipe or a device, which cannot be truncated.
bool CutToNothing(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 &&
         (!S_ISREG(info.st_mode) || ftruncate(fd, 0) == 0);
}

}  // namespace

std::string WriteTraceLine(const TraceEvent& event) {
  return WriteJson(std::visit([](const auto& e) { return Fields(e); }, event));
}

// Overloads in addition to those of read_json.h, which finds them for lists by
// argument-dependent lookup.
static absl::Status Read(std::string_view field, const json::value& value,
                         CandidateFate* out);
static absl::Status Read(std::string_view field, const json::value& value,
                         TraceSlotPages* out);
static absl::Status Read(std::string_view field, const json::value& value,
                         TraceCopy* out);
static absl::Status Read(std::string_view field, const json::value& value,
                         TraceLegalRow* out);
static absl::Status Read(std::string_view field, const json::value& value,
                         TraceHypothesis* out);
static absl::Status Read(std::string_view field, const json::value& value,
                         std::optional<absl::Status>* out);

namespace {

template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;

// A number that a float does not have is read as an infinite one, which could
// not be written.
template <typename T>
bool IsFinite(const T& value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::isfinite(value);
  } else if constexpr (std::is_same_v<T, std::optional<float>>) {
    return !value || std::isfinite(*value);
  } else {
    return true;
  }
}

// Reads the fields of one object. Finish() rejects fields that were not read.
class Reader {
 public:
  // `where` is put before the names of fields: "" or "slots[2].".
  Reader(std::string where, const json::object& object)
      : where_(std::move(where)), object_(object) {}

  // Reads a field into `*out`; it must be there unless `*out` is optional.
  template <typename T>
  Reader& Field(std::string_view name, T* out) {
    const bool is_there = object_.if_contains(name) != nullptr;
    if (error_.ok() && !is_there && !kIsOptional<T>) {
      error_ = InvalidArgument(where_, name, " is missing");
    }
    return OptionalField(name, out);
  }

  // Reads a field into `*out`; does not change `*out` if it is missing.
  template <typename T>
  Reader& OptionalField(std::string_view name, T* out) {
    names_.push_back(name);
    if (!error_.ok()) return *this;
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return *this;
    error_ = Read(Concat(where_, name), *value, out);
    if (error_.ok() && !IsFinite(*out)) {
      error_ = InvalidArgument(where_, name, " must be in the range of a ",
                               "32-bit float, got ", Shown(value));
    }
    return *this;
  }

  absl::Status first_error() const { return error_; }

  // Errors: the first error of a field; a field that was never read.
  absl::Status Finish() const {
    if (!error_.ok()) return error_;
    for (const auto& [key, value] : object_) {
      if (std::find(names_.begin(), names_.end(), key) == names_.end()) {
        return InvalidArgument("unknown field ", where_, Shown(key));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::string where_;
  const json::object& object_;
  std::vector<std::string_view> names_;
  absl::Status error_;
};

// Returns a reader of the object in `field`.
absl::StatusOr<Reader> Within(std::string_view field,
                              const json::value& value) {
  if (!value.is_object()) return WrongType(field, "an object", value);
  return Reader(Concat(field, "."), value.get_object());
}

}  // namespace

absl::Status Read(std::string_view field, const json::value& value,
                  CandidateFate* out) {
  for (const CandidateFate fate : {CandidateFate::kKept, CandidateFate::kPruned,
                                   CandidateFate::kFinished}) {
    if (!value.is_string() || value.get_string() != Name(fate)) continue;
    *out = fate;
    return absl::OkStatus();
  }
  if (value.is_string() && value.get_string() == "cut") {  // older traces
    *out = CandidateFate::kPruned;
    return absl::OkStatus();
  }
  return WrongType(field, "\"kept\", \"pruned\" or \"finished\"", value);
}

absl::Status Read(std::string_view field, const json::value& value,
                  TraceSlotPages* out) {
  ASSIGN_OR_RETURN(Reader reader, Within(field, value));
  return reader.Field("slot", &out->slot)
      .Field("node", &out->node)
      .Field("pages", &out->pages)
      .Finish();
}

absl::Status Read(std::string_view field, const json::value& value,
                  TraceCopy* out) {
  ASSIGN_OR_RETURN(Reader reader, Within(field, value));
  return reader.Field("from", &out->from)
      .Field("to", &out->to)
      .Field("num_tokens", &out->num_tokens)
      .Finish();
}

absl::Status Read(std::string_view field, const json::value& value,
                  TraceLegalRow* out) {
  ASSIGN_OR_RETURN(Reader reader, Within(field, value));
  return reader.Field("node", &out->node)
      .Field("state", &out->state)
      .Field("room", &out->room)
      .Field("num_legal", &out->num_legal)
      .Field("legal_log_mass", &out->legal_log_mass)
      .Finish();
}

absl::Status Read(std::string_view field, const json::value& value,
                  TraceHypothesis* out) {
  ASSIGN_OR_RETURN(Reader reader, Within(field, value));
  return reader.Field("node", &out->node)
      .Field("score", &out->score)
      .Field("finish_reason", &out->finish_reason)
      .Finish();
}

absl::Status Read(std::string_view field, const json::value& value,
                  std::optional<absl::Status>* out) {
  ASSIGN_OR_RETURN(Reader reader, Within(field, value));
  std::string name, message;
  RETURN_IF_ERROR(
      reader.Field("code", &name).Field("message", &message).Finish());
  for (int code = 1; code <= 16; ++code) {
    if (CodeName(static_cast<absl::StatusCode>(code)) != name) continue;
    *out = absl::Status(static_cast<absl::StatusCode>(code), ToAbsl(message));
    return absl::OkStatus();
  }
  return InvalidArgument(field, ".code is no code: ", Shown(name));
}

namespace {

// The caller has read the field "event" already.
absl::Status ReadFields(Reader& reader, TraceRequest* event) {
  return reader.Field("request", &event->request)
      .Field("id", &event->caller_id)
      .Field("strategy", &event->strategy)
      .Field("params", &event->params)
      .Field("prompt_tokens", &event->prompt_tokens)
      .Field("prompt", &event->prompt)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TraceCandidate* event) {
  return reader.Field("request", &event->request)
      .Field("step", &event->step)
      .Field("node", &event->node)
      .Field("parent", &event->parent)
      .Field("parent_slot", &event->parent_slot)
      .Field("slot", &event->slot)
      .Field("token", &event->token)
      .Field("text", &event->text)
      .Field("log_prob", &event->log_prob)
      .Field("cum_log_prob", &event->cum_log_prob)
      .Field("score", &event->score)
      .Field("what", &event->fate)
      .Field("why", &event->why)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TracePages* event) {
  return reader.Field("request", &event->request)
      .Field("step", &event->step)
      .Field("shared", &event->shared)
      .Field("slots", &event->slots)
      .OptionalField("drafts", &event->drafts)
      .OptionalField("cached", &event->cached)
      .OptionalField("copied", &event->copied)
      .Field("num_held", &event->num_held)
      .Field("num_pages", &event->num_pages)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TraceEnd* event) {
  return reader.Field("request", &event->request)
      .Field("hypotheses", &event->hypotheses)
      .Field("error", &event->error)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TracePreempted* event) {
  return reader.Field("request", &event->request)
      .Field("step", &event->step)
      .Field("num_pages", &event->num_pages)
      .Field("nodes", &event->nodes)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TraceResumed* event) {
  return reader.Field("request", &event->request)
      .Field("step", &event->step)
      .Field("num_cached_tokens", &event->num_cached_tokens)
      .Field("num_fed_tokens", &event->num_fed_tokens)
      .OptionalField("num_loaded_tokens", &event->num_loaded_tokens)
      .Finish();
}

absl::Status ReadFields(Reader& reader, TraceLegal* event) {
  return reader.Field("request", &event->request)
      .Field("rows", &event->rows)
      .Finish();
}

template <typename Event>
absl::StatusOr<TraceEvent> ReadEvent(Reader& reader) {
  Event event;
  RETURN_IF_ERROR(ReadFields(reader, &event));
  return TraceEvent(std::move(event));
}

}  // namespace

absl::StatusOr<TraceEvent> ParseTraceLine(std::string_view line) {
  ASSIGN_OR_RETURN(const json::value value, ParseJson(line));
  if (!value.is_object()) return WrongType("an event", "a JSON object", value);
  Reader reader("", value.get_object());
  std::string kind;
  reader.Field("event", &kind);
  if (kind == "request") return ReadEvent<TraceRequest>(reader);
  if (kind == "candidate") return ReadEvent<TraceCandidate>(reader);
  if (kind == "pages") return ReadEvent<TracePages>(reader);
  if (kind == "preempted") return ReadEvent<TracePreempted>(reader);
  if (kind == "resumed") return ReadEvent<TraceResumed>(reader);
  if (kind == "legal") return ReadEvent<TraceLegal>(reader);
  if (kind == "end") return ReadEvent<TraceEnd>(reader);
  if (!kind.empty()) return InvalidArgument("unknown event ", Shown(kind));
  RETURN_IF_ERROR(reader.first_error());
  return InvalidArgument("event must not be empty");
}

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Open(
    const std::string& path) {
  // To open a pipe without a reader would wait for one.
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  struct stat info;
  if (fd < 0 && errno == ENXIO && stat(path.c_str(), &info) == 0 &&
      S_ISFIFO(info.st_mode)) {
    return FailedPrecondition("cannot write ", path,
                              ": it is a pipe that nothing reads");
  }
  // Later writes wait for the reader.
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  FILE* const file = fd < 0 ? nullptr : fdopen(fd, "w");
  if (file == nullptr) {
    return FailedPrecondition("cannot write ", path, ": ",
                              std::strerror(errno));
  }
  return std::unique_ptr<TraceWriter>(new TraceWriter(file, path));
}

TraceWriter::TraceWriter(FILE* file, std::string path)
    : file_(file), path_(std::move(path)) {}

TraceWriter::~TraceWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

void TraceWriter::On(const TraceEvent& event) {
  if (file_ == nullptr || error_ != 0) return;
  if (std::exchange(is_first_, false) && !CutToNothing(fileno(file_))) {
    error_ = errno;
    return;
  }
  const std::string line = WriteTraceLine(event) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size()) {
    error_ = errno;
  }
}

absl::Status TraceWriter::Close() {
  if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0 &&
      error_ == 0) {
    error_ = errno;
  }
  if (error_ == 0) return absl::OkStatus();
  return Internal("cannot write ", path_,
                  " to its end: ", std::strerror(error_));
}

}  // namespace espalier
