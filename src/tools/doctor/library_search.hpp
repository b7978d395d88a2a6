// Where the loader would find a shared library, without loading it.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/doctor/host_view.hpp"
#include "tools/doctor/elf.hpp"

namespace npu_train::detail {

// A library that is not found, and which one needs it.
struct MissingLibrary {
  std::string name, needed_by;
};

class LibrarySearch {
 public:
  // `loaded` are folders of libraries that the process has already loaded (libtorch's): libraries there are found by name.
  LibrarySearch(const HostView& host, const std::string& machine, std::vector<std::string> loaded);

  // The path of `name` for a library at `from` with `facts`: DT_RPATH without DT_RUNPATH, LD_LIBRARY_PATH, DT_RUNPATH, folders of
  // ld.so.conf, the system's. "" when it is nowhere.
  std::string find(const std::string& name, const std::string& from, const ElfFacts& facts) const;
  std::string find(const std::string& name) const { return find(name, "/", {}); }

  // All that is missing for `path` and for the libraries below it. Of at most 400 files.
  std::vector<MissingLibrary> missing(const std::string& path) const;

 private:
  const HostView& host_;
  std::vector<std::string> loaded_, first_, last_;
};

}  // namespace npu_train::detail
