#include "text/jinja/parser.h"

#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"

namespace espalier::jinja {
namespace {

std::unique_ptr<Statement> MakeStatement(StatementKind kind, Position at) {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->at = at;
  return statement;
}

}  // namespace

Parser::Nesting::Nesting(Parser* parser) : parser_(*parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;
    parser_.FailHere(Concat("nested more than ", kMaxNesting, " deep"));
  }
}

Body Parser::Parse(std::string_view source, Names* names) {
  Parser parser(Tokenize(source), names);
  Body body = parser.ParseUntil({});
  if (!parser.unknown_.empty()) {
    throw TemplateError(parser.unknown_at_, parser.unknown_[0]);
  }
  return body;
}

const Token& Parser::LookAhead() const {
  return tokens_[std::min(next_ + 1, tokens_.size() - 1)];
}

Token Parser::Take() {
  Token token = current();
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool Parser::IsOperator(std::string_view text) const {
  return current().kind == TokenKind::kOperator && current().text == text;
}

bool Parser::IsName(std::string_view text) const {
  return current().kind == TokenKind::kName && current().text == text;
}

bool Parser::IsAnyName(const std::vector<std::string_view>& names) const {
  return std::ranges::any_of(
      names, [&](std::string_view name) { return IsName(name); });
}

bool Parser::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Take();
  return true;
}

bool Parser::SkipName(std::string_view text) {
  if (!IsName(text)) return false;
  Take();
  return true;
}

void Parser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) {
    FailHere(Concat("expected \"", text, "\", got ", Describe(current())));
  }
}

void Parser::ExpectName(std::string_view text) {
  if (!SkipName(text)) {
    FailHere(Concat("expected \"", text, "\", got ", Describe(current())));
  }
}

std::string Parser::TakeName() {
  if (current().kind != TokenKind::kName) {
    FailHere(Concat("expected a name, got ", Describe(current())));
  }
  return Take().text;
}

void Parser::FailHere(const std::string& message) const {
  throw TemplateError(current().at, message);
}

Body Parser::ParseUntil(const Ends& ends) {
  Body body;
  while (current().kind != TokenKind::kEnd) {
    const Position at = current().at;
    if (current().kind == TokenKind::kData) {
      auto data = MakeStatement(StatementKind::kData, at);
      data->text = Take().text;
      body.push_back(std::move(data));
    } else if (current().kind == TokenKind::kVariableBegin) {
      Take();
      auto output = MakeStatement(StatementKind::kOutput, at);
      output->expressions.push_back(ParseTuple(true, {}));
      if (current().kind != TokenKind::kVariableEnd) {
        FailHere(Concat("expected \"}}\", got ", Describe(current())));
      }
      Take();
      body.push_back(std::move(output));
    } else {
      Take();  // the block's beginning
      if (IsAnyName(ends)) return body;
      ParseStatement(&body);
      if (current().kind != TokenKind::kBlockEnd) {
        FailHere(Concat("expected \"%}\", got ", Describe(current())));
      }
      Take();
    }
  }
  if (!ends.empty()) {
    FailHere(Concat("expected {% ", ends.back(),
                    " %}, got the end of the template"));
  }
  return body;
}

Body Parser::ParseBody(const Ends& ends) {
  SkipOperator(":");
  if (current().kind != TokenKind::kBlockEnd) {
    FailHere(Concat("expected \"%}\", got ", Describe(current())));
  }
  Take();
  return ParseUntil(ends);
}

Body Parser::ParseBodyAndEnd(std::string_view end) {
  Body body = ParseBody({end});
  Take();
  return body;
}

void Parser::ParseStatement(Body* body) {
  const Nesting nesting(this);
  if (current().kind != TokenKind::kName) {
    FailHere(Concat("expected a tag's name, got ", Describe(current())));
  }
  using ParseMember = StatementPtr (Parser::*)();
  constexpr std::pair<std::string_view, ParseMember> kParsers[] = {
      {"if", &Parser::ParseIf},
      {"for", &Parser::ParseFor},
      {"set", &Parser::ParseSet},
      {"macro", &Parser::ParseMacro},
      {"call", &Parser::ParseCallBlock},
      {"filter", &Parser::ParseFilterBlock},
      {"with", &Parser::ParseWith},
      {"print", &Parser::ParsePrint},
      {"generation", &Parser::ParseGeneration},
      {"break", &Parser::ParseLoopControl},
      {"continue", &Parser::ParseLoopControl}};
  for (const auto& [name, parse] : kParsers) {
    if (!IsName(name)) continue;
    const Position at = current().at;
    StatementPtr statement = (this->*parse)();
    statement->at = at;
    body->push_back(std::move(statement));
    return;
  }
  FailHere(Concat("unknown tag ", Describe(current())));
}

std::unique_ptr<Statement> Parser::ParseFor() {
  Take();
  auto loop = MakeStatement(StatementKind::kFor, {});
  loop->targets.push_back(ParseTarget(false));
  ExpectName("in");
  loop->expressions.push_back(ParseTuple(false, {"recursive"}));
  loop->expressions.push_back(SkipName("if") ? ParseExpression() : nullptr);
  if (IsName("recursive")) FailHere("a recursive for is not supported");
  ++num_loops_;
  loops_.push_back(loop.get());
  loop->body = ParseBody({"endfor", "else"});
  loops_.pop_back();
  --num_loops_;
  if (Take().text == "else") loop->or_else = ParseBodyAndEnd("endfor");
  return loop;
}

