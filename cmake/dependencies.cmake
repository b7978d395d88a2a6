# Torch is the only public dependency; all others are private to single source files.
# A libtorch that the caller names (Torch_DIR, CMAKE_PREFIX_PATH, also as environment variables) takes precedence over the wheel that
# scripts/setup installs.
file(GLOB npu_train_wheel ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch)
set(CMAKE_MESSAGE_LOG_LEVEL ERROR) # only for this call: the wheel warns about a profiler library that is not needed
find_package(Torch QUIET GLOBAL HINTS ${npu_train_wheel})
unset(CMAKE_MESSAGE_LOG_LEVEL)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "libtorch was not found. Run scripts/setup, which installs it into .venv, or name your own libtorch: "
    "-DTorch_DIR=/path/to/libtorch/share/cmake/Torch")
endif()
if(NPU_TRAIN_LIBTORCH)
  set(NPU_TRAIN_TORCH_PREFIX ${NPU_TRAIN_LIBTORCH})
else()
  get_filename_component(NPU_TRAIN_TORCH_PREFIX "${Torch_DIR}/../../.." ABSOLUTE)
endif()
# The header of NCCL, for ranks on CUDA devices. libtorch contains the library, and pip's package the header.
if(TARGET torch_cuda AND NPU_TRAIN_DIST)
  find_path(NPU_TRAIN_NCCL_INCLUDE nccl.h HINTS ${NPU_TRAIN_TORCH_PREFIX}/../nvidia/nccl/include)
endif()
# npu_train_imported(NAME INCLUDE LIBRARY): a target for a library that has no CMake package.
function(npu_train_imported name include library)
  add_library(${name} INTERFACE IMPORTED)
  target_include_directories(${name} SYSTEM INTERFACE ${include})
  target_link_libraries(${name} INTERFACE ${library})
endfunction()

find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
if(NPU_TRAIN_TOOLS)
  find_package(CLI11 REQUIRED)
endif()
if(NPU_TRAIN_TOOLS AND NPU_TRAIN_SERVE)
  find_path(NPU_TRAIN_MICROHTTPD_INCLUDE microhttpd.h REQUIRED) # the server loads the library
  npu_train_imported(npu_train_microhttpd "${NPU_TRAIN_MICROHTTPD_INCLUDE}" "${CMAKE_DL_LIBS}")
endif()
find_path(NPU_TRAIN_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(NPU_TRAIN_HWY_LIBRARY hwy REQUIRED)
npu_train_imported(npu_train_highway "${NPU_TRAIN_HWY_INCLUDE}" "${NPU_TRAIN_HWY_LIBRARY}")
find_path(NPU_TRAIN_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(NPU_TRAIN_PROTOZERO_INCLUDE protozero/pbf_writer.hpp REQUIRED) # headers only
find_path(NPU_TRAIN_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED) # only its headers, and the fmt next to them
# The libraries that a program must link in addition to the installed static library: plain -l names, so that it needs no CMake packages for
# them.
set(NPU_TRAIN_PLAIN_NEEDS yaml-cpp pthread ${CMAKE_DL_LIBS}) # npu_train::check
set(NPU_TRAIN_STATIC_NEEDS hwy ${NPU_TRAIN_PLAIN_NEEDS})
if(NPU_TRAIN_TEXT)
  find_path(NPU_TRAIN_PCRE2_INCLUDE pcre2.h REQUIRED)
  find_library(NPU_TRAIN_PCRE2_LIBRARY pcre2-8 REQUIRED)
  npu_train_imported(npu_train_pcre2 "${NPU_TRAIN_PCRE2_INCLUDE}" "${NPU_TRAIN_PCRE2_LIBRARY}")
  find_path(NPU_TRAIN_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
  find_library(NPU_TRAIN_UTF8PROC_LIBRARY utf8proc REQUIRED)
  npu_train_imported(npu_train_utf8proc "${NPU_TRAIN_UTF8PROC_INCLUDE}" "${NPU_TRAIN_UTF8PROC_LIBRARY}")
  list(PREPEND NPU_TRAIN_STATIC_NEEDS pcre2-8 utf8proc)
endif()
if(NPU_TRAIN_IMAGES)
  find_package(JPEG REQUIRED)
  find_package(ZLIB REQUIRED)
  find_path(NPU_TRAIN_SPNG_INCLUDE spng.h REQUIRED)
  find_library(NPU_TRAIN_SPNG_LIBRARY spng REQUIRED)
  npu_train_imported(npu_train_spng "${NPU_TRAIN_SPNG_INCLUDE}" "${NPU_TRAIN_SPNG_LIBRARY}")
  find_path(NPU_TRAIN_WEBP_INCLUDE webp/demux.h REQUIRED)
  find_library(NPU_TRAIN_WEBP_LIBRARY webp REQUIRED)
  find_library(NPU_TRAIN_WEBPDEMUX_LIBRARY webpdemux REQUIRED)
  npu_train_imported(npu_train_webp "${NPU_TRAIN_WEBP_INCLUDE}" "${NPU_TRAIN_WEBPDEMUX_LIBRARY};${NPU_TRAIN_WEBP_LIBRARY}")
  list(PREPEND NPU_TRAIN_STATIC_NEEDS jpeg spng webpdemux webp z)
elseif(NPU_TRAIN_TOOLS)
  message(FATAL_ERROR "The tools read images: NPU_TRAIN_IMAGES=OFF needs NPU_TRAIN_TOOLS=OFF too")
endif()
