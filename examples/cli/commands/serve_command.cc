#include "examples/cli/commands/serve_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/byte_order_mark.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "espalier/generator.h"
#include "espalier/voice_activity_file.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/loading_progress.h"
#include "examples/cli/output/output.h"
#include "examples/cli/runtime/interrupt.h"
#include "examples/cli/runtime/runtime.h"
#include "openai/resolve_params.h"
#include "openai/server_defaults.h"
#include "openai/settle_call.h"
#include "request/generation_defaults.h"
#include "request/param_fields.h"
#include "request/validate_search.h"
#include "serve/request_traces.h"
#include "serve/server.h"

namespace espalier::cli {
namespace {

constexpr size_t kMaxDefaultsBytes = 1 << 20;

absl::StatusOr<serve::ApiKeys> ReadApiKeys(const ServeOptions& options) {
  const char* const variable = std::getenv(kApiKeyVariable);
  const bool has_variable = variable != nullptr && *variable != '\0';
  if (options.api_key_file.empty()) {
    if (!has_variable) return serve::ApiKeys();
    return serve::ApiKeys::Of(variable, kApiKeyVariable);
  }
  if (has_variable) {
    return InvalidArgument("--api-key-file and the variable ", kApiKeyVariable,
                           " exclude each other");
  }
  absl::StatusOr<serve::ApiKeys> keys =
      serve::ApiKeys::Read(options.api_key_file);
  if (!keys.ok()) return Annotate(keys.status(), "--api-key-file");
  return keys;
}

// An error of the defaults together: of the flag that gives the field which it
// begins with, or what needs more of it, or else of the file.
absl::Status DefaultsErrorInFlags(const ServeOptions& options,
                                  const absl::Status& error) {
  if (error.ok()) return error;
  const std::string name = FieldErrorOf(error).value_or(FieldError()).field;
  const ParamField* const field =
      FindParamField(std::string_view(name).substr(0, name.find('.')));
  const bool is_flag =
      field != nullptr && options.params.contains(std::string(field->name));
  // The language of a flag may need more tokens than calls have by default.
  const bool is_room =
      name == "max_new_tokens" && options.params.contains("constraint");
  if (is_flag || is_room ||
      (name == "split_sentences" &&
       options.runtime.split_sentences.has_value())) {
    return options.runtime.names.InOptions(error);
  }
  if (options.defaults_file.empty()) {
    return Annotate(error, "defaults of requests");
  }
  return Annotate(error, Concat("--defaults: ", options.defaults_file));
}

// The file's, and over them those of flags.
absl::StatusOr<std::string> ReadDefaults(const ServeOptions& options,
                                         const openai::Limits& limits) {
  json::object defaults;
  if (!options.defaults_file.empty()) {
    const absl::StatusOr<std::string> file =
        ReadFile(options.defaults_file, kMaxDefaultsBytes);
    if (!file.ok()) return Annotate(file.status(), "--defaults");
    const std::string_view text = WithoutByteOrderMark(*file);
    const absl::StatusOr<json::value> value = ParseJson(text);
    if (!value.ok() || !value->is_object()) {
      return InvalidArgument("--defaults: ", options.defaults_file,
                             " must be a JSON object of fields of requests",
                             value.ok() ? "" : ": ", Message(value.status()));
    }
    defaults = value->get_object();
    RETURN_IF_ERROR(
        Annotate(openai::ServerDefaults::Read(text, limits).status(),
                 Concat("--defaults: ", options.defaults_file)));
  }
  ASSIGN_OR_RETURN(json::object flags,
                   ReadParamValues(options.params, options.runtime.names));
  if (const std::optional<bool>& split = options.runtime.split_sentences) {
    flags["split_sentences"] = *split;
  }
  RETURN_IF_ERROR(options.runtime.names.InOptions(
      openai::ServerDefaults::Read(WriteJson(flags), limits).status()));
  for (const auto& [name, value] : flags) {
    // The file may have it by its other name.
    if (const ParamField* const field = FindParamField(name)) {
      defaults.erase(field->name);
      defaults.erase(field->alias);
    }
    defaults[name] = value;
  }
  if (defaults.empty()) return "";
  const std::string json = WriteJson(defaults);
  RETURN_IF_ERROR(DefaultsErrorInFlags(
      options, openai::ServerDefaults::Read(json, limits).status()));
  return json;
}

// Returns the flag of a field of serve::ServerOptions that errors name.
std::string ServerFlag(std::string_view field) {
  if (field == "num_threads") return "--io-threads";
  if (field == "model_name" || field == "model_aliases") {
    return "--served-model-name";
  }
  if (field == "the name of the model's directory") {
    return "--model: the name of its directory";
  }
  return field == "host" || field == "port" || field == "files"
             ? Flag(field)
             : std::string(field);
}

// Names options of the program in an error of the server, which does not have
// them.
absl::Status ServerErrorInFlags(const absl::Status& error) {
  return InWordsOf({.option = ServerFlag}, error);
}

// Names the flag in an error of serving a model: that of the model's name, or
// else of the defaults.
absl::Status ServeErrorInFlags(const ServeOptions& options,
                               const absl::Status& error) {
  const std::string field = FieldErrorOf(error).value_or(FieldError()).field;
  return InFlags(ServerFlag(field) == field
                     ? DefaultsErrorInFlags(options, error)
                     : ServerErrorInFlags(error));
}

absl::StatusOr<Generator> LoadGenerator(const ServeOptions& options,
                                        std::shared_ptr<TraceSink> traces) {
  ASSIGN_OR_RETURN(GeneratorOptions generator_options,
                   ReadGeneratorOptions(options.runtime));
  LoadingProgress progress;
  generator_options.load_progress = [&](int64_t done, int64_t total) {
    progress.Update(done, total);
  };
  generator_options.load_note = PrintNote;
  generator_options.trace = std::move(traces);
  absl::StatusOr<Generator> generator =
      Generator::Load(options.runtime.model, generator_options);
  if (!generator.ok()) return LoadError(options.runtime, generator.status());
  const std::string warning = UnsupportedWarning(generator->defaults());
  if (!warning.empty()) {
    PrintToStderr(Concat("espalier: warning: ", warning, "\n"));
  }
  return generator;
}

// Errors: of beams or samples that every call which leaves them open would have
// by the model's defaults, and that are beyond the server's limits of a call,
// or that a step has no room for.
absl::Status CheckOpenCall(const ServeOptions& options,
                           const std::string& server_defaults,
                           const Generator& generator) {
  openai::ServerDefaults server;
  if (!server_defaults.empty()) {
    ASSIGN_OR_RETURN(server, openai::ServerDefaults::Read(
                                 server_defaults, options.server.requests));
  }
  const ModelDescription& model = generator.description();
  // Serve() reports errors in the server's own defaults.
  if (!server.Check(model).ok()) return absl::OkStatus();
  const openai::Call call = {.limits = options.server.requests};
  const ResolvedParams open =
      openai::ResolveParams(call, server, generator.defaults(), model,
                            /*num_prompt_tokens=*/1);
  absl::Status status = openai::CheckLimits(call, open.params, nullptr);
  if (status.ok()) status = ValidateSearch(model, open.params);
  return options.runtime.names.InOptions(
      NameModelDefaults(status, open.defaults, generator.defaults()));
}

// Each connection takes a descriptor, and the limit that a shell gives is for
// programs that use select.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Refuses a host that other machines can reach: the server has no API key.
absl::Status CheckReachedByNobodyElse(const std::string& host) {
  const absl::StatusOr<bool> is_local = serve::ReachesOnlyThisMachine(host);
  if (!is_local.ok()) return ServerErrorInFlags(is_local.status());
  if (*is_local) return absl::OkStatus();
  return InvalidArgument("--host ", host,
                         " lets others use the server without an API key: "
                         "give --api-key-file or ",
                         kApiKeyVariable, ", or --insecure if it is meant");
}

// The address of IPv4 that one of IPv6 stands for, or "".
std::string MappedAddress(const std::string& address) {
  namespace ip = boost::asio::ip;
  boost::system::error_code error;
  const ip::address_v6 parsed = ip::make_address_v6(address, error);
  if (error || !parsed.is_v4_mapped()) return "";
  return ip::make_address_v4(ip::v4_mapped, parsed).to_string();
}

// A URL or a part of one, such as [::1]:8000 or 127.0.0.1:8000, has a port. An
// IPv6 address has several colons, and no brackets here. A mapped IPv4 address
// must be given as IPv4.
absl::Status CheckHost(const std::string& host) {
  const bool is_in_brackets = host.starts_with('[') && host.ends_with(']');
  const std::string address =
      is_in_brackets ? host.substr(1, host.size() - 2) : host;
  const std::string mapped = MappedAddress(address);
  const bool is_of_url =
      host.find("://") != host.npos || host.find('[') != host.npos;
  if (mapped.empty() && !is_of_url && std::ranges::count(host, ':') != 1) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "--host must be a name or an address alone, got ", ShownInQuotes(host),
      !mapped.empty()                      ? Concat("; write ", mapped)
      : is_in_brackets && !address.empty() ? Concat("; write ", address)
                                           : "; the port is --port");
}

}  // namespace

