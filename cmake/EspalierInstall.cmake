# What `cmake --install` and cpack hand to others: one library of all rooms,
# static and shared from the same objects, the public headers under
# include/espalier/, a CMake package, a pkg-config file and the program.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# A person reads these. What they include of the rooms is installed beside them.
set(espalier_public_headers
  espalier/async_stream.h
  espalier/chat.h
  espalier/defaults.h
  espalier/engine.h
  espalier/executor.h
  espalier/generator.h
  espalier/items.h
  espalier/model.h
  espalier/request.h
  espalier/result.h
  espalier/stats.h
  espalier/status.h
  espalier/tokenizer.h
  espalier/trace.h
  espalier/transcriber.h
  espalier/update_weights.h)
if(ESPALIER_CUDA)
  list(APPEND espalier_public_headers espalier/cuda.h)
endif()

# The libraries. Both are libespalier to the linker, and each is the target
# espalier::espalier of the CMake package, which loads one of them.
get_property(rooms GLOBAL PROPERTY ESPALIER_ROOMS)
list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>"
  OUTPUT_VARIABLE objects)
add_library(espalier_static STATIC ${objects})
add_library(espalier_shared SHARED ${objects})
foreach(library IN ITEMS espalier_static espalier_shared)
  set_target_properties(${library} PROPERTIES
    OUTPUT_NAME espalier
    EXPORT_NAME espalier
    LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  # What public headers include.
  target_link_libraries(${library} PUBLIC
    absl::inlined_vector absl::status absl::statusor absl::strings absl::time
    Boost::headers Boost::json Threads::Threads)
endforeach()

# What the objects call besides.
set(link_only PkgConfig::HIGHWAY PkgConfig::PCRE2 PkgConfig::SENTENCEPIECE
  PkgConfig::SNDFILE PkgConfig::UTF8PROC PkgConfig::ZLIB)
if(ESPALIER_CUDA)
  list(APPEND link_only CUDA::cudart_static ${CMAKE_DL_LIBS})
endif()
target_link_libraries(espalier_shared PRIVATE ${link_only})
list(TRANSFORM link_only REPLACE "PkgConfig::" "PkgConfig::ESPALIER_")
list(TRANSFORM link_only REPLACE "(.+)" "$<INSTALL_INTERFACE:$<LINK_ONLY:\\1>>")
target_link_libraries(espalier_static INTERFACE ${link_only})

# Symbols other than the API are hidden by the linker: the objects are those of
# the static library, of the tests and of the programs.
set(version_script "${PROJECT_SOURCE_DIR}/cmake/espalier.map")
target_link_options(espalier_shared PRIVATE
  "LINKER:--version-script=${version_script}" LINKER:--no-undefined)
# Before 1.0 each minor version may change the ABI.
set_target_properties(espalier_shared PROPERTIES
  LINK_DEPENDS "${version_script}"
  VERSION "${PROJECT_VERSION}"
  SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")

# Headers, when they are installed (InstallHeaders.cmake).
install(CODE "
  set(espalier_source_dir \"${PROJECT_SOURCE_DIR}\")
  set(espalier_staging_dir \"${PROJECT_BINARY_DIR}/include\")
  set(espalier_public_headers \"${espalier_public_headers}\")")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/InstallHeaders.cmake")
install(DIRECTORY "${PROJECT_BINARY_DIR}/include/espalier"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# The CMake package.
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/espalier")
foreach(kind IN ITEMS static shared)
  install(TARGETS espalier_${kind} EXPORT espalier_${kind}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  install(EXPORT espalier_${kind} NAMESPACE espalier::
    FILE espalier-${kind}.cmake DESTINATION "${package_dir}")
endforeach()
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/espalierConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/espalierConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/espalierConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/espalierConfig.cmake"
  "${PROJECT_BINARY_DIR}/espalierConfigVersion.cmake"
  DESTINATION "${package_dir}")

# pkg-config. Its file finds the prefix from where it lies itself, so that what
# was installed can be moved; not where a folder was given as an absolute path.
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pkgconfig_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH pkgconfig_prefix "/${pkgconfig_dir}" "/")
  string(PREPEND pkgconfig_prefix "\${pcfiledir}/")
endif()
foreach(dir IN ITEMS LIBDIR INCLUDEDIR)
  set(pkgconfig_${dir} "${CMAKE_INSTALL_${dir}}")
  if(NOT IS_ABSOLUTE "${pkgconfig_${dir}}")
    string(PREPEND pkgconfig_${dir} "\${prefix}/")
  endif()
endforeach()
set(cuda_libs_private)
if(ESPALIER_CUDA)
  set(cuda_libs_private
    "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/espalier.pc.in"
  "${PROJECT_BINARY_DIR}/espalier.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/espalier.pc"
  DESTINATION "${pkgconfig_dir}")

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME copyright)
if(ESPALIER_BUILD_EXAMPLES)
  install(TARGETS espalier_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# cpack: a .deb. The libraries that it was linked with are found by
# dpkg-shlibdeps; those whose headers ours include are named here.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the espalier developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "Beam search and parallel sampling for language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(boost_version "${Boost_VERSION_MAJOR}.${Boost_VERSION_MINOR}")
string(JOIN ", " CPACK_DEBIAN_PACKAGE_DEPENDS
  libabsl-dev
  libboost${boost_version}-dev
  libboost-json${boost_version}-dev
  libhwy-dev
  libpcre2-dev
  libsentencepiece-dev
  libsndfile1-dev
  libutf8proc-dev
  pkg-config
  zlib1g-dev)
include(CPack)
