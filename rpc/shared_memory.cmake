tandem_library(tandem_shared_memory SOURCES ${CMAKE_SOURCE_DIR}/rpc/shared_memory.cc LINKS tandem_base)
