#include "model/checkpoint.h"

#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 16 << 20;

// A shard is a file of the directory itself: a name, no path.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." &&
         name.find("..") == std::string_view::npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) ==
             std::string_view::npos;
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

absl::StatusOr<WeightMap> ParseWeightMap(std::string_view text) {
  ASSIGN_OR_RETURN(const json::value index, ParseJson(text));
  const json::object* object = index.if_object();
  if (object == nullptr) {
    return InvalidArgument("must be a JSON object, got ", Shown(&index));
  }
  const json::value* map = object->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return InvalidArgument("weight_map must be an object, got ", Shown(map));
  }
  WeightMap weight_map;
  for (const auto& [key, value] : map->get_object()) {
    const json::string* shard = value.if_string();
    if (shard == nullptr || !IsPlainFileName(*shard)) {
      return InvalidArgument("weight_map of ", Shown(std::string_view(key)),
                             " must be a plain file name, got ", Shown(&value));
    }
    weight_map.emplace(key, *shard);
  }
  return weight_map;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.path_ = directory + kSingleFile;
  auto file = SafetensorsFile::Open(checkpoint.path_);
  if (absl::IsNotFound(file.status())) {
    RETURN_IF_ERROR(checkpoint.OpenShards(directory));
    return checkpoint;
  }
  RETURN_IF_ERROR(file.status());
  checkpoint.files_.push_back(
      std::make_unique<SafetensorsFile>(*std::move(file)));
  for (const auto& [name, tensor] : checkpoint.files_[0]->tensors()) {
    checkpoint.owners_.emplace(name, checkpoint.files_[0].get());
  }
  return checkpoint;
}

absl::Status Checkpoint::OpenShards(const std::string& directory) {
  path_ = directory + kIndexFile;
  const auto text = ReadFile(path_, kMaxIndexBytes);
  if (absl::IsNotFound(text.status())) {
    return NotFound(directory, " has neither model.safetensors nor ",
                    "model.safetensors.index.json");
  }
  RETURN_IF_ERROR(text.status());
  const auto weight_map = ParseWeightMap(*text);
  if (!weight_map.ok()) return Annotate(weight_map.status(), path_);
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [tensor, shard] : *weight_map) {
    if (!shards.contains(shard)) {
      ASSIGN_OR_RETURN(SafetensorsFile file,
                       SafetensorsFile::Open(directory + "/" + shard));
      files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
      shards[shard] = files_.back().get();
    }
    RETURN_IF_ERROR(shards[shard]->Find(tensor).status());
    owners_.emplace(tensor, shards[shard]);
  }
  return absl::OkStatus();
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, file] : owners_) names.push_back(name);
  return names;
}

absl::StatusOr<LocatedTensor> Checkpoint::Find(const std::string& name) const {
  const auto owner = owners_.find(name);
  if (owner == owners_.end()) {
    return InvalidArgument(path_, ": tensor ", name, " is missing");
  }
  const SafetensorsFile& file = *owner->second;
  ASSIGN_OR_RETURN(const StoredTensor* tensor, file.Find(name));
  return LocatedTensor{tensor, file.path()};
}

}  // namespace espalier
