# Tests of the repository itself: style, scripts, the code in the README, programs that use the installed library.
include(${CMAKE_CURRENT_LIST_DIR}/add_test.cmake)
set(scripts ${PROJECT_SOURCE_DIR}/scripts)

npu_train_add_test(style.format ${scripts}/format --check)
npu_train_add_test(style.scripts ${scripts}/check_scripts)
find_program(NPU_TRAIN_PYTHON python3)
if(NPU_TRAIN_PYTHON)
  npu_train_add_test(style.readme ${NPU_TRAIN_PYTHON} ${scripts}/check_readme)
  npu_train_add_test(style.config_docs ${NPU_TRAIN_PYTHON} ${scripts}/check_config_docs)
  npu_train_add_test(style.mutants ${NPU_TRAIN_PYTHON} ${scripts}/mutants --check)
  npu_train_add_test(style.tests ${NPU_TRAIN_PYTHON} ${scripts}/check_tests)
  npu_train_add_test(style.tests_self_test ${NPU_TRAIN_PYTHON} ${PROJECT_SOURCE_DIR}/tests/architecture/check_tests_test.py)
  set_tests_properties(style.readme style.mutants style.tests PROPERTIES TIMEOUT 60)
endif()
# Gloo's classes are only declared here, without their layout. If the library contained one of their vtables, its objects would have another
# layout than libtorch's.
if(NPU_TRAIN_DIST)
  npu_train_add_test(style.gloo_declarations sh -c
    "nm -C --defined-only \"$1\" | awk '/npu_train::/ { ours = 1 } /vtable for gloo/ { other = 1 } END { exit !ours || other }'" sh
    $<TARGET_FILE:npu_train>)
endif()
npu_train_add_test(style.docs ${scripts}/docs CONFIGURATIONS full)
set_tests_properties(style.docs PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
set_tests_properties(style.format style.scripts PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)

# Tests of the configuration `full` (scripts/test -C full, and CI), which compile many sources again with all cores, one at a time. They count
# as one process: ctest would start a test that counts as two only when two others end at once, so most of these would run alone at the end.
# scripts/prove runs those that take longest.
function(npu_train_add_full_test name)
  npu_train_add_test(${name} ${ARGN} CONFIGURATIONS full)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3000 RESOURCE_LOCK all_cores)
endfunction()

if(NPU_TRAIN_BUILD_BOTH AND NPU_TRAIN_INSTALL AND CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(kind static shared package)
    npu_train_add_full_test(consumer.${kind} ${scripts}/test_consumers ${kind} ${PROJECT_BINARY_DIR})
  endforeach()
endif()

# The vector kernels under Clang.
npu_train_add_full_test(compiler.clang ${scripts}/check_clang)

# The rooms that read untrusted files, under the sanitizers.
npu_train_add_full_test(sanitizers.asan ${scripts}/sanitize asan core io text data)
