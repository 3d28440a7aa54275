#include "benchmarks/speculate/speculation_requests.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "espalier/chat_prompts.h"
#include "request/bad_words.h"
#include "request/json/request_json.h"
#include "text/chat/final_message.h"

namespace espalier::verify_speculation {

namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxLineBytes = size_t{16} << 20;

class RequestsReader {
 public:
  RequestsReader(const Generator& generator, const SpeculationParams& speculate)
      : generator_(generator), default_(speculate) {}

  absl::Status Read(const std::string& path);
  SpeculationRequests Take() && { return std::move(read_); }

 private:
  absl::Status Add(std::string_view text, int64_t line);
  absl::Status AddBody(RequestBody body, int64_t line);
  absl::StatusOr<Prompt> MakePrompt(RequestBody* body) const;
  // The request as the engine gets it.
  // Errors: as Generator::Generate.
  absl::StatusOr<Request> Check(const GenerationRequest& request) const;
  void LeaveOut(int64_t line, std::string_view why) {
    read_.left_out.push_back(Concat("line ", line, ": ", why));
  }

  const Generator& generator_;
  const SpeculationParams default_;
  SpeculationRequests read_;
};

absl::Status RequestsReader::Read(const std::string& path) {
  read_.file = path == "-" ? "stdin" : path;
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadToEnd(path == "-" ? "/dev/stdin" : path, kMaxFileBytes));
  int64_t line = 0;
  for (const absl::string_view part : absl::StrSplit(bytes, '\n')) {
    const std::string_view text(part.data(), part.size());
    ++line;
    if (text.size() > kMaxLineBytes) {
      return read_.OnLine(InvalidArgument("a line may have ", kMaxLineBytes,
                                          " bytes, this one has more"),
                          line);
    }
    if (text.find_first_not_of(" \t\r") == text.npos) continue;
    const absl::Status status = Add(text, line);
    if (!status.ok()) return read_.OnLine(status, line);
  }
  if (!read_.requests.empty()) return absl::OkStatus();
  if (read_.left_out.empty()) {
    return InvalidArgument(read_.file, " has no request");
  }
  return InvalidArgument(
      read_.file, " has no request that speculates: ", read_.left_out[0]);
}

absl::Status RequestsReader::Add(std::string_view text, int64_t line) {
  ASSIGN_OR_RETURN(RequestBody body, ParseRequestLine(text).body);
  const std::vector<GivenParam> aliases = body.aliases;
  return InWordsOfLine(aliases, AddBody(std::move(body), line));
}

absl::StatusOr<Prompt> RequestsReader::MakePrompt(RequestBody* body) const {
  if (body->messages) {
    ASSIGN_OR_RETURN(const ChatPrompts* const chat, generator_.chat_prompts());
    ChatInputs inputs = {.messages = *std::move(body->messages)};
    RETURN_IF_ERROR(SettleFinalMessage(body->continue_final_message,
                                       /*adds_prompt=*/nullptr, &inputs));
    ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                     chat->Make(std::move(inputs),
                                generator_.description().max_prompt_tokens()));
    return Prompt::OfChat(std::move(tokens));
  }
  if (!body->prompt) return Prompt(std::move(body->prompt_tokens));
  Prompt prompt =
      Prompt::Templated(*std::move(body->prompt), body->template_name);
  if (body->parse_special) return std::move(prompt).WithSpecialParsed();
  return prompt;
}

absl::StatusOr<Request> RequestsReader::Check(
    const GenerationRequest& request) const {
  ASSIGN_OR_RETURN(EngineRequest prepared, generator_.Prepare(request));
  RETURN_IF_ERROR(
      ResolveBadWords(generator_.tokenizer().get(), &prepared.request.params));
  RETURN_IF_ERROR(ValidateRequest(generator_.description(), &prepared.request));
  return std::move(prepared.request);
}

absl::Status RequestsReader::AddBody(RequestBody body, int64_t line) {
  ASSIGN_OR_RETURN(const Prompt prompt, MakePrompt(&body));
  GenerationParams params = std::move(body.params);
  // Otherwise the second run would find the prompts of the first one in its
  // pages.
  params.prefix_cache = false;
  params.cache_salt.clear();
  // A deadline would make the result depend on the clock.
  params.deadline_ms.reset();
  const std::optional<SpeculationParams> own = params.speculate;
  params.speculate = SpeculationParams();
  ASSIGN_OR_RETURN(Request checked, Check({prompt, params}));
  if (checked.params.do_sample || checked.params.stochastic) {
    params.seed = params.seed.value_or(line);
  }
  SpeculationRequest pair = {.line = line,
                             .without = {prompt, params},
                             .with = {prompt, params},
                             .num_sequences = NumSequences(checked.params),
                             .is_beam_search = IsBeamSearch(checked.params)};
  pair.with.params.speculate = own.value_or(default_);
  const SpeculationParams& speculate = *pair.with.params.speculate;
  if (!own && !CanSpeculate(checked.params)) {
    LeaveOut(line,
             "a beam search with do_sample, stochastic or num_beam_groups "
             "never speculates");
    return absl::OkStatus();
  }
  const absl::Status with = Check(pair.with).status();
  if (!with.ok() && own) return with;
  if (!with.ok()) {
    LeaveOut(line, Message(with));
  } else if (speculate.method == SpeculationMethod::kNone) {
    LeaveOut(line, "its speculate is off");
  } else {
    pair.by_distribution = speculate.mode == SpeculationMode::kRejection &&
                           DrawsAtRandom(checked.params) &&
                           !pair.is_beam_search;
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
    const Generator& generator, const SpeculationParams& speculate,
    const std::string& path) {
  RequestsReader reader(generator, speculate);
  RETURN_IF_ERROR(reader.Read(path));
  return std::move(reader).Take();
}

}  // namespace espalier::verify_speculation
