#include "model/checkpoint.h"

#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 100'000'000;

// A shard is a file of the directory itself: a name, no path.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." &&
         name.find("..") == std::string_view::npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) ==
             std::string_view::npos;
}

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

absl::StatusOr<WeightMap> ReadWeightMap(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const json::value index, ParseJson(text));
  const json::object* object = index.if_object();
  const json::value* map = object ? object->if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return InvalidArgument("weight_map must be an object");
  }
  WeightMap weight_map;
  for (const auto& [key, value] : map->get_object()) {
    const std::string tensor(key);
    if (!value.is_string()) {
      return InvalidArgument("weight_map of ", tensor, " must be a file name");
    }
    const std::string shard(value.get_string());
    if (!IsPlainFileName(shard)) {
      return InvalidArgument("weight_map of ", tensor,
                             " must be a plain file name, got ",
                             WriteJson(value));
    }
    weight_map.emplace(tensor, shard);
  }
  return weight_map;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  auto file = SafetensorsFile::Open(directory + kSingleFile);
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
  const std::string index_path = directory + kIndexFile;
  auto weight_map = ReadWeightMap(index_path);
  if (absl::IsNotFound(weight_map.status())) {
    return NotFound(directory, " has neither model.safetensors nor ",
                    "model.safetensors.index.json");
  }
  if (!weight_map.ok()) return Annotate(weight_map.status(), index_path);
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

absl::StatusOr<const StoredTensor*> Checkpoint::Find(
    const std::string& name) const {
  const auto owner = owners_.find(name);
  if (owner == owners_.end()) {
    return InvalidArgument("the weights have no tensor ", name);
  }
  return owner->second->Find(name);
}

}  // namespace espalier
