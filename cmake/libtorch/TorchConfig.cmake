# Finds libtorch by its headers and libraries alone: -DTorch_DIR=<this folder> -DNPU_TRAIN_LIBTORCH=<folder with include/ and lib/>
# The CMake package of a libtorch with CUDA requires the CUDA toolkit, which npu_train does not need.
# Without lib/, sources can be compiled but not linked; scripts/check_torch uses this.
if(NOT EXISTS "${NPU_TRAIN_LIBTORCH}/include/torch/headeronly/version.h")
  message(FATAL_ERROR "NPU_TRAIN_LIBTORCH='${NPU_TRAIN_LIBTORCH}' contains no include/torch/headeronly/version.h; it must be the folder "
    "of a libtorch, for instance that of Python's package: python3 -c 'import torch; print(torch.__path__[0])'")
endif()
set(Torch_FOUND TRUE)
file(STRINGS ${NPU_TRAIN_LIBTORCH}/include/torch/headeronly/version.h npu_train_torch_lines
  REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
string(REGEX REPLACE "[^0-9;]" "" npu_train_torch_lines "${npu_train_torch_lines}")
string(REPLACE ";" "." Torch_VERSION "${npu_train_torch_lines}")
if(NOT TARGET torch)
  add_library(torch SHARED IMPORTED GLOBAL)
  set_target_properties(torch PROPERTIES IMPORTED_LOCATION ${NPU_TRAIN_LIBTORCH}/lib/libtorch.so)
  target_include_directories(torch INTERFACE ${NPU_TRAIN_LIBTORCH}/include ${NPU_TRAIN_LIBTORCH}/include/torch/csrc/api/include)
  target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO) # as libtorch's own package for Linux has it
  # These libraries are linked even if none of their symbols is used, because they register kernels and devices when they are loaded.
  foreach(npu_train_torch_library IN ITEMS torch_cpu torch_cuda c10 c10_cuda)
    if(EXISTS ${NPU_TRAIN_LIBTORCH}/lib/lib${npu_train_torch_library}.so)
      target_link_options(torch INTERFACE
        "LINKER:--push-state,--no-as-needed,${NPU_TRAIN_LIBTORCH}/lib/lib${npu_train_torch_library}.so,--pop-state")
    endif()
  endforeach()
  # The dependencies of these libraries are found when the program starts, by the paths that the libraries contain.
  target_link_options(torch INTERFACE LINKER:--allow-shlib-undefined)
  target_link_directories(torch INTERFACE ${NPU_TRAIN_LIBTORCH}/lib)
  # CUDA graphs need CUDA's headers and no other part of the toolkit.
  find_path(NPU_TRAIN_CUDA_INCLUDE cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(NPU_TRAIN_CUDA_INCLUDE AND EXISTS ${NPU_TRAIN_LIBTORCH}/lib/libtorch_cuda.so)
    add_library(torch_cuda SHARED IMPORTED GLOBAL)
    set_target_properties(torch_cuda PROPERTIES IMPORTED_LOCATION ${NPU_TRAIN_LIBTORCH}/lib/libtorch_cuda.so)
    target_include_directories(torch SYSTEM INTERFACE ${NPU_TRAIN_CUDA_INCLUDE})
  endif()
endif()
