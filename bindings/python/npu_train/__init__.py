"""Training with npu_train from Python, through its C interface (bindings/c/npu_train.h).

    import npu_train
    trainer = npu_train.Trainer('configs/quickstart.yaml', 'trainer.max_epochs=2')
    result = trainer.fit(on_event=print)
    result.frame()                       # the epochs as a pandas frame
    logits = trainer.predict(images)     # anything with __dlpack__: numpy, torch, jax ...; see Tensor

A run is that of train_app with the same configuration, to the bit.
"""
import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time
import weakref

from ._library import Error, Tensor, given_tensor, library, numbers, raise_error, taken_text, version
from ._library import dataset as _dataset
from ._library import event_function as _event_function

__all__ = ['Error', 'Predictor', 'Result', 'Tensor', 'Trainer', 'version']


def _text(config):
    """YAML from a path (of a file, or with the name of one), a YAML text, or a mapping."""
    if isinstance(config, dict): return json.dumps(config, ensure_ascii=False, default=_plain)  # JSON is YAML
    if isinstance(config, os.PathLike) or ('\n' not in config and (os.path.exists(config) or config.endswith(('.yaml', '.yml')))):
        with open(config, encoding='utf-8') as file: return file.read()
    return config


def _plain(value):
    """What a configuration has in place of a path or of a number of numpy."""
    return value.item() if hasattr(value, 'item') else os.fspath(value)


def _are_tensors(data): return isinstance(data, (tuple, list)) and len(data) == 2 and hasattr(data[0], '__dlpack__')


class Result(dict):
    """The result of a training: reason, global_step, run_dir, final_val, history ..."""

    def frame(self):
        """The history as a pandas.DataFrame: a row for each epoch, columns such as 'train/loss', 'val/acc1', 'lr'."""
        import pandas
        rows = []
        for epoch in self['history']:
            row = {k: v for k, v in epoch.items() if not isinstance(v, dict)}
            for part in ('train', 'val'): row.update({f'{part}/{k}': v for k, v in epoch[part].items()})
            rows.append(row)
        return pandas.DataFrame(rows)


