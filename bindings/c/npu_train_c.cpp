#include "npu_train.h"

#include <ATen/DLConvertor.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/engine/predictor.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_files.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"

using namespace npu_train;

struct npu_train_error {
  int code;
  std::string message;
};

namespace {

/// Releases a tensor that was passed but not converted.
struct Release {
  void operator()(DLManagedTensor* tensor) const {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};
using Given = std::unique_ptr<DLManagedTensor, Release>;

at::Tensor tensor_of(Given given, const char* what) {
  check(given != nullptr, ErrorKind::Usage, "npu_train", what, " is NULL");
  const auto& t = given->dl_tensor;
  constexpr int kMostDimensions = 64;
  check(t.ndim >= 0 && t.ndim <= kMostDimensions && (t.ndim == 0 || t.shape != nullptr), ErrorKind::Usage, "npu_train", what, " has ",
        t.ndim, " dimensions; allowed: 0 to ", kMostDimensions, ", with a shape");
  // Checks the strides, because libtorch would end the process for strides that it does not support.
  const bool strided = t.ndim > 0 && t.strides != nullptr;
  int64_t elements = 1, last = 0;  // number of elements, and offset of the last one
  bool fits = true;
  for (int i = 0; i < t.ndim; ++i) {
    check(t.shape[i] >= 0, ErrorKind::Usage, "npu_train", what, " has the size ", t.shape[i], " in dimension ", i);
    check(!strided || t.strides[i] >= 0, ErrorKind::Usage, "npu_train", what, " has the stride ", strided ? t.strides[i] : 0,
          " in dimension ", i, "; allowed: at least 0; hint: copy a flipped tensor first");
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(elements, t.shape[i], &elements) &&
           !__builtin_mul_overflow(strided ? t.strides[i] : 1, std::max<int64_t>(t.shape[i], 1) - 1, &reach) &&
           !__builtin_add_overflow(last, reach, &last);
  }
  constexpr int64_t kMostElements = int64_t{1} << 56;
  check(fits && elements <= kMostElements && last <= kMostElements, ErrorKind::Usage, "npu_train", what, " is larger than any memory");
  check(elements == 0 || t.data != nullptr, ErrorKind::Usage, "npu_train", what, " has no memory (data is NULL)");
  auto tensor = at::fromDLPack(given.get());
  given.release();  // from here on, the tensor calls the deleter
  return tensor;
}

std::string text_of(const char* text, const char* what) {
  check(text != nullptr, ErrorKind::Usage, "npu_train", what, " is NULL");
  return text;
}

void give_text(char** to, const std::string& text) {
  if (to == nullptr) return;
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *to = copy;
}

/// Returns the error that is reported if there is no memory for a new one. It is never freed.
npu_train_error& no_memory() {
  static npu_train_error error{static_cast<int>(ErrorKind::OutOfMemory), "[npu_train] out of memory"};
  return error;
}

npu_train_error* new_error(int code, const char* message) noexcept {
  try {
    return new npu_train_error{code, message};
  } catch (...) {
    return &no_memory();
  }
}

/// Runs `body`. Returns nullptr, or its exception as an error.
template <class Fn>
npu_train_error* guarded(Fn&& body) noexcept {
  try {
    no_memory();  // constructs the error while there is memory
    translated("npu_train", body);
    return nullptr;
  } catch (const Error& e) {
    return new_error(e.exit_code(), e.what());
  } catch (...) {
    return new_error(static_cast<int>(ErrorKind::Internal), "[npu_train] an exception of unknown type");
  }
}

/// Version that programs read from the file before they load the library.
constexpr char kBuiltWith[] = "npu_train built with libtorch " TORCH_VERSION;

Json document_of(const RunResult& r) {
  auto history = Json::array();
  for (const auto& epoch : r.history) history.push_back(to_json(epoch, ""));
  return Json::object({{"reason", stop_reason_name(r.reason)},
                       {"global_step", r.global_step},
                       {"skipped_steps", r.skipped_steps},
                       {"run_dir", r.run_dir},
                       {"last_checkpoint", r.last_checkpoint},
                       {"best_checkpoint", r.best_checkpoint},
                       {"final_val", to_json(r.final_val)},
                       {"history", std::move(history)}});
}

/// A data set whose samples come from a function of the program.
class CallbackDataset final : public Dataset {
 public:
  explicit CallbackDataset(const npu_train_dataset& given) : given_(given) {
    check(given.get != nullptr, ErrorKind::Usage, "npu_train", "npu_train_dataset.get is NULL");
    check(given.size > 0, ErrorKind::Usage, "npu_train", "npu_train_dataset.size is ", given.size, "; allowed: at least 1");
    check(given.num_classes >= 0, ErrorKind::Usage, "npu_train", "npu_train_dataset.num_classes is ", given.num_classes,
          "; allowed: at least 0");
  }
  int64_t size() const override { return given_.size; }
  Sample get(int64_t index) const override {
    DLManagedTensor *input = nullptr, *target = nullptr;
    const int failed = given_.get(given_.user, index, &input, &target);
    Given own_input(input), own_target(target);
    check(failed == 0, ErrorKind::Data, "npu_train", "the program's function returned ", failed, " for sample ", index);
    return {{{"input", tensor_of(std::move(own_input), "the input of a sample")},
             {"target", tensor_of(std::move(own_target), "the target of a sample")}},
            index};
  }
  DatasetInfo info() const override {
    DatasetInfo out;
    out.num_classes = given_.num_classes;
    return out;
  }

