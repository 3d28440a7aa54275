// Postfix expressions of Parser: attributes, elements, calls, filters and
// tests.
#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

namespace espalier::jinja {

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
