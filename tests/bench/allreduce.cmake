add_executable(allreduce_bench ${CMAKE_CURRENT_LIST_DIR}/allreduce_bench.cc)
target_link_libraries(allreduce_bench PRIVATE tandem_comm)
