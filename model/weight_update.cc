#include "model/weight_update.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;

// Fields that say how weights were written, or how text is generated.
constexpr std::string_view kFreeFields[] = {
    "_name_or_path", "architectures",        "bos_token_id",
    "dtype",         "eos_token_id",         "pad_token_id",
    "torch_dtype",   "transformers_version", "use_cache",
};

// Returns the object in `directory`/config.json; an empty one if there is none.
absl::StatusOr<json::object> ReadConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  const auto text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return json::object();
  RETURN_IF_ERROR(text.status());
  auto config = ParseJson(*text);
  if (!config.ok()) return Annotate(config.status(), path);
  if (!config->is_object()) {
    return InvalidArgument(path, ": must be a JSON object, got ",
                           Shown(&*config));
  }
  return std::move(config->get_object());
}

absl::Status CheckSameConfig(const std::string& directory,
                             const std::string& other) {
  ASSIGN_OR_RETURN(const json::object ours, ReadConfig(directory));
  ASSIGN_OR_RETURN(const json::object theirs, ReadConfig(other));
  for (const auto& [key, value] : theirs) {
    const json::value* const own = ours.if_contains(key);
    if (own == nullptr || *own == value ||
        std::ranges::find(kFreeFields, std::string_view(key)) !=
            std::end(kFreeFields)) {
      continue;
    }
    return InvalidArgument(other, "/config.json: ", std::string_view(key),
                           " must be ", Shown(own), ", as in ", directory,
                           ", got ", Shown(&value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> UpdatedCheckpoint(
    std::shared_ptr<const Checkpoint> current, const std::string& directory,
    const WeightUpdate& update) {
  if (update.directory.empty() == update.tensors.empty()) {
    return InvalidArgument("an update of weights must have a directory or ",
                           "tensors, got ",
                           update.directory.empty() ? "neither" : "both");
  }
  if (!update.tensors.empty()) {
    std::vector<std::pair<std::string, StoredTensor>> tensors;
    for (const NamedTensor& given : update.tensors) {
      tensors.emplace_back(given.name, given.tensor);
    }
    return Checkpoint::WithTensors(std::move(current), tensors);
  }
  RETURN_IF_ERROR(CheckSameConfig(directory, update.directory));
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(update.directory));
  return std::make_shared<const Checkpoint>(std::move(checkpoint));
}

}  // namespace espalier
