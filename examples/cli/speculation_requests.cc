#include "examples/cli/speculation_requests.h"

#include <memory>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/runtime.h"

namespace espalier::cli {
namespace {

class RequestsReader {
 public:
  RequestsReader(const Runtime& runtime, const SpeculationParams& speculate)
      : runtime_(runtime), default_(speculate) {}

  absl::Status Read(const std::string& path);
  SpeculationRequests Take() && { return std::move(read_); }

 private:
  absl::Status Add(const std::string& text, int64_t line);
  absl::Status Complete(RequestBody body, int64_t line);
  void LeaveOut(int64_t line, std::string_view why) {
    read_.left_out.push_back(Concat("line ", line, ": ", why));
  }

  const Runtime& runtime_;
  const SpeculationParams default_;
  SpeculationRequests read_;
};

absl::Status RequestsReader::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(path));
  read_.file = reader->name();
  int64_t line = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (const std::string& text : lines) {
      ++line;
      if (text.size() > kMaxLineBytes) {
        return read_.OnLine(InvalidArgument("a line may have ", kMaxLineBytes,
                                            " bytes, this one has more"),
                            line);
      }
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      const absl::Status status = Add(text, line);
      if (!status.ok()) return read_.OnLine(status, line);
    }
  }
  if (!read_.requests.empty()) return absl::OkStatus();
  if (read_.left_out.empty()) {
    return InvalidArgument(read_.file, " has no request");
  }
  return InvalidArgument(
      read_.file, " has no request that speculates: ", read_.left_out[0]);
}

absl::Status RequestsReader::Add(const std::string& text, int64_t line) {
  ASSIGN_OR_RETURN(RequestBody body, ParseRequestLine(text).body);
  const std::vector<GivenAlias> aliases = body.aliases;
  return InWordsOfLine(aliases, Complete(std::move(body), line));
}

absl::Status RequestsReader::Complete(RequestBody body, int64_t line) {
  // Checked before Complete() writes the defaults in: after that an error
  // cannot say which values are those.
  RETURN_IF_ERROR(runtime_.CheckParams(body.params, body.given).status());
  ASSIGN_OR_RETURN(body, runtime_.Complete(std::move(body)));
  body.split_sentences = false;  // as where the model has defaults
  GenerationParams& params = body.params;
  const bool says_so = params.speculate.has_value();
  if (params.do_sample || params.stochastic) {
    params.seed = params.seed.value_or(line);
  }
  // Or the second run would find the prompts of the first one in its pages.
  params.prefix_cache = false;
  params.cache_salt.clear();
  // A deadline would make the result depend on the clock.
  params.deadline_ms.reset();
  SpeculationRequest pair = {
      .line = line, .without = body, .with = std::move(body)};
  pair.without.params.speculate = SpeculationParams();
  if (!says_so) pair.with.params.speculate = default_;
  const SpeculationParams& speculate = *pair.with.params.speculate;
  RETURN_IF_ERROR(
      runtime_.CheckParams(pair.without.params, pair.without.given).status());
  if (!says_so && !CanSpeculate(pair.with.params)) {
    LeaveOut(line,
             "a beam search with do_sample, stochastic or num_beam_groups "
             "never speculates");
    return absl::OkStatus();
  }
  const absl::Status checked =
      runtime_.CheckParams(pair.with.params, pair.with.given).status();
  if (!checked.ok() && says_so) return checked;
  if (!checked.ok()) {
    LeaveOut(line, Message(checked));
  } else if (speculate.method == SpeculationMethod::kNone) {
    LeaveOut(line, "its speculate is off");
  } else {
    pair.by_distribution = speculate.mode == SpeculationMode::kRejection &&
                           DrawsAtRandom(pair.with.params) &&
                           !IsBeamSearch(pair.with.params);
    read_.requests.push_back(std::move(pair));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SpeculationRequests::OnLine(const absl::Status& status,
                                         int64_t line) const {
  return Annotate(status, Concat(file, ", line ", line));
}

absl::StatusOr<SpeculationRequests> ReadSpeculationRequests(
    const Runtime& runtime, const SpeculationParams& speculate,
    const std::string& path) {
  RequestsReader reader(runtime, speculate);
  RETURN_IF_ERROR(reader.Read(path));
  return std::move(reader).Take();
}

}  // namespace espalier::cli
