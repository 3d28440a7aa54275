// The expressions of Parser.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/number.h"
#include "text/jinja/parser.h"

namespace espalier::jinja {
namespace {

constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

}  // namespace

ExpressionPtr Parser::Make(ExpressionKind kind, Position at) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->at = at;
  return expression;
}

void Parser::AddChild(Expression* parent, ExpressionPtr child) const {
  if (child != nullptr) {
    parent->depth = std::max(parent->depth, child->depth + 1);
    if (parent->depth > kMaxNesting) {
      throw TemplateError(parent->at,
                          Concat("nested more than ", kMaxNesting, " deep"));
    }
  }
  parent->children.push_back(std::move(child));
}

ExpressionPtr Parser::MakeBinary(ExpressionKind kind, std::string text,
                                 ExpressionPtr left,
                                 ExpressionPtr right) const {
  ExpressionPtr binary = Make(kind, left->at);
  binary->text = std::move(text);
  AddChild(binary.get(), std::move(left));
  AddChild(binary.get(), std::move(right));
  return binary;
}

bool Parser::AtTupleEnd(const Ends& ends) const {
  return current().kind == TokenKind::kVariableEnd ||
         current().kind == TokenKind::kBlockEnd || IsOperator(")") ||
         IsAnyName(ends);
}

ExpressionPtr Parser::ParseTuple(bool with_conditional, const Ends& ends,
                                 bool in_parentheses) {
  const Position at = current().at;
  std::vector<ExpressionPtr> items;
  bool has_comma = false;
  while (!AtTupleEnd(ends)) {
    items.push_back(ParseExpression(with_conditional));
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  if (!has_comma && !items.empty()) return std::move(items[0]);
  if (!has_comma && !in_parentheses) {
    FailHere(Concat("expected an expression, got ", Describe(current())));
  }
  ExpressionPtr tuple = Make(ExpressionKind::kTuple, at);
  for (ExpressionPtr& item : items) AddChild(tuple.get(), std::move(item));
  return tuple;
}

ExpressionPtr Parser::ParseExpression(bool with_conditional) {
  const Nesting nesting(this);
  return with_conditional ? ParseConditional() : ParseOr();
}

ExpressionPtr Parser::ParseConditional() {
  const Nesting nesting(this);
  const size_t num_unknown = unknown_.size();
  ExpressionPtr expression = ParseOr();
  while (SkipName("if")) {
    unknown_.resize(num_unknown);  // the if may guard them
    ExpressionPtr conditional =
        Make(ExpressionKind::kConditional, expression->at);
    ++num_conditions_;
    AddChild(conditional.get(), ParseOr());
    AddChild(conditional.get(), std::move(expression));
    if (SkipName("else")) AddChild(conditional.get(), ParseConditional());
    --num_conditions_;
    expression = std::move(conditional);
  }
  return expression;
}

ExpressionPtr Parser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (SkipName("or")) {
    left = MakeBinary(ExpressionKind::kOr, "", std::move(left), ParseAnd());
  }
  return left;
}

ExpressionPtr Parser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (SkipName("and")) {
    left = MakeBinary(ExpressionKind::kAnd, "", std::move(left), ParseNot());
  }
  return left;
}

ExpressionPtr Parser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(this);
  ExpressionPtr negation = Make(ExpressionKind::kNot, Take().at);
  AddChild(negation.get(), ParseNot());
  return negation;
}

ExpressionPtr Parser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  ExpressionPtr compare = Make(ExpressionKind::kCompare, first->at);
  while (true) {
    std::string comparison;
    if (current().kind == TokenKind::kOperator &&
        std::ranges::count(kComparisons, current().text) > 0) {
      comparison = Take().text;
    } else if (SkipName("in")) {
      comparison = "in";
    } else if (IsName("not") && LookAhead().text == "in" &&
               LookAhead().kind == TokenKind::kName) {
      Take();
      Take();
      comparison = "not in";
    } else {
      break;
    }
    if (first != nullptr) AddChild(compare.get(), std::move(first));
    compare->operators.push_back(std::move(comparison));
    AddChild(compare.get(), ParseSum());
  }
  return compare->operators.empty() ? std::move(first) : std::move(compare);
}

ExpressionPtr Parser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (IsOperator("+") || IsOperator("-")) {
    std::string text = Take().text;
    left = MakeBinary(ExpressionKind::kBinary, std::move(text), std::move(left),
                      ParseConcat());
  }
  return left;
}

