# target_cuda_sources(target SOURCES a.cu ... [DEPS target ...]
#                     [CUDA_LIBRARIES target ...])
# More sources of a target where ESPALIER_CUDA is on, else nothing. The headers
# of CUDA are for these sources alone, and for tests and benchmarks of them,
# which depend on CUDA::cudart_static: everything else is compiled as without
# CUDA, by the same commands, so that ccache has its objects already. Called once
# a target. A source with properties of its own has SKIP_UNITY_BUILD_INCLUSION.
function(target_cuda_sources target)
  if(NOT ESPALIER_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;CUDA_LIBRARIES" ${ARGN})
  if(CMAKE_UNITY_BUILD)
    espalier_join_cuda_sources(${target} ARG_SOURCES
      cc ${CMAKE_UNITY_BUILD_BATCH_SIZE})
    # A kernel takes far longer to compile than its headers, so a unity file has
    # an eighth as many .cu as .cc. Of 0, all in one file, they stay apart, too.
    math(EXPR size "${CMAKE_UNITY_BUILD_BATCH_SIZE} / 8")
    if(size GREATER 1)
      espalier_join_cuda_sources(${target} ARG_SOURCES cu ${size})
    endif()
  endif()
  target_sources(${target} PRIVATE ${ARG_SOURCES})
  foreach(library IN LISTS ARG_CUDA_LIBRARIES ITEMS CUDA::cudart_static)
    target_link_libraries(${target} PUBLIC $<LINK_ONLY:${library}>)
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_DEPS})
  # CMake's own unity files would take them, too: from 3.31 on those of CUDA.
  set_source_files_properties(${ARG_SOURCES} PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
  # nvcc finds them by itself.
  list(FILTER ARG_SOURCES EXCLUDE REGEX "\\.cu$")
  if(ARG_SOURCES)
    # Joined, because from CUDA 13 on there are several.
    list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -isystem
      OUTPUT_VARIABLE include_options)
    set_property(SOURCE ${ARG_SOURCES} APPEND PROPERTY COMPILE_OPTIONS
      ${include_options})
  endif()
endfunction()

# espalier_join_cuda_sources(target sources extension size)
# Unity files of so many sources with the extension, in place of them in the
# list `sources` of a target: CMake makes none of CUDA, nor of sources with
# options of their own, as those have that include headers of CUDA. Those with
# CMake's property SKIP_UNITY_BUILD_INCLUSION stay apart.
function(espalier_join_cuda_sources target sources extension size)
  set(compiled ${${sources}})
  set(joined ${${sources}})
  list(FILTER joined INCLUDE REGEX "\\.${extension}$")
  foreach(source IN LISTS joined)
    get_source_file_property(apart ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(apart)
      list(REMOVE_ITEM joined ${source})
    endif()
  endforeach()
  if(NOT joined)
    return()
  endif()
  if(size LESS 1)  # CMake's word for all in one file
    list(LENGTH joined size)
  endif()
  list(REMOVE_ITEM compiled ${joined})
  set(number 0)
  while(joined)
    list(SUBLIST joined 0 ${size} part)
    list(REMOVE_ITEM joined ${part})
    list(TRANSFORM part REPLACE "(.+)"
      "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n")
    list(JOIN part "" content)
    set(unity_file
      "${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda_${number}.${extension}")
    file(CONFIGURE OUTPUT "${unity_file}" CONTENT "${content}" @ONLY)
    list(APPEND compiled "${unity_file}")
    math(EXPR number "${number} + 1")
  endwhile()
  set(${sources} ${compiled} PARENT_SCOPE)
endfunction()

# espalier_library(NAME room SOURCES a.cc ... [DEPS target ...]
#                  [PRIVATE_DEPS target ...] [NOT_INSTALLED])
# One library a folder, linked by its alias espalier::room, and listed in the
# global property ESPALIER_ROOMS, unless it is no part of the library that is
# installed. PRIVATE_DEPS are those that no header of the room includes.
function(espalier_library)
  cmake_parse_arguments(ARG "NOT_INSTALLED" "NAME" "SOURCES;DEPS;PRIVATE_DEPS"
    ${ARGN})
  set(target espalier_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS} espalier_environment)
  add_library(espalier::${ARG_NAME} ALIAS ${target})
  if(NOT ARG_NOT_INSTALLED)
    set_property(GLOBAL APPEND PROPERTY ESPALIER_ROOMS ${target})
  endif()
endfunction()

# espalier_program(NAME program SOURCES a.cc ... DEPS target ...)
function(espalier_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} espalier_environment)
  if(ESPALIER_CUDA AND ARG_DEPS MATCHES
      "CUDA::cudart_static|gpu_test_main|executor_cuda|espalier::cuda")
    add_dependencies(cuda_programs ${ARG_NAME})
  endif()
endfunction()

