#include "openai/listing.h"

#include "openai/answer_parts.h"

namespace espalier::openai {
namespace {

void AppendFlag(std::string_view name, bool is_set, std::string* json) {
  *json += name;
  *json += is_set ? "true" : "false";
}

void AppendSpeech(const SpeechCard& speech, std::string* json) {
  AppendFlag(R"(,"words":)", speech.has_words, json);
  AppendFlag(R"(,"translates":)", speech.translates, json);
  AppendField(R"(,"max_audio_seconds":)", speech.max_audio_seconds, json);
  AppendField(R"(,"max_audio_bytes":)", speech.max_audio_bytes, json);
}

}  // namespace

std::string WriteModel(const ModelCard& model) {
  std::string json;
  AppendField(R"({"id":)", std::string_view(model.id), &json);
  AppendField(R"(,"object":"model","created":)", model.created, &json);
  json += R"(,"owned_by":"espalier")";
  AppendField(R"(,"root":)", std::string_view(model.root), &json);
  AppendField(R"(,"parent":null,"max_model_len":)", model.max_model_len, &json);
  json += R"(,"espalier":{"task":)";
  json += model.speech ? R"("transcribe")" : R"("generate")";
  if (model.speech) AppendSpeech(*model.speech, &json);
  AppendFlag(R"(,"chat":)", model.has_chat_template, &json);
  json += R"(,"templates":)";
  AppendList(
      model.templates,
      [&](const std::string& name) {
        AppendField("", std::string_view(name), &json);
      },
      &json);
  AppendFlag(R"(,"traces":)", model.has_traces, &json);
  AppendField(R"(,"max_num_beams":)", model.limits.max_num_beams, &json);
  AppendField(R"(,"max_n":)", model.limits.max_n, &json);
  AppendField(R"(,"max_tokens":)", model.limits.max_tokens, &json);
  json += "}}";
  return json;
}

std::string WriteModels(std::span<const ModelCard> models) {
  std::string json = R"({"object":"list","data":)";
  AppendList(
      models, [&](const ModelCard& model) { json += WriteModel(model); },
      &json);
  json += '}';
  return json;
}

}  // namespace espalier::openai
