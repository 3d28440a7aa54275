// Answers as objects of Python, whose members are made when they are read: a
// result of many hypotheses costs nothing for those that are not looked at.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/generator.h"
#include "request/param_fields.h"
#include "request/stream_event.h"

namespace espalier::python {

// A hypothesis, under vLLM's names.
struct CompletionOutput {
  std::shared_ptr<const Generation> answer;
  int index = 0;

  const Hypothesis& hypothesis() const { return answer->hypotheses[index]; }
};

// The answer to one prompt, under vLLM's names.
struct RequestOutput {
  nanobind::object prompt;
  std::shared_ptr<const Generation> answer;
};

// New tokens of a stream.
struct StreamPiece {
  StreamEvent event;  // a SampleEvent or a StablePrefixEvent
};

nanobind::str Text(std::string_view text);

// A dictionary of values that are written as JSON.
nanobind::dict DictOf(
    const std::vector<std::pair<std::string, std::string>>& fields);

// The answer, or the exception, with the names that the caller used.
nanobind::object ObjectOf(nanobind::object prompt,
                          absl::StatusOr<Generation> answer,
                          const std::vector<GivenParam>& aliases);
nanobind::object ObjectOf(StreamEvent event);

void BindAnswers(nanobind::module_& module);

}  // namespace espalier::python
