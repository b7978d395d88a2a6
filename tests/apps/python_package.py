"""Runs cases of the Python package for c_interface_test.py. The last line of its output is the result as JSON."""
import json
import os
import pathlib
import pickle
import signal
import sys
import threading
import time
import weakref

import numpy
import torch

import npu_train


def from_file(config, out):
    """The run of a configuration."""
    events = []
    with npu_train.Trainer(config, f'output.dir={out}') as trainer: result = trainer.fit(on_event=events.append)
    kinds = [e['event'] for e in events]
    frame = result.frame()
    assert list(frame['val/loss']) == [epoch['val']['loss'] for epoch in result['history']] and list(frame['epoch']) == [0, 1, 2]
    return {'result': result, 'steps': kinds.count('step'), 'epochs': kinds.count('epoch'), 'validations': kinds.count('validation')}


def in_parts(config, out):
    """The same run, stopped in the second epoch and continued."""
    seen = []

    def stop(event):
        if event['event'] == 'step': seen.append(event['global_step'])
        return event['event'] == 'step' and event['global_step'] == 25

    with npu_train.Trainer(config, f'output.dir={out}') as trainer: stopped = trainer.fit(on_event=stop)
    with npu_train.Trainer(config, f'output.dir={out}') as trainer:
        path = trainer.resume()
        result = trainer.fit()
    return {'stopped': stopped, 'path': path, 'result': result}


class Squares:
    """A data set as PyTorch's: len() and [i]. Bright images are of class 1."""
    num_classes = 2

    def __init__(self, fail=None): self.fail = fail

    def __len__(self): return 48

    def __getitem__(self, index):
        if index == self.fail: raise KeyError('sample without a label')
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 32, 32, generator=generator) + 2 * (index % 2) - 1.5, index % 2


CONFIG = {'seed': 3, 'device': 'cpu', 'precision': '32-true', 'model': {'name': 'vit_tiny_cifar10', 'depth': 1, 'dim': 32, 'heads': 2, 'patch_size': 8,
          'num_classes': 2}, 'data': {'batch_size': 8, 'num_workers': 2}, 'optimizer': {'name': 'adamw', 'lr': 0.01},
          'trainer': {'max_epochs': 6, 'threads': 1}, 'output': {'dir': ''}}


def own_data():
    """Tensors, numpy arrays and a data set are the same data; predictions are those of the same inputs."""
    data = Squares()
    inputs, targets = torch.stack([data[i][0] for i in range(len(data))]), torch.tensor([data[i][1] for i in range(len(data))])
    outputs = []
    for train in (data, (inputs, targets), (inputs.numpy(), targets.numpy())):
        trainer = npu_train.Trainer(CONFIG)
        trainer.fit(train, train)
        outputs.append(trainer.predict(inputs).numpy())
        assert numpy.array_equal(outputs[-1], torch.from_dlpack(trainer.predict(inputs.numpy())).numpy())
        metrics = trainer.validate()
    flipped = inputs.numpy()[:, :, :, ::-1]
    assert numpy.array_equal(trainer.predict(flipped).numpy(), trainer.predict(flipped.copy()).numpy())
    assert numpy.array_equal(trainer.predict(inputs[:2].tolist()).numpy(), trainer.predict(inputs[:2]).numpy())
    trainer.predict(inputs).__dlpack__()  # releases a capsule that has no consumer
    outputs[0] -= 0  # the outputs can be changed
    read_only = inputs.numpy().copy()
    read_only.flags.writeable = False
    last = trainer.predict(read_only)
    shape = last.shape
    assert numpy.array_equal(outputs[0], last.numpy())
    try:
        last.numpy()
        again = 'allowed'
    except BufferError as error:
        again = str(error)
    return {'equal': all(numpy.array_equal(outputs[0], o) for o in outputs), 'shape': shape, 'metrics': metrics, 'again': again,
            'acc': float((outputs[0].argmax(1) == targets.numpy()).mean() * 100), 'device': 'device: cpu' in trainer.config}


