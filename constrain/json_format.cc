#include "constrain/json_format.h"

#include <map>

#include "base/status.h"

namespace espalier {
namespace {

constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
    "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 3339 has the year 0000, but readers such as Python's datetime begin at
// 0001.
constexpr std::string_view kDate =
    "(?:(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-"
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|"
    "(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kOctet =
    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

// A label of a host name, of at most `max_length` characters. The third and the
// fourth are not both "-": such a label is in Punycode, which no regular
// expression checks.
std::string LabelPattern(int max_length) {
  return Concat("[A-Za-z0-9](?:[A-Za-z0-9]|[A-Za-z0-9-][A-Za-z0-9]|",
                "[A-Za-z0-9-]{2}[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9]",
                "[A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,", max_length - 5,
                "}[A-Za-z0-9])?");
}

// Host names of 8 labels of at most 30 characters, or of 4 of at most 63, 62,
// 62 and 62: less than 254 characters.
std::string HostnamePattern() {
  const std::string label = LabelPattern(30);
  return Concat(label, "(?:\\.", label, "){0,7}|", LabelPattern(63), "(?:\\.",
                LabelPattern(62), "){0,3}");
}

// As a host name, or with labels of kana, Han and Hangul characters.
std::string IdnHostnamePattern() {
  const std::string label =
      Concat("(?:", LabelPattern(30), "|[\\u3041-\\u3096\\u30A1-\\u30FA",
             "\\u4E00-\\u9FFF\\uAC00-\\uD7A3]{1,10})");
  return Concat(label, "(?:\\.", label, "){0,7}");
}

std::string Ipv6Pattern() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string v4 = Concat(kOctet, "(?:\\.", kOctet, "){3}");
  const std::string last = Concat("(?:", h, ":", h, "|", v4, ")");
  std::string pattern = Concat("(?:", h, ":){6}", last);
  // Up to n groups, "::", then the groups that are left.
  for (int left = 5; left >= 0; --left) {
    const int before = 5 - left;
    pattern += "|";
    if (before > 0)
      pattern += Concat("(?:(?:", h, ":){0,", before - 1, "}", h, ")?");
    pattern += Concat("::(?:", h, ":){", left, "}", last);
  }
  pattern += Concat("|(?:(?:", h, ":){0,5}", h, ")?::", h);
  pattern += Concat("|(?:(?:", h, ":){0,6}", h, ")?::");
  return pattern;
}

std::string DurationPattern() {
  const std::string time =
      "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string date =
      "(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)";
  return Concat("P(?:", date, "(?:", time, ")?|", time, "|[0-9]+W)");
}

// `host` is a pattern of host names, `more` are characters of a class.
std::string EmailPattern(std::string_view more, std::string_view host) {
  const std::string atom =
      Concat("[A-Za-z0-9!#$%&'*+/=?^_`{|}~", more, "\\-]+");
  return Concat(atom, "(?:\\.", atom, ")*@(?:", host, ")");
}

// RFC 6570, without the operators that it reserves.
std::string UriTemplatePattern() {
  const std::string name =
      "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+"
      "(?:\\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*(?::[1-9][0-9]{0,3}|\\*)?";
  return Concat("(?:[!#$&(-;=?-\\[\\]_a-zA-Z~]|%[0-9A-Fa-f]{2}|",
                "\\{[+#./;?&]?", name, "(?:,", name, ")*\\})*");
}

// Regular expressions that each dialect has: characters, escapes, classes and
// groups, not nested.
std::string RegexPattern() {
  const std::string atom =
      "(?:[A-Za-z0-9 _,:;@#%&=<>!\"'~/\\-.]|\\\\[dDwWsS.]|"
      "\\[[A-Za-z0-9]+\\])[*+?]?";
  return Concat("\\^?(?:", atom, "|\\((?:", atom, ")+\\)[*+?]?)*\\$?");
}

// A scheme, an authority and the rest of RFC 3986, or with more characters of
// RFC 3987.
std::string UriPattern(bool is_reference, std::string_view more) {
  const std::string chars = Concat("A-Za-z0-9._~!$&'()*+,;=:@", more, "\\-");
  const std::string pchar = Concat("(?:[", chars, "]|%[0-9A-Fa-f]{2})");
  const std::string no_colon =
      Concat("(?:[A-Za-z0-9._~!$&'()*+,;=@", more, "\\-]|%[0-9A-Fa-f]{2})");
  const std::string user =
      Concat("(?:[A-Za-z0-9._~!$&'()*+,;=:", more, "\\-]|%[0-9A-Fa-f]{2})*@");
  const std::string name =
      Concat("(?:[A-Za-z0-9._~!$&'()*+,;=", more, "\\-]|%[0-9A-Fa-f]{2})*");
  const std::string ipv6 = Ipv6Pattern();
  const std::string host = Concat("(?:\\[(?:", ipv6, ")\\]|", name, ")");
  const std::string authority =
      Concat("//(?:", user, ")?", host, "(?::[0-9]*)?(?:/", pchar, "*)*");
  const std::string absolute = Concat("/(?:", pchar, "+(?:/", pchar, "*)*)?");
  const std::string rootless = Concat(pchar, "+(?:/", pchar, "*)*");
  const std::string tail =
      Concat("(?:\\?(?:", pchar, "|[/?])*)?(?:#(?:", pchar, "|[/?])*)?");
  const std::string uri = Concat("[A-Za-z][A-Za-z0-9+.\\-]*:(?:", authority,
                                 "|", absolute, "|", rootless, ")?", tail);
  if (!is_reference) return uri;
  return Concat("(?:", uri, "|(?:", authority, "|", absolute, "|", no_colon,
                "+(?:/", pchar, "*)*)?", tail, ")");
}

std::map<std::string_view, JsonFormat> AllFormats() {
  // Code points of RFC 3987.
  const std::string more =
      "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}"
      "\\u{10000}-\\u{1FFFD}";
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  return {
      {"date", {std::string(kDate), true}},
      {"duration", {DurationPattern(), true}},
      {"ipv4", {Concat(kOctet, "(?:\\.", kOctet, "){3}"), true}},
      {"ipv6", {Ipv6Pattern(), true}},
      {"json-pointer", {pointer, true}},
      {"relative-json-pointer",
       {Concat("(?:0|[1-9][0-9]*)(?:#|", pointer, ")"), true}},
      {"uuid", {"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", true}},
      {"time", {std::string(kTime), false}},
      {"date-time", {Concat(kDate, "[Tt]", kTime), false}},
      {"email", {EmailPattern("", HostnamePattern()), false}},
      {"idn-email", {EmailPattern(more, IdnHostnamePattern()), false}},
      {"hostname", {HostnamePattern(), false}},
      {"idn-hostname", {IdnHostnamePattern(), false}},
      {"uri", {UriPattern(false, ""), false}},
      {"uri-reference", {UriPattern(true, ""), false}},
      {"iri", {UriPattern(false, more), false}},
      {"iri-reference", {UriPattern(true, more), false}},
      {"uri-template", {UriTemplatePattern(), false}},
      {"regex", {RegexPattern(), false}},
  };
}

}  // namespace

const JsonFormat* FindJsonFormat(std::string_view name) {
  static const auto* const formats =
      new std::map<std::string_view, JsonFormat>(AllFormats());
  const auto found = formats->find(name);
  return found == formats->end() ? nullptr : &found->second;
}

}  // namespace espalier
