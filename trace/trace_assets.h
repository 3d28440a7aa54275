// Style sheets and script of the pictures of traces, built in from the files of
// these names.
#pragma once

#include <string_view>

namespace espalier {

extern const std::string_view kTraceTreeCss;  // trace_tree.css
extern const std::string_view kTracePageCss;  // trace_page.css
extern const std::string_view kTracePageJs;   // trace_page.js

}  // namespace espalier
