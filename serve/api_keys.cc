#include "serve/api_keys.h"

#include <algorithm>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "base/byte_order_mark.h"
#include "base/file.h"
#include "base/status.h"

namespace espalier::serve {
namespace {

constexpr size_t kShortestKey = 8;         // bytes
constexpr size_t kMaxFileBytes = 1 << 20;  // limit for a file of keys

absl::Status CheckKey(std::string_view key, std::string_view source) {
  if (key.size() < kShortestKey) {
    return InvalidArgument(source, ": an API key must have at least ",
                           kShortestKey, " bytes, this one has ", key.size());
  }
  for (const char c : key) {
    if (c <= ' ' || c > '~') {
      return InvalidArgument(source,
                             ": an API key must be of visible ASCII "
                             "characters, and without spaces");
    }
  }
  return absl::OkStatus();
}

// In a time that depends on the length of `shown` alone.
bool IsSame(std::string_view shown, std::string_view key) {
  unsigned difference = shown.size() != key.size();
  for (size_t i = 0; i < shown.size(); ++i) {
    difference |= static_cast<unsigned char>(shown[i]) ^
                  static_cast<unsigned char>(key[i % key.size()]);
  }
  return difference == 0;
}

// The key that a header shows; nothing if it is of another scheme.
std::optional<std::string> ShownKey(std::string_view authorization) {
  const size_t space = authorization.find(' ');
  if (space == authorization.npos) return std::nullopt;
  const std::string scheme =
      absl::AsciiStrToLower(ToAbsl(authorization.substr(0, space)));
  const std::string value(
      absl::StripAsciiWhitespace(ToAbsl(authorization.substr(space + 1))));
  if (scheme == "bearer") return value;
  std::string user_and_password;
  if (scheme != "basic" || !absl::Base64Unescape(value, &user_and_password)) {
    return std::nullopt;
  }
  const size_t colon = user_and_password.find(':');
  if (colon == user_and_password.npos) return std::nullopt;
  return user_and_password.substr(colon + 1);
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Of(std::string key, std::string_view source) {
  RETURN_IF_ERROR(CheckKey(key, source));
  return ApiKeys({std::move(key)});
}

absl::StatusOr<ApiKeys> ApiKeys::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string file, ReadToEnd(path, kMaxFileBytes));
  const std::string_view text = WithoutByteOrderMark(file);
  std::vector<std::string> keys;
  std::unordered_set<std::string> known;
  int line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string key(
        absl::StripAsciiWhitespace(ToAbsl(text.substr(begin, end - begin))));
    begin = end + 1;
    ++line_number;
    if (key.empty() || key.front() == '#') continue;
    RETURN_IF_ERROR(CheckKey(key, Concat(path, ":", line_number)));
    // With one of the two taken out it would still be a key.
    if (!known.insert(key).second) {
      return InvalidArgument(path, ":", line_number,
                             ": this API key is in an earlier line already");
    }
    keys.push_back(key);
  }
  if (keys.empty()) return InvalidArgument(path, " has no API key");
  return ApiKeys(std::move(keys));
}

std::optional<int> ApiKeys::Find(std::string_view authorization) const {
  const std::string shown = ShownKey(authorization).value_or("");
  std::optional<int> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (IsSame(shown, keys_[i])) found = static_cast<int>(i);
  }
  return found;
}

std::string ApiKeys::OwnerOf(int key) const {
  if (key < 0) return "";
  // By SHA-1.
  const boost::uuids::name_generator_sha1 name(boost::uuids::ns::oid());
  return boost::uuids::to_string(
      name("espalier API key " + keys_[static_cast<size_t>(key)]));
}

std::optional<int> ApiKeys::FindOwner(std::string_view owner) const {
  if (keys_.empty() && owner.empty()) return -1;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (OwnerOf(static_cast<int>(i)) == owner) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace espalier::serve
