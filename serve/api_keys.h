// ApiKeys: access control of a server. Without keys every client has access.
//
// A client sends its key as a bearer token, `Authorization: Bearer KEY`, or as
// the password of HTTP's basic authentication, which browsers prompt for. It is
// compared with every key, in a time that depends only on the lengths, so that
// the time of a refusal does not show how much of a key was right.
//
// Thread safety: constant after construction; any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::serve {

class ApiKeys {
 public:
  ApiKeys() = default;
  // REQUIRES: none is empty.
  explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // One key a line; blank lines and those that begin with # are passed over.
  // Errors: as ReadFile; kInvalidArgument naming the line of a key that is
  // shorter than 8 bytes, has a space or a character that is not ASCII, or is
  // in an earlier line, too; or if there is none.
  static absl::StatusOr<ApiKeys> Read(const std::string& path);
  // Errors: as for a line of a file, naming `source`.
  static absl::StatusOr<ApiKeys> Of(std::string key, std::string_view source);

  bool empty() const { return keys_.empty(); }
  // The number of the key that an Authorization header shows, from 0 on;
  // nothing if it shows none of them.
  // REQUIRES: !empty().
  std::optional<int> Find(std::string_view authorization) const;

  // The name of a key in a store, for the objects that are its: the same
  // wherever the key stands in the file, and no help to find the key. Empty for
  // -1, no key.
  std::string OwnerOf(int key) const;
  // The key of that owner; nothing if it is none any more.
  std::optional<int> FindOwner(std::string_view owner) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace espalier::serve
