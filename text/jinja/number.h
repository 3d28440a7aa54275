// Numbers in texts, as Python's int() and float() read them, and rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier::jinja {

[[noreturn]] void FailOverflow();

// White space around, a sign and "_" between digits are allowed. As in Python,
// what has more than 4300 digits is no decimal number. Nothing, too, and
// `*is_too_large` is set, for an integer of more than 64 bits.
std::optional<int64_t> ReadInteger(std::string_view text, int base,
                                   bool* is_too_large = nullptr);
std::optional<double> ReadFloat(std::string_view text);

// int(): towards 0; nothing if it has more than 64 bits, or is none.
std::optional<int64_t> TruncatedInteger(double value);
// round() to `precision` digits after the point, before it if it is negative.
double RoundHalfEven(double value, int64_t precision);
// Errors (thrown): more than 64 bits.
int64_t RoundHalfEven(int64_t value, int64_t precision);

}  // namespace espalier::jinja
