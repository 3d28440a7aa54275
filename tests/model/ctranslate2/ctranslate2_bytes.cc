#include "tests/model/ctranslate2/ctranslate2_bytes.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/status.h"

namespace espalier::testing {

std::string CTranslate2String(std::string_view text) {
  return Concat(BytesOf(static_cast<uint16_t>(text.size() + 1)), text,
                std::string(1, '\0'));
}

CTranslate2Content CTranslate2Content::Of(const CTranslate2File& file) {
  constexpr std::string_view kTypes[] = {"F32", "I8",  "I16",
                                         "I32", "F16", "BF16"};
  CTranslate2Content content;
  content.specification = file.specification();
  content.revision = static_cast<uint32_t>(file.revision());
  for (const auto& [name, tensor] : file.variables()) {
    CTranslate2Variable variable = {name, {}, 0, {}};
    for (const int64_t size : tensor.shape) {
      variable.shape.push_back(static_cast<uint32_t>(size));
    }
    const auto* const type = std::ranges::find(kTypes, tensor.dtype);
    variable.type = static_cast<uint8_t>(type - std::begin(kTypes));
    variable.bytes.assign(reinterpret_cast<const char*>(tensor.data.data()),
                          tensor.data.size());
    content.variables.push_back(std::move(variable));
  }
  content.aliases.assign(file.aliases().begin(), file.aliases().end());
  return content;
}

CTranslate2Variable& CTranslate2Content::At(std::string_view name) {
  const auto found =
      std::ranges::find(variables, name, &CTranslate2Variable::name);
  CHECK(found != variables.end()) << name;
  return *found;
}

void CTranslate2Content::Erase(std::string_view name) {
  std::erase_if(variables, [&](const CTranslate2Variable& variable) {
    return variable.name == name;
  });
  std::erase_if(aliases,
                [&](const auto& alias) { return alias.first == name; });
}

std::string CTranslate2Content::Bytes() const {
  std::string bytes = Concat(BytesOf(version), CTranslate2String(specification),
                             BytesOf(revision),
                             BytesOf(static_cast<uint32_t>(variables.size())));
  for (const CTranslate2Variable& variable : variables) {
    bytes += CTranslate2String(variable.name);
    bytes += BytesOf(static_cast<uint8_t>(variable.shape.size()));
    for (const uint32_t size : variable.shape) bytes += BytesOf(size);
    bytes += BytesOf(variable.type);
    bytes += BytesOf(static_cast<uint32_t>(variable.bytes.size()));
    bytes += variable.bytes;
  }
  bytes += BytesOf(static_cast<uint32_t>(aliases.size()));
  for (const auto& [alias, name] : aliases) {
    bytes += CTranslate2String(alias) + CTranslate2String(name);
  }
  return bytes;
}

}  // namespace espalier::testing
