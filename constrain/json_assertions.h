// JsonAssertions: what a JSON Schema asserts about one value, as variables of
// boolean formulas: its type, that it is in a set of strings or numbers, and
// assertions about the items of an array and the members of an object.
//
// An assertion about a type says nothing of other types' values: its formula
// has to. Assertions about children have a formula of their own over kSchema,
// "the value satisfies this subschema".
//
// Thread safety: none; one compilation's own.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "constrain/boolean_formula.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

enum class JsonType : uint8_t {
  kNull,
  kFalse,
  kTrue,
  kNumber,
  kString,
  kArray,
  kObject,
};
inline constexpr int kNumJsonTypes = 7;

struct JsonAssertion {
  enum class Kind : uint8_t {
    kSchema,     // it satisfies subschema `index`
    kType,       // it is of type `index`
    kNumber,     // the number is in set `index`
    kString,     // the string is in set `index`
    kMinLength,  // the string has at least `index` code points
    kItem,       // item `index`, if there is one, satisfies `child`
    kItemsFrom,  // so do all items from `index` on
    kContains,   // at least `index` items satisfy `child`
    kDistinct,   // items are distinct values of list `index`, none in `seen`
    kHas,        // the object has key `index`
    kProperty,   // the value of key `index`, if there is one, satisfies `child`
    kMembers,    // so do the values of all keys in the formula `keys`
    kMinMembers,  // there are at least `index` members
  };

  Kind kind = Kind::kSchema;
  int64_t index = 0;
  Formula child = FormulaPool::kTrue;
  Formula keys = FormulaPool::kTrue;  // over kString
  uint32_t seen = 0;                  // bits of the list's values

  friend auto operator<=>(const JsonAssertion&, const JsonAssertion&) = default;
};

class JsonAssertions {
 public:
  using Kind = JsonAssertion::Kind;
  static constexpr int64_t kNoMaxLength = std::numeric_limits<int64_t>::max();

  // `budget` outlives this.
  //   max_unrolled_length  strings of more code points are told by kMinLength,
  //                        where they are those that a maxLength leaves out
  //   max_unrolled_least   the same of a minLength
  explicit JsonAssertions(CompileBudget* budget,
                          int64_t max_unrolled_length = kNoMaxLength,
                          int64_t max_unrolled_least = kNoMaxLength)
      : budget_(budget),
        pool_(budget),
        max_unrolled_length_(max_unrolled_length),
        max_unrolled_least_(max_unrolled_least) {}

  FormulaPool& pool() { return pool_; }
  CompileBudget* budget() { return budget_; }

  Formula Add(const JsonAssertion& assertion);
  const JsonAssertion& Of(int32_t variable) const { return all_[variable]; }

  Formula IsType(JsonType type) {
    return Add({.kind = Kind::kType, .index = static_cast<int64_t>(type)});
  }
  // Returns the formula that values of other types satisfy, too.
  Formula IfType(JsonType type, Formula formula) {
    return pool_.Or({Not(IsType(type)), formula});
  }
  Formula Schema(int32_t id) {
    return Add({.kind = Kind::kSchema, .index = id});
  }
  // Returns the formula that is left of `formula` for values of a type.
  Formula ForType(Formula formula, JsonType type);

  // Returns the assertion that a string, or number, is in a language. `name`
  // tells languages of a kind apart; `make` compiles an unknown one.
  // `is_complete`: it has all strings that are meant, so that its complement
  // has none.
  absl::StatusOr<Formula> AddLanguage(
      Kind kind, std::string name,
      absl::FunctionRef<absl::StatusOr<ByteAutomaton>()> make,
      bool is_complete = true);
  // Returns the assertion that a string has at least `length` code points; a
  // kMinLength if these are more than `max_unrolled`. `name` is for errors,
  // unless other names are given for `length`: "minLength 5000".
  absl::StatusOr<Formula> AddMinLength(int64_t length, int64_t max_unrolled,
                                       std::string name);
  int64_t max_unrolled_length() const { return max_unrolled_length_; }
  int64_t max_unrolled_least() const { return max_unrolled_least_; }
  // Returns the assertion that a string is one of `texts`.
  absl::StatusOr<Formula> AddTexts(Kind kind, std::vector<std::string> texts);

  // Returns the strings, or numbers, of a formula over kString, or kNumber;
  // null if there are none. A language of numbers is over canonical ones unless
  // the formula is kTrue.
  // Errors: kInvalidArgument if the budget is spent, or if the complement of an
  // incomplete language is needed.
  absl::StatusOr<const ByteAutomaton*> Strings(Formula formula);
  // Strings of a set with at most, and at least, so many code points.
  struct BoundedStrings {
    Formula strings;     // over kString without kMinLength
    int64_t max_length;  // or kNoMaxLength
    int64_t min_length = 0;
  };
  // Returns sets whose union is that of a formula over kString, each with some
  // string, by their lengths; unset if the formula has no kMinLength, or is no
  // such union: its strings of some length have to be among those with less. Or
  // there is one set, and its strings alone have a least length.
  // Errors: as Strings().
  absl::StatusOr<std::optional<std::vector<BoundedStrings>>> ByLength(
      Formula formula);
  // Returns the name of a language of a formula over kString that is enforced
  // by a part of its strings; null if there is none.
  const std::string* IncompleteIn(Formula formula) const;
  // True if Strings() has any.
  absl::StatusOr<bool> HasStrings(Formula formula);
  absl::StatusOr<const ByteAutomaton*> Numbers(Formula formula);
  // True if `string` is in the language of a formula over kString, false if it
  // is not or if only an incomplete language would have it.
  // Errors: kInvalidArgument if it is unknown whether an incomplete language
  // lacks `string`, and the formula asks for that.
  absl::StatusOr<bool> HasString(Formula formula, std::string_view string);

  // Numbers of keys, in the order of their first appearance.
  int64_t AddKey(std::string_view key);
  const std::string& KeyOf(int64_t index) const { return *keys_[index]; }

 private:
  struct Language {
    ByteAutomaton automaton;
    bool is_complete = true;
    std::string name;
  };
  using Languages = std::map<Formula, std::optional<ByteAutomaton>>;

  // Returns the language of a kString, kNumber or kMinLength.
  absl::StatusOr<const Language*> LanguageOf(int32_t variable);
  // Returns the error that the complement of an incomplete language is needed.
  static absl::Status IncompleteError(const Language& language);
  absl::StatusOr<const ByteAutomaton*> Combine(Formula formula,
                                               const ByteAutomaton& universe,
                                               Languages* known);

  CompileBudget* budget_;
  FormulaPool pool_;
  const int64_t max_unrolled_length_;
  const int64_t max_unrolled_least_;
  std::deque<JsonAssertion> all_;  // by variable
  std::map<JsonAssertion, int32_t> variables_;
  std::deque<Language> languages_;
  std::map<std::pair<Kind, std::string>, int64_t> language_ids_;
  std::map<int64_t, Language> lengths_;          // by the least
  std::map<int64_t, std::string> length_names_;  // by the least
  // Shared by all compilations; null: not needed yet.
  const ByteAutomaton* any_string_ = nullptr;
  const ByteAutomaton* any_number_ = nullptr;
  const ByteAutomaton* canonical_number_ = nullptr;
  Languages strings_;
  Languages numbers_;
  std::map<std::string, int64_t, std::less<>> key_ids_;
  std::vector<const std::string*> keys_;
};

}  // namespace espalier
