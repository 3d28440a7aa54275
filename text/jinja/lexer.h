// Lexer: a template's source as tokens, with jinja2's rules for white space
// under trim_blocks and lstrip_blocks: a block that ends a line takes the line
// end with it, and white space before a block or a comment that begins a line
// is dropped; "-" drops all white space on its side, and "+" keeps it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/error.h"

namespace espalier::jinja {

enum class TokenKind {
  kData,  // what stands outside of tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  // Data, a name, an operator as written, or what a string says. A number is
  // as written, without "_".
  std::string text;
  Position at;
};

// The tokens of `source`, which is UTF-8; the last is kEnd.
// Errors (thrown): what is wrong, with its place.
std::vector<Token> Tokenize(std::string_view source);

// Returns the description of a token for errors.
std::string Describe(const Token& token);

}  // namespace espalier::jinja
