// ServedModel: what a server answers with, once a model is loaded.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "espalier/generator.h"
#include "espalier/transcriber.h"
#include "openai/server_defaults.h"
#include "serve/load_report.h"
#include "text/chat/tool_call_format.h"

namespace espalier::serve {

// The engine's statistics, cached up to an age that the reader accepts, because
// every answer may report the load.
class LatestStats {
 public:
  explicit LatestStats(Engine* engine) : engine_(engine) {}

  // No older than `age`. Waits for no step.
  boost::asio::awaitable<std::shared_ptr<const EngineStats>> Read(
      absl::Duration age);

 private:
  Engine* const engine_;
  std::mutex mutex_;
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::shared_ptr<const EngineStats> stats_ ABSL_GUARDED_BY(mutex_);
};

// The format that the model's chat template teaches; kNone without one.
ToolCallFormat ToolCallFormatOfModel(const Generator& generator);

// Thread safety: any thread calls anything.
struct ServedModel {
  ServedModel(Generator loaded, std::string model_name,
              std::vector<std::string> other_names, std::string root_name,
              openai::ServerDefaults server_defaults,
              std::optional<ToolCallFormat> given_tool_call_format = {},
              std::string tokenizer_info_json = {},
              const std::string& directory = {})
      : generator(std::move(loaded)),
        name(std::move(model_name)),
        aliases(std::move(other_names)),
        root(std::move(root_name)),
        defaults(std::move(server_defaults)),
        tool_call_format(
            given_tool_call_format.value_or(ToolCallFormatOfModel(generator))),
        tokenizer_info(std::move(tokenizer_info_json)),
        transcriber(Transcriber::Create(
            std::shared_ptr<Generator>(std::shared_ptr<void>(), &generator),
            directory)),
        latest(&generator.engine()) {}

  Generator generator;
  const std::string name;  // as clients call it
  const std::vector<std::string> aliases;
  const std::string root;  // its directory
  const openai::ServerDefaults defaults;
  const ToolCallFormat tool_call_format;
  const std::string tokenizer_info;  // JSON; empty without a tokenizer
  // An error of a model that hears nothing, or lacks what a transcriber needs.
  const absl::StatusOr<Transcriber> transcriber;  // by the generator
  const absl::Time created = absl::Now();
  LatestStats latest;
  LoadMeter meter;  // load of generating calls
};

// True if the encoder reads audio, also if a transcriber lacks something.
bool ReadsAudio(const ServedModel& model);

// True if it is the name of the model or another name for it.
bool IsNameOf(const ServedModel& model, std::string_view name);

// Checks that `named`, the model of a call, is this one: one of its names, its
// directory, or empty.
// Errors: kNotFound naming both (openai::ModelNotFound).
absl::Status CheckServed(const ServedModel& model, const std::string& named);

// Checks that `named`, the model of a call of texts or tokens, is this one.
// Errors: as CheckServed; kInvalidArgument if the model reads audio, naming it
// and the route for that.
absl::Status CheckServesTexts(const ServedModel& model,
                              const std::string& named);

}  // namespace espalier::serve