 private:
  npu_train_dataset given_;
};

/// Sends the events of a loop to the program.
class Events final : public Callback {
 public:
  Events(npu_train_event_function function, void* user) : function_(function), user_(user) {}
  void on_step_end(TrainLoop& loop, const StepReport& r) override {
    send(loop, Json::object({{"event", "step"},
                             {"global_step", r.global_step},
                             {"epoch", r.epoch},
                             {"taken", r.taken},
                             {"metrics", to_json(r.measured())},
                             {"lr", r.lr},
                             {"loss_scale", r.loss_scale},
                             {"grad_norm", r.grad_norm},
                             {"samples", r.samples},
                             {"seconds", r.seconds}}));
  }
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override {
    send(loop, Json::object({{"event", "validation"}, {"global_step", loop.global_step()}, {"metrics", to_json(metrics)}}));
  }
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override {
    send(loop, Json::object({{"event", "epoch"}, {"report", to_json(report, "")}}));
  }
  void on_checkpoint(TrainLoop& loop, const std::string& path) override {
    send(loop, Json::object({{"event", "checkpoint"}, {"path", path}}));
  }

 private:
  void send(TrainLoop& loop, const Json& event) {
    if (function_(event.dump(0).c_str(), user_) != 0) loop.request_stop();
  }
  npu_train_event_function function_;
  void* user_;
};

}  // namespace

struct npu_train_trainer {
  Trainer trainer;
  std::atomic<bool> busy{false};  // true while a call runs
  bool built = false;             // the data were set, or the run was built with the configuration's data
};

struct npu_train_predictor {
  Predictor predictor;
};

namespace {

Trainer& of(npu_train_trainer* trainer) {
  check(trainer != nullptr, ErrorKind::Usage, "npu_train", "the trainer is NULL");
  return trainer->trainer;
}

const Predictor& of(npu_train_predictor* predictor) {
  check(predictor != nullptr, ErrorKind::Usage, "npu_train", "the predictor is NULL");
  return predictor->predictor;
}

/// Reads a configuration. A section `data` without a name has only options, such as batch_size, for data of the program.
RunConfig config_of(ConfigNode node) {
  const auto* data = node.find("data");
  if (data == nullptr || !data->is_map() || data->find("name") != nullptr) return bind_config(node);
  const auto options = *data;
  node.erase("data");
  auto out = bind_config(node);
  out.data.options = options;
  return out;
}

/// Admits one call on a trainer at a time. Otherwise, a call from an event could replace objects that the running loop uses.
class Use {
 public:
  explicit Use(npu_train_trainer* trainer) : trainer_(trainer) {
    of(trainer);
    check(!trainer->busy.exchange(true), ErrorKind::Usage, "npu_train",
          "a call on this trainer runs, in another thread or around this event; allowed meanwhile: log, config and request_stop");
  }
  ~Use() { trainer_->busy = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  /// Returns the trainer for a call that builds the run.
  Trainer& build() {
    trainer_->built = true;
    return trainer_->trainer;
  }
  /// Returns the trainer for a call that sets the data. Error(Usage) if the run has data already.
  Trainer& set_data() {
    check(!trainer_->built, ErrorKind::Usage, "npu_train",
          "the run has its data already; they are set once, before the first training, validation, resume or prediction; hint: a new "
          "trainer, "
          "which resumes from a checkpoint of this one");
    return build();
  }
  Trainer& trainer() { return trainer_->trainer; }

 private:
  npu_train_trainer* trainer_;
};

template <class Result>
void check_place(Result** result) {
  check(result != nullptr, ErrorKind::Usage, "npu_train", "the place for the result is NULL");
}

}  // namespace

int npu_train_abi(void) { return NPU_TRAIN_ABI; }
const char* npu_train_version(void) { return NPU_TRAIN_VERSION; }
const char* npu_train_torch_version(void) { return std::strrchr(kBuiltWith, ' ') + 1; }

int npu_train_error_code(const npu_train_error* error) { return error == nullptr ? 0 : error->code; }
const char* npu_train_error_message(const npu_train_error* error) { return error == nullptr ? "" : error->message.c_str(); }
void npu_train_error_free(npu_train_error* error) {
  if (error != &no_memory()) delete error;
}
void npu_train_text_free(char* text) { std::free(text); }

void npu_train_set_log(npu_train_log_function function, void* user) {
  set_log_sink(function == nullptr ? LogSink() : [function, user](LogLevel level, std::string_view message) {
    function(static_cast<int>(level), std::string(message).c_str(), user);
  });
}

npu_train_error* npu_train_trainer_new(const char* config, const char* const* overrides, size_t count, npu_train_trainer** trainer) {
  return guarded([&] {
    check_place(trainer);
    check(overrides != nullptr || count == 0, ErrorKind::Usage, "npu_train", "overrides is NULL, and count ", count);
    auto node = parse_yaml(text_of(config, "config"), "config");
    for (size_t i = 0; i < count; ++i) apply_override(node, text_of(overrides[i], "an override"));
    *trainer = new npu_train_trainer{.trainer = Trainer(config_of(std::move(node)))};
  });
}

void npu_train_trainer_free(npu_train_trainer* trainer) {
  npu_train_error_free(guarded([&] { delete trainer; }));
}

npu_train_error* npu_train_trainer_set_tensors(npu_train_trainer* trainer, DLManagedTensor* inputs, DLManagedTensor* targets,
                                               DLManagedTensor* val_inputs, DLManagedTensor* val_targets) {
  return guarded([&, x = Given(inputs), y = Given(targets), val_x = Given(val_inputs), val_y = Given(val_targets)]() mutable {
    Use use(trainer);
    check((val_x == nullptr) == (val_y == nullptr), ErrorKind::Usage, "npu_train", "one of val_inputs and val_targets is NULL");
    const auto train = std::make_shared<TensorDataset>(tensor_of(std::move(x), "inputs"), tensor_of(std::move(y), "targets"));
    std::shared_ptr<const Dataset> val;
    if (val_x != nullptr)
      val = std::make_shared<TensorDataset>(tensor_of(std::move(val_x), "val_inputs"), tensor_of(std::move(val_y), "val_targets"));
    use.set_data().setup(nullptr, train, val);
  });
}

npu_train_error* npu_train_trainer_set_data(npu_train_trainer* trainer, const npu_train_dataset* train, const npu_train_dataset* val) {
  return guarded([&] {
    Use use(trainer);
    check(train != nullptr, ErrorKind::Usage, "npu_train", "train is NULL");
    const auto own = std::make_shared<CallbackDataset>(*train);
    use.set_data().setup(nullptr, own, val == nullptr ? nullptr : std::make_shared<CallbackDataset>(*val));
  });
}

npu_train_error* npu_train_trainer_on_event(npu_train_trainer* trainer, npu_train_event_function function, void* user) {
  return guarded([&] {
    check(function != nullptr, ErrorKind::Usage, "npu_train", "the function for events is NULL");
    Use(trainer).trainer().add_callback(std::make_shared<Events>(function, user));
  });
}

npu_train_error* npu_train_trainer_fit(npu_train_trainer* trainer, char** result) {
  return guarded([&] { give_text(result, document_of(Use(trainer).build().fit()).dump(0)); });
}

void npu_train_trainer_request_stop(npu_train_trainer* trainer) {
  if (trainer != nullptr) trainer->trainer.request_stop();
}

npu_train_error* npu_train_trainer_resume(npu_train_trainer* trainer, const char* which, char** path) {
  return guarded([&] { give_text(path, Use(trainer).build().resume(text_of(which, "which"))); });
}

npu_train_error* npu_train_trainer_save(npu_train_trainer* trainer, char** path) {
  return guarded([&] { give_text(path, Use(trainer).build().save_checkpoint()); });
}

npu_train_error* npu_train_trainer_validate(npu_train_trainer* trainer, char** metrics) {
  return guarded([&] { give_text(metrics, to_json(Use(trainer).build().validate()).dump(0)); });
}

npu_train_error* npu_train_trainer_predict(npu_train_trainer* trainer, DLManagedTensor* input, DLManagedTensor** output) {
  return guarded([&, given = Given(input)]() mutable {
    check_place(output);
    *output = at::toDLPack(Use(trainer).build().predict(tensor_of(std::move(given), "input")));
  });
}

npu_train_error* npu_train_trainer_log(npu_train_trainer* trainer, const char* name, double value, int64_t step) {
  return guarded([&] { of(trainer).log(text_of(name, "name"), value, step == -1 ? std::nullopt : std::optional(step)); });
}

npu_train_error* npu_train_trainer_config(npu_train_trainer* trainer, char** yaml) {
  return guarded([&] { give_text(yaml, to_yaml(resolved(of(trainer).config()))); });
}

npu_train_error* npu_train_predictor_new(const char* checkpoint, const char* device, npu_train_predictor** predictor) {
  return guarded([&] {
    check_place(predictor);
    *predictor = new npu_train_predictor{Predictor::from_checkpoint(text_of(checkpoint, "checkpoint"), text_of(device, "device"))};
  });
}

void npu_train_predictor_free(npu_train_predictor* predictor) {
  npu_train_error_free(guarded([&] { delete predictor; }));
}

npu_train_error* npu_train_predictor_predict(npu_train_predictor* predictor, DLManagedTensor* input, DLManagedTensor** output) {
  return guarded([&, given = Given(input)]() mutable {
    check_place(output);
    *output = at::toDLPack(of(predictor)(tensor_of(std::move(given), "input")));
  });
}

npu_train_error* npu_train_predictor_classify(npu_train_predictor* predictor, const char* image, int64_t top, char** answers) {
  return guarded([&] {
    check(top > 0, ErrorKind::Usage, "npu_train", "top is ", top, "; allowed: at least 1");
    auto out = Json::array();
    for (const auto& answer : of(predictor).classify(text_of(image, "image"), top))
      out.push_back(Json::object({{"class", answer.label}, {"name", answer.name}, {"probability", answer.probability}}));
    give_text(answers, out.dump(0));
  });
}
