#include "serve/served_model.h"

#include <algorithm>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "espalier/chat.h"
#include "openai/error.h"

namespace espalier::serve {

boost::asio::awaitable<std::shared_ptr<const EngineStats>> LatestStats::Read(
    absl::Duration age) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (SteadyNow() - read_at_ <= age) co_return stats_;
  }
  EngineStats read = co_await engine_->Stats();
  const auto stats = std::make_shared<const EngineStats>(std::move(read));
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_ = stats;
  read_at_ = SteadyNow();
  co_return stats;
}

ToolCallFormat ToolCallFormatOfModel(const Generator& generator) {
  const absl::StatusOr<const ChatPrompts*> chat = generator.chat_prompts();
  if (!chat.ok()) return ToolCallFormat::kNone;
  return ToolCallFormatOf((*chat)->chat_template().source(),
                          *generator.tokenizer());
}

bool ReadsAudio(const ServedModel& model) {
  const auto& encoder = model.generator.description().encoder;
  return encoder && encoder->features;
}

bool IsNameOf(const ServedModel& model, std::string_view name) {
  return name == model.name ||
         std::ranges::find(model.aliases, name) != model.aliases.end();
}

absl::Status CheckServed(const ServedModel& model, const std::string& named) {
  if (named.empty() || IsNameOf(model, named) || named == model.root) {
    return absl::OkStatus();
  }
  return openai::ModelNotFound(Concat("the model ", BytesInQuotes(named),
                                      " is not served here; \"", model.name,
                                      "\" is"));
}

absl::Status CheckServesTexts(const ServedModel& model,
                              const std::string& named) {
  RETURN_IF_ERROR(CheckServed(model, named));
  if (!ReadsAudio(model)) return absl::OkStatus();
  const absl::Status& error = model.transcriber.status();
  return openai::RefuseField(
      "model", Concat("the model \"", model.name, "\" reads audio",
                      error.ok() ? ": /v1/audio/transcriptions takes it"
                                 : Concat(", and it cannot transcribe: ",
                                          Message(error))));
}

}  // namespace espalier::serve
