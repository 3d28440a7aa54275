// Checkpoint: the weights of a model directory, by tensor name: one file
// model.safetensors, or several with an index,
//
//   model.safetensors.index.json
//   {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
//
// Where both are there, the one file is taken, as transformers does.
//
// Thread rule: immutable after Open.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/safetensors.h"

namespace espalier {

class Checkpoint {
 public:
  // Opens and checks all files. Shards lie in the directory itself.
  // Errors: kNotFound if a file is missing, kInvalidArgument naming the file
  // and what is wrong with it.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // The tensor lives as long as the checkpoint.
  // Errors: kInvalidArgument naming the tensor, if it is missing.
  absl::StatusOr<const StoredTensor*> Find(const std::string& name) const;

 private:
  absl::Status OpenShards(const std::string& directory);

  // Stable addresses, because `owners_` points at them.
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> owners_;  // of each tensor
};

}  // namespace espalier
