#include "model/checkpoint.h"

#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr char kSingleFile[] = "/model.safetensors";
constexpr char kIndexFile[] = "/model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = 16 << 20;
// The path of tensors that are in no file.
constexpr std::string_view kGiven = "the given weights";

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
  if (IsCTranslate2Directory(directory)) {
    RETURN_IF_ERROR(checkpoint.OpenCTranslate2(directory));
    return checkpoint;
  }
  const absl::Status single = checkpoint.OpenSingle();
  if (!absl::IsNotFound(single)) {
    RETURN_IF_ERROR(single);
    return checkpoint;
  }
  RETURN_IF_ERROR(checkpoint.OpenShards(directory));
  return checkpoint;
}

absl::Status Checkpoint::OpenSingle() {
  ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path_));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
  const SafetensorsFile& file = *files_.back();
  for (const auto& [name, tensor] : file.tensors()) {
    tensors_.emplace(name, LocatedTensor{&tensor, file.path()});
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::OpenCTranslate2(const std::string& directory) {
  ASSIGN_OR_RETURN(CTranslate2Model model, CTranslate2Model::Open(directory));
  ctranslate2_ = std::make_unique<CTranslate2Model>(std::move(model));
  path_ = ctranslate2_->file.path();
  for (const auto& [name, tensor] : ctranslate2_->named.tensors) {
    tensors_.emplace(name, LocatedTensor{&tensor, ctranslate2_->file.path()});
  }
  return absl::OkStatus();
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
    ASSIGN_OR_RETURN(const StoredTensor* stored, shards[shard]->Find(tensor));
    tensors_.emplace(tensor, LocatedTensor{stored, shards[shard]->path()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::WithTensors(
    std::shared_ptr<const Checkpoint> checkpoint,
    const std::vector<std::pair<std::string, StoredTensor>>& tensors) {
  const auto made = std::make_shared<Checkpoint>();
  made->path_ = checkpoint->path_;
  made->tensors_ = checkpoint->tensors_;
  made->given_ = checkpoint->given_;
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (!names.insert(name).second) {
      return InvalidArgument("tensor ", Shown(name), " is given twice");
    }
    const auto needed = NumNeededBytes(tensor);
    if (!needed.ok()) {
      return Annotate(needed.status(), Concat("tensor ", Shown(name)));
    }
    if (*needed != std::ssize(tensor.data)) {
      return InvalidArgument("tensor ", Shown(name), " has ",
                             tensor.data.size(),
                             " bytes, shape and dtype need ", *needed);
    }
    ASSIGN_OR_RETURN(SharedBytes data,
                     SharedBytes::CopyOf(std::span(&tensor.data, 1)));
    const auto given = std::make_shared<GivenTensor>(
        GivenTensor{std::move(data), {tensor.dtype, tensor.shape, {}}});
    given->tensor.data = given->data.bytes();
    made->tensors_[name] = {&given->tensor, kGiven};
    made->given_[name] = given;
  }
  made->files_owner_ = checkpoint->files_owner_ == nullptr
                           ? std::move(checkpoint)
                           : checkpoint->files_owner_;
  return made;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, located] : tensors_) names.push_back(name);
  return names;
}

absl::StatusOr<LocatedTensor> Checkpoint::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  return InvalidArgument(path_, ": tensor ", name, " is missing");
}

}  // namespace espalier
