#include "examples/cli/speculation_pairs.h"

#include <memory>
#include <utility>

#include "base/status.h"
#include "base/wording.h"
#include "beam/strategy/selection_options.h"
#include "examples/cli/input/line_reader.h"

namespace espalier::cli {

absl::Status OnLine(const absl::Status& status, const std::string& file,
                    int64_t line) {
  return Annotate(status, Concat(file, ", line ", line));
}

absl::Status SpeculationPairs::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> reader,
                   LineReader::Open(path));
  int64_t line = 0;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
    if (lines.empty()) break;
    for (const std::string& text : lines) {
      ++line;
      if (text.size() > kMaxLineBytes) {
        return OnLine(InvalidArgument("a line may have ", kMaxLineBytes,
                                      " bytes, this one has more"),
                      reader->name(), line);
      }
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      const absl::Status status = Add(text, line);
      if (!status.ok()) return OnLine(status, reader->name(), line);
    }
  }
  if (!pairs_.empty()) return absl::OkStatus();
  if (left_out_.empty()) {
    return InvalidArgument(reader->name(), " has no request");
  }
  return InvalidArgument(reader->name(),
                         " has no request that speculates: ", left_out_[0]);
}

absl::Status SpeculationPairs::Add(const std::string& text, int64_t line) {
  ASSIGN_OR_RETURN(RequestBody body, ParseRequestLine(text).body);
  const std::vector<GivenAlias> aliases = body.aliases;
  return InWordsOfLine(aliases, Complete(std::move(body), line));
}

absl::Status SpeculationPairs::Complete(RequestBody body, int64_t line) {
  // Checked before Complete() writes the defaults in: after that an error
  // cannot say which values are those.
  RETURN_IF_ERROR(runtime_.CheckParams(body.params, body.given).status());
  ASSIGN_OR_RETURN(body, runtime_.Complete(std::move(body)));
  GenerationParams& params = body.params;
  const bool says_so = params.speculate.has_value();
  if (params.do_sample || params.stochastic) {
    params.seed = params.seed.value_or(line);
  }
  // Or the second run would find the prompts of the first one in its pages.
  params.prefix_cache = false;
  params.cache_salt.clear();
  // What a deadline leaves depends on the clock.
  params.deadline_ms.reset();
  SpeculationPair pair = {
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
    pairs_.push_back(std::move(pair));
  }
  return absl::OkStatus();
}

}  // namespace espalier::cli
