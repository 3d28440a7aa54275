// A client's view of a stream: the choices that its events add up to.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tests/status_matchers.h"

namespace espalier::testing {

// The JSON of each event; "[DONE]" is a string.
inline std::vector<json::value> EventsOf(std::string_view stream) {
  constexpr std::string_view kData = "data: ";
  std::vector<json::value> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    if (end == stream.npos || !stream.starts_with(kData)) {
      ADD_FAILURE() << "no event: " << stream;
      return events;
    }
    const std::string_view data =
        stream.substr(kData.size(), end - kData.size());
    stream.remove_prefix(end + 2);
    if (data == "[DONE]") {
      events.emplace_back("[DONE]");
      continue;
    }
    const absl::StatusOr<json::value> event = ParseJson(data);
    EXPECT_OK(event) << data;
    if (event.ok()) events.push_back(*event);
  }
  return events;
}

// A choice that events add up to; `fields` are those that come once.
struct StreamedChoice {
  std::string text;
  json::array tool_calls;  // parts of each are joined
  json::array token_ids;
  json::object log_probs;  // lists, one after the other
  json::object fields;
  int num_events = 0;
  bool has_ended = false;
};

inline void AppendLists(const json::value& from, json::object* to) {
  if (from.is_null()) return;
  for (const auto& [key, list] : from.get_object()) {
    json::value& all = (*to)[key];
    if (!all.is_array()) all.emplace_array();
    for (const json::value& item : list.get_array()) {
      all.get_array().push_back(item);
    }
  }
}

// The parts of calls of tools that a delta has; a whole message has whole ones,
// without an index.
inline void AppendToolCalls(const json::array& parts, json::array* calls) {
  for (const json::value& part : parts) {
    json::object call = part.get_object();
    const json::value* const given = call.if_contains("index");
    const size_t index =
        given == nullptr ? calls->size() : given->to_number<size_t>();
    call.erase("index");
    if (index == calls->size()) {
      EXPECT_FALSE(call.at("id").get_string().empty());
      EXPECT_EQ(call.at("type"), "function");
      calls->push_back(call);
      continue;
    }
    ASSERT_EQ(index + 1, calls->size()) << "goes back to a call";
    EXPECT_EQ(call.size(), 1u) << WriteJson(call);
    (*calls)[index]
        .at("function")
        .at("arguments")
        .get_string()
        .append(call.at("function").at("arguments").get_string());
  }
}

inline void AppendDelta(const json::object& delta, StreamedChoice* choice) {
  EXPECT_FALSE(choice->has_ended) << "goes on after its end";
  ++choice->num_events;
  bool is_empty = delta.at("finish_reason").is_null();
  for (const auto& [key, value] : delta) {
    if (key == "text" || key == "delta") {
      const json::value* text = &value;
      if (key == "delta") {
        text = value.get_object().if_contains("content");
        if (value.get_object().contains("role")) is_empty = false;
        if (const auto* calls = value.get_object().if_contains("tool_calls")) {
          is_empty = false;
          AppendToolCalls(calls->get_array(), &choice->tool_calls);
        }
      }
      if (text == nullptr || text->is_null()) continue;
      if (!text->get_string().empty()) is_empty = false;
      choice->text += text->get_string();
    } else if (key == "token_ids") {
      for (const json::value& id : value.get_array()) {
        is_empty = false;
        choice->token_ids.push_back(id);
      }
    } else if (key == "logprobs") {
      AppendLists(value, &choice->log_probs);
    } else if (!value.is_null() || key == "stop_reason") {
      choice->fields[key] = value;
    }
  }
  EXPECT_FALSE(is_empty) << WriteJson(delta);
  choice->has_ended = !delta.at("finish_reason").is_null();
}

inline std::map<int64_t, StreamedChoice> ChoicesOf(
    const std::vector<json::value>& events) {
  std::map<int64_t, StreamedChoice> choices;
  for (const json::value& event : events) {
    if (!event.is_object()) continue;
    const json::value* const deltas = event.get_object().if_contains("choices");
    if (deltas == nullptr) continue;
    for (const json::value& delta : deltas->get_array()) {
      const json::object& object = delta.get_object();
      AppendDelta(object, &choices[object.at("index").to_number<int64_t>()]);
    }
  }
  return choices;
}

// Returns a choice of a complete response in the same form.
inline StreamedChoice WholeChoice(json::object choice) {
  if (const json::value* const message = choice.if_contains("message")) {
    choice["delta"] = *message;
    choice["delta"].get_object().erase("role");
    choice.erase("message");
  }
  StreamedChoice whole;
  AppendDelta(choice, &whole);
  return whole;
}

}  // namespace espalier::testing
