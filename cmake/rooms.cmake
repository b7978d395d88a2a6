# Each folder of src/ and src/tools/, and models/, is a room: an OBJECT library. rooms.txt lists them and the rooms that each may include,
# and the CMakeLists.txt of a room its sources. The rooms of src/ form the library npu_train; those of src/tools/ form npu_train_align,
# npu_train_measure, npu_train_migrate and npu_train_tools, which depend on it (docs/tools.md). The rooms that are compiled without
# libtorch also form the library npu_train_check, with which a program explains why a machine does not train.
set(NPU_TRAIN_ROOMS "")
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/rooms.txt table REGEX "^[^#]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/rooms.txt)
foreach(line IN LISTS table)
  if(NOT line MATCHES "^([a-z_/]+):([a-z_/ ]*)$")
    message(FATAL_ERROR "cmake/rooms.txt: '${line}' is not ROOM: ROOM...")
  endif()
  set(room ${CMAKE_MATCH_1})
  separate_arguments(NPU_TRAIN_BELOW_${room} UNIX_COMMAND "${CMAKE_MATCH_2}")
  if(room MATCHES "^[a-z_]+$" OR (NPU_TRAIN_TOOLS AND room MATCHES "^tools/[a-z_]+$")) # not a part of a room
    list(APPEND NPU_TRAIN_ROOMS ${room})
  endif()
endforeach()
if(NPU_TRAIN_TOOLS)
  set(NPU_TRAIN_TOOL_LIBRARIES check align measure migrate tools)
endif()

