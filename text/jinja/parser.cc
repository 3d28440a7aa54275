#include "text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/filters.h"
#include "text/jinja/number.h"
#include "text/jinja/tests.h"

namespace espalier::jinja {
namespace {

constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};

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

ExpressionPtr Parser::ParsePostfix(ExpressionPtr object) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      object = ParseSubscript(std::move(object));
    } else if (IsOperator("(")) {
      object = ParseCall(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr Parser::ParseFilters(ExpressionPtr operand) {
  while (true) {
    if (SkipOperator("|")) {
      operand = ParseFilter(std::move(operand));
    } else if (IsName("is")) {
      operand = ParseTest(std::move(operand));
    } else if (IsOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      return operand;
    }
  }
}

std::string Parser::ParseDottedName() {
  std::string name = TakeName();
  while (SkipOperator(".")) name += "." + TakeName();
  return name;
}

ExpressionPtr Parser::ParseFilter(ExpressionPtr operand) {
  const Position at = current().at;
  ExpressionPtr filter = Make(ExpressionKind::kFilter, at);
  filter->text = ParseDottedName();
  if (num_conditions_ == 0 && FindFilter(filter->text) == nullptr) {
    unknown_.push_back(Concat("unknown filter \"", filter->text, "\""));
    if (unknown_.size() == 1) unknown_at_ = at;
  }
  AddChild(filter.get(), std::move(operand));
  if (IsOperator("(")) AddArguments(filter.get(), ParseArguments());
  return filter;
}

ExpressionPtr Parser::ParseTest(ExpressionPtr operand) {
  Take();  // is
  const Position is_not = current().at;
  const bool is_negated = SkipName("not");
  const Position at = current().at;
  ExpressionPtr test = Make(ExpressionKind::kTest, at);
  test->text = ParseDottedName();
  if (num_conditions_ == 0 && FindTest(test->text) == nullptr) {
    unknown_.push_back(Concat("unknown test \"", test->text, "\""));
    if (unknown_.size() == 1) unknown_at_ = at;
  }
  AddChild(test.get(), std::move(operand));
  const TokenKind kind = current().kind;
  if (IsOperator("(")) {
    AddArguments(test.get(), ParseArguments());
  } else if ((kind == TokenKind::kName && !IsAnyName({"else", "or", "and"})) ||
             kind == TokenKind::kString || kind == TokenKind::kInteger ||
             kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{")) {
    if (IsName("is")) FailHere("tests cannot be chained with \"is\"");
    CallArguments arguments;
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
    AddArguments(test.get(), std::move(arguments));
  }
  if (!is_negated) return test;
  ExpressionPtr negation = Make(ExpressionKind::kNot, is_not);
  AddChild(negation.get(), std::move(test));
  return negation;
}

ExpressionPtr Parser::ParseSubscript(ExpressionPtr object) {
  const Token token = Take();
  if (token.text == ".") {
    if (current().kind == TokenKind::kInteger) {
      ExpressionPtr item = Make(ExpressionKind::kItem, token.at);
      AddChild(item.get(), std::move(object));
      AddChild(item.get(), ParseNumber());
      return item;
    }
    ExpressionPtr attribute = Make(ExpressionKind::kAttribute, token.at);
    attribute->text = TakeName();
    AddChild(attribute.get(), std::move(object));
    return attribute;
  }
  ExpressionPtr key;
  if (!IsOperator(":")) key = ParseExpression();
  if (IsOperator(":")) return ParseSlice(std::move(object), std::move(key));
  ExpressionPtr item = Make(ExpressionKind::kItem, token.at);
  AddChild(item.get(), std::move(object));
  if (IsOperator(",")) {  // a tuple is the key
    ExpressionPtr tuple = Make(ExpressionKind::kTuple, key->at);
    AddChild(tuple.get(), std::move(key));
    while (SkipOperator(",")) AddChild(tuple.get(), ParseExpression());
    key = std::move(tuple);
  }
  AddChild(item.get(), std::move(key));
  ExpectOperator("]");
  return item;
}

ExpressionPtr Parser::ParseSlice(ExpressionPtr object, ExpressionPtr begin) {
  ExpressionPtr slice = Make(ExpressionKind::kSlice, object->at);
  AddChild(slice.get(), std::move(object));
  AddChild(slice.get(), std::move(begin));
  for (int i = 0; i < 2; ++i) {
    const bool has_colon = SkipOperator(":");
    const bool is_given = has_colon && !IsOperator(":") && !IsOperator("]");
    AddChild(slice.get(), is_given ? ParseExpression() : nullptr);
  }
  ExpectOperator("]");
  return slice;
}

ExpressionPtr Parser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(ExpressionKind::kCall, callee->at);
  AddChild(call.get(), std::move(callee));
  AddArguments(call.get(), ParseArguments());
  return call;
}

void Parser::AddArguments(Expression* call, CallArguments arguments) const {
  const auto add = [&](const ExpressionPtr& argument) {
    if (argument != nullptr) {
      call->depth = std::max(call->depth, argument->depth + 1);
    }
  };
  std::ranges::for_each(arguments.positional, add);
  for (const auto& [name, argument] : arguments.named) add(argument);
  add(arguments.more_positional);
  add(arguments.more_named);
  if (call->depth > kMaxNesting) {
    throw TemplateError(call->at,
                        Concat("nested more than ", kMaxNesting, " deep"));
  }
  call->arguments = std::move(arguments);
}

CallArguments Parser::ParseArguments() {
  const Nesting nesting(this);
  CallArguments arguments;
  ExpectOperator("(");
  bool is_first = true;
  while (!IsOperator(")")) {
    if (!std::exchange(is_first, false)) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    const bool has_more = arguments.more_named != nullptr;
    if (!has_more && arguments.more_positional == nullptr &&
        SkipOperator("*")) {
      arguments.more_positional = ParseExpression();
    } else if (!has_more && SkipOperator("**")) {
      arguments.more_named = ParseExpression();
    } else if (!has_more && current().kind == TokenKind::kName &&
               LookAhead().kind == TokenKind::kOperator &&
               LookAhead().text == "=") {
      std::string name = Take().text;
      Take();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else if (!has_more && arguments.more_positional == nullptr &&
               arguments.named.empty()) {
      arguments.positional.push_back(ParseExpression());
    } else {
      FailHere("this argument cannot follow those before it");
    }
  }
  ExpectOperator(")");
  return arguments;
}

}  // namespace espalier::jinja
