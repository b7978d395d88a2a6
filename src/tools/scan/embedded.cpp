#include "tools/scan/embedded.hpp"

namespace npu_train::detail::scan {

bool EmbeddedCode::in_one_piece(const Edit& edit) const {
  for (size_t i = edit.begin; i + 1 < edit.begin + edit.length; ++i)
    if (places_[i].end != places_[i + 1].begin) return false;
  return edit.length > 0 || edit.begin > 0;
}

void EmbeddedCode::scan_as_python(FileScan& scan, const IsLocalModule& is_local, Encode encode) const {
  if (code_.empty()) return;
  const SourceFile inner{scan.file().path, Language::Python, code_};
  // inserted text follows the previous byte, in the same piece
  const auto begin_of = [&](const Edit& e) { return e.length > 0 ? places_[e.begin].begin : places_[e.begin - 1].end; };
  for (auto& hit : scan_file(scan.facts(), inner, is_local)) {
    if (hit.begin >= places_.size()) continue;
    const auto last = hit.begin + (hit.length > 0 ? hit.length - 1 : 0);
    bool sound = true;
    for (auto& edit : hit.edits) {
      sound = sound && in_one_piece(edit);
      if (!sound) break;
      const auto begin = begin_of(edit);
      edit = {begin, edit.length > 0 ? places_[edit.begin + edit.length - 1].end - begin : 0, encode(edit.text)};
    }
    if (!sound) hit.edits.clear();
    hit.length = hit.length > 0 ? places_[last].end - places_[hit.begin].begin : 0;
    hit.begin = places_[hit.begin].begin;
    scan.add(std::move(hit));
  }
}

}  // namespace npu_train::detail::scan