def exceptions():
    """Exceptions in functions of the program are raised unchanged; errors of the library have their code."""
    def caught(function):
        try:
            function()
        except BaseException as error:
            return [type(error).__name__, str(error), getattr(error, 'code', None)]
        return None

    def fail(event): raise ValueError('in an event')

    class Interrupts(Squares):
        """A signal that arrives in the library, not in a function of the event."""
        def __getitem__(self, index):
            if index == 20: os.kill(os.getpid(), signal.SIGINT)
            return super().__getitem__(index)

    class Both(Squares):
        """A sample that fails while events call the trainer."""
        def __getitem__(self, index):
            if index == 40: raise KeyError('in a worker')
            return super().__getitem__(index)

    skipping, both, running = npu_train.Trainer(CONFIG, 'data.on_bad_sample=skip'), npu_train.Trainer(CONFIG), npu_train.Trainer(CONFIG)
    skipped = skipping.fit(Squares(fail=11))['global_step']
    misuse = []
    running.fit(Squares(), on_event=lambda event: misuse.extend(caught(f)[1] for f in (running.close, running.fit)) if not misuse else None)
    trained = npu_train.Trainer(CONFIG)
    trained.fit(Squares())
    return {'sample': caught(lambda: npu_train.Trainer(CONFIG).fit(Squares(fail=11))),
            'event': caught(lambda: npu_train.Trainer(CONFIG).fit(Squares(), on_event=fail)),
            'interrupt': caught(lambda: npu_train.Trainer(CONFIG).fit(Interrupts())), 'handler': signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            'skipped': skipped, 'misuse': misuse, 'twice': caught(lambda: trained.fit(Squares())),
            'kinds': caught(lambda: npu_train.Trainer(CONFIG).fit((torch.zeros(8, 3, 32, 32), torch.zeros(8)), val=Squares())),
            'both': caught(lambda: both.fit(Both(), on_event=lambda event: both.log('a', 1) and None)),
            'pickled': type(pickle.loads(pickle.dumps(npu_train.Error('text', 3)))).__name__,
            'key': caught(lambda: npu_train.Trainer(CONFIG, 'trainer.max_epoch=2')),
            'shape': caught(lambda: npu_train.Trainer(CONFIG).fit((torch.zeros(8, 3, 32, 32), torch.zeros(7, dtype=torch.long)))),
            'checkpoint': caught(lambda: npu_train.Predictor('/none'))}


class Slow(Squares):
    """A data set that loader threads are nearly always reading."""
    def __getitem__(self, index):
        time.sleep(0.01)
        return super().__getitem__(index)


def left_open():
    """Runs that nobody closes: one that failed, and one that trains in a thread. A child of fork() ends too."""
    def fail(event): raise ValueError('in an event')

    global failed, training
    failed, training, started = npu_train.Trainer(CONFIG), npu_train.Trainer(CONFIG), threading.Event()
    try:
        failed.fit(Slow(), on_event=fail)
    except ValueError:
        threading.Thread(target=lambda: training.fit(Slow(), on_event=lambda event: started.set()), daemon=True).start()
    started.wait()
    released = npu_train.Trainer(CONFIG)
    gone = weakref.ref(released)
    try:
        released.fit(Slow(), on_event=fail)
    except ValueError:
        del released
    if (child := os.fork()) == 0: sys.exit(7)
    return {'child': os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 'released': gone() is None}


def predictor(run):
    """The answers for an image of a trained run."""
    answers = npu_train.Predictor(run, 'cpu')
    return {'logits': answers(numpy.zeros((2, 3, 32, 32), numpy.float32)).numpy().tolist(), 'version': npu_train.version()}


if __name__ == '__main__':
    print(json.dumps(globals()[sys.argv[1]](*(pathlib.Path(a) for a in sys.argv[2:])), default=str))
