#include "npu_train/data/relabelled.hpp"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_dataset.hpp"

namespace npu_train {
namespace {

constexpr size_t kNamesShown = 8;

using Names = std::vector<std::string>;

Names names_without(const Names& names, const Names& others) {
  Names out;
  for (const auto& name : names)
    if (std::find(others.begin(), others.end(), name) == others.end()) out.push_back(name);
  return out;
}

// Returns the index in `to` of each class of `from`.
std::vector<int64_t> places_of(const Names& from, const Names& to) {
  std::vector<int64_t> out;
  for (const auto& name : from) out.push_back(std::find(to.begin(), to.end(), name) - to.begin());
  return out;
}

struct Relabelling {
  std::vector<int64_t> places;
  Names classes;

  DatasetInfo info(DatasetInfo out) const {
    out.class_names = classes;
    out.num_classes = static_cast<int64_t>(classes.size());
    return out;
  }

  int64_t label(int64_t label) const {
    check(label >= 0 && label < static_cast<int64_t>(places.size()), ErrorKind::Data, "data", "a label is ", label, " of ", places.size(),
          " classes");
    return places[static_cast<size_t>(label)];
  }

  Sample sample(Sample out) const {
    for (auto& [name, value] : out.fields)
      if (name == "target") value = at::scalar_tensor(label(value.item<int64_t>()), at::kLong);
    return out;
  }
};

// A relabelled data set. It derives from `Base`, because the Loader tests for that type.
template <class Base>
class Relabelled : public Base {
 public:
  Relabelled(std::shared_ptr<const Base> data, Relabelling labels) : data_(std::move(data)), labels_(std::move(labels)) {}
  int64_t size() const override { return data_->size(); }
  Sample get(int64_t index) const override { return labels_.sample(data_->get(index)); }
  DatasetInfo info() const override { return labels_.info(data_->info()); }
  std::string where(int64_t index) const override { return data_->where(index); }
  int64_t label(int64_t index) const override {
    const auto label = data_->label(index);
    return label < 0 ? label : labels_.label(label);
  }

 protected:
  std::shared_ptr<const Base> data_;
  Relabelling labels_;
};

class RelabelledImages final : public Relabelled<ImageDataset> {
 public:
  using Relabelled::Relabelled;
  LabelledImage image(int64_t index) const override {
    auto out = data_->image(index);
    if (targets() == 0) {
      out.label = labels_.label(out.label);
      return out;
    }
    std::vector<float> moved(labels_.classes.size());
    for (size_t i = 0; i < out.targets.size(); ++i) moved[static_cast<size_t>(labels_.label(static_cast<int64_t>(i)))] = out.targets[i];
    out.targets = std::move(moved);
    return out;
  }
  int64_t targets() const override { return data_->targets() > 0 ? static_cast<int64_t>(labels_.classes.size()) : 0; }
  bool has_numbers() const override { return data_->has_numbers(); }
};

class RelabelledSequences final : public Relabelled<SequenceDataset> {
 public:
  using Relabelled::Relabelled;
  int64_t padding() const override { return data_->padding(); }
  int64_t longest() const override { return data_->longest(); }
  int64_t shortest_batch() const override { return data_->shortest_batch(); }
  int64_t tokens(int64_t index) const override { return data_->tokens(index); }
};

std::shared_ptr<const Dataset> relabelled(const std::shared_ptr<const Dataset>& data, const Relabelling& labels) {
  if (data == nullptr) return data;
  if (const auto images = std::dynamic_pointer_cast<const ImageDataset>(data)) return std::make_shared<RelabelledImages>(images, labels);
  if (const auto sequences = std::dynamic_pointer_cast<const SequenceDataset>(data))
    return std::make_shared<RelabelledSequences>(sequences, labels);
  return std::make_shared<Relabelled<Dataset>>(data, labels);
}

}  // namespace

std::string difference_of_classes(const Names& here, const Names& there) {
  if (here.empty() || there.empty()) return "";
  std::string out;
  for (const auto& [what, names] : {std::pair("new", names_without(here, there)), std::pair("missing", names_without(there, here))})
    if (!names.empty()) out += (out.empty() ? "" : "; ") + (what + (": " + detail::first_few(names, kNamesShown)));
  return out;
}

DatasetPair in_classes(DatasetPair pair, const Names& classes) {
  const auto info = pair.info();
  const auto& own = info.class_names;
  if (info.num_classes == 0 || own.empty() || classes.empty() || own == classes) return pair;
  const auto unknown = names_without(own, classes);
  check(unknown.empty(), ErrorKind::Data, "data", "the classes ", detail::first_few(unknown, kNamesShown), " are not among the ",
        classes.size(), " of the model: ", detail::first_few(classes, kNamesShown),
        "; hint: rename or remove them, or train a model with these classes");
  check(pair.train_stream == nullptr, ErrorKind::Usage, "data",
        "a stream has other classes than the model: ", difference_of_classes(own, classes));
  // If the data do not have a class, no sample has it. If the data do not have a number, its value is unknown.
  const auto* images = dynamic_cast<const ImageDataset*>(pair.train.get());
  check(images == nullptr || !images->has_numbers() || own.size() == classes.size(), ErrorKind::Data, "data", "the data have the numbers ",
        detail::first_few(own, kNamesShown), ", and the model gives ", detail::first_few(classes, kNamesShown),
        "; allowed: the same names, in any order");
  const Relabelling labels{places_of(own, classes), classes};
  pair.train = relabelled(pair.train, labels);
  pair.val = relabelled(pair.val, labels);
  return pair;
}

}  // namespace npu_train