std::unique_ptr<Statement> Parser::ParseIf() {
  auto statement = MakeStatement(StatementKind::kIf, {});
  ++num_conditions_;
  while (true) {
    Take();  // if or elif
    Branch branch;
    branch.condition = ParseTuple(false, {});
    branch.body = ParseBody({"elif", "else", "endif"});
    statement->branches.push_back(std::move(branch));
    if (IsName("elif")) continue;
    if (Take().text == "else") statement->body = ParseBodyAndEnd("endif");
    break;
  }
  --num_conditions_;
  return statement;
}

std::unique_ptr<Statement> Parser::ParseSet() {
  Take();
  auto statement = MakeStatement(StatementKind::kSet, {});
  statement->targets.push_back(ParseTarget(true));
  if (SkipOperator("=")) {
    statement->expressions.push_back(ParseTuple(true, {}));
    return statement;
  }
  statement->kind = StatementKind::kSetBlock;
  ExpressionPtr filter;
  while (SkipOperator("|")) filter = ParseFilter(std::move(filter));
  statement->expressions.push_back(std::move(filter));
  statement->body = ParseBodyAndEnd("endset");
  return statement;
}

std::unique_ptr<Statement> Parser::ParseMacro() {
  Take();
  auto statement = MakeStatement(StatementKind::kMacro, {});
  statement->macro = std::make_unique<Macro>();
  Macro* const macro = statement->macro.get();
  macro->name = TakeName();
  // The variable that receives the macro.
  statement->targets.emplace_back();
  statement->targets[0].name = names_.Intern(macro->name);
  ParseSignature(macro);
  macro->body = ParseMacroBody(macro, "endmacro");
  return statement;
}

Body Parser::ParseMacroBody(Macro* macro, std::string_view end) {
  const int num_loops = std::exchange(num_loops_, 0);
  macros_.push_back(macro);
  Body body = ParseBodyAndEnd(end);
  macros_.pop_back();
  num_loops_ = num_loops;
  return body;
}

void Parser::ParseSignature(Macro* macro) {
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!macro->parameters.empty()) ExpectOperator(",");
    const NameId name = names_.Intern(TakeName());
    if (!macro->places.try_emplace(name, macro->parameters.size()).second) {
      FailHere(Concat("parameter \"", names_[name], "\" is there twice"));
    }
    macro->parameters.push_back(name);
    if (SkipOperator("=")) {
      macro->defaults.push_back(ParseExpression());
    } else if (!macro->defaults.empty()) {
      FailHere("a parameter without a default follows one with a default");
    }
  }
  ExpectOperator(")");
}

std::unique_ptr<Statement> Parser::ParseCallBlock() {
  Take();
  auto statement = MakeStatement(StatementKind::kCallBlock, {});
  statement->macro = std::make_unique<Macro>();
  Macro* const macro = statement->macro.get();
  macro->name = "caller";
  if (IsOperator("(")) ParseSignature(macro);
  ExpressionPtr call = ParseExpression();
  if (call->kind != ExpressionKind::kCall) {
    throw TemplateError(call->at, "a call block needs a call");
  }
  statement->expressions.push_back(std::move(call));
  macro->body = ParseMacroBody(macro, "endcall");
  return statement;
}

std::unique_ptr<Statement> Parser::ParseFilterBlock() {
  Take();
  auto statement = MakeStatement(StatementKind::kFilterBlock, {});
  ExpressionPtr filter = ParseFilter(nullptr);
  while (SkipOperator("|")) filter = ParseFilter(std::move(filter));
  statement->expressions.push_back(std::move(filter));
  statement->body = ParseBodyAndEnd("endfilter");
  return statement;
}

std::unique_ptr<Statement> Parser::ParseWith() {
  Take();
  auto statement = MakeStatement(StatementKind::kWith, {});
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->targets.empty()) ExpectOperator(",");
    statement->targets.push_back(ParseTargetPart(false));
    ExpectOperator("=");
    statement->expressions.push_back(ParseExpression());
  }
  statement->body = ParseBodyAndEnd("endwith");
  return statement;
}

std::unique_ptr<Statement> Parser::ParsePrint() {
  Take();
  auto statement = MakeStatement(StatementKind::kOutput, {});
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->expressions.empty()) ExpectOperator(",");
    statement->expressions.push_back(ParseExpression());
  }
  return statement;
}

std::unique_ptr<Statement> Parser::ParseGeneration() {
  Take();
  auto statement = MakeStatement(StatementKind::kScope, {});
  statement->body = ParseBodyAndEnd("endgeneration");
  return statement;
}

std::unique_ptr<Statement> Parser::ParseLoopControl() {
  if (num_loops_ == 0) {
    FailHere(Concat("{% ", current().text, " %} stands outside of a loop"));
  }
  const bool is_break = Take().text == "break";
  return MakeStatement(
      is_break ? StatementKind::kBreak : StatementKind::kContinue, {});
}

Target Parser::ParseTarget(bool with_namespace) {
  Target tuple;
  tuple.is_tuple = true;
  bool has_comma = false;
  while (true) {
    if (has_comma && (IsName("in") || IsOperator("=") || IsOperator(")") ||
                      current().kind == TokenKind::kBlockEnd)) {
      break;
    }
    tuple.parts.push_back(ParseTargetPart(with_namespace));
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  return has_comma ? tuple : std::move(tuple.parts[0]);
}

Target Parser::ParseTargetPart(bool with_namespace) {
  const Nesting nesting(this);
  if (SkipOperator("(")) {
    Target target = ParseTarget(with_namespace);
    ExpectOperator(")");
    return target;
  }
  const Position at = current().at;
  const std::string name = TakeName();
  for (const char* constant :
       {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) {
      throw TemplateError(at, Concat("cannot assign to \"", name, "\""));
    }
  }
  Target target;
  target.name = names_.Intern(name);
  if (with_namespace && SkipOperator(".")) target.attribute = TakeName();
  return target;
}

}  // namespace espalier::jinja
