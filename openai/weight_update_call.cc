#include "openai/weight_update_call.h"

#include "base/byte_order_mark.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/error.h"

namespace espalier::openai {
namespace {

// Errors: `field` must be `wanted`.
absl::Status WrongValue(std::string_view field, std::string_view wanted,
                        const json::value& value) {
  return RefuseField(
      field, Concat(field, " must be ", wanted, ", got ", Shown(&value)));
}

absl::Status ReadField(std::string_view name, const json::value& value,
                       WeightUpdateCall* call) {
  if (name == "model_path") {
    if (!value.is_string() || value.get_string().empty()) {
      return WrongValue(name, "the path of a directory", value);
    }
    call->directory = std::string(value.get_string());
    return absl::OkStatus();
  }
  if (name == "weight_version") {
    if (!value.is_int64() || value.get_int64() < 1) {
      return WrongValue(name, "an integer of at least 1", value);
    }
    call->version = value.get_int64();
    return absl::OkStatus();
  }
  if (name == "abort_all_requests") {
    if (!value.is_bool()) return WrongValue(name, "true or false", value);
    if (value.get_bool()) call->running = RunningRequests::kAbort;
    return absl::OkStatus();
  }
  if (name == "running") {
    if (value == "wait") {
      call->running = RunningRequests::kWait;
    } else if (value == "abort") {
      call->running = RunningRequests::kAbort;
    } else if (value == "keep") {
      call->running = RunningRequests::kKeep;
    } else {
      return WrongValue(name, "wait, abort or keep", value);
    }
    return absl::OkStatus();
  }
  return RefuseField(
      Shown(name),
      Concat("unknown field ", ShownInQuotes(name), "; there are model_path, ",
             "weight_version, running and abort_all_requests"));
}

}  // namespace

absl::StatusOr<WeightUpdateCall> ReadWeightUpdateCall(std::string_view body) {
  ASSIGN_OR_RETURN(const json::value given,
                   ParseJson(WithoutByteOrderMark(body)));
  const json::object* const object = given.if_object();
  if (object == nullptr) {
    return InvalidArgument("the body must be a JSON object, got ",
                           Shown(&given));
  }
  WeightUpdateCall call;
  for (const auto& [name, value] : *object) {
    RETURN_IF_ERROR(ReadField(std::string_view(name), value, &call));
  }
  if (call.directory.empty()) {
    return RefuseField("model_path", "model_path must be there, got nothing");
  }
  if (object->contains("running") && object->contains("abort_all_requests")) {
    return RefuseField("abort_all_requests",
                       "abort_all_requests must not be beside running");
  }
  return call;
}

}  // namespace espalier::openai
