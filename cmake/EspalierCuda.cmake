# The CUDA compiler and libraries, for preset cuda alone.
#
# CMake 3.25 does not know how to ask nvcc for C++20 and would drop it.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Hopper, and PTX that the driver compiles for any GPU since Ampere.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${espalier_launcher})
endif()
find_package(CUDAToolkit 12.4 REQUIRED)
# Tests and benchmarks that have sources for CUDA. The others are made of the
# objects that they have without it: where these were built and run, to link them
# again shows nothing.
add_custom_target(cuda_programs)
