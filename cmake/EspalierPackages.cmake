# The libraries we stand on. tools/install_dependencies.sh installs them.
# Abseil and Boost are used as system headers: their warnings are not ours.
find_package(absl REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(PkgConfig REQUIRED)
# libhwy-contrib has Highway's vector sort.
pkg_check_modules(HIGHWAY REQUIRED IMPORTED_TARGET libhwy libhwy-contrib)
# Regular expressions and Unicode of tokenizer.json.
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
# Files of audio; from 1.1 on MP3, too.
pkg_check_modules(SNDFILE REQUIRED IMPORTED_TARGET sndfile>=1.1)
# Compression ratios of transcripts.
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
if(ESPALIER_BUILD_EXAMPLES)
  find_package(CLI11 REQUIRED)
endif()
if(ESPALIER_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(ESPALIER_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