set(NPU_TRAIN_WARNING_OPTIONS $<$<BOOL:${NPU_TRAIN_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 falsely reports overlaps, overruns and uninitialised reads in std::string and std::variant (its bugs 105651, 105329).
  list(APPEND NPU_TRAIN_WARNING_OPTIONS -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-maybe-uninitialized)
endif()

# npu_train_plain_flags: for sources without libtorch. npu_train_flags: with libtorch and OpenMP.
foreach(flags IN ITEMS npu_train_plain_flags npu_train_flags)
  set(openmp "")
  set(torch "")
  if(flags STREQUAL "npu_train_flags")
    set(openmp $<IF:$<BOOL:${NPU_TRAIN_OPENMP}>,-fopenmp,-fopenmp-simd>)
    set(torch torch)
  endif()
  add_library(${flags} INTERFACE)
  target_compile_features(${flags} INTERFACE cxx_std_20)
  target_compile_options(${flags} INTERFACE -Wall -Wextra -Wno-unused-parameter ${openmp} ${NPU_TRAIN_WARNING_OPTIONS}
    # By default GCC's garbage collection takes a fifth of the compilation of a source that includes libtorch.
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=4000000>)
  # libtorch is built with NDEBUG, and without it a class in its headers (RecordFunction) has a different layout. Therefore our sources
  # define it in every configuration. They contain no assert(), and a program that uses the library keeps its own setting.
  target_compile_definitions(${flags} INTERFACE $<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:NDEBUG>)
  target_include_directories(${flags} INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/plugins ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${flags} INTERFACE ${torch} Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
# The same soname as the runtime that libtorch_cpu loads.
target_link_options(npu_train_flags INTERFACE $<$<BOOL:${NPU_TRAIN_OPENMP}>:-fopenmp>)

configure_file(${PROJECT_SOURCE_DIR}/include/npu_train/core/version.hpp.in
  ${PROJECT_BINARY_DIR}/generated/npu_train/core/version.hpp @ONLY)

# npu_train_target_of(OUT ROOM): the target of a room or part: npu_train_io, npu_train_tools_align.
function(npu_train_target_of out room)
  string(REPLACE "/" "_" name ${room})
  set(${out} npu_train_${name} PARENT_SCOPE)
endfunction()

# npu_train_room_closure(OUT ROOM...): these rooms and all rooms below them, with their parts.
function(npu_train_room_closure out)
  set(todo ${ARGN})
  set(done "")
  while(todo)
    list(POP_FRONT todo next)
    if(NOT next IN_LIST done)
      list(APPEND done ${next})
      npu_train_target_of(target ${next})
      get_target_property(below ${target} NPU_TRAIN_BELOW)
      list(APPEND todo ${below})
    endif()
  endwhile()
  set(${out} ${done} PARENT_SCOPE)
endfunction()

# npu_train_add_objects(TARGET ROOM...): the objects of exactly these rooms and parts ("io/tensors"), and the libraries that they use.
function(npu_train_add_objects target)
  foreach(room IN LISTS ARGN)
    npu_train_target_of(objects ${room})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:$<TARGET_PROPERTY:${objects},NPU_TRAIN_LINKS>>)
    if(room STREQUAL "core")
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:npu_train_spdlog>)
    endif()
  endforeach()
endfunction()

# npu_train_link_rooms(TARGET ROOM...): a program of these rooms and those below them.
function(npu_train_link_rooms target)
  target_link_libraries(${target} PRIVATE npu_train_flags)
  npu_train_room_closure(all ${ARGN})
  npu_train_add_objects(${target} ${all})
endfunction()

# npu_train_compile_together(TARGET ROOM): compiles the sources of a target that uses libtorch in batches and, from `device` upwards, with
# one precompiled header of libtorch's most expensive headers, because the headers of a source take more time than the source itself: four
# batches of 6 sources take 1.6 times as long as one of 24, and a batch of few sources costs 10 s for its headers alone.
# -fPIC: the precompiled header is compiled with it, and GCC would reject it with the -fPIE of a program. -fpch-preprocess: ccache needs it
# for precompiled headers. -fno-pch-timestamp: the same header produces the same file, which ccache then recognises.
function(npu_train_compile_together target room)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${NPU_TRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 32)
  npu_train_room_closure(closure ${room})
  if("device" IN_LIST closure)
    target_precompile_headers(${target} REUSE_FROM ${NPU_TRAIN_PCH})
    target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# npu_train_embed_facts(ROOM TABLE...): every table facts/NAME.tsv of the room becomes a text npu_train::facts::NAME of
# "ROOM/facts/NAME.hpp", so that a program needs no data files.
function(npu_train_embed_facts room)
  foreach(table IN LISTS ARGN)
    get_filename_component(NPU_TRAIN_FACTS_NAME ${table} NAME_WE)
    file(READ facts/${table} NPU_TRAIN_FACTS_TEXT)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS facts/${table})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/facts.hpp.in
      ${PROJECT_BINARY_DIR}/generated/${room}/facts/${NPU_TRAIN_FACTS_NAME}.hpp @ONLY)
  endforeach()
endfunction()

