#include "openai/listing.h"

#include "openai/answer_parts.h"

namespace espalier::openai {

std::string WriteModel(const ModelCard& model) {
  std::string json;
  AppendField(R"({"id":)", std::string_view(model.id), &json);
  AppendField(R"(,"object":"model","created":)", model.created, &json);
  json += R"(,"owned_by":"espalier")";
  AppendField(R"(,"root":)", std::string_view(model.root), &json);
  AppendField(R"(,"parent":null,"max_model_len":)", model.max_model_len, &json);
  AppendField(R"(,"espalier":{"task":)", std::string_view(model.task), &json);
  json += R"(,"chat":)";
  json += model.has_chat_template ? "true" : "false";
  json += R"(,"templates":)";
  AppendList(
      model.templates,
      [&](const std::string& name) {
        AppendField("", std::string_view(name), &json);
      },
      &json);
  json += R"(,"traces":)";
  json += model.has_traces ? "true" : "false";
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