@contextlib.contextmanager
def _progress():
    """Gives a function for events that shows the steps of each epoch: a bar of tqdm, also in a notebook; lines without tqdm."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        tqdm = None
    bar = tqdm(unit='step') if tqdm else None

    def show(event):
        if event['event'] == 'step' and bar is not None:
            bar.set_postfix({k: f'{v:.4g}' for k, v in event['metrics'].items()}, refresh=False)
            bar.update(1)
        if event['event'] == 'epoch':
            report = event['report']
            metrics = {**{f'train/{k}': v for k, v in report['train'].items()}, **{f'val/{k}': v for k, v in report['val'].items()}}
            line = f"epoch {report['epoch']}: " + ', '.join(f'{k} {v:.4g}' for k, v in metrics.items())
            bar.write(line) if bar is not None else print(line)
    try:
        yield show
    finally:
        if bar is not None: bar.close()


_open = weakref.WeakSet()


def _forget():
    """A child of fork() has the memory of the runs, and not their threads, for which closing would wait."""
    for trainer in list(_open): trainer._trainer = None
    _open.clear()


os.register_at_fork(after_in_child=_forget)


_PATIENCE = 60  # seconds


def _close_all():
    """Closes the runs that are left. Their threads load samples through Python's functions, and a thread that calls Python
    while the interpreter ends takes the process with it."""
    for trainer in list(_open):
        begin = time.monotonic()
        while trainer._calls and time.monotonic() - begin < _PATIENCE:  # the call runs in a thread that nobody waits for
            trainer.stop()
            time.sleep(0.01)
        try:
            trainer.close()
        except RuntimeError as error:  # the call waits for something that never happens
            print(f'npu_train: a run is left open at the end of the process: {error}', file=sys.stderr)


def _weakly(method):
    """Calls the method while its object lives. A run that held itself would be released only by the garbage collector."""
    reference = weakref.WeakMethod(method)
    return lambda argument: (call := reference()) and call(argument)


class Trainer:
    """A run. `config`: a path, YAML, or a dict; `overrides`: texts such as 'trainer.max_epochs=3'."""

    def __init__(self, config, *overrides):
        self._lib, self._keep, self._calls = library(), [], 0
        self._failed, self._of_data, self._functions = None, None, []
        self._trainer = self._lib.new_trainer(_text(config), [str(o) for o in overrides])
        # Receives events even if no function was added: Python runs its signal handlers, for example for Ctrl-C, only in Python code.
        self._receive = _event_function(_weakly(self._send), _weakly(self._note))
        self._call(self._lib.call.npu_train_trainer_on_event, self._receive, None)
        _open.add(self)
        # Registered after torch_npu, which is imported by then, so that runs are closed before torch_npu shuts the devices down.
        atexit.unregister(_close_all)
        atexit.register(_close_all)

    def close(self):
        """Releases the run: its memory, and the lock of its folder. No other call is allowed afterwards."""
        if self._calls: raise RuntimeError('npu_train: a call on this trainer runs; close it when the call has ended')
        trainer, self._trainer = self._trainer, None
        if trainer: self._lib.call.npu_train_trainer_free(trainer)

    def __enter__(self): return self
    def __exit__(self, *_): self.close()
    def __del__(self):
        if getattr(self, '_trainer', None): self.close()

    def _call(self, function, *arguments):
        """Calls a function of the library. An exception of a Python function that it called is raised instead of its error."""
        outer = self._failed, self._of_data  # of the call around this one, which an event may have made
        self._failed = self._of_data = None
        self._calls += 1
        try:
            with self._interruptible(): error = function(self._trainer, *arguments)
            # Ignores the exception of a sample that was skipped (data.on_bad_sample), which does not end the call.
            failed = self._failed or (self._of_data if error else None)
        finally:
            self._calls -= 1
            self._failed, self._of_data = outer
        if failed is not None:
            if error: self._lib.call.npu_train_error_free(error)
            try:
                raise failed
            finally:
                failed = None  # breaks a cycle: the exception's traceback refers to this frame, and so to the trainer
        raise_error(error)

    @contextlib.contextmanager
    def _interruptible(self):
        """Ctrl-C ends the training after the current step, and is raised when the call returns."""
        if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def interrupt(*_):
            self._note(KeyboardInterrupt())
            self.stop()

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _result(self, function, *arguments): return taken_text(lambda place: self._call(function, *arguments, place))

    def _send(self, event): return any([function(event) for function in self._functions])

    def _note(self, exception): self._failed = self._failed or exception

    def _note_data(self, exception): self._of_data = self._of_data or exception

    def set_data(self, train, val=None):
        """Data in place of those of the configuration, once, before the first training: a pair (inputs, targets) of tensors, or an object
        with len() and [i], which gives (input, target). An attribute `num_classes` says that the targets are classes. Both are of one kind."""
        if val is not None and _are_tensors(train) != _are_tensors(val):
            raise TypeError('npu_train: of train and val, one is a pair of tensors and the other a data set; allowed: both of one kind')
        if _are_tensors(train):
            tensors = [*train, *(val if val is not None else (None, None))]
            given = [None if t is None else given_tensor(t) for t in tensors]
            return self._call(self._lib.call.npu_train_trainer_set_tensors, *given)
        sets = [None if d is None else _dataset(d, _weakly(self._note_data)) for d in (train, val)]
        self._keep += [d for d in sets if d is not None]
        self._call(self._lib.call.npu_train_trainer_set_data, *sets)

    def fit(self, train=None, val=None, on_event=None, progress=False):
        """Trains. `train`, `val`: see set_data. `on_event`: a function that receives each event as a dict and may return True to stop.
        `progress`: show it."""
        if train is not None: self.set_data(train, val)
        with _progress() if progress else contextlib.nullcontext() as show:
            before = self._functions
            self._functions = [function for function in (on_event, show) if function is not None]
            try:
                return Result(numbers(self._result(self._lib.call.npu_train_trainer_fit)))
            finally:
                self._functions = before

    def stop(self):
        """Ends fit() after the current step, with a checkpoint. May be called from any thread."""
        self._lib.call.npu_train_trainer_request_stop(self._trainer)

    def resume(self, which='auto'):
        """Continues from a checkpoint: 'auto', 'last', 'best' or a path. Returns its path, '' if auto found none."""
        return self._result(self._lib.call.npu_train_trainer_resume, os.fsencode(which))

    def save(self): return self._result(self._lib.call.npu_train_trainer_save)

    def validate(self): return numbers(self._result(self._lib.call.npu_train_trainer_validate))

    def predict(self, inputs):
        """The model's first output for inputs [N, ...], as a Tensor (fp32)."""
        return Tensor.result(lambda place: self._call(self._lib.call.npu_train_trainer_predict, given_tensor(inputs), place))

    def log(self, name, value, step=None):
        """Logs a number for a step: by default those taken so far; an event should pass its global_step."""
        self._call(self._lib.call.npu_train_trainer_log, name.encode(), float(value), -1 if step is None else int(step))

    @property
    def config(self):
        """The configuration with all defaults, as YAML."""
        return self._result(self._lib.call.npu_train_trainer_config)


class Predictor:
    """The model of a checkpoint, of its checkpoints/ folder or of a run's folder."""

    def __init__(self, checkpoint, device='auto'):
        self._lib = library()
        self._predictor = self._lib.new_predictor(os.fsencode(checkpoint), device.encode())

    def __del__(self):
        if getattr(self, '_predictor', None): self._lib.call.npu_train_predictor_free(self._predictor)

    def __call__(self, inputs):
        """The first output for prepared inputs [N, ...], as a Tensor (fp32)."""
        call = self._lib.call.npu_train_predictor_predict
        return Tensor.result(lambda place: raise_error(call(self._predictor, given_tensor(inputs), place)))

    def classify(self, image, top=5):
        """[{'class': 3, 'name': 'cat', 'probability': 0.9}, ...] for an image file, best first."""
        call = self._lib.call.npu_train_predictor_classify
        return json.loads(taken_text(lambda place: raise_error(call(self._predictor, os.fsencode(image), top, place))))
