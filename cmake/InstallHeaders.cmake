# Run by cmake --install: puts the public headers, and all that they include of
# the rooms, below espalier/ in the staging folder. There "base/ids.h" is
# "espalier/base/ids.h", so that no name of ours is another's.
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE "${espalier_staging_dir}")
set(waiting ${espalier_public_headers})
set(seen)
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${header})
  file(READ "${espalier_source_dir}/${header}" text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.+)\"" "\\1" included "${include}")
    if(NOT EXISTS "${espalier_source_dir}/${included}")
      continue()  # another library's
    endif()
    list(APPEND waiting ${included})
    if(NOT included MATCHES "^espalier/")
      string(REPLACE "${include}" "#include \"espalier/${included}\""
        text "${text}")
    endif()
  endforeach()
  string(REGEX REPLACE "^espalier/" "" name "${header}")
  file(WRITE "${espalier_staging_dir}/espalier/${name}" "${text}")
endwhile()
