// OpenStream: a request of a generator that is read while it runs.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "batcher/result_stream.h"
#include "espalier/generator.h"
#include "espalier/generator_call.h"
#include "espalier/open_request.h"
#include "request/stream_event.h"

namespace espalier {

class OpenStream {
 public:
  // Errors: as Open and Engine::Stream.
  static absl::StatusOr<std::unique_ptr<OpenStream>> Open(
      const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
      const CallOptions& options, const StreamOptions& stream_options);

  // Calls `on_event` for each event and returns the result.
  absl::StatusOr<Generation> Read(const Generator::EventFunction& on_event);

 private:
  using Event = std::optional<StreamEvent>;

  OpenStream(std::shared_ptr<Call> call, OpenRequest request,
             ResultStream stream);
  absl::StatusOr<Event> Next();

  const std::shared_ptr<Call> call_;
  const OpenRequest request_;
  ResultStream stream_;  // its end ends the request
};

}  // namespace espalier
