#include "npu_train/data/documents.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char* kDocuments = "documents";
constexpr int64_t kTokensAtOnceOfScan = int64_t{1} << 18;

}  // namespace

TokenDocuments::TokenDocuments(std::vector<TokenFile> files, const DocumentRules& rules)
    : files_(std::make_shared<const std::vector<TokenFile>>(std::move(files))),
      rules_(rules),
      places_(std::make_shared<std::vector<Place>>()) {
  rules_.check();
  check(!files_->empty(), ErrorKind::Data, kDocuments, "no files of tokens");
  for (size_t i = 0; i < files_->size(); ++i) scan(static_cast<int32_t>(i));
  size_ = static_cast<int64_t>(places_->size());
  const auto omitted = counts_.str(rules_.context);
  check(size_ > 0, ErrorKind::Data, kDocuments, files_->front().path(), ": no document remains", omitted.empty() ? "" : "; " + omitted);
}

void TokenDocuments::scan(int32_t number) {
  const auto& file = (*files_)[static_cast<size_t>(number)];
  std::vector<int64_t> tokens;
  int64_t first = 0;  // first token of the current document
  bool unknown = false;
  const auto ends = [&](int64_t end, bool ended) {
    unknown ? void(++counts_.unknown_tokens) : add(number, first, end, ended);
    first = end, unknown = false;
  };
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(tokens.size())) {
    tokens.resize(static_cast<size_t>(std::min(kTokensAtOnceOfScan, file.size() - at)));
    file.read(at, static_cast<int64_t>(tokens.size()), tokens.data());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto here = at + static_cast<int64_t>(i);
      if (rules_.vocab_size > 0 && tokens[i] >= rules_.vocab_size) {
        check(rules_.skip_bad, ErrorKind::Data, kDocuments, file.path(), ": token ", here, " is ", tokens[i], "; allowed: 0 to ",
              rules_.vocab_size - 1, " (data.vocab_size - 1); hint: use the vocabulary that made the file, or correct data.dtype");
        unknown = true;
      }
      if (tokens[i] == rules_.end_token) ends(here + 1, true);
    }
  }
  if (first < file.size()) ends(file.size(), false);
}

// Adds the document of tokens [first, end). `ended`: its last token is end_token.
void TokenDocuments::add(int32_t number, int64_t first, int64_t end, bool ended) {
  const auto& file = (*files_)[static_cast<size_t>(number)];
  if (ended && end - first == 1) {
    check(rules_.skip_bad, ErrorKind::Data, kDocuments, file.path(), ": the document at token ", first,
          " is empty; hint: data.on_bad_sample=skip omits such documents and counts them");
    ++counts_.empty;
    return;
  }
  const int64_t room = rules_.context - (rules_.begin_token >= 0 ? 1 : 0), count = end - first;
  if (count <= room) {
    places_->push_back({number, false, first, count});
  } else if (rules_.long_documents == "truncate") {
    ++counts_.truncated;
    places_->push_back({number, true, first, room});
  } else if (rules_.long_documents == "split") {
    ++counts_.split;
    for (int64_t at = first; at < end; at += room) places_->push_back({number, false, at, std::min(room, end - at)});
  } else {
    check(rules_.skip_bad, ErrorKind::Data, kDocuments, file.path(), ": the document at token ", first, " has ",
          count + rules_.context - room, " tokens; allowed: at most ", rules_.context,
          " (data.context); hint: data.long_documents=truncate or split");
    ++counts_.long_ones;
  }
}

Sample TokenDocuments::get(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, kDocuments, "sample ", index, " of ", size_);
  const auto& place = (*places_)[static_cast<size_t>(first_ + index)];
  const int64_t begins = rules_.begin_token >= 0 ? 1 : 0;
  at::Tensor tokens = at::empty({begins + place.count}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  if (begins > 0) *out = rules_.begin_token;
  (*files_)[static_cast<size_t>(place.file)].read(place.first, place.count, out + begins);
  if (place.truncated) out[begins + place.count - 1] = rules_.end_token;
  return {{{"input", std::move(tokens)}}, index};
}

int64_t TokenDocuments::tokens(int64_t index) const {
  return places_->at(static_cast<size_t>(first_ + index)).count + (rules_.begin_token >= 0 ? 1 : 0);
}

DatasetInfo TokenDocuments::info() const {
  DatasetInfo out;
  out.name = kDocuments;
  return out;
}

std::string TokenDocuments::where(int64_t index) const {
  const auto& place = (*places_)[static_cast<size_t>(first_ + index)];
  return (*files_)[static_cast<size_t>(place.file)].path() + ", tokens " + std::to_string(place.first) + " to " +
         std::to_string(place.first + place.count - 1);
}

std::shared_ptr<TokenDocuments> TokenDocuments::part(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 0 && first <= size_ - count, ErrorKind::Usage, kDocuments, "samples ", first, " to ", first + count, " of ",
        size_);
  auto out = std::make_shared<TokenDocuments>(*this);
  out->first_ += first;
  out->size_ = count;
  return out;
}

}  // namespace npu_train