# npu_train_add_room(ROOM [WITHOUT_LIBTORCH] [PART_OF ROOM] [LINKS LIBRARY...] [VECTOR_SOURCES FILE...] SOURCES FILE...)
#
# LINKS           the third-party libraries that its sources use
# PART_OF         a folder of a room that is compiled as a target of its own, and linked wherever the room is
# VECTOR_SOURCES  kernels of several instruction sets: they must produce the same bits with each, so the compiler must not fuse
#                 multiplications and additions. With a precompiled header, GCC would fuse them nevertheless: a function with an instruction
#                 set of its own then has the options that the header was compiled with.
#
# Each function has a section of its own, so that a program that links the static library contains only the functions that it uses, although
# a batch of sources is one object.
function(npu_train_add_room room)
  cmake_parse_arguments(PARSE_ARGV 1 of "WITHOUT_LIBTORCH" "PART_OF" "LINKS;VECTOR_SOURCES;SOURCES")
  set_source_files_properties(${of_VECTOR_SOURCES} PROPERTIES COMPILE_OPTIONS -ffp-contract=off SKIP_PRECOMPILE_HEADERS ON
    SKIP_UNITY_BUILD_INCLUSION ON)
  set(flags npu_train_flags)
  if(of_WITHOUT_LIBTORCH)
    set(flags npu_train_plain_flags)
  endif()
  npu_train_target_of(target ${room})
  add_library(${target} OBJECT ${of_SOURCES} ${of_VECTOR_SOURCES})
  set(below ${NPU_TRAIN_BELOW_${room}})
  if(of_PART_OF)
    npu_train_target_of(whole ${of_PART_OF})
    if(NOT DEFINED NPU_TRAIN_BELOW_${room})
      get_target_property(below ${whole} NPU_TRAIN_BELOW)
    endif()
    set_property(TARGET ${whole} APPEND PROPERTY NPU_TRAIN_BELOW ${room})
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON NPU_TRAIN_BELOW "${below}" NPU_TRAIN_LINKS "${of_LINKS}"
    NPU_TRAIN_WITHOUT_LIBTORCH ${of_WITHOUT_LIBTORCH})
  target_link_libraries(${target} PRIVATE ${flags} ${of_LINKS})
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections $<$<CXX_COMPILER_ID:GNU>:-Wshadow;-Wconversion>)
  # These rooms leave work that takes time to other rooms, except tools/align, which compares dumps itself. -O3 takes 1.5 times as long to
  # compile as -O1.
  if(room MATCHES "^(engine|export|tools/.*)$" AND NOT room STREQUAL "tools/align")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(of_WITHOUT_LIBTORCH)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ${NPU_TRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 32)
  else()
    npu_train_compile_together(${target} ${room})
  endif()
endfunction()

# npu_train_extend_room(ROOM [LINKS LIBRARY...] SOURCES FILE...): adds the sources and libraries of an option to a room.
function(npu_train_extend_room room)
  cmake_parse_arguments(PARSE_ARGV 1 of "" "" "LINKS;SOURCES")
  npu_train_target_of(target ${room})
  target_sources(${target} PRIVATE ${of_SOURCES})
  target_link_libraries(${target} PRIVATE ${of_LINKS})
  set_property(TARGET ${target} APPEND PROPERTY NPU_TRAIN_LINKS ${of_LINKS})
endfunction()

# npu_train_add_library(TARGET NAME KIND FLAGS ROOM...): a library of these rooms, which programs link as npu_train::NAME. If KIND is empty,
# BUILD_SHARED_LIBS selects it. FLAGS is what it is linked with: npu_train_flags, or npu_train_plain_flags without libtorch.
function(npu_train_add_library target name kind flags)
  add_library(${target} ${kind})
  set(file npu_train)
  if(NOT name STREQUAL "npu_train")
    set(file npu_train_${name})
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${file} EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${flags}>)
  npu_train_add_objects(${target} ${ARGN})
  set(needs ${NPU_TRAIN_PLAIN_NEEDS})
  if(flags STREQUAL "npu_train_flags")
    target_link_libraries(${target} PUBLIC torch)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;$<TARGET_FILE_DIR:torch>")
    set(needs ${NPU_TRAIN_STATIC_NEEDS})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map LINKER:-z,defs)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  endif()
  if(type STREQUAL "STATIC_LIBRARY")
    target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:${needs}>)
    target_link_options(${target} INTERFACE -Wl,--gc-sections)
    if(NPU_TRAIN_OPENMP AND flags STREQUAL "npu_train_flags")
      target_link_options(${target} INTERFACE $<INSTALL_INTERFACE:-fopenmp>)
    endif()
  endif()
endfunction()

# npu_train_add_tool_library(SUFFIX KIND NAME LINKED ROOM...): the library npu_train::NAME of these rooms of tools. LINKED: the list of the
# libraries that it links in addition to npu_train.
function(npu_train_add_tool_library suffix kind name linked)
  npu_train_add_library(npu_train_${name}${suffix} ${name} "${kind}" npu_train_flags ${ARGN})
  list(TRANSFORM linked PREPEND npu_train_)
  list(TRANSFORM linked APPEND "${suffix}")
  target_link_libraries(npu_train_${name}${suffix} PUBLIC ${linked} npu_train${suffix})
