// Parser: a template's tokens as a syntax tree, by jinja2's grammar under
// transformers' settings: its statements but for those that load other
// templates, break and continue, and {% generation %}, which marks what an
// assistant says in training data and renders its body.
//
// What is nested deeper than kMaxNesting is refused, so that whatever walks
// through a tree may recurse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace espalier::jinja {

inline constexpr int kMaxNesting = 150;

class Parser {
 public:
  // The template that `source`, UTF-8, is; its names go to `names`.
  // Errors (thrown): what is wrong, with its place; a tag, filter or test that
  // does not exist, but for a filter or test within an if, which may guard it.
  static Body Parse(std::string_view source, Names* names);

 private:
  Parser(std::vector<Token> tokens, Names* names)
      : tokens_(std::move(tokens)), names_(*names) {}

  // Tokens.
  const Token& current() const { return tokens_[next_]; }
  const Token& LookAhead() const;
  Token Take();
  bool IsOperator(std::string_view text) const;
  bool IsName(std::string_view text) const;
  bool IsAnyName(const std::vector<std::string_view>& names) const;
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  void ExpectOperator(std::string_view text);
  void ExpectName(std::string_view text);
  std::string TakeName();
  [[noreturn]] void FailHere(const std::string& message) const;

  // Statements.
  using Ends = std::vector<std::string_view>;
  Body ParseUntil(const Ends& ends);
  // A statement's body, after the end of its tag; the current token is then
  // one of `ends`.
  Body ParseBody(const Ends& ends);
  // As ParseBody with one end, which is consumed.
  Body ParseBodyAndEnd(std::string_view end);
  void ParseStatement(Body* body);
  using StatementPtr = std::unique_ptr<Statement>;
  StatementPtr ParseFor();
  StatementPtr ParseIf();
  StatementPtr ParseSet();
  StatementPtr ParseMacro();
  StatementPtr ParseCallBlock();
  StatementPtr ParseFilterBlock();
  StatementPtr ParseWith();
  StatementPtr ParsePrint();
  StatementPtr ParseGeneration();
  StatementPtr ParseLoopControl();
  void ParseSignature(Macro* macro);
  Body ParseMacroBody(Macro* macro, std::string_view end);
  Target ParseTarget(bool with_namespace);
  Target ParseTargetPart(bool with_namespace);

  // Expressions. A tuple needs no parentheses where one may stand.
  ExpressionPtr ParseTuple(bool with_conditional, const Ends& ends,
                           bool in_parentheses = false);
  ExpressionPtr ParseExpression(bool with_conditional = true);
  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseLiteral();
  ExpressionPtr ParseNumber();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr object);
  ExpressionPtr ParseFilters(ExpressionPtr operand);
  ExpressionPtr ParseFilter(ExpressionPtr operand);
  ExpressionPtr ParseTest(ExpressionPtr operand);
  ExpressionPtr ParseSubscript(ExpressionPtr object);
  ExpressionPtr ParseSlice(ExpressionPtr object, ExpressionPtr begin);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  CallArguments ParseArguments();
  std::string ParseDottedName();
  bool AtTupleEnd(const Ends& ends) const;

  ExpressionPtr Make(ExpressionKind kind, Position at) const;
  // Adds children, and the depth that comes of them.
  void AddChild(Expression* parent, ExpressionPtr child) const;
  ExpressionPtr MakeBinary(ExpressionKind kind, std::string text,
                           ExpressionPtr left, ExpressionPtr right) const;
  void AddArguments(Expression* call, CallArguments arguments) const;
  void NoteName(std::string_view name);

  // Counts what is nested while it lives.
  class Nesting {
   public:
    explicit Nesting(Parser* parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // Errors of filters and tests that do not exist, and where the first one is.
  std::vector<std::string> unknown_;
  Position unknown_at_;

  const std::vector<Token> tokens_;
  size_t next_ = 0;
  Names& names_;
  int nesting_ = 0;
  int num_conditions_ = 0;      // ifs around
  int num_loops_ = 0;           // for statements around, within the same macro
  std::vector<Macro*> macros_;  // around, outermost first
  std::vector<Statement*> loops_;  // for statements around, outermost first
};

}  // namespace espalier::jinja