absl::StatusOr<int> RunServe(const ServeOptions& options) {
  serve::ServerOptions server_options = options.server;
  ASSIGN_OR_RETURN(server_options.api_keys, ReadApiKeys(options));
  absl::StatusOr<serve::AllowedOrigins> origins =
      serve::AllowedOrigins::Make(options.allowed_origins);
  if (!origins.ok()) return Annotate(origins.status(), "--allowed-origin");
  server_options.allowed_origins = *std::move(origins);
  ASSIGN_OR_RETURN(server_options.defaults,
                   ReadDefaults(options, server_options.requests));
  std::shared_ptr<serve::RequestTraces> traces;
  if (options.traces.max_requests > 0) {
    RETURN_IF_ERROR(serve::CheckTraceLimits(options.traces));
    traces = std::make_shared<serve::RequestTraces>(options.traces);
    server_options.traces = traces;
  }
  if (options.logs_requests) server_options.request_log_fd = STDERR_FILENO;
  server_options.jobs.warn = [](const std::string& line) {
    PrintToStderr(Concat("espalier: warning: ", line, "\n"));
  };
  if (!options.vad_model.empty()) {
    auto network = LoadVoiceActivity(options.vad_model);
    if (!network.ok()) return Annotate(network.status(), "--vad-model");
    server_options.speech.voice_activity = *std::move(network);
  }
  RETURN_IF_ERROR(CheckHost(server_options.host));
  const bool is_open =
      server_options.api_keys.empty() && !server_options.insecure;
  if (is_open) RETURN_IF_ERROR(CheckReachedByNobodyElse(server_options.host));
  RETURN_IF_ERROR(ReadGeneratorOptions(options.runtime).status());
  RaiseDescriptorLimit();
  // The reader of stderr may leave: a server loses lines then, not requests.
  std::signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<std::unique_ptr<serve::Server>> server =
      serve::Server::Listen(server_options);
  if (!server.ok()) return ServerErrorInFlags(server.status());
  ASSIGN_OR_RETURN(Generator generator, LoadGenerator(options, traces));
  RETURN_IF_ERROR(CheckOpenCall(options, server_options.defaults, generator));
  // Signals are handled before the server reports that it is ready, because a
  // client may stop it right then. A second signal ends the program at once.
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  boost::asio::io_context context;
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::Listen(context, *output, [] {}));
  RETURN_IF_ERROR(ServeErrorInFlags(
      options, (*server)->Serve(std::move(generator), options.runtime.model)));
  PrintToStderr(Concat("espalier: listening on ", (*server)->url(), "\n"));
  context.run();
  PrintToStderr(
      "espalier: shutting down; Ctrl-C once more ends it at once (a signal "
      "that a program sends, from 2 s on)\n");
  const int num_cut = (*server)->Drain(options.drain_timeout);
  if (num_cut == 0) return kAllSucceeded;
  PrintToStderr(Concat("espalier: ", Pluralize(num_cut, "call"),
                       " cut off after --drain-timeout\n"));
  return kSomeFailed;
}

