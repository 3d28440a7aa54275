// Checkpoint: the weights of a model directory, by tensor name: one file
// model.safetensors, or several with an index,
//
//   model.safetensors.index.json
//   {"weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
//
// If both exist, the single file is used, as in transformers. If neither does,
// a model.bin of CTranslate2 (ctranslate2/ctranslate2_model.h) is, whose
// tensors have the names that transformers gives them.
//
// Thread safety: immutable after Open.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ctranslate2/ctranslate2_model.h"
#include "model/safetensors.h"
#include "model/shared_bytes.h"

namespace espalier {

// A tensor and the path of the file that it is in; both live as long as the
// checkpoint.
struct LocatedTensor {
  const StoredTensor* tensor = nullptr;  // never null
  std::string_view path;
};

class Checkpoint {
 public:
  // Opens and checks all files. Shards lie in the directory itself.
  // Errors: as SafetensorsFile::Open; kInvalidArgument naming the index, the
  // tensor and the value, if the index is longer than 16 MiB or something in
  // it is wrong; as CTranslate2Model::Open.
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // Returns a checkpoint with tensors in place of those of the same names, or
  // beside them. Their data is copied, and kept as long as the result or one
  // that is made of it has them. Throws std::bad_alloc.
  // Errors: kInvalidArgument naming the tensor that is given twice, or whose
  // data has another size than its shape and dtype need.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> WithTensors(
      std::shared_ptr<const Checkpoint> checkpoint,
      const std::vector<std::pair<std::string, StoredTensor>>& tensors);

  // Errors: kInvalidArgument naming path() and the tensor, if it is missing.
  absl::StatusOr<LocatedTensor> Find(const std::string& name) const;

  // Names of all tensors, ascending.
  std::vector<std::string_view> names() const;

  // The single file, or the index.
  const std::string& path() const { return path_; }

  // The file that CTranslate2 wrote; null: it is none of those.
  const CTranslate2File* ctranslate2_file() const {
    return ctranslate2_ == nullptr ? nullptr : &ctranslate2_->file;
  }

 private:
  // A tensor that is in no file.
  struct GivenTensor {
    SharedBytes data;
    StoredTensor tensor;
  };

  absl::Status OpenSingle();
  absl::Status OpenShards(const std::string& directory);
  absl::Status OpenCTranslate2(const std::string& directory);

  std::string path_;
  // Stable addresses, because `tensors_` points at them.
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unique_ptr<CTranslate2Model> ctranslate2_;
  std::map<std::string, LocatedTensor> tensors_;  // by name
  // WithTensors: the files' owner, and the tensors that are in none of them.
  std::shared_ptr<const Checkpoint> files_owner_;
  std::map<std::string, std::shared_ptr<const GivenTensor>> given_;
};

}  // namespace espalier
