// Writing: lines, and files of them. trace_json_read.cc reads.
#include "trace/trace_json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/status.h"

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

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::Open(
    const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
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
