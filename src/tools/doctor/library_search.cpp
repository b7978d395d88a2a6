#include "tools/doctor/library_search.hpp"

#include <algorithm>
#include <set>

#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

constexpr size_t kMostFiles = 400;

std::string folder_of(const std::string& path) { return path.substr(0, std::max<size_t>(1, path.rfind('/'))); }

// Returns the folders in a file of ld.so.conf and in the files that it includes, one level deep ("include /etc/ld.so.conf.d/*.conf").
std::vector<std::string> configured_folders(const HostView& host, const std::string& file, bool may_include) {
  std::vector<std::string> out;
  for (const auto& line : split(host.read(file, 65536).value_or(""), '\n')) {
    const auto text = trimmed(line.substr(0, line.find('#')));
    if (text.starts_with("/")) out.push_back(text);
    if (!may_include || !text.starts_with("include ")) continue;
    const auto pattern = trimmed(text.substr(8));
    const auto folder = pattern.starts_with("/") ? folder_of(pattern) : "/etc/" + pattern.substr(0, pattern.find('/'));
    for (const auto& name : host.list(folder))
      if (name.ends_with(".conf"))
        for (auto& more : configured_folders(host, folder + "/" + name, false)) out.push_back(std::move(more));
  }
  return out;
}

std::string with_origin(std::string folder, const std::string& origin) {
  for (const char* word : {"${ORIGIN}", "$ORIGIN"})
    for (size_t at = folder.find(word); at != std::string::npos; at = folder.find(word))
      folder.replace(at, std::string_view(word).size(), origin);
  return folder;
}

}  // namespace

LibrarySearch::LibrarySearch(const HostView& host, const std::string& machine, std::vector<std::string> loaded)
    : host_(host), loaded_(std::move(loaded)), first_(library_path(host)), last_(configured_folders(host, "/etc/ld.so.conf", true)) {
  const auto triplet = machine + "-linux-gnu";
  for (const std::string base : {"/lib", "/usr/lib", "/usr/local/lib"}) last_.push_back(base + "/" + triplet);
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) last_.emplace_back(folder);
}

std::string LibrarySearch::find(const std::string& name, const std::string& from, const ElfFacts& facts) const {
  if (name.find('/') != std::string::npos) return host_.exists(name) ? name : "";
  const auto origin = folder_of(host_.resolved(from));
  std::vector<std::string> folders = loaded_;
  if (facts.runpath.empty()) folders.insert(folders.end(), facts.rpath.begin(), facts.rpath.end());
  folders.insert(folders.end(), first_.begin(), first_.end());
  folders.insert(folders.end(), facts.runpath.begin(), facts.runpath.end());
  folders.insert(folders.end(), last_.begin(), last_.end());
  for (const auto& folder : folders) {
    const auto path = with_origin(folder, origin) + "/" + name;
    if (folder.empty() || !host_.exists(path) || host_.is_folder(path)) continue;
    return path;
  }
  return "";
}

std::vector<MissingLibrary> LibrarySearch::missing(const std::string& path) const {
  std::vector<MissingLibrary> out;
  std::vector<std::string> todo = {path};
  std::set<std::string> seen = {path.substr(path.rfind('/') + 1)};
  for (size_t i = 0; i < todo.size() && i < kMostFiles; ++i) {
    std::string why;
    const auto facts = read_elf(host_.path(todo[i]), why);
    if (!facts) continue;  // a linker script or an unreadable file, which the loader will report
    for (const auto& name : facts->needed) {
      if (!seen.insert(name).second) continue;
      const auto found = find(name, todo[i], *facts);
      if (found.empty()) {
        out.push_back({name, todo[i].substr(todo[i].rfind('/') + 1)});
      } else if (std::find(loaded_.begin(), loaded_.end(), folder_of(found)) == loaded_.end()) {
        todo.push_back(found);
      }
    }
  }
  return out;
}

}  // namespace npu_train::detail
