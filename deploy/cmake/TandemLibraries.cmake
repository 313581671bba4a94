# Targets for libraries that come without a CMake package that can be used: Debian's of oneDNN demands OpenCL. Included by Tandem's build
# and by the installed TandemConfig.cmake.
foreach(library IN ITEMS dnnl isal utf8proc)
  if(TARGET Tandem::${library})
    continue()
  endif()
  string(TOUPPER ${library} prefix)
  set(header dnnl.hpp)
  if(library STREQUAL isal)
    set(header isa-l/crc.h)
  elseif(library STREQUAL utf8proc)
    set(header utf8proc.h)
  endif()
  find_path(${prefix}_INCLUDE ${header} REQUIRED)
  find_library(${prefix}_LIBRARY ${library} REQUIRED)
  add_library(Tandem::${library} UNKNOWN IMPORTED)
  set_target_properties(Tandem::${library} PROPERTIES IMPORTED_LOCATION "${${prefix}_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${${prefix}_INCLUDE}")
endforeach()
