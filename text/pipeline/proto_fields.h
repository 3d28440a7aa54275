// Reader of Protocol Buffers messages, field by field and without a library:
// for the fields of a SentencePiece model that its library does not expose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"

namespace espalier {

// One field of a message in wire format
// (https://protobuf.dev/programming-guides/encoding).
struct ProtoField {
  enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  bool Is(uint32_t a_number, Type a_type) const {
    return number == a_number && type == a_type;
  }

  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t varint = 0;     // value of a kVarint, length of a kBytes
  std::string_view bytes;  // content, except of a kVarint
};

inline absl::Status MalformedProto() {
  return InvalidArgument("no Protocol Buffers message, or cut short");
}

inline std::optional<uint64_t> TakeVarint(std::string_view* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min<size_t>(in->size(), 10); ++i) {
    const uint64_t byte = static_cast<uint8_t>((*in)[i]);
    value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      in->remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

inline absl::StatusOr<ProtoField> TakeField(std::string_view* in) {
  const std::optional<uint64_t> tag = TakeVarint(in);
  // A tag has 32 bits, and no field has the number 0.
  if (!tag || *tag > UINT32_MAX || *tag >> 3 == 0) return MalformedProto();
  ProtoField field;
  field.number = static_cast<uint32_t>(*tag >> 3);
  field.type = static_cast<uint32_t>(*tag & 7);
  uint64_t num_bytes = 0;
  if (field.type == ProtoField::kFixed64) {
    num_bytes = 8;
  } else if (field.type == ProtoField::kFixed32) {
    num_bytes = 4;
  } else if (field.type == ProtoField::kVarint ||
             field.type == ProtoField::kBytes) {
    const std::optional<uint64_t> value = TakeVarint(in);
    if (!value) return MalformedProto();
    field.varint = *value;
    if (field.type == ProtoField::kBytes) num_bytes = *value;
  } else {
    return MalformedProto();  // groups, which the format has no more
  }
  if (num_bytes > in->size()) return MalformedProto();
  field.bytes = in->substr(0, num_bytes);
  in->remove_prefix(num_bytes);
  return field;
}

// Calls visit(field) for each field of `message`, up to the first error.
template <typename Visit>
absl::Status ForEachField(std::string_view message, const Visit& visit) {
  while (!message.empty()) {
    ASSIGN_OR_RETURN(const ProtoField field, TakeField(&message));
    RETURN_IF_ERROR(visit(field));
  }
  return absl::OkStatus();
}

}  // namespace espalier