const char kServeExamples[] =
    R"(Examples:
  espalier serve -m models/en-fr
  espalier serve -m models/en-fr --num-beams 4 --port 0
  ESPALIER_API_KEY=$(openssl rand -hex 16) \
    espalier serve -m models/en-fr --host 0.0.0.0

  curl http://127.0.0.1:8000/v1/completions \
    -H 'Content-Type: application/json' \
    -d '{"prompt": "Where is the station?", "num_beams": 4, "n": 2}'
  curl -N http://127.0.0.1:8000/v1/completions \
    -H 'Content-Type: application/json' \
    -d '{"prompt": "It rains.", "num_beams": 4, "stream": true}'

When it is ready stderr says "listening on http://HOST:PORT"; a browser finds a
page there to try the model with. Routes: /v1/completions,
/v1/chat/completions, /v1/responses, /inference/v1/generate,
/generative_scoring, /v1/models, /tokenize, /detokenize, /health, /ready,
/metrics, /load, /version, with --files DIR /v1/files and /v1/batches, and of a
Whisper model /v1/audio/transcriptions and /v1/audio/translations.
Fields are those of OpenAI's API, vLLM's, and all options of espalier generate,
with _ for -; docs/server.md has them.

Options of generate are defaults of requests that leave them open, before the
model's generation_config.json.

Only this machine reaches the server unless --host says otherwise, and others
only with an API key: one a line in --api-key-file, or ESPALIER_API_KEY.

SIGTERM and Ctrl-C: it takes no more requests, answers those that run for
--drain-timeout, ends the others with an error, and exits: 0, or 1 if there were
others. A second signal ends it at once; one that a program sends, 2 s after the
first or later.)";

}  // namespace espalier::cli