endfunction()

# npu_train_add_libraries(SUFFIX KIND): the library npu_train and those of the tools, all of this kind.
function(npu_train_add_libraries suffix kind)
  npu_train_room_closure(rooms ${NPU_TRAIN_ROOMS})
  set(tools ${rooms})
  list(FILTER tools INCLUDE REGEX "^tools/")
  list(FILTER rooms EXCLUDE REGEX "^tools/")
  npu_train_add_library(npu_train${suffix} npu_train "${kind}" npu_train_flags ${rooms})
  if(NPU_TRAIN_TOOLS)
    set(plain "")
    foreach(room IN LISTS rooms tools)
      npu_train_target_of(target ${room})
      get_target_property(without_libtorch ${target} NPU_TRAIN_WITHOUT_LIBTORCH)
      if(without_libtorch AND NOT room MATCHES "^tools/commands/") # these form the program npu_tool
        list(APPEND plain ${room})
      endif()
    endforeach()
    npu_train_add_library(npu_train_check${suffix} check "${kind}" npu_train_plain_flags ${plain})
    set(align tools/report tools/runs tools/bench/samples tools/align tools/validate)
    set(measure tools/doctor tools/analyze/profile tools/memory tools/plan tools/bench)
    set(migrate tools/scan tools/analyze)
    list(REMOVE_ITEM tools ${align} ${measure} ${migrate})
    npu_train_add_tool_library("${suffix}" "${kind}" align "" ${align})
    npu_train_add_tool_library("${suffix}" "${kind}" measure align ${measure})
    npu_train_add_tool_library("${suffix}" "${kind}" migrate align ${migrate})
    npu_train_add_tool_library("${suffix}" "${kind}" tools "measure;migrate" ${tools})
  endif()
endfunction()

# npu_train_use_pch(NAME): from here on, this folder uses the precompiled header with this name. Each level of optimization needs its own.
macro(npu_train_use_pch name)
  set(NPU_TRAIN_PCH ${name})
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${name} PRIVATE npu_train_flags)
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.hpp)
  target_compile_options(${name} PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endmacro()

# npu_train_unoptimized(): compiles the sources of this folder with -O0, and with a precompiled header for it, in half of the time of -O1.
# It is for folders whose sources only call the library, which does the work.
macro(npu_train_unoptimized)
  add_compile_options(-O0 -U_FORTIFY_SOURCE) # _FORTIFY_SOURCE needs optimization
  if(NOT TARGET npu_train_unoptimized_pch)
    npu_train_use_pch(npu_train_unoptimized_pch)
  endif()
  set(NPU_TRAIN_PCH npu_train_unoptimized_pch)
endmacro()

macro(npu_train_add_rooms)
  npu_train_use_pch(npu_train_pch)

  foreach(room IN LISTS NPU_TRAIN_ROOMS)
    if(room STREQUAL "models")
      add_subdirectory(models)
    else()
      add_subdirectory(src/${room})
    endif()
  endforeach()

  npu_train_add_libraries("" "")
  add_library(npu_train::npu_train ALIAS npu_train)
  if(NPU_TRAIN_TOOLS)
    foreach(name IN ITEMS ${NPU_TRAIN_TOOL_LIBRARIES})
      add_library(npu_train::${name} ALIAS npu_train_${name})
    endforeach()
  endif()
  get_target_property(NPU_TRAIN_KIND npu_train TYPE)
  if(NPU_TRAIN_BUILD_BOTH)
    if(NPU_TRAIN_KIND STREQUAL "SHARED_LIBRARY")
      npu_train_add_libraries(_other STATIC)
    else()
      npu_train_add_libraries(_other SHARED)
    endif()
  endif()
endmacro()