# How a test is compiled and run, of all kinds.
function(espalier_set_up_test name)
  # To optimize the tests' own code, and with it what they use of headers, takes
  # longer than it saves. What the libraries are compiled of is optimized.
  if(CMAKE_BUILD_TYPE STREQUAL "Release" OR ESPALIER_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # Seconds after which it counts as hanging: under a sanitizer, on a slow
  # machine, the longest takes ten minutes.
  set_tests_properties(${name} PROPERTIES TIMEOUT 2400)
  if(ESPALIER_SANITIZE)
    # All of them run without one (tests/few_cases.h).
    set_property(TEST ${name} PROPERTY ENVIRONMENT ESPALIER_FEW_CASES=1
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  endif()
endfunction()

# espalier_test(NAME room_test SOURCES a_test.cc ... DEPS target ...)
# One executable and one ctest entry a room. Tests find data and
# models through tests/source_tree.h.
function(espalier_test)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  espalier_program(NAME ${ARG_NAME} SOURCES ${ARG_SOURCES}
    DEPS ${ARG_DEPS} espalier::source_tree GTest::gmock_main rapidcheck)
  espalier_set_up_test(${ARG_NAME})
endfunction()

# espalier_properties(NAME room_test SEED s CASES n [MAX_SIZE m])
# Properties of a test draw the same n cases in every run, under a sanitizer a
# tenth of them. Run by hand, they draw new ones.
function(espalier_properties)
  cmake_parse_arguments(ARG "" "NAME;SEED;CASES;MAX_SIZE" "" ${ARGN})
  if(ESPALIER_SANITIZE)
    math(EXPR ARG_CASES "(${ARG_CASES} + 9) / 10")
  endif()
  set(params "seed=${ARG_SEED} max_success=${ARG_CASES}")
  if(ARG_MAX_SIZE)
    string(APPEND params " max_size=${ARG_MAX_SIZE}")
  endif()
  set_property(TEST ${ARG_NAME} APPEND PROPERTY
    ENVIRONMENT "RC_PARAMS=${params}")
endfunction()

# espalier_cuda_host_test(NAME test SOURCES a_test.cc ... DEPS ...)
# As espalier_test, for what code for CUDA does on the host, which needs no
# device: labelled cuda. Nothing without ESPALIER_CUDA.
function(espalier_cuda_host_test)
  if(NOT ESPALIER_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  espalier_test(NAME ${ARG_NAME} SOURCES ${ARG_SOURCES}
    DEPS ${ARG_DEPS} CUDA::cudart_static)
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS cuda)
endfunction()

# espalier_cuda_dry_run_test(NAME test SOURCES a_test.cc ... DEPS ...)
# As espalier_cuda_host_test, with tests/cuda_dry_run.h in place of a device.
function(espalier_cuda_dry_run_test)
  if(NOT ESPALIER_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  espalier_cuda_host_test(NAME ${ARG_NAME}
    SOURCES ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/cuda_dry_run.cc"
    DEPS ${ARG_DEPS})
  foreach(name
      cudaEventCreate cudaEventCreateWithFlags cudaEventDestroy
      cudaEventElapsedTime cudaEventQuery cudaEventRecord cudaEventSynchronize
      cudaFree cudaFreeHost cudaFuncGetAttributes cudaFuncSetAttribute
      cudaGetDevice cudaGetDriverEntryPoint cudaGetDriverEntryPointByVersion
      cudaHostAlloc cudaHostGetDevicePointer cudaHostRegister
      cudaHostUnregister cudaLaunchKernelExC cudaMalloc cudaMemcpy
      cudaMemcpyAsync cudaMemGetInfo cudaMemset cudaMemsetAsync
      cudaOccupancyMaxActiveClusters cudaSetDevice cudaStreamCreateWithFlags
      cudaStreamDestroy cudaStreamSynchronize cudaStreamWaitEvent)
    target_link_options(${ARG_NAME} PRIVATE -Wl,--wrap=${name})
  endforeach()
endfunction()

# espalier_gpu_test(NAME room_gpu_test SOURCES a_gpu_test.cc ... DEPS ...)
# As espalier_test, for tests that need a device: labelled gpu (ctest -L gpu),
# and reported as skipped where there is none. Nothing without ESPALIER_CUDA.
function(espalier_gpu_test)
  if(NOT ESPALIER_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  espalier_program(NAME ${ARG_NAME} SOURCES ${ARG_SOURCES}
    DEPS ${ARG_DEPS} espalier::source_tree espalier::gpu_test_main
      rapidcheck)
  espalier_set_up_test(${ARG_NAME})
  # As in development, also where CI asks for larger unity files: some of these
  # sources have names in common that do not meet so.
  set_target_properties(${ARG_NAME} PROPERTIES UNITY_BUILD_BATCH_SIZE 12)
  # The GPU would wait for oracles without optimization.
  target_compile_options(${ARG_NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS gpu SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endfunction()