ExpressionPtr Parser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!IsOperator("~")) return first;
  ExpressionPtr concat = Make(ExpressionKind::kConcat, first->at);
  AddChild(concat.get(), std::move(first));
  while (SkipOperator("~")) AddChild(concat.get(), ParseProduct());
  return concat;
}

ExpressionPtr Parser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  while (IsOperator("*") || IsOperator("/") || IsOperator("//") ||
         IsOperator("%")) {
    std::string text = Take().text;
    left = MakeBinary(ExpressionKind::kBinary, std::move(text), std::move(left),
                      ParsePower());
  }
  return left;
}

ExpressionPtr Parser::ParsePower() {
  ExpressionPtr left = ParseUnary(true);
  while (SkipOperator("**")) {
    left = MakeBinary(ExpressionKind::kBinary, "**", std::move(left),
                      ParseUnary(true));
  }
  return left;
}

ExpressionPtr Parser::ParseUnary(bool with_filters) {
  const Nesting nesting(this);
  ExpressionPtr operand;
  if (IsOperator("-") || IsOperator("+")) {
    const Token sign = Take();
    operand = Make(ExpressionKind::kUnary, sign.at);
    operand->text = sign.text;
    AddChild(operand.get(), ParseUnary(false));
  } else {
    operand = ParsePrimary();
  }
  operand = ParsePostfix(std::move(operand));
  return with_filters ? ParseFilters(std::move(operand)) : std::move(operand);
}

void Parser::NoteName(std::string_view name) {
  for (Macro* const macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "varargs") macro->uses_varargs = true;
    if (name == "kwargs") macro->uses_kwargs = true;
  }
  if (name == "loop" && !loops_.empty()) {
    for (Statement* const loop : loops_) loop->uses_loop = true;
  }
}

ExpressionPtr Parser::ParsePrimary() {
  if (SkipOperator("(")) {
    ExpressionPtr tuple = ParseTuple(true, {}, /*in_parentheses=*/true);
    ExpectOperator(")");
    return tuple;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  if (current().kind != TokenKind::kName) return ParseLiteral();
  const Token token = Take();
  const std::string& name = token.text;
  ExpressionPtr expression = Make(ExpressionKind::kConstant, token.at);
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expression->value = Value::Bool(name == "true" || name == "True");
  } else if (name == "none" || name == "None") {
    expression->value = Value::None();
  } else {
    expression->kind = ExpressionKind::kName;
    expression->name = names_.Intern(name);
    NoteName(name);
  }
  return expression;
}

ExpressionPtr Parser::ParseLiteral() {
  if (current().kind == TokenKind::kInteger ||
      current().kind == TokenKind::kFloat) {
    return ParseNumber();
  }
  if (current().kind != TokenKind::kString) {
    FailHere(Concat("expected an expression, got ", Describe(current())));
  }
  ExpressionPtr literal = Make(ExpressionKind::kConstant, current().at);
  std::string text;
  while (current().kind == TokenKind::kString) text += Take().text;
  literal->value = Value::String(text);
  return literal;
}

ExpressionPtr Parser::ParseNumber() {
  const Token token = Take();
  ExpressionPtr literal = Make(ExpressionKind::kConstant, token.at);
  const char* const begin = token.text.data();
  const char* const end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) {
      throw TemplateError(token.at,
                          Concat(token.text, " is too large or too small"));
    }
    literal->value = Value::Float(number);
    return literal;
  }
  const char prefix = token.text.size() > 1 ? token.text[1] | 0x20 : ' ';
  const int base = prefix == 'x'   ? 16
                   : prefix == 'o' ? 8
                   : prefix == 'b' ? 2
                                   : 10;
  const std::optional<int64_t> number = ReadInteger(token.text, base);
  if (!number) {
    throw TemplateError(token.at, Concat(token.text, " is too large"));
  }
  literal->value = Value::Int(*number);
  return literal;
}

ExpressionPtr Parser::ParseList() {
  ExpressionPtr list = Make(ExpressionKind::kList, Take().at);
  while (!IsOperator("]")) {
    if (!list->children.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    AddChild(list.get(), ParseExpression());
  }
  ExpectOperator("]");
  return list;
}

ExpressionPtr Parser::ParseDict() {
  ExpressionPtr dict = Make(ExpressionKind::kDict, Take().at);
  while (!IsOperator("}")) {
    if (!dict->children.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    AddChild(dict.get(), ParseExpression());
    ExpectOperator(":");
    AddChild(dict.get(), ParseExpression());
  }
  ExpectOperator("}");
  return dict;
}

}  // namespace espalier::jinja
