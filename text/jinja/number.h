// Numbers in texts, as Python's int() and float() read them, and rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier::jinja {

// White space around, a sign and "_" between digits are allowed.
std::optional<int64_t> ReadInteger(std::string_view text, int base);
std::optional<double> ReadFloat(std::string_view text);

// int(): towards 0; nothing if it has more than 64 bits, or is none.
std::optional<int64_t> TruncatedInteger(double value);
// round() to `precision` digits after the point.
double RoundHalfEven(double value, int64_t precision);

}  // namespace espalier::jinja
