#include "text/jinja/to_json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonFormat& format, Budget& budget)
      : format_(format), budget_(budget), has_input_(format.has_input) {}

  void Write(const Value& value);
  Text Take() { return Text(std::move(out_), has_input_); }

 private:
  void WriteItems(const std::vector<Value>& items);
  void WriteDict(const Dict& dict);
  void WriteKey(const Value& key);
  void WriteString(const Text& text);
  void WriteFloat(double value);
  // Before an element: the separator, if it is not the first, and its line.
  void BeginItem(bool is_first);
  void BreakLine();

  const JsonFormat& format_;
  Budget& budget_;
  std::string out_;
  bool has_input_;
  int level_ = 0;
};

void JsonWriter::Write(const Value& value) {
  budget_.TakeSteps(1);
  has_input_ = has_input_ || value.is_input();
  const size_t size = out_.size();
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      break;
    case Kind::kBool:
      out_ += value.boolean() ? "true" : "false";
      break;
    case Kind::kInt:
      out_ += std::to_string(value.integer());
      break;
    case Kind::kFloat:
      WriteFloat(value.number());
      break;
    case Kind::kString:
      WriteString(value.text());
      break;
    case Kind::kDict:
      WriteDict(value.dict());
      return;
    case Kind::kSequence:
      if (value.sequence().form == SequenceForm::kList ||
          value.sequence().form == SequenceForm::kTuple) {
        WriteItems(value.sequence().items);
        return;
      }
      [[fallthrough]];
    default:
      Fail("Object of type ", TypeName(value), " is not JSON serializable");
  }
  budget_.TakeBytes(out_.size() - size);
}

void JsonWriter::BreakLine() {
  if (!format_.indent) return;
  out_ += '\n';
  budget_.TakeBytes(format_.indent->size() * level_ + 1);
  for (int i = 0; i < level_; ++i) out_ += *format_.indent;
}

void JsonWriter::BeginItem(bool is_first) {
  if (!is_first) out_ += format_.item_separator;
  budget_.TakeBytes(format_.item_separator.size());
  BreakLine();
}

void JsonWriter::WriteItems(const std::vector<Value>& items) {
  out_ += '[';
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    BeginItem(i == 0);
    Write(items[i]);
  }
  --level_;
  if (!items.empty()) BreakLine();
  out_ += ']';
}

void JsonWriter::WriteDict(const Dict& dict) {
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : dict.items) items.push_back(&item);
  if (format_.sort_keys) {
    budget_.TakeSteps(static_cast<int64_t>(items.size()) * 10);
    std::ranges::stable_sort(items, [&](const auto* left, const auto* right) {
      return IsLess(left->first, right->first, budget_);
    });
  }
  out_ += '{';
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    BeginItem(i == 0);
    WriteKey(items[i]->first);
    out_ += format_.key_separator;
    budget_.TakeBytes(format_.key_separator.size());
    Write(items[i]->second);
  }
  --level_;
  if (!items.empty()) BreakLine();
  out_ += '}';
}

void JsonWriter::WriteKey(const Value& key) {
  if (key.is(Kind::kString)) {
    WriteString(key.text());
  } else if (key.is_number() || key.is(Kind::kNone)) {
    out_ += '"';
    Write(key);
    out_ += '"';
  } else {
    Fail("keys must be str, int, float, bool or None, not ", TypeName(key));
  }
}

void JsonWriter::WriteFloat(double value) {
  if (std::isnan(value)) {
    out_ += "NaN";
  } else if (std::isinf(value)) {
    out_ += value < 0 ? "-Infinity" : "Infinity";
  } else {
    out_ += FormatFloat(value);
  }
}

void AppendEscaped(uint32_t code_point, std::string* out) {
  if (code_point < 0x10000) {
    *out += absl::StrFormat("\\u%04x", code_point);
    return;
  }
  const uint32_t rest = code_point - 0x10000;
  *out += absl::StrFormat("\\u%04x\\u%04x", 0xD800 + (rest >> 10),
                          0xDC00 + (rest & 0x3FF));
}

void JsonWriter::WriteString(const Text& text) {
  budget_.TakeBytes(text.size());
  has_input_ = has_input_ || text.has_input();
  const std::string_view bytes = text.bytes();
  out_ += '"';
  for (size_t i = 0; i < bytes.size(); i += CharacterSize(bytes[i])) {
    switch (const char byte = bytes[i]) {
      case '"':
        out_ += "\\\"";
        break;
      case '\\':
        out_ += "\\\\";
        break;
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\f':
        out_ += "\\f";
        break;
      case '\b':
        out_ += "\\b";
        break;
      default: {
        const uint32_t code_point = FirstCodePoint(bytes.substr(i));
        if (code_point < 0x20 || (format_.ensure_ascii && code_point > 0x7E)) {
          // 0x7F is ASCII, and stays.
          if (code_point == 0x7F) {
            out_ += byte;
          } else {
            AppendEscaped(code_point, &out_);
          }
        } else {
          out_ += bytes.substr(i, CharacterSize(byte));
        }
      }
    }
  }
  out_ += '"';
}

}  // namespace

Text ToJson(const Value& value, const JsonFormat& format, Budget& budget) {
  JsonWriter writer(format, budget);
  writer.Write(value);
  return writer.Take();
}

}  // namespace espalier::jinja
