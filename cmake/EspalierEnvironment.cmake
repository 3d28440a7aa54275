# The compiler, and what every target of ours is built with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(espalier_launcher "${CCACHE_PROGRAM}")
  if(NOT DEFINED ENV{CCACHE_BASEDIR})
    # The sources of a unity build lie in the build folder. By relative paths
    # presets release and cuda have the same objects.
    set(espalier_launcher "${CMAKE_COMMAND}" -E env
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${CCACHE_PROGRAM}")
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${espalier_launcher})
endif()

find_package(Threads REQUIRED)

# Linked privately by every target of ours, never by a user's.
add_library(espalier_environment INTERFACE)
# Our code has no warning under GCC 12; those of another compiler must not keep
# a user from building, so they are errors only where we develop.
set(espalier_warnings
  -Wall -Wextra -Wshadow -Wno-sign-compare
  $<$<BOOL:${ESPALIER_WERROR}>:-Werror>
  # GCC 12 warns about the frames of coroutines that it made itself, and about
  # "literal" + std::string (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized
  -Wno-mismatched-new-delete -Wno-restrict
  # Of unnamed namespaces in headers; a unity build includes sources, too.
  $<$<BOOL:${CMAKE_UNITY_BUILD}>:-Wno-subobject-linkage>>)
target_compile_options(espalier_environment INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${espalier_warnings}>
  # In C++, one rounding an operation: GCC fuses a product and a sum wherever
  # the instruction set can, by its own choice, and then the same expression
  # has other bits in another function, inlined elsewhere, on another processor
  # or in its reference twin. Everything that decides a token would feel it, in
  # any room: scores, edits, noise, sums. Where a fused product is meant, it is
  # written (vector_math-inl.h); no speed is lost, for baseline x86-64 has none.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # GCC collects its garbage less often, which saves a tenth of its time and
  # takes up to half as much memory again: 1.7 GB for the largest tests in asan.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=400
  --param=ggc-min-heapsize=1000000>
  # GCC inlines no more once the code of a file has grown by 40%: then what is
  # inlined depends on which sources share a unity file. A step of the scheduler
  # takes up to 8% more instructions so. For targets with the property
  # ESPALIER_ON_STEP_PATH, which the rooms that plan and answer steps have.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<CONFIG:Release>,$<BOOL:$<TARGET_PROPERTY:ESPALIER_ON_STEP_PATH>>>:--param=inline-unit-growth=100>
  # nvcc speaks to the host compiler through -Xcompiler, and its own generated
  # code is not free of warnings.
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda>
  # It is the same machine code, and takes a quarter longer to compile.
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${ESPALIER_CUDA_LINEINFO}>>:-lineinfo>)
# In a program's first build optimization takes half of the time, and more of it
# than it saves later where little is computed: for targets with the property
# ESPALIER_COMPUTES_LITTLE, unless they are on the path of a step.
if(NOT ESPALIER_SANITIZE)
  target_compile_options(espalier_environment INTERFACE
    $<$<AND:$<CONFIG:Release>,$<BOOL:$<TARGET_PROPERTY:ESPALIER_COMPUTES_LITTLE>>,$<NOT:$<BOOL:$<TARGET_PROPERTY:ESPALIER_ON_STEP_PATH>>>>:-O1>)
endif()
# Clang before 17 has coroutines and does not say so.
target_compile_definitions(espalier_environment INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,17>>:__cpp_impl_coroutine=201902L>)
if(ESPALIER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ESPALIER_FUZZ takes Clang, got "
      "${CMAKE_CXX_COMPILER_ID}: cmake --preset fuzz")
  endif()
  target_compile_options(espalier_environment INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()
if(ESPALIER_SANITIZE)
  target_compile_options(espalier_environment INTERFACE
    -fsanitize=${ESPALIER_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer
    # Three of UndefinedBehaviorSanitizer's checks double the time of compiling
    # and slow the tests, so that they are on in preset asan-all, and elsewhere
    # where a target says so: what casts memory to another type.
    $<$<NOT:$<OR:$<BOOL:${ESPALIER_SANITIZE_ALL}>,$<BOOL:$<TARGET_PROPERTY:ESPALIER_SANITIZE_ALL>>>>:-fno-sanitize=null,vptr,alignment>
    # What Clang puts before functions for this check, it puts into the parts of
    # coroutines, too, where it does not assemble.
    $<$<AND:$<CXX_COMPILER_ID:Clang>,$<BOOL:$<TARGET_PROPERTY:ESPALIER_HAS_COROUTINES>>>:-fno-sanitize=function>
    # Asio uses fences, which TSan does not model; it stays correct.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  # With all checks in it, a room takes twice as long to compile with
  # optimization as without. Where tests compute little, that is more than they
  # lose: for targets with the property ESPALIER_COMPUTES_LITTLE. Fuzzers want
  # many inputs a second of all of them.
  if(NOT ESPALIER_FUZZ)
    target_compile_options(espalier_environment INTERFACE
      $<$<BOOL:$<TARGET_PROPERTY:ESPALIER_COMPUTES_LITTLE>>:-O0>)
  endif()
  target_link_options(espalier_environment INTERFACE
    -fsanitize=${ESPALIER_SANITIZE})
endif()
