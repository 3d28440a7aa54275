#include "text/jinja/template.h"

#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/value.h"

namespace espalier::jinja {
namespace {

absl::Status StatusOf(const TemplateError& error) {
  const std::string message =
      error.is_placed() ? Concat("line ", error.position().line, ", column ",
                                 error.position().column, ": ", error.message())
                        : error.message();
  return error.exceeds_limit() ? MarkPermanent(ResourceExhausted(message))
                               : InvalidArgument(message);
}

// A value of JSON as one of templates.
class Converter {
 public:
  explicit Converter(IsTrusted is_trusted) : is_trusted_(is_trusted) {}

  Value Convert(std::string_view key, const json::value& value) {
    constexpr int64_t kBytesOfValue = 8;
    num_bytes_ += kBytesOfValue;
    switch (value.kind()) {
      case json::kind::null:
        return Value::None().MarkedAs(true);
      case json::kind::bool_:
        return Value::Bool(value.get_bool()).MarkedAs(true);
      case json::kind::int64:
        return Value::Int(value.get_int64()).MarkedAs(true);
      case json::kind::uint64:
        return Value::Float(static_cast<double>(value.get_uint64()))
            .MarkedAs(true);
      case json::kind::double_:
        return Value::Float(value.get_double()).MarkedAs(true);
      case json::kind::string:
        return ConvertString(key, value.get_string());
      case json::kind::array:
        return ConvertArray(key, value.get_array());
      case json::kind::object:
        return ConvertObject(value.get_object());
    }
    return Value::None();
  }

  int64_t num_bytes() const { return num_bytes_; }

 private:
  Value ConvertString(std::string_view key, std::string_view text) {
    const absl::Status utf8 = CheckUtf8(text);
    if (!utf8.ok()) throw TemplateError(Message(utf8));
    num_bytes_ += static_cast<int64_t>(text.size());
    return Value::String(Text(std::string(text), !is_trusted_(key, text)));
  }

  Value ConvertArray(std::string_view key, const json::array& array) {
    const Deeper deeper(this);
    std::vector<Value> items;
    items.reserve(array.size());
    for (const json::value& item : array) items.push_back(Convert(key, item));
    return Value::List(std::move(items));
  }

  Value ConvertObject(const json::object& object) {
    const Deeper deeper(this);
    auto dict = std::make_shared<Dict>();
    for (const auto& [key, item] : object) {
      dict->Set(ConvertString("", key), Convert(key, item));
    }
    return Value::Of(std::move(dict));
  }

  class Deeper {
   public:
    explicit Deeper(Converter* converter) : converter_(*converter) {
      if (++converter_.depth_ > kMaxValueDepth / 2) {
        Fail("is nested more than ", kMaxValueDepth / 2, " deep");
      }
    }
    ~Deeper() { --converter_.depth_; }

   private:
    Converter& converter_;
  };

  IsTrusted is_trusted_;
  int depth_ = 0;
  int64_t num_bytes_ = 0;
};

}  // namespace

struct Template::Parsed {
  Names names;
  Body body;
};

Inputs::Inputs() : values_(std::make_unique<Dict>()) {}
Inputs::~Inputs() = default;
Inputs::Inputs(Inputs&&) noexcept = default;
Inputs& Inputs::operator=(Inputs&&) noexcept = default;

absl::Status Inputs::Set(std::string_view name, const json::value& value) {
  return Set(name, value,
             [](std::string_view, std::string_view) { return false; });
}

absl::Status Inputs::Set(std::string_view name, const json::value& value,
                         IsTrusted is_trusted) {
  try {
    Converter converter(is_trusted);
    values_->Set(Value::String(name), converter.Convert("", value));
    num_bytes_ += converter.num_bytes();
    return absl::OkStatus();
  } catch (const TemplateError& error) {
    return InvalidArgument(name, ": ", error.message());
  }
}

void Inputs::SetTrusted(std::string_view name, std::string_view text) {
  num_bytes_ += static_cast<int64_t>(text.size());
  values_->Set(Value::String(name), Value::String(text));
}

Template::Template(std::unique_ptr<const Parsed> parsed)
    : parsed_(std::move(parsed)) {}
Template::~Template() = default;

absl::StatusOr<std::unique_ptr<Template>> Template::Parse(
    std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("a template may have ", kMaxSourceBytes,
                           " bytes, this one has ", source.size());
  }
  RETURN_IF_ERROR(CheckUtf8(source));
  try {
    auto parsed = std::make_unique<Parsed>();
    parsed->body = Parser::Parse(source, &parsed->names);
    return std::unique_ptr<Template>(new Template(std::move(parsed)));
  } catch (const TemplateError& error) {
    return StatusOf(error);
  }
}

absl::StatusOr<Text> Template::Render(const Inputs& inputs,
                                      const RenderOptions& options) const {
  Budget budget(options.limits, inputs.num_bytes_);
  try {
    Evaluator evaluator(parsed_->names, *inputs.values_, &budget, options.now);
    return evaluator.Render(parsed_->body);
  } catch (const TemplateError& error) {
    return StatusOf(error);
  }
}

}  // namespace espalier::jinja
