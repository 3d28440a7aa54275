#include "model/model_family.h"

#include <string>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kBartFamily,   &kGemmaFamily,    &kGemma2Family,  &kGemma3ImagesFamily,
    &kGemma3Family, &kGpt2Family,     &kLlamaFamily,   &kM2m100Family,
    &kMarianFamily, &kMbartFamily,    &kMistralFamily, &kMt5Family,
    &kOptFamily,    &kPegasusFamily,  &kPhi3Family,    &kQwen2Family,
    &kQwen3Family,  &kStableLmFamily, &kT5Family,      &kUmt5Family,
    &kWhisperFamily};

std::string ModelTypes() {
  std::string list;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (i > 0) list += i + 1 == std::size(kFamilies) ? " or " : ", ";
    list += kFamilies[i]->model_type;
  }
  return list;
}

// A model of images, sound or more has its text model's configuration in a
// field of its own.
absl::Status UnknownType(const json::object& json, const json::value* type) {
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    const json::value* const text = FindField(json, key);
    if (text == nullptr || !text->is_object()) continue;
    return InvalidArgument(
        "model_type ", Shown(type),
        " is of a model that reads more than text: ",
        "its text model lies within, in ", key, " (model_type ",
        Shown(FindField(text->get_object(), "model_type")),
        "), and is not read from there; give a text model, of model_type ",
        ModelTypes());
  }
  return InvalidArgument("model_type must be ", ModelTypes(), ", got ",
                         Shown(type));
}

}  // namespace

std::span<const ModelFamily* const> ModelFamilies() { return kFamilies; }

absl::StatusOr<const ModelFamily*> FindModelFamily(const json::object& json) {
  const json::value* type = FindField(json, "model_type");
  for (const ModelFamily* family : kFamilies) {
    if (type == nullptr || *type != json::string_view(family->model_type)) {
      continue;
    }
    const json::value* names = FindField(json, "architectures");
    const json::array expected = {json::string_view(family->architecture)};
    if (names == nullptr || *names != expected) {
      return InvalidArgument("architectures must be ", WriteJson(expected),
                             ", got ", Shown(names));
    }
    return family;
  }
  return UnknownType(json, type);
}

}  // namespace espalier
