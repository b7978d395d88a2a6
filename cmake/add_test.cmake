# npu_train_add_test(NAME COMMAND...): calls add_test() and gives the test the seconds that .ci/budget.tsv has on record as its cost. ctest
# therefore starts the slowest tests first, and none of them is left for the end.
file(STRINGS ${PROJECT_SOURCE_DIR}/.ci/budget.tsv lines REGEX "^[a-z_0-9]+\\.")
foreach(line IN LISTS lines)
  string(REPLACE "\t" ";" line "${line}")
  list(GET line 0 name)
  list(GET line 1 NPU_TRAIN_SECONDS_OF_${name})
endforeach()

function(npu_train_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  if(DEFINED NPU_TRAIN_SECONDS_OF_${name})
    set_tests_properties(${name} PROPERTIES COST ${NPU_TRAIN_SECONDS_OF_${name}})
  endif()
endfunction()
