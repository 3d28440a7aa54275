#include "model/model_family.h"

#include <string>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kBartFamily,  &kGemma2Family, &kGemma3Family,  &kGpt2Family,
    &kLlamaFamily, &kMarianFamily, &kMistralFamily, &kPhi3Family,
    &kQwen2Family, &kQwen3Family,  &kT5Family};

std::string ModelTypes() {
  std::string list;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (i > 0) list += i + 1 == std::size(kFamilies) ? " or " : ", ";
    list += kFamilies[i]->model_type;
  }
  return list;
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
  return InvalidArgument("model_type must be ", ModelTypes(), ", got ",
                         Shown(type));
}

}  // namespace espalier
